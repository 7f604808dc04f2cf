"""Every filter and their order, against the slow definition in ``naive_sampling.py`` and by their properties."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.naive_sampling import Naive

from cabochon.ops import numerics
from cabochon.sampling import filters
from cabochon.sampling.history import History
from cabochon.sampling.sampler import sample
from cabochon.types import Float32, SamplingParams

VOCAB = 24
ALL = SamplingParams(top_k=0, top_p=1.0, seed=7)
NEAR = 2e-5
"""Closer to a border than this, binary32 and binary64 may differ."""


def random_row(seed: int, size: int = VOCAB) -> Float32:
    """Logits; with an odd seed there are ties among them."""
    row = np.random.default_rng(seed).normal(0, 3, size)
    return (np.round(row * 2) / 2 if seed % 2 else row).astype(np.float32)


def choose(logits: Float32, params: SamplingParams, position: int) -> int:
    """The id for a position, in a text that no parameter looks at."""
    return sample(logits, params, History(range(position), 0), len(logits)).token.token_id


seeds = st.integers(0, 2**32 - 1)
rows = st.builds(random_row, seeds, st.integers(1, VOCAB))
few = st.integers(0, 3)

params_of = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.9]),
    top_k=st.sampled_from([0, 1, 3, 9, 64]),
    top_p=st.sampled_from([1.0, 0.95, 0.6, 0.1]),
    min_p=st.sampled_from([0.0, 0.0, 0.07, 0.5]),
    typical_p=st.sampled_from([1.0, 1.0, 0.9, 0.4]),
    xtc_probability=st.sampled_from([0.0, 0.5, 1.0]),
    xtc_threshold=st.sampled_from([0.0, 0.07, 0.3]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    presence_penalty=st.sampled_from([0.0, 0.6, -0.4]),
    frequency_penalty=st.sampled_from([0.0, 0.5, -0.3]),
    penalty_last_n=st.sampled_from([0, 1, 5, 400]),
    logit_bias=st.sampled_from([(), ((0, 3.5),), ((1, -6.0), (5, 2.25))]),
    dry_multiplier=st.sampled_from([0.0, 0.8]),
    dry_base=st.sampled_from([1.0, 1.75]),
    dry_allowed_length=st.integers(1, 3),
    dry_penalty_last_n=st.sampled_from([0, 6, 400]),
    dry_sequence_breakers=st.frozensets(few, max_size=2),
    bad_words=st.lists(st.lists(few, min_size=1, max_size=3).map(tuple), max_size=2).map(tuple),
    order=st.sampled_from(["cabochon", "gemma_pytorch"]),
    choice=st.sampled_from([0, 1, 2**31 - 1]),
    seed=st.integers(0, 2**64 - 1),
)


@given(seed=seeds, params=params_of, ids=st.lists(few, max_size=40), prompt=st.integers(0, 40))
@settings(max_examples=400, deadline=None)
def test_a_token_is_that_of_the_definition(seed: int, params: SamplingParams, ids: list[int], prompt: int) -> None:
    logits = random_row(seed)
    history = History(ids, min(prompt, len(ids)))
    xtc_u = numerics.uniform(params.seed, len(ids), params.choice + 2**31)
    naive = Naive(logits.tolist(), params, ids, history.prompt, xtc_u=xtc_u)
    expected = naive.draw(numerics.uniform(params.seed, len(ids), params.choice))
    assume(naive.margin > NEAR)
    assume(not any(0 < abs(a - b) < NEAR for a, b in itertools.pairwise(sorted(naive.logits))))
    before = logits.copy()
    assert sample(logits, params, history, VOCAB).token.token_id == expected
    np.testing.assert_array_equal(logits, before)


@given(seed=seeds, params=params_of, ids=st.lists(few, max_size=30))
@settings(max_examples=150, deadline=None)
def test_renaming_ids_renames_what_is_drawn(seed: int, params: SamplingParams, ids: list[int]) -> None:
    """Ids are names: but for ties, nothing depends on their order."""
    logits = random_row(seed & ~1)
    name = np.random.default_rng(seed).permutation(VOCAB).tolist()
    renamed = replace(
        params,
        logit_bias=tuple((name[i], bias) for i, bias in params.logit_bias),
        dry_sequence_breakers=frozenset(name[i] for i in params.dry_sequence_breakers),
        bad_words=tuple(tuple(name[i] for i in word) for word in params.bad_words),
    )
    row = np.empty_like(logits)
    row[name] = logits
    chosen = sample(logits, params, History(ids, 2), VOCAB).token.token_id
    assert sample(row, renamed, History([name[i] for i in ids], 2), VOCAB).token.token_id == name[chosen]


def left(row: Float32, t: float = 1.0) -> filters.Candidates:
    return filters.temperature(filters.candidates(row), t)


@given(logits=rows, p=st.sampled_from([1e-30, 0.2, 0.5, 0.9, 1.0]), t=st.sampled_from([1e-300, 0.5, 1.0, 1e300]))
@settings(max_examples=200, deadline=None)
def test_each_filter_leaves_some_in_order_and_none_twice(logits: Float32, p: float, t: float) -> None:
    c = left(logits, t)
    for after in (
        filters.top_p(c, p),
        filters.top_p_of_gemma_pytorch(c, p),
        filters.typical(c, p),
        filters.min_p(c, min(p, 0.99)),
        filters.xtc(c, p, 1.0, 0.5),
        filters.top_p(filters.xtc(filters.typical(c, p), 0.1, 1.0, 0.5), p),
    ):
        assert len(after.ids) >= 1
        assert set(after.ids.tolist()) <= set(c.ids.tolist())
        places = [c.ids.tolist().index(i) for i in after.ids.tolist()]
        assert places == sorted(places)
        assert after.logits.tolist() == c.logits[places].tolist()
        assert filters.weights(after)[0] == 1
        assert filters.draw(after, 0.999) in after.ids


@given(logits=rows, k=st.integers(0, 30), p=st.sampled_from([0.05, 0.3, 0.9]))
@settings(max_examples=100, deadline=None)
def test_top_k_and_min_p_do_nothing_twice(logits: Float32, k: int, p: float) -> None:
    c = left(logits)
    once = filters.top_k(c, k)
    assert filters.top_k(once, k).ids.tolist() == once.ids.tolist()
    once = filters.min_p(c, p)
    assert filters.min_p(once, p).ids.tolist() == once.ids.tolist()


def test_off_is_off() -> None:
    c = left(np.random.default_rng(1).normal(0, 9, 500).astype(np.float32))
    for same in (
        filters.top_k(c, 0),
        filters.top_p(c, 1.0),
        filters.top_p_of_gemma_pytorch(c, 1.0),
        filters.typical(c, 1.0),
        filters.min_p(c, 0.0),
        filters.xtc(c, 0.0, 0.0, 1e-9),
    ):
        assert same.ids.tolist() == c.ids.tolist()


# ---- Top-p in gemma_pytorch's way -------------------------------------------------------------------------------


def test_top_p_of_gemma_pytorch_is_measured_before_top_k() -> None:
    """Shares .4 .2 .15 .15 .1 with p = .5 and k = 2 leave two there, and one where top-k comes first."""
    logits = np.log(np.array([0.4, 0.2, 0.15, 0.15, 0.1])).astype(np.float32)
    params = replace(ALL, top_p=0.5, top_k=2)
    drawn = {choose(logits, replace(params, order="gemma_pytorch"), position) for position in range(300)}
    assert drawn == {0, 1}
    assert {choose(logits, params, position) for position in range(300)} == {0}


def test_the_two_ways_of_top_p_differ_where_a_share_is_exactly_p() -> None:
    c = left(np.zeros(4, np.float32))
    assert filters.top_p(c, 0.5).ids.tolist() == [0, 1]
    assert filters.top_p_of_gemma_pytorch(c, 0.5).ids.tolist() == [0, 1, 2]
    assert filters.top_p_of_gemma_pytorch(c, 0.49).ids.tolist() == [0, 1]
    assert filters.top_p_of_gemma_pytorch(c, 1e-30).ids.tolist() == [0]


# ---- Typical ----------------------------------------------------------------------------------------------------


def test_typical_may_remove_the_most_probable() -> None:
    """One candidate of probability 2/5 and 200 of 3/1000: the many are nearer to the entropy."""
    logits = np.array([math.log(0.4)] + [math.log(0.003)] * 200, np.float32)
    assert filters.typical(left(logits), 0.2999).ids.tolist() == list(range(1, 101))
    assert filters.typical(left(logits), 0.7).ids.tolist() == list(range(201))


def test_typical_is_before_top_p_and_in_gemma_pytorchs_order_after_it() -> None:
    """Of these, top-p leaves the most probable; typical removes it, unless it is alone with few others."""
    logits = np.array([math.log(0.4)] + [math.log(0.003)] * 200, np.float32)
    params = replace(ALL, typical_p=0.2999, top_p=0.5)
    drawn = {choose(logits, params, position) for position in range(1500)}
    assert drawn == set(range(1, 51))
    assert {choose(logits, replace(params, order="gemma_pytorch"), position) for position in range(200)} == {0}


def test_typical_of_equally_probable_keeps_the_first() -> None:
    assert filters.typical(left(np.zeros(8, np.float32)), 0.5).ids.tolist() == [0, 1, 2, 3]
    assert filters.typical(left(np.zeros(8, np.float32)), 0.51).ids.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.filterwarnings("error")
def test_candidates_without_weight_are_not_typical() -> None:
    c = left(np.array([3e38, 3e38, -3e38, 0], np.float32), 1e-3)
    assert not np.isfinite(c.logits).all()
    assert filters.typical(c, 0.9).ids.tolist() == [0, 1]


# ---- XTC --------------------------------------------------------------------------------------------------------


def test_xtc_keeps_the_least_probable_above_its_threshold() -> None:
    c = left(np.log(np.array([0.4, 0.3, 0.2, 0.1])).astype(np.float32))
    assert filters.xtc(c, 0.15, 1.0, 0.7).ids.tolist() == [2, 3]
    assert filters.xtc(c, 0.35, 1.0, 0.7).ids.tolist() == [0, 1, 2, 3]
    assert filters.xtc(c, 0.9, 1.0, 0.7).ids.tolist() == [0, 1, 2, 3]
    assert filters.xtc(c, 0.0, 1.0, 0.7).ids.tolist() == [3]
    assert filters.xtc(c, 0.15, 0.7, 0.7).ids.tolist() == [0, 1, 2, 3]
    assert filters.xtc(c, 0.15, 0.70001, 0.7).ids.tolist() == [2, 3]


def test_xtc_happens_as_often_as_asked_whatever_is_drawn() -> None:
    """Its random numbers are no draw's: that it happened says nothing of what is drawn then."""
    logits = np.zeros(4, np.float32)
    params = replace(ALL, xtc_probability=0.25, xtc_threshold=0.1)
    counts = Counter(choose(logits, params, position) for position in range(4000))
    # Without it each has 1/4 of three quarters; with it the last has the rest.
    for i, expected in enumerate([0.1875, 0.1875, 0.1875, 0.4375]):
        assert counts[i] / 4000 == pytest.approx(expected, abs=0.03)


# ---- Choices ----------------------------------------------------------------------------------------------------


def test_choices_of_one_seed_are_different_draws() -> None:
    logits = np.random.default_rng(3).normal(0, 1, 300).astype(np.float32)
    texts = [[choose(logits, replace(ALL, choice=choice), at) for at in range(30)] for choice in (0, 1, 2)]
    assert len({tuple(text) for text in texts}) == 3
    assert texts[0] == [choose(logits, ALL, at) for at in range(30)]

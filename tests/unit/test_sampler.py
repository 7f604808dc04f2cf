from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cabochon.errors import NumericError, UsageError
from cabochon.ops import numerics
from cabochon.sampling import filters
from cabochon.sampling.history import History
from cabochon.sampling.params import checked
from cabochon.sampling.sampler import best_token, sample, takes_best
from cabochon.types import LOGITS_A_PEAK, BestId, FilterOrder, Float32, LogitRow, SamplingParams

ALL = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7)
GREEDY = replace(ALL, temperature=0.0)

# Few distinct values: ties are common.
LOGITS = arrays(
    np.float32, st.integers(1, 40), elements=st.sampled_from([-30.0, -1.5, -1.0, -0.0, 0.0, 0.25, 2.0, 3.0, 9.0])
)


def row(*values: float) -> Float32:
    return np.array(values, np.float32)


def after(position: int) -> History:
    """A text of so many tokens, which no parameter here looks at."""
    return History(range(position), 0)


def choose(logits: Float32, params: SamplingParams, position: int) -> int:
    """The id for a position, in a text that no parameter here looks at."""
    return sample(logits, params, after(position), len(logits)).token.token_id


def ids_in_order(logits: Float32) -> list[int]:
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))


def probabilities(logits: Float32, params: SamplingParams) -> dict[int, float]:
    """Exact probabilities of what may be drawn: the definition of ``docs/sampling.md``, in binary64."""
    order = ids_in_order(logits)
    scaled = {i: (float(logits[i]) - float(max(logits))) / params.temperature for i in order}
    if params.top_k:
        order = order[: params.top_k]
    mass = {i: math.exp(scaled[i]) for i in order}
    whole, kept, total = sum(mass.values()), [], 0.0
    for i in order:
        kept.append(i)
        total += mass[i]
        if params.top_p < 1 and total >= params.top_p * whole:
            break
    kept = [i for i in kept if mass[i] >= params.min_p]
    whole = sum(mass[i] for i in kept)
    return {i: mass[i] / whole for i in kept}


def support(logits: Float32, params: SamplingParams, draws: int = 400) -> set[int]:
    return {choose(logits, params, position) for position in range(draws)}


# ---- The draw ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        ALL,
        replace(ALL, temperature=0.5),
        replace(ALL, temperature=2.5),
        replace(ALL, top_k=5),
        replace(ALL, top_p=0.8),
        replace(ALL, min_p=0.2),
        replace(ALL, temperature=1.7, top_k=9, top_p=0.93, min_p=0.05),
    ],
    ids=["all", "cold", "hot", "top_k", "top_p", "min_p", "together"],
)
def test_draws_follow_the_exact_probabilities(params: SamplingParams) -> None:
    logits = np.random.default_rng(5).normal(0, 1.5, 12).astype(np.float32)
    exact = probabilities(logits, params)
    draws = 4000
    counts = Counter(choose(logits, params, position) for position in range(draws))
    assert set(counts) <= set(exact)
    chi_square = sum((counts[i] - draws * p) ** 2 / (draws * p) for i, p in exact.items())
    freedom = len(exact) - 1
    # About four standard deviations above the mean of the chi-square distribution.
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom) + 3


@given(logits=LOGITS, u=st.floats(2**-25, 1 - 2**-25))
@settings(max_examples=200, deadline=None)
def test_the_draw_is_the_first_sum_above_the_number(logits: Float32, u: float) -> None:
    c = filters.temperature(filters.candidates(logits), 1.0)
    total, expected = np.float32(0), None
    sums = []
    for weight in filters.weights(c):
        total = np.float32(total + weight)
        sums.append(float(total))
    expected = next(i for i, s in enumerate(sums) if s > u * sums[-1])
    assert filters.draw(c, u) == c.ids[expected]


def test_the_largest_random_number_still_draws_something_possible() -> None:
    """1 - 2^-25 times a binary32 sum must not round up to the whole, where no sum exceeds it."""
    c = filters.temperature(filters.candidates(row(0, 0, -200)), 1.0)
    assert filters.draw(c, 1 - 2**-25) == 1
    assert filters.draw(c, 2**-25) == 0


def test_a_number_depends_on_seed_and_position_only() -> None:
    logits = np.random.default_rng(1).normal(0, 1, 300).astype(np.float32)
    first = [choose(logits, ALL, position) for position in range(40)]
    backwards = [choose(logits, ALL, position) for position in reversed(range(40))]
    assert first == backwards[::-1]
    assert len(set(first)) > 20
    assert [choose(logits, replace(ALL, seed=8), position) for position in range(40)] != first
    # Both halves of the seed count.
    assert [choose(logits, replace(ALL, seed=7 + 2**32), position) for position in range(40)] != first


# ---- Filters ----------------------------------------------------------------------------------------------------


@given(
    logits=LOGITS,
    k=st.sampled_from([0, 1, 2, 5]),
    p=st.sampled_from([1e-30, 0.1, 0.5, 0.8, 1.0]),
    m=st.sampled_from([0.0, 0.5, 0.999999]),
    t=st.sampled_from([1e-300, 1e-3, 0.5, 1.0, 2.0, 1e300]),
)
@settings(max_examples=300, deadline=None)
def test_at_least_one_candidate_always_survives(logits: Float32, k: int, p: float, m: float, t: float) -> None:
    c = filters.temperature(filters.candidates(logits, k), t)
    c = filters.min_p(filters.top_p(filters.top_k(c, k), p), m)
    assert len(c.ids) >= 1
    assert c.ids[0] == ids_in_order(logits)[0]
    params = SamplingParams(temperature=t, top_k=k, top_p=p, min_p=m, seed=3)
    assert choose(logits, params, 5) in c.ids


@pytest.mark.parametrize(("k", "p", "m"), list(itertools.product([1, 2, 5], [0.1, 0.8], [0.0, 0.5, 0.99])))
def test_top_k_before_top_p_leaves_something(k: int, p: float, m: float) -> None:
    params = replace(ALL, top_k=k, top_p=p, min_p=m)
    logits = row(0, 1, 2, 3, 2.5)
    assert support(logits, params) == set(probabilities(logits, params))


@given(logits=LOGITS, k=st.integers(0, 45))
@settings(max_examples=100, deadline=None)
def test_candidates_are_ordered_by_logit_then_id(logits: Float32, k: int) -> None:
    c = filters.candidates(logits, k)
    expected = ids_in_order(logits)[: k or None]
    assert c.ids.tolist() == expected
    assert c.logits.tolist() == [float(logits[i]) for i in expected]


def test_a_whole_vocabulary_is_ordered_as_a_part_of_it() -> None:
    logits = np.random.default_rng(4).normal(0, 3, 5000).astype(np.float32)
    logits[::7] = np.round(logits[::7])
    whole, part = filters.candidates(logits), filters.candidates(logits, 4999)
    assert whole.ids[:-1].tolist() == part.ids.tolist()
    assert whole.ids.tolist() == ids_in_order(logits)


def test_a_tie_at_the_border_of_top_k_adds_no_token() -> None:
    assert support(row(1, 1, 1, 1), replace(ALL, top_k=2)) == {0, 1}


def test_a_tie_at_the_border_of_top_p_adds_no_token() -> None:
    # Four equal weights: the first two are exactly half.
    assert support(row(1, 1, 1, 1), replace(ALL, top_p=0.5)) == {0, 1}
    assert support(row(1, 1, 1, 1), replace(ALL, top_p=0.5000001)) == {0, 1, 2}


def test_top_p_one_leaves_the_distribution_alone() -> None:
    logits = row(0, 1, 2, 3)
    assert support(logits, ALL) == {0, 1, 2, 3}
    # Weights too small to move the sum stay as well.
    tail = np.array([0.0] + [-20.0] * 999, np.float32)
    assert len(filters.top_p(filters.temperature(filters.candidates(tail), 1.0), 1.0).ids) == 1000


def test_a_tiny_top_p_keeps_the_best_token() -> None:
    assert support(row(0, 1, 2, 3), replace(ALL, top_p=1e-9)) == {3}
    assert support(row(0, 1, 2, 3), replace(ALL, top_p=1e-300)) == {3}


def test_top_p_of_exactly_the_best_probability_keeps_the_best_token() -> None:
    assert support(row(5, 5), replace(ALL, top_p=0.5)) == {0}


@pytest.mark.parametrize(("t", "kept"), [(0.5, {3}), (2.0, {1, 2, 3})])
def test_top_p_sees_the_distribution_after_temperature(t: float, kept: set[int]) -> None:
    assert support(row(0, 1, 2, 3), replace(ALL, temperature=t, top_p=0.8)) == kept
    assert set(probabilities(row(0, 1, 2, 3), replace(ALL, temperature=t, top_p=0.8))) == kept


def test_min_p_keeps_what_is_exactly_at_its_border() -> None:
    c = filters.temperature(filters.candidates(row(3, 2, 1)), 1.0)
    border = filters.weights(c)[1]
    assert filters.min_p(c, float(border)).ids.tolist() == [0, 1]
    assert filters.min_p(c, float(np.nextafter(border, np.float32(1)))).ids.tolist() == [0]


def test_greedy_takes_the_first_of_the_best() -> None:
    assert choose(row(1, 4, 4, 2), GREEDY, 0) == 1
    assert support(row(1, 4, 4, 2), GREEDY, 50) == {1}


def test_a_vanishing_temperature_is_nearly_greedy_and_a_huge_one_uniform() -> None:
    assert support(row(1, 4, 3.9, 2), replace(ALL, temperature=1e-320)) == {1}
    assert support(row(1, 4, 3.9, -200), replace(ALL, temperature=1e308)) == {0, 1, 2, 3}


def test_ids_beyond_the_vocabulary_are_never_drawn() -> None:
    logits = row(0, 0, 0, 90, 90)
    for params in (ALL, GREEDY, replace(ALL, top_k=2), replace(ALL, top_p=0.5)):
        drawn = {sample(logits, params, after(position), 3, 3).token for position in range(100)}
        assert {token.token_id for token in drawn} <= {0, 1, 2}
        assert all(i < 3 for token in drawn for i, _ in token.top)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_no_numbers_are_an_error(bad: float) -> None:
    for at in (1, 4):
        logits = row(0, 1, 2, 3, 4)
        logits[at] = bad
        for params in (ALL, GREEDY):
            with pytest.raises(NumericError, match="position 12"):
                sample(logits, params, after(12), 4)


# ---- Log-probabilities ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [0.0, 0.5, 1.0, 2.0])
def test_logprobs_are_the_models_own(t: float) -> None:
    logits = np.random.default_rng(2).normal(0, 3, 2500).astype(np.float32)
    params = replace(ALL, temperature=t, top_p=0.5)
    exact = logits.astype(np.float64)
    exact -= exact.max() + np.log(np.exp(exact - exact.max()).sum())
    for position in range(20):
        token = sample(logits, params, after(position), len(logits), 10).token
        assert token.token_id == choose(logits, params, position)
        assert token.logprob == pytest.approx(exact[token.token_id], abs=2e-6)
        assert [i for i, _ in token.top] == ids_in_order(logits)[:10]
        assert all(value == pytest.approx(exact[i], abs=2e-6) for i, value in token.top)
        assert sum(math.exp(value) for _, value in token.top) <= 1 + 1e-6


def test_logprobs_only_when_asked_for() -> None:
    logits = row(0, 1, 2)
    plain, chosen = sample(logits, GREEDY, after(0), 3).token, sample(logits, GREEDY, after(0), 3, 0).token
    assert (plain.logprob, plain.top) == (None, ())
    assert chosen.logprob == float(np.float32(2) - numerics.log_sum_exp(logits))
    assert chosen.top == ()
    assert len(sample(logits, GREEDY, after(0), 3, 50).token.top) == 3


def test_logits_are_not_changed() -> None:
    logits = np.random.default_rng(2).normal(0, 3, 100).astype(np.float32)
    before = logits.copy()
    sample(logits, replace(ALL, temperature=0.3, top_p=0.7, min_p=0.1), after(3), 90, 5)
    np.testing.assert_array_equal(logits, before)


# ---- Parameters -------------------------------------------------------------------------------------------------

ABSURD = [math.nan, math.inf, -math.inf, "x", None, [], True, -1, -1e308, 10**400]
NUMBERS = [field.name for field in fields(SamplingParams) if isinstance(field.default, int | float)]
UNBOUNDED = {"top_k", "penalty_last_n", "dry_allowed_length", "dry_penalty_last_n", "min_tokens"}
SIGNED = {"presence_penalty", "frequency_penalty"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (field, value)
        for field in NUMBERS
        for value in ABSURD
        if not (field in UNBOUNDED and value == 10**400) and not (field in SIGNED and value == -1)
    ]
    + [("top_p", 0), ("top_p", 1.0000001), ("min_p", 1.0), ("top_k", 1.5), ("seed", 2**64), ("seed", 0.0)]
    + [("choice", 2**31), ("typical_p", 0), ("repetition_penalty", 0), ("repetition_penalty", 100.5)]
    + [("presence_penalty", 101), ("frequency_penalty", -101), ("dry_multiplier", 101), ("dry_base", 0.99)]
    + [("dry_allowed_length", 0), ("xtc_probability", 1.1), ("xtc_threshold", 1.1)]
    + [("order", value) for value in ("", "gemma", "Cabochon", None, 3, np.zeros(2))]
    + [("logit_bias", value) for value in (3, "text", None, {1}, [1], [(1, 2, 3)], ["ab"])]
    + [("logit_bias", ((1, 2.0), (1, 3.0)))]
    + [("bad_words", value) for value in (3, "text", None)]
    + [("dry_sequence_breakers", value) for value in (3, "text", b"bytes", None)],
)
def test_a_value_out_of_range_is_named(field: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"^{field} must be .* not ") as caught:
        checked(replace(SamplingParams(), **{field: value}))  # type: ignore[arg-type]  # wrong on purpose
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("logit_bias", {-1: 1.0}, "logit_bias: token id must be"),
        ("logit_bias", {"a": 1.0}, "logit_bias: token id must be"),
        ("logit_bias", {5: 1000.5}, "logit_bias: bias of 5 must be"),
        ("logit_bias", {5: math.nan}, "logit_bias: bias of 5 must be"),
        ("bad_words", [5], "bad_words must be"),
        ("bad_words", [[5], []], "bad_words must be lists of at least one"),
        ("bad_words", [[5, -1]], "bad_words: token id must be"),
        ("dry_sequence_breakers", [1.5], "dry_sequence_breakers: token id must be"),
    ],
)
def test_what_is_in_a_list_is_checked_too(field: str, value: object, words: str) -> None:
    with pytest.raises(UsageError, match=f"^{words}") as caught:
        checked(replace(SamplingParams(), **{field: value}))  # type: ignore[arg-type]  # wrong on purpose
    assert "\n" not in str(caught.value)


def test_lists_become_plain_and_one_value_has_one_form() -> None:
    params = SamplingParams(
        logit_bias={np.int64(9): np.float32(0.5), 3: 1},  # type: ignore[arg-type]  # NumPy's own types are taken, too
        bad_words=[np.array([4, 5]), [6]],  # type: ignore[arg-type]  # NumPy's own types are taken, too
        dry_sequence_breakers=[np.int32(7), 7],  # type: ignore[arg-type]  # NumPy's own types are taken, too
    )
    plain = checked(params, vocab=10)
    assert plain.logit_bias == ((3, 1.0), (9, 0.5))
    assert plain.bad_words == ((4, 5), (6,))
    assert plain.dry_sequence_breakers == frozenset({7})
    assert checked(plain, vocab=10) == plain
    assert hash(plain) == hash(checked(params))
    for field in ("logit_bias", "bad_words", "dry_sequence_breakers"):
        with pytest.raises(UsageError, match=f"^{field}: token id must be"):
            checked(replace(SamplingParams(), **{field: getattr(plain, field)}), vocab=3)


def test_borders_are_in_range() -> None:
    for good in (
        SamplingParams(temperature=0, top_k=0, top_p=1, min_p=0, seed=0),
        SamplingParams(temperature=999999, top_k=10**30, top_p=1e-300, min_p=0.9999, seed=2**64 - 1),
        # NumPy's own types are taken, too.
        SamplingParams(temperature=np.float32(0.5), top_k=np.int64(3), seed=np.uint64(2**64 - 1)),  # type: ignore[arg-type]
    ):
        plain = checked(good)
        assert plain == good
        assert type(plain.temperature) is float
        assert type(plain.top_k) is type(plain.seed) is int
        choose(row(0, 1, 2), plain, 0)


def peaks_of(logits: Float32) -> Float32:
    runs = [logits[first : first + LOGITS_A_PEAK] for first in range(0, len(logits), LOGITS_A_PEAK)]
    return np.array([run.max() if np.isfinite(run).all() else np.nan for run in runs], np.float32)


LONG = arrays(np.float32, st.integers(1, 300), elements=st.sampled_from([-30.0, -1.5, -0.0, 0.0, 0.25, 2.0, 3.0, 9.0]))


@given(logits=LONG, most=st.integers(0, 40))
def test_peaks_change_no_candidate(logits: Float32, most: int) -> None:
    plain, by_peaks = filters.candidates(logits, most), filters.candidates(logits, most, peaks_of(logits))
    np.testing.assert_array_equal(by_peaks.ids, plain.ids)
    assert by_peaks.logits.tobytes() == plain.logits.tobytes()
    assert by_peaks.ids.dtype == plain.ids.dtype


@given(
    logits=LONG,
    temperature=st.sampled_from([0.0, 1.0]),
    top_k=st.sampled_from([0, 1, 3, 20]),
    seed=st.integers(0, 99),
    less=st.integers(0, 40),
    bias=st.booleans(),
    logprobs=st.sampled_from([None, 0, 3]),
)
def test_peaks_change_no_token(
    logits: Float32, temperature: float, top_k: int, seed: int, less: int, bias: bool, logprobs: int | None
) -> None:
    limit = max(len(logits) - less, 1)
    params = replace(ALL, temperature=temperature, top_k=top_k, seed=seed, logit_bias=((0, 20.0),) if bias else ())
    known = LogitRow(logits, peaks_of(logits))
    ours, plain = (sample(row, params, after(5), limit, logprobs) for row in (known, logits))
    assert ours.token == plain.token


def test_a_peak_that_is_no_number_is_an_error() -> None:
    logits = np.zeros(40, np.float32)
    with pytest.raises(NumericError, match="position 3"):
        sample(LogitRow(logits, row(0, math.nan, 0)), GREEDY, after(3), 40)


@given(
    values=arrays(np.float32, st.integers(2, 60), elements=st.sampled_from([-3.0, -0.0, 0.0, 1.0, 2.5, 2.5000002])),
    greedy=st.booleans(),
    order=st.sampled_from(("cabochon", "gemma_pytorch")),
    others=st.fixed_dictionaries(
        {"top_p": st.sampled_from((0.1, 1.0)), "min_p": st.sampled_from((0.0, 0.5)), "xtc_probability": st.just(1.0),
         "typical_p": st.sampled_from((0.2, 1.0)), "xtc_threshold": st.just(0.01), "seed": st.integers(0, 99)}
    ),
)  # fmt: skip
def test_whoever_takes_the_best_needs_no_other_logit(
    values: Float32, *, greedy: bool, order: FilterOrder, others: dict[str, Any]
) -> None:
    kind: dict[str, Any] = {"temperature": 0.0} if greedy else {"top_k": 1, "temperature": 3.0}
    params = SamplingParams(**kind, order=order, **others)
    assert takes_best(params)
    assert best_token(BestId.of(values), 3).token == sample(values, params, after(3), len(values)).token

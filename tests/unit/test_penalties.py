"""Bias and penalties: which ids, how much, how often."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cabochon.sampling.history import History
from cabochon.sampling.penalties import adjusted, repeated
from cabochon.sampling.sampler import sample
from cabochon.types import Float32, SamplingParams

PLAIN = SamplingParams(temperature=0.0)


def row(*values: float) -> Float32:
    return np.array(values, np.float32)


def changes(params: SamplingParams, ids: list[int], prompt: int = 0, logits: Float32 | None = None) -> list[float]:
    """What is added to each of ten logits."""
    before = np.linspace(1, 5, 10).astype(np.float32) if logits is None else logits
    added: list[float] = (adjusted(before, params, History(ids, prompt)) - before).tolist()
    return added


def test_without_penalties_the_row_is_not_even_copied() -> None:
    logits = row(1, 2, 3)
    assert adjusted(logits, PLAIN, History([0, 1, 1], 1)) is logits


def test_repetition_is_once_for_each_id_and_by_the_sign_of_its_logit() -> None:
    logits = row(0, 0, 0, 0, 0, 2.6, 0, -2.6, 0, 4)
    after = adjusted(logits, replace(PLAIN, repetition_penalty=1.3), History([5, 5, 5, 7], 2))
    third = np.float32(1.3)
    assert after.tolist() == [0, 0, 0, 0, 0, float(np.float32(2.6) / third), 0, float(np.float32(-2.6) * third), 0, 4]


def test_repetition_sees_the_prompt_and_the_others_do_not() -> None:
    ids = [1, 2, 3]
    assert [i for i, d in enumerate(changes(replace(PLAIN, repetition_penalty=2.0), ids, 2)) if d] == [1, 2, 3]
    assert [i for i, d in enumerate(changes(replace(PLAIN, presence_penalty=2.0), ids, 2)) if d] == [3]
    assert [i for i, d in enumerate(changes(replace(PLAIN, frequency_penalty=2.0), ids, 2)) if d] == [3]


def test_frequency_counts_and_presence_does_not() -> None:
    ids = [9, 4, 4, 4, 6]
    assert changes(replace(PLAIN, frequency_penalty=0.5), ids, 1)[4:7] == [-1.5, 0, -0.5]
    assert changes(replace(PLAIN, presence_penalty=0.5), ids, 1)[4:7] == [-0.5, 0, -0.5]
    assert changes(replace(PLAIN, presence_penalty=-0.5, frequency_penalty=0.25), ids, 1)[4:7] == [-0.25, 0, 0.25]


@pytest.mark.parametrize(
    ("last_n", "seen"), [(1, {3}), (2, {2, 3}), (3, {1, 2, 3}), (4, {0, 1, 2, 3}), (0, {0, 1, 2, 3})]
)
def test_penalties_see_the_last_tokens(last_n: int, seen: set[int]) -> None:
    """Of the text: the window may begin in the prompt, and presence then sees the reply's part of it."""
    params = replace(PLAIN, repetition_penalty=2.0, penalty_last_n=last_n)
    assert {i for i, d in enumerate(changes(params, [0, 1, 2, 3], 2)) if d} == seen
    params = replace(PLAIN, presence_penalty=1.0, penalty_last_n=last_n)
    assert {i for i, d in enumerate(changes(params, [0, 1, 2, 3], 2)) if d} == seen & {2, 3}


def test_bias_comes_before_penalties() -> None:
    """A logit that a bias has made negative is multiplied."""
    params = replace(PLAIN, logit_bias=((0, -3.0),), repetition_penalty=2.0)
    assert adjusted(row(1, 1), params, History([0, 1], 2)).tolist() == [-4.0, 0.5]


def test_greedy_takes_the_best_after_penalties() -> None:
    logits = row(1, 4, 3.9, 2)
    assert sample(logits, replace(PLAIN, presence_penalty=0.5), History([1], 0), 4).token.token_id == 2
    assert sample(logits, replace(PLAIN, logit_bias=((3, 2.5),)), History([1], 0), 4).token.token_id == 3
    assert logits.tolist() == row(1, 4, 3.9, 2).tolist()


def test_logprobs_are_of_the_logits_before_penalties() -> None:
    logits = row(1, 4, 3.9, 2)
    params = replace(PLAIN, presence_penalty=0.5, logit_bias=((0, -50.0),), repetition_penalty=1.5)
    plain = sample(logits, PLAIN, History([1], 0), 4, 4).token
    token = sample(logits, params, History([1], 0), 4, 4).token
    assert token.token_id == 2
    assert token.top == plain.top
    assert token.logprob == dict(plain.top)[2]


def test_what_leaves_the_range_stays_at_its_end() -> None:
    params = replace(
        PLAIN, repetition_penalty=100.0, frequency_penalty=100.0, dry_multiplier=100.0, dry_base=100.0, top_k=0
    )
    largest = np.finfo(np.float32).max
    logits = row(3e38, -3e38, 5, 0)
    after = adjusted(logits, replace(params, repetition_penalty=0.01), History([0, 1, 0, 1, 2] * 20, 0))
    assert np.isfinite(after).all()
    assert adjusted(logits, params, History([1], 1))[1] == -largest
    for t in (0.0, 1e-3, 1.0, 1e30):
        sample(logits, replace(params, temperature=t), History([0, 1, 0, 1, 2] * 20, 0), 4)


# ---- DRY --------------------------------------------------------------------------------------------------------

ids_of_few = st.lists(st.integers(0, 3), max_size=60)


@given(ids=ids_of_few, breakers=st.frozensets(st.integers(0, 3), max_size=2), longest=st.integers(1, 12))
@example(ids=[1] * 60, breakers=frozenset(), longest=7)
@settings(max_examples=300, deadline=None)
def test_repeated_sequences(ids: list[int], breakers: frozenset[int], longest: int) -> None:
    found = repeated(ids, breakers, longest)
    for token_id in range(4):
        lengths = [
            n
            for n in range(1, len(ids))
            for end in range(n, len(ids))
            if ids[end - n : end] == ids[-n:] and ids[end] == token_id and not breakers & {token_id, *ids[-n:]}
        ]
        assert found.get(token_id, 0) == min(max(lengths, default=0), longest)


def test_dry_grows_with_the_length_of_the_repetition() -> None:
    params = replace(PLAIN, dry_multiplier=0.75, dry_base=2.0, dry_allowed_length=2)
    logits = np.zeros(10, np.float32)
    text = [5, 6, 7, 8, 9]
    for repeats, expected in ((1, 0.0), (2, 0.75), (3, 1.5), (4, 3.0)):
        after = adjusted(logits, params, History([*text, 0, *text[:repeats]], 3))
        assert [i for i, value in enumerate(after) if value] == ([5 + repeats] if expected else [])
        assert -after[min(5 + repeats, 9)] == expected


def test_dry_stops_growing() -> None:
    """A thousand of one token: the penalty is that of fifty more than allowed."""
    params = replace(PLAIN, dry_multiplier=1.0, dry_base=2.0, dry_allowed_length=3)
    after = adjusted(np.zeros(3, np.float32), params, History([1] * 1000, 0))
    assert after.tolist() == [0, -(2.0**50), 0]


def test_dry_sees_only_the_last_tokens() -> None:
    params = replace(PLAIN, dry_multiplier=1.0, dry_base=1.0, dry_allowed_length=2)
    ids = [1, 2, 3, 0, 0, 1, 2]
    assert adjusted(np.zeros(4, np.float32), params, History(ids, 7))[3] == -1
    assert adjusted(np.zeros(4, np.float32), replace(params, dry_penalty_last_n=7), History(ids, 7))[3] == -1
    assert adjusted(np.zeros(4, np.float32), replace(params, dry_penalty_last_n=6), History(ids, 7))[3] == 0


def test_dry_does_not_go_across_a_breaker() -> None:
    params = replace(PLAIN, dry_multiplier=1.0, dry_base=2.0, dry_allowed_length=1)
    ids = [1, 2, 3, 4, 9, 1, 2, 3]
    whole = adjusted(np.zeros(10, np.float32), params, History(ids, 0))
    cut = adjusted(np.zeros(10, np.float32), replace(params, dry_sequence_breakers=frozenset({2})), History(ids, 0))
    assert (whole[4], cut[4]) == (-4, -1)
    for breaker in (3, 4):
        none = replace(params, dry_sequence_breakers=frozenset({breaker}))
        assert not adjusted(np.zeros(10, np.float32), none, History(ids, 0)).any()

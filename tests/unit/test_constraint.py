"""What may not be chosen is not chosen: constraints, bad words, stop ids before ``min_tokens``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cabochon.engine.engine import Engine, pools_for
from cabochon.engine.request import Limits, Request, RequestState
from cabochon.errors import ConstraintError, UsageError
from cabochon.sampling.constraint import Mask
from cabochon.sampling.history import History
from cabochon.sampling.sampler import sample
from cabochon.testing.fake_model import FakeModel
from cabochon.types import Float32, SamplingParams

ALL = SamplingParams(top_k=0, top_p=1.0, seed=5)
GREEDY = replace(ALL, temperature=0.0)
VARIETY = [
    ALL,
    GREEDY,
    replace(ALL, top_k=2),
    replace(ALL, order="gemma_pytorch", top_p=0.9),
    replace(ALL, typical_p=0.5),
]


class Only:
    """Allows the same ids always."""

    def __init__(self, *ids: int, vocab: int = 6) -> None:
        self.mask = np.isin(np.arange(vocab), ids)

    def allowed(self, chosen: Sequence[int]) -> Mask | None:
        return self.mask


class Rising:
    """Ids rise by at most five; no constraint on the first."""

    def __init__(self, vocab: int) -> None:
        self.ids = np.arange(vocab)

    def allowed(self, chosen: Sequence[int]) -> Mask | None:
        return (self.ids > chosen[-1]) & (self.ids <= chosen[-1] + 5) if chosen else None


def row(*values: float) -> Float32:
    return np.array(values, np.float32)


def drawn(params: SamplingParams, ids: Sequence[int] = (), **options: Any) -> set[int]:
    logits = row(5, 4, 3, 2, 1, 0)
    return {
        sample(logits, replace(params, seed=seed), History(ids, 0), 6, **options).token.token_id for seed in range(60)
    }


@pytest.mark.parametrize("params", VARIETY)
def test_only_what_a_constraint_allows_is_chosen(params: SamplingParams) -> None:
    assert drawn(params, constraint=Only(3, 5)) <= {3, 5}
    assert drawn(params, constraint=Only(5)) == {5}


def test_a_constraint_that_says_nothing_changes_nothing() -> None:
    logits = np.random.default_rng(4).normal(0, 1, 300).astype(np.float32)
    for seed in range(20):
        params = replace(ALL, seed=seed)
        free = sample(logits, params, History((), 0), 300, constraint=Rising(300)).token
        assert free == sample(logits, params, History((), 0), 300).token


def test_a_mask_of_all_ids_changes_nothing() -> None:
    everything = Only(*range(6))
    for params in VARIETY:
        assert drawn(params, constraint=everything) == drawn(params)


def test_logprobs_do_not_know_of_constraints() -> None:
    logits = row(5, 4, 3, 2, 1, 0)
    free, bound = (sample(logits, GREEDY, History((), 0), 6, 6, constraint=c).token for c in (None, Only(4)))
    assert bound.token_id == 4
    assert bound.top == free.top
    assert bound.logprob == dict(free.top)[4]


@pytest.mark.parametrize("params", VARIETY)
def test_no_stop_id_is_chosen_too_early(params: SamplingParams) -> None:
    for reply in range(5):
        history = History([7] * (3 + reply), 3)
        chosen = {
            sample(
                row(9, 8, 1, 1, 1, 1), replace(params, min_tokens=2, seed=s), history, 6, stop_ids={0, 1}
            ).token.token_id
            for s in range(60)
        }
        assert bool(chosen & {0, 1}) == (reply >= 2)


@pytest.mark.parametrize("params", VARIETY)
def test_bad_words_are_not_completed(params: SamplingParams) -> None:
    asked = replace(params, bad_words=((0,), (3, 4, 1), (2, 2)))
    assert 0 not in drawn(asked)
    assert 1 not in drawn(asked, [3, 4])
    assert 2 not in drawn(asked, [1, 2])
    assert 1 in drawn(replace(asked, typical_p=1.0), [4, 3, 5])
    assert 1 in drawn(replace(asked, typical_p=1.0), [4])


def test_a_word_as_long_as_the_text_may_be_completed_by_its_first_token() -> None:
    assert 1 not in drawn(replace(ALL, bad_words=((1,),)), [])
    assert 1 not in drawn(replace(ALL, bad_words=((4, 1),)), [4])
    assert 1 in drawn(replace(ALL, bad_words=((5, 4, 1),)), [4])


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(ConstraintError, match="position 2"):
        sample(row(1, 2), ALL, History([0, 1], 1), 2, constraint=Only(vocab=2))
    with pytest.raises(ConstraintError, match="position 0"):
        sample(row(1, 2), replace(ALL, bad_words=((0,), (1,))), History([], 0), 2)
    with pytest.raises(ConstraintError, match="position 1"):
        sample(row(1, 2), replace(ALL, min_tokens=1), History([1], 1), 2, stop_ids={0}, constraint=Only(0, vocab=2))


@pytest.mark.parametrize("mask", [[True] * 6, np.ones(5, bool), np.ones(6), np.ones((1, 6), bool), True, "yes"])
def test_what_is_no_mask_is_an_error(mask: Any) -> None:
    given = Only()
    given.mask = mask
    with pytest.raises(ConstraintError, match="6 truth values"):
        drawn(ALL, constraint=given)


def test_a_constraints_mask_is_not_changed() -> None:
    given = Only(0, 1)
    drawn(replace(ALL, bad_words=((0,),)), constraint=given)
    assert given.mask.tolist() == [True, True, False, False, False, False]


# ---- In an engine -----------------------------------------------------------------------------------------------


def finished(request: Request, **options: Any) -> RequestState:
    model = FakeModel(script={8: 1})
    engine = Engine(model, pools_for(model.store), Limits(256, model.config.vocab), chunk=32, **options)
    state = engine.submit(request)
    while not engine.idle:
        engine.step()
    return state


@pytest.mark.parametrize("speculate", [0, 4])
def test_a_constraint_holds_through_a_reply(speculate: int) -> None:
    request = Request((5, 6, 7), ALL, 40, constraint=Rising(FakeModel().config.vocab))
    ids = [token.token_id for token in finished(request, speculate=speculate).tokens]
    assert len(ids) == 40
    assert all(0 < later - earlier <= 5 for earlier, later in itertools.pairwise(ids))


def test_a_reply_has_its_least_tokens() -> None:
    request = Request((5, 6, 7), GREEDY, 40, frozenset({1}))
    assert len(finished(request).tokens) == 5
    assert len(finished(replace(request, params=replace(GREEDY, min_tokens=20))).tokens) >= 20


def test_nothing_left_ends_the_request_with_its_error() -> None:
    vocab = FakeModel().config.vocab
    state = finished(Request((5, 6), ALL, 5, constraint=Only(vocab=vocab)))
    assert state.finish_reason == "error"
    assert isinstance(state.error, ConstraintError)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"constraint": 5}, "constraint"),
        ({"constraint": np.ones(367, bool)}, "constraint"),
        ({"params": replace(ALL, min_tokens=6)}, "min_tokens must be at most max_tokens, 5, not 6"),
        ({"params": replace(ALL, logit_bias=((367, 1.0),))}, "logit_bias: token id"),
        ({"params": replace(ALL, bad_words=((3, 367),))}, "bad_words: token id"),
        ({"params": replace(ALL, dry_sequence_breakers=frozenset({367}))}, "dry_sequence_breakers: token id"),
    ],
)
def test_what_cannot_be_is_refused_and_named(change: dict[str, Any], name: str) -> None:
    with pytest.raises(UsageError, match=name):
        finished(replace(Request((5, 6), ALL, 5), **change))

"""What a trace tells of a choice, against the slow definition in ``naive_sampling.py``."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.naive_sampling import Naive
from tests.unit.test_filters import NEAR, VOCAB, few, params_of, random_row, seeds

from cabochon.errors import ConstraintError
from cabochon.ops import numerics
from cabochon.sampling.history import History
from cabochon.sampling.sampler import sample
from cabochon.trace.choices import LISTED, choice_made, glance
from cabochon.trace.trace import NOT_ALLOWED
from cabochon.types import Float32, LogitRow, SamplingParams

FILTERS = ("top_k", "typical", "top_p", "min_p", "xtc")
OFF = {"top_k": 0, "typical_p": 1.0, "top_p": 1.0, "min_p": 0.0, "xtc_probability": 0.0}
FIELD = {"top_k": "top_k", "typical": "typical_p", "top_p": "top_p", "min_p": "min_p", "xtc": "xtc_probability"}


def filters_of(params: SamplingParams) -> list[str]:
    """Those that are on, in their order."""
    order = ("top_p", "top_k", "typical", "min_p", "xtc") if params.order == "gemma_pytorch" else FILTERS
    return [name for name in order if getattr(params, FIELD[name]) != OFF[FIELD[name]]]


@given(
    seed=seeds, params=params_of, ids=st.lists(few, max_size=12), prompt=st.integers(0, 12), limit=st.integers(6, VOCAB)
)
@settings(max_examples=200, deadline=None)
def test_every_column_is_that_of_the_definition(
    seed: int, params: SamplingParams, ids: list[int], prompt: int, limit: int
) -> None:
    logits, prompt = random_row(seed), min(prompt, len(ids))
    history = History(ids, prompt)
    u = numerics.uniform(params.seed, len(ids), params.choice + (1 << 31))
    try:
        choice = sample(logits, params, history, limit)
    except ConstraintError:
        assume(False)
    made = choice_made(glance(choice, LogitRow(logits), VOCAB), len(ids), params.temperature)
    listed = made.candidates
    on = [] if params.temperature == 0 else filters_of(params)
    # After each filter, what the definition leaves with the later ones off.
    last, margin, kept = Naive(logits[:limit].tolist(), params, ids, prompt, xtc_u=u), math.inf, {}
    for number, name in enumerate(on):
        without = {FIELD[later]: OFF[FIELD[later]] for later in on[number + 1 :]}
        # Fields by name.
        naive = Naive(logits[:limit].tolist(), replace(params, **without), ids, prompt, xtc_u=u)  # type: ignore[arg-type]
        kept[name], margin = naive.order, min(margin, naive.margin)
    assume(min(margin, last.margin) > NEAR)
    assume(not any(0 < abs(a - b) < NEAR for a, b in itertools.pairwise(sorted(last.logits))))
    plain = {**dict.fromkeys(OFF.keys()), **OFF}
    # Fields by name.
    free = Naive(logits[:limit].tolist(), replace(params, temperature=1.0, **plain), ids, prompt)  # type: ignore[arg-type]
    allowed = set(free.order)
    assert made.allowed == len(allowed)
    assert [stage.name for stage in made.stages] == (["greedy"] if params.temperature == 0 else ["temperature", *on])
    for stage in made.stages[0 if params.temperature == 0 else 1 :]:
        assert stage.kept == (1 if stage.name == "greedy" else len(kept[stage.name]))
    reasons = {}
    for token in range(VOCAB):
        gone = [name for name in on if token not in kept[name]]
        greedy = "" if params.temperature or token == last.order[0] else "greedy"
        reasons[token] = NOT_ALLOWED if token not in allowed else (gone[0] if gone else greedy)
    assert dict(zip(listed.ids, listed.removed, strict=True)) == reasons
    assert list(listed.ids) == sorted(range(VOCAB), key=lambda i: (-logits[i], i))
    assert list(listed.logits) == [float(str(logits[i])) for i in listed.ids]
    assert sum(listed.probabilities) == pytest.approx(1, abs=1e-5)
    assert all((p > 0) <= (why == "") for p, why in zip(listed.probabilities, listed.removed, strict=True))
    for token, adjusted in zip(listed.ids, listed.adjusted or listed.logits, strict=True):
        expected = free.logits[token] if token in allowed else logits[token]
        assert adjusted == pytest.approx(float(expected), rel=1e-5, abs=1e-4)
    if params.temperature:
        assert made.span is not None
        assert made.draw == numerics.uniform(params.seed, len(ids), params.choice)
        assert made.span[0] <= made.draw < made.span[1]
        for token, probability in zip(listed.ids, listed.probabilities, strict=True):
            if token in last.order:
                assert probability == pytest.approx(last.weight[token] / last.total, rel=1e-4, abs=1e-6)


def test_the_chosen_one_is_listed_though_it_is_not_among_the_best() -> None:
    logits = np.linspace(0, 1e-3, 400, dtype=np.float32)
    params = SamplingParams(top_k=0, top_p=1.0)
    seen = set()
    for position in range(30):
        choice = sample(logits, params, History(range(position), 0), 400)
        made = choice_made(glance(choice, LogitRow(logits)), position, 1.0)
        outside = choice.token.token_id not in range(400 - LISTED, 400)
        seen.add(outside)
        assert made.candidates.ids == (*range(399, 399 - LISTED, -1), *([choice.token.token_id] if outside else []))
        assert made.stages[0].kept == 400
    assert seen == {True, False}


def test_many_candidates_are_told_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    logits: Float32 = np.random.default_rng(3).normal(0, 2, 3000).astype(np.float32)
    for params in (SamplingParams(top_k=0, top_p=0.9), SamplingParams(order="gemma_pytorch"), SamplingParams(top_k=0)):
        choice = sample(logits, params, History((), 0), 2900)
        made = choice_made(glance(choice, LogitRow(logits)), 0, 1.0)
        monkeypatch.setattr("cabochon.trace.choices.FEW", 10**6)
        assert choice_made(glance(choice, LogitRow(logits)), 0, 1.0) == made
        monkeypatch.undo()


def test_mass_is_of_the_models_own_distribution() -> None:
    logits: Float32 = np.log(np.array([4, 3, 2, 1], np.float32) / 10)
    params = SamplingParams(temperature=0.01, top_k=2, top_p=1.0)
    made = choice_made(glance(sample(logits, params, History((), 0), 4), LogitRow(logits)), 0, 0.01)
    assert [(stage.name, stage.kept, stage.mass) for stage in made.stages] == [
        ("temperature", 4, 1.0),
        ("top_k", 2, pytest.approx(0.7, abs=1e-5)),
    ]
    assert made.margin == pytest.approx(math.log(4 / 3), abs=1e-6)
    assert made.logprob == pytest.approx(math.log(0.4), abs=1e-6)

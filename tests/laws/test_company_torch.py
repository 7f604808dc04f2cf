"""Law 2 on the torch backend: the mixes of requests of ``company.py``, and what each gives alone, to rounding."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tests.laws.company import run_case
from tests.laws.company_models import MODELS, VOCAB, drawn_model, torch_model

from cabochon.engine.request import RequestState
from cabochon.model.model import Model
from cabochon.types import Float32, TokenOut

CASES, BLOCKS = 60, 2
FIRST = 500_000
"""Cases that the native backend's laws do not come to."""

SHAPES = [number for number in range(MODELS) if drawn_model(number).config.layers < 3]
"""Each layer takes its time here."""

TOLERANCE = 1e-4
"""Largest difference of log-probabilities, as a share of the logits' root mean square; 1 at least."""


def distribution(token: TokenOut) -> Float32:
    """[V] log-probabilities."""
    out = np.full(VOCAB, np.nan, np.float32)
    ids, values = zip(*token.top, strict=True)
    out[list(ids)] = values
    return out


def shallow_model(number: int) -> Model:
    return torch_model(SHAPES[number % len(SHAPES)])


def assert_close(mine: TokenOut, right: TokenOut, words: str) -> None:
    expected = distribution(right)
    unit = max(float(np.std(expected)), 1.0)
    if not mine.top:  # nothing was asked but the token
        return
    difference = np.abs(distribution(mine) - expected).max()
    assert difference <= TOLERANCE * unit, f"{words}: {difference / unit:.2g}"


class Comparison:
    """Tokens that were compared, and texts that went apart where two tokens were as good as one another."""

    def __init__(self) -> None:
        self.tokens = 0
        self.parted = 0

    def __call__(self, words: str, got: RequestState, want: RequestState) -> None:
        """After the same tokens comes the same distribution, to rounding; and then, but for a tie, the same token."""
        for place, (mine, right) in enumerate(zip(got.scores, want.scores, strict=False)):
            assert_close(mine, right, f"{words}, score {place}")
        for place, (mine, right) in enumerate(zip(got.tokens, want.tokens, strict=False)):
            assert_close(mine, right, f"{words}, token {place}")
            self.tokens += 1
            if mine.token_id != right.token_id:
                self.parted += 1
                return
        if got.finish_reason != "cancelled":
            assert (len(got.tokens), got.finish_reason) == (len(want.tokens), want.finish_reason), words
            assert len(got.scores) == len(want.scores), words


@pytest.mark.parametrize("block", range(BLOCKS))
def test_company_changes_nothing_but_rounding(block: int) -> None:
    compare, happened = Comparison(), Counter[str]()
    for seed in range(FIRST + block, FIRST + CASES, BLOCKS):
        happened.update(run_case(seed, shallow_model, compare, logprobs=VOCAB))
    for event in ("hits", "evictions", "shared", "scores"):
        assert happened[event], event
    assert compare.parted <= compare.tokens // 500

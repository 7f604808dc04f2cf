"""Filters and penalties against those of ``transformers``, where the two mean the same; and gemma_pytorch's way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cabochon.sampling import filters
from cabochon.sampling.constraint import allowed_ids
from cabochon.sampling.history import History
from cabochon.sampling.penalties import adjusted
from cabochon.types import Float32, SamplingParams

VOCAB = 300
ROWS = 40
PLAIN = SamplingParams()


def rows() -> list[Float32]:
    draw = np.random.default_rng(12)
    return [draw.normal(0, draw.uniform(0.1, 6), VOCAB).astype(np.float32) for _ in range(ROWS)]


def kept(processor: Callable[..., Any], logits: Float32, ids: list[int] | None = None) -> list[int]:
    """The ids that a processor of ``transformers`` leaves, ascending."""
    import torch

    scores = processor(torch.tensor([ids or [0]]), torch.tensor(logits)[None].clone())[0]
    return torch.isfinite(scores).nonzero()[:, 0].tolist()


def ours(c: filters.Candidates) -> list[int]:
    return sorted(c.ids.tolist())


def whole(logits: Float32) -> filters.Candidates:
    return filters.temperature(filters.candidates(logits), 1.0)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.999])
def test_top_p(p: float) -> None:
    from transformers import TopPLogitsWarper

    for logits in rows():
        assert ours(filters.top_p(whole(logits), p)) == kept(TopPLogitsWarper(p), logits)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.7])
def test_min_p(p: float) -> None:
    from transformers import MinPLogitsWarper

    for logits in rows():
        assert ours(filters.min_p(whole(logits), p)) == kept(MinPLogitsWarper(p), logits)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.99])
def test_typical(p: float) -> None:
    from transformers import TypicalLogitsWarper

    for logits in rows():
        assert ours(filters.typical(whole(logits), p)) == kept(TypicalLogitsWarper(p), logits)


@pytest.mark.parametrize("penalty", [0.7, 1.3, 2.0])
def test_repetition_penalty(penalty: float) -> None:
    import torch
    from transformers import RepetitionPenaltyLogitsProcessor

    ids = [5, 5, 9, 120, 5, 299]
    for logits in rows():
        processed = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([ids]), torch.tensor(logits)[None])[0]
        mine = adjusted(logits, replace(PLAIN, repetition_penalty=penalty), History(ids, 4))
        np.testing.assert_allclose(mine, processed.numpy(), rtol=1e-6)


@pytest.mark.parametrize("ids", [[4], [7, 8], [1, 7, 8], [8, 7, 9]])
def test_bad_words(ids: list[int]) -> None:
    from transformers import NoBadWordsLogitsProcessor

    words = [[3], [7, 8, 5], [8, 6], [9, 9]]
    mask = allowed_ids(replace(PLAIN, bad_words=tuple(map(tuple, words))), History(ids, 0), VOCAB)
    assert mask is not None
    assert np.flatnonzero(mask).tolist() == kept(NoBadWordsLogitsProcessor(words), rows()[0], ids)


@pytest.mark.parametrize(("p", "k"), [(0.5, 2), (0.9, 64), (0.95, 300), (0.3, 1), (1.0, 9), (0.99, 0)])
def test_gemma_pytorchs_order(p: float, k: int) -> None:
    """That project's sampler, written from its description: shares of all, sorted; top-p; top-k; renormalised."""
    import torch

    for logits in rows():
        shares, order = torch.sort(torch.softmax(torch.tensor(logits), dim=-1), descending=True)
        before = torch.cumsum(shares, dim=-1) - shares
        keep = (before <= p) & (torch.arange(VOCAB) < (k or VOCAB))
        shares = torch.where(keep, shares, 0.0)
        shares = shares / shares.sum()
        c = filters.top_k(filters.top_p_of_gemma_pytorch(whole(logits), p), k)
        assert c.ids.tolist() == order[keep].tolist()
        weights = filters.weights(c)
        np.testing.assert_allclose(weights / weights.sum(), shares[keep].numpy(), rtol=1e-4)

"""The order of the sampler, against a naive one that is written with loops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cabochon.compat.gemma_pytorch.config import get_model_config
from cabochon.compat.gemma_pytorch.sampler import Sampler


def sample(
    logits: Sequence[Sequence[float]],
    temperatures: Sequence[float] | None,
    top_ps: Sequence[float] | None = None,
    top_ks: Sequence[int] | None = None,
    *,
    softcap: float | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """With the identity as embedding, hidden states are logits. They stand at position 1 of 3."""
    config = get_model_config("270m")
    config.final_logit_softcapping = softcap
    rows = torch.tensor(logits)  # [B, V]
    noise = torch.full_like(rows, 1000.0)
    tokens, given_back = Sampler(rows.shape[1], config)(
        torch.eye(rows.shape[1]),
        torch.stack([noise, rows, noise], dim=1),
        torch.tensor([1]),
        None if temperatures is None else torch.tensor(temperatures),
        None if top_ps is None else torch.tensor(top_ps),
        None if top_ks is None else torch.tensor(top_ks),
        bias,
    )
    return tokens, given_back


def record_draws(patch: pytest.MonkeyPatch) -> list[Tensor]:
    """What every draw is made from, [B, V] by id."""
    seen: list[Tensor] = []
    multinomial = torch.multinomial

    def record(shares: Tensor, num_samples: int) -> Tensor:
        seen.append(shares)
        return multinomial(shares, num_samples)

    patch.setattr(torch, "multinomial", record)
    return seen


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    return record_draws(monkeypatch)


def naive(logits: Sequence[float], temperature: float, top_p: float, top_k: int) -> list[float]:
    """Temperature, softmax, top-p on the whole, top-k, renormalise; in double precision."""
    powers = [math.exp((logit - max(logits)) / temperature) for logit in logits]
    probabilities = [power / sum(powers) for power in powers]
    kept = [0.0] * len(logits)
    before = 0.0
    for rank, token in enumerate(sorted(range(len(logits)), key=lambda token: -logits[token])):
        if (before <= top_p or top_p == 1) and (top_k == 0 or rank < top_k):
            kept[token] = probabilities[token]
        before += probabilities[token]
    return [share / sum(kept) for share in kept]


def test_top_p_comes_before_top_k(shares: list[Tensor]) -> None:
    """Of (.4, .3, .2, .1) two are left; in the other order, on (4/7, 3/7), only one would be."""
    logits = [math.log(share) for share in (0.1, 0.4, 0.2, 0.3)]
    sample([logits], [1.0], [0.5], [2])
    torch.testing.assert_close(shares[0], torch.tensor([[0, 4 / 7, 0, 3 / 7]]))


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.permutations(range(9)),
            st.floats(0.05, 5.0),
            st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.99, 1.0]),
            st.integers(0, 10),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_every_row_by_its_own_settings(rows: list[tuple[list[int], float, float, int]]) -> None:
    logits = [[math.sqrt(2) * place for place in order] for order, *_ in rows]
    expected = torch.tensor(
        # Rows of one table.
        [naive(row, *settings) for row, (_, *settings) in zip(logits, rows, strict=True)]  # type: ignore[arg-type]
    )
    with pytest.MonkeyPatch.context() as patch:
        seen = record_draws(patch)
        sample(logits, [t for _, t, _, _ in rows], [p for _, _, p, _ in rows], [k for *_, k in rows])
    torch.testing.assert_close(seen[0], expected, rtol=1e-4, atol=1e-6)


def test_the_draw_is_that_of_probabilities_in_the_order_of_ids() -> None:
    """So that a seed gives what it gives there."""
    logits = np.random.default_rng(0).normal(0, 2, 300).astype(np.float32).tolist()
    expected = torch.tensor([naive(logits, 0.8, 0.9, 40)])
    for seed in range(20):
        torch.manual_seed(seed)
        drawn, _ = sample([logits], [0.8], [0.9], [40])
        torch.manual_seed(seed)
        assert drawn == torch.multinomial(expected, 1)


def test_a_temperature_of_zero_takes_the_best_of_its_row() -> None:
    logits = [[0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0]]
    for seed in range(20):
        torch.manual_seed(seed)
        drawn, _ = sample(logits, [0.0, 100.0], [1.0, 1.0], [0, 0])
        assert drawn[0] == 3
    greedy, _ = sample(logits, None)
    assert greedy.tolist() == [3, 0]


def test_without_filters_all_are_left(shares: list[Tensor]) -> None:
    sample([[0.0] * 1000], [1.0])
    sample([[0.0] * 1000], [1.0], [1.0], [0])
    for seen in shares:
        assert (seen > 0).all()


def test_of_equal_ones_the_first_are_left(shares: list[Tensor]) -> None:
    sample([[1.0] * 50], [1.0], None, [3])
    assert shares[0].nonzero()[:, 1].tolist() == [0, 1, 2]


def test_logits_are_given_back_as_they_were() -> None:
    logits = [[1.0, 20.0, -3.0]]
    for temperatures in (None, [0.25]):
        _, got = sample(logits, temperatures, [0.5], [1])
        assert got.tolist() == logits


def test_bias_then_softcap() -> None:
    best, logits = sample([[1.0, 20.0, -3.0]], None, softcap=10.0, bias=torch.tensor([0.0, 0.0, 40.0]))
    torch.testing.assert_close(logits, 10 * torch.tanh(torch.tensor([[0.1, 2.0, 3.7]])))
    assert best == 2

"""How rows looked back: attention weights, worked out in binary64 from a step's own queries and the stored keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cabochon.model.model import Model
from cabochon.trace.stored import stored
from cabochon.trace.trace import AttentionRow
from cabochon.types import PAGE, StepInput

DIGITS = 6
"""Decimals of a weight."""


def attention_of(model: Model, step: StepInput, layers: Sequence[int]) -> tuple[tuple[AttentionRow, ...], ...]:
    """For each row whose logits were wanted in the model's last step, its weights in each of the layers.

    The model must keep the queries of these layers (``Model.queries``).
    """
    queries = {layer: model.queries(layer) for layer in layers}
    return tuple(
        tuple(_row(model, step, row, layer, queries[layer][kept]) for layer in layers)
        for kept, row in enumerate(step.logit_rows.tolist())
    )


def _row(
    model: Model, step: StepInput, row: int, layer: int, query: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> AttentionRow:
    config, group = model.config, model.store.layout.group_of[layer]
    first, last = int(step.first_key[group, row]), int(step.last_key[group, row])
    pages = step.page_tables[group][step.sequences[row], first // PAGE : last // PAGE + 1]
    keys = stored(model.store, layer, pages, "keys")[first % PAGE :][: last - first + 1].astype(np.float64)  # [K, G, E]
    shared = config.heads // config.kv_heads
    q = query.astype(np.float64).reshape(config.kv_heads, shared, config.head_dim)  # [G, H/G, E]
    scores = np.einsum("gje,kge->gjk", q, keys)  # [G, H/G, K]
    if config.attn_softcap is not None:
        scores = config.attn_softcap * np.tanh(scores / config.attn_softcap)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return AttentionRow(
        layer=layer,
        position=int(step.positions[row]),
        first_key=first,
        weights=tuple(tuple(head) for head in weights.reshape(config.heads, -1).round(DIGITS).tolist()),
    )

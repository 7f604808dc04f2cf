"""What steps cost, counted from their integers alone; the native core counts the same while it runs them."""

from __future__ import annotations

from cabochon.kvcache.groups import KVGroup
from cabochon.kvcache.store import KVStore, page_bytes
from cabochon.model.config import GemmaConfig
from cabochon.model.model import Model
from cabochon.model.native_model import NativeModel
from cabochon.trace.trace import Cost
from cabochon.types import PAGE, KVType, StepInput


def cost_of(step: StepInput, config: GemmaConfig, store: KVStore) -> Cost:
    """What a step costs. In the last layer only rows whose logits are wanted look at keys: the others are done."""
    seen = step.last_key - step.first_key + 1  # [P, T]
    total = Cost(step.rows, 0, 0, 0)
    for layer, group in enumerate(store.layout.group_of):
        of_one = position_bytes(store.layout.groups[group], store.kv_type)
        last = layer == len(store.layout.group_of) - 1
        keys = int((seen[group][step.kept_rows] if last else seen[group]).sum())
        total += Cost(0, keys * config.heads, keys * of_one, step.rows * of_one)
    return total


def recomputing(prompt: int, tokens: int, config: GemmaConfig, store: KVStore) -> Cost:
    """What it costs to choose so many tokens after a prompt of so many ids, running the whole text for each of them.

    Of n ids the n-th row alone gives logits: tokens run are ``tokens * prompt + tokens * (tokens - 1) / 2``.
    """
    lengths = range(prompt, prompt + tokens)
    total = Cost(sum(lengths), 0, 0, 0)
    for layer, group in enumerate(store.layout.group_of):
        kind = store.layout.groups[group]
        of_one = position_bytes(kind, store.kv_type)
        last = layer == len(store.layout.group_of) - 1
        keys = sum(_seen(n, kind.window) - (_seen(n - 1, kind.window) if last else 0) for n in lengths)
        total += Cost(0, keys * config.heads, keys * of_one, total.tokens * of_one)
    return total


def position_bytes(kind: KVGroup, kv_type: KVType) -> int:
    """Bytes of one position's keys and values in one layer."""
    return page_bytes(kind, kv_type) // (len(kind.layers) * PAGE)


def counted(model: Model) -> Cost | None:
    """What the native core has counted so far; None on another backend."""
    if not isinstance(model, NativeModel):
        return None
    counters = model.counters
    return Cost(counters["rows"], counters["pairs"], counters["kv_bytes_read"], counters["kv_bytes_written"])


def _seen(rows: int, window: int | None) -> int:
    """Keys that the first ``rows`` positions see, each for itself: sum of min(i + 1, window)."""
    if window is None or rows <= window:
        return rows * (rows + 1) // 2
    return window * (window + 1) // 2 + (rows - window) * window

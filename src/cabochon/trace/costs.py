"""What steps cost, counted from their integers alone; the native core counts the same while it runs them."""

from __future__ import annotations

from dataclasses import dataclass

from cabochon.kvcache.store import KVStore, page_bytes
from cabochon.model.config import GemmaConfig
from cabochon.types import PAGE, StepInput


@dataclass(frozen=True, slots=True)
class Cost:
    """Counts over some steps."""

    tokens_run: int = 0
    """Rows."""
    pairs: int = 0
    """Query-key pairs: of one head's query in one row and a key that it sees, over all layers."""
    kv_bytes_read: int = 0
    """Keys and values that rows see, each row for itself, over all layers."""
    kv_bytes_written: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.tokens_run + other.tokens_run,
            self.pairs + other.pairs,
            self.kv_bytes_read + other.kv_bytes_read,
            self.kv_bytes_written + other.kv_bytes_written,
        )

    def __sub__(self, other: Cost) -> Cost:
        return Cost(
            self.tokens_run - other.tokens_run,
            self.pairs - other.pairs,
            self.kv_bytes_read - other.kv_bytes_read,
            self.kv_bytes_written - other.kv_bytes_written,
        )


def cost_of(step: StepInput, config: GemmaConfig, store: KVStore) -> Cost:
    """What a step costs. In the last layer only rows whose logits are wanted look at keys: the others are done."""
    seen = step.last_key - step.first_key + 1  # [P, T]
    total = Cost(tokens_run=step.rows)
    for layer, group in enumerate(store.layout.group_of):
        kind = store.layout.groups[group]
        of_one = page_bytes(kind, store.kv_type) // (len(kind.layers) * PAGE)  # bytes of a position
        last = layer == len(store.layout.group_of) - 1
        keys = int((seen[group][step.kept_rows] if last else seen[group]).sum())
        total += Cost(0, keys * config.heads, keys * of_one, step.rows * of_one)
    return total

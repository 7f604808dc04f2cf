"""Which layers share pages.

Layers with the same window and the same key/value shape see the same keys, so one page table serves them all: a page id
names the same 32 positions in every layer of its group. Gemma 1 has one group, Gemma 2 and 3 have two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cabochon.types import PAGE


@dataclass(frozen=True, slots=True)
class KVGroup:
    """Layers that share a page table."""

    window: int | None
    """Keys a query sees, itself included; None for all."""
    kv_heads: int
    """G."""
    head_dim: int
    """E."""
    layers: tuple[int, ...]
    """The layers that store keys and values here, ascending."""

    def first_page(self, pages: int) -> int:
        """The first page that the query after ``pages`` full pages sees, or ``pages`` if it sees none of them."""
        return first_page_seen(self.window, pages * PAGE)


@dataclass(frozen=True, slots=True)
class KVLayout:
    """All groups of a model, in order of their first layer, and each layer's group."""

    groups: tuple[KVGroup, ...]
    group_of: tuple[int, ...]
    """[L] index into ``groups``."""


def first_page_seen(window: int | None, query: int) -> int:
    """The first page that a query at position ``query`` sees, where a layer has this window."""
    return 0 if window is None else max(query - window + 1, 0) // PAGE


def group_layers(windows: Sequence[int | None], kv_heads: Sequence[int], head_dims: Sequence[int]) -> KVLayout:
    """The layout for per-layer windows, key/value heads and head sizes (each [L])."""
    members: dict[tuple[int | None, int, int], list[int]] = {}
    for layer, kind in enumerate(zip(windows, kv_heads, head_dims, strict=True)):
        members.setdefault(kind, []).append(layer)
    groups = tuple(KVGroup(*kind, layers=tuple(layers)) for kind, layers in members.items())
    group_of = {layer: index for index, group in enumerate(groups) for layer in group.layers}
    return KVLayout(groups, tuple(group_of[layer] for layer in range(len(windows))))

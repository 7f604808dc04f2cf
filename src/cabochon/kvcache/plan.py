"""How many pages each group gets: from a number of sequences, or from bytes, with the arithmetic to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cabochon.errors import UsageError
from cabochon.kvcache.groups import KVGroup
from cabochon.kvcache.pages import pages_needed, pages_of
from cabochon.kvcache.store import page_bytes
from cabochon.types import KVType


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Pages of keys and values, and what they are for."""

    pages: tuple[int, ...]
    """[P] pages of each group."""
    checkpoint_pages: int
    """The most pages of a sliding group that are protected for reuse."""
    arithmetic: tuple[str, ...]
    """A part for each group."""
    nbytes: int


def plan_memory(
    groups: Sequence[KVGroup],
    kv_type: KVType,
    *,
    context: int,
    chunk: int,
    running: int,
    checkpoints: int,
    kv_memory: int | None = None,
) -> MemoryPlan:
    """Pages for ``running`` sequences of up to ``context`` keys in steps of up to ``chunk`` rows.

    A sliding group gets what ``running`` sequences hold at once and ``checkpoints`` places to go on from. Other groups
    get ``running`` whole contexts; or, where ``kv_memory`` bytes are given, what is left of them, at least one context.

    Raises ``UsageError`` with the arithmetic if ``kv_memory`` is too little.
    """
    each = [pages_needed(group, context, chunk) for group in groups]
    spare = [0 if group.window is None else checkpoints * pages_of(group.window - 1) for group in groups]
    pages = [running * n + more for n, more in zip(each, spare, strict=True)]
    if kv_memory is not None:
        pages = _within(groups, kv_type, kv_memory, pages, each)
    sizes = [page_bytes(group, kv_type) for group in groups]
    lines = tuple(
        _line(group, n, size, one, running, more)
        for group, n, size, one, more in zip(groups, pages, sizes, each, spare, strict=True)
    )
    total = sum(n * size for n, size in zip(pages, sizes, strict=True))
    if kv_memory is not None and total > kv_memory:
        needed = "; ".join(lines)
        raise UsageError(
            f"kv_memory of {_mib(kv_memory)} is too little: {needed}; together {_mib(total)}."
            " Ask for a smaller context, fewer running requests, or more memory"
        )
    return MemoryPlan(tuple(pages), max(spare, default=0), lines, total)


def _within(
    groups: Sequence[KVGroup], kv_type: KVType, kv_memory: int, pages: Sequence[int], each: Sequence[int]
) -> list[int]:
    """As ``pages`` for sliding groups; all others share what is left in proportion, but get a context at least."""
    sizes = [page_bytes(group, kv_type) for group in groups]
    growing = [i for i, group in enumerate(groups) if group.window is None] or list(range(len(groups)))
    left = kv_memory - sum(pages[i] * sizes[i] for i in range(len(groups)) if i not in growing)
    per_context = sum(each[i] * sizes[i] for i in growing)
    out = list(pages)
    for i in growing:
        out[i] = max(each[i], max(left, 0) * each[i] // per_context)
    return out


def _line(group: KVGroup, pages: int, size: int, each: int, running: int, spare: int) -> str:
    share = f"{pages:,} pages of {size / 2**10:,.0f} KiB = {_mib(pages * size)}"
    if group.window is None:
        return f"{len(group.layers)} global layers: {share} ({each} a context)"
    return f"{len(group.layers)} layers with window {group.window}: {share} ({running} x {each} running + {spare} kept)"


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"

"""Steps made by hand, for tests that drive a model without an engine.

    store = tiny_store(config, tokens=100)
    steps = StepMaker(store.layout, store.pages)
    text = steps.sequence()
    model.forward(steps.step((text, [2, 7, 9]), logits="all"))   # three rows
    model.forward(steps.step((text, [4])))                       # one more
    run_chunks(model, steps, text, ids, [30, 1, 1])              # logits of every position

Pages are handed out in random order, so that a model which takes neighbours in a sequence for neighbours in memory is
caught, and let go as soon as the window has passed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cabochon.errors import UsageError
from cabochon.kvcache.groups import KVLayout
from cabochon.kvcache.store import KVStore
from cabochon.model.config import GemmaConfig
from cabochon.model.layout import kv_layout
from cabochon.model.model import Model
from cabochon.types import PAGE, Float32, Int32, KVType, StepInput

Wanted = Literal["all", "last", "none"]
"""Which rows of each chunk give logits."""


@dataclass
class PagedSequence:
    """One sequence: how many keys it has stored, and in which pages."""

    tables: list[list[int]]
    """Per group: the page id of each run of 32 keys, -1 where the page was let go."""
    length: int = 0
    """Keys stored; also the position of the next row."""


@dataclass
class StepMaker:
    """Gives pages to sequences and makes the steps that fill them."""

    layout: KVLayout
    pages: Sequence[int]
    """Pages of each group."""
    seed: int = 0
    """Of the order in which pages are handed out."""
    let_go: bool = True
    """Pages wholly behind the window go back to the pool; otherwise sequences keep all of theirs."""
    _free: list[list[int]] = field(init=False)
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._free = [list(range(count)) for count in self.pages]
        self._random = np.random.default_rng(self.seed)

    def sequence(self) -> PagedSequence:
        """A new, empty sequence."""
        return PagedSequence([[] for _ in self.layout.groups])

    def end(self, sequence: PagedSequence) -> None:
        """Takes back all pages of a sequence, which is then empty."""
        for group, table in enumerate(sequence.tables):
            self._free[group] += [page for page in table if page >= 0]
            table.clear()
        sequence.length = 0

    def step(self, *chunks: tuple[PagedSequence, Sequence[int] | Int32], logits: Wanted = "last") -> StepInput:
        """One step over the next ids of each sequence, whose lengths grow by as much.

        Raises ``UsageError`` if a group has no page left.
        """
        ids: list[int] = []
        positions: list[int] = []
        sequences: list[int] = []
        wanted: list[int] = []
        row = 0
        for number, (sequence, tokens) in enumerate(chunks):
            count = len(tokens)
            ids += [int(token) for token in tokens]
            positions += range(sequence.length, sequence.length + count)
            sequences += [number] * count
            wanted += {"all": range(row, row + count), "last": [row + count - 1], "none": []}[logits]
            row += count
        first_key: list[list[int]] = []
        slots: list[list[int]] = []
        tables: list[Int32] = []
        for group, kind in enumerate(self.layout.groups):
            window = kind.window or max(positions) + 1
            first_key.append([max(0, position - window + 1) for position in positions])
            slots.append([])
            for sequence, tokens in chunks:
                slots[group] += self._give_pages(group, sequence, len(tokens), window)
            tables.append(_padded([sequence.tables[group] for sequence, _ in chunks]))
        for sequence, tokens in chunks:
            sequence.length += len(tokens)
        return StepInput(
            ids=_int32(ids),
            positions=_int32(positions),
            sequences=_int32(sequences),
            slots=_int32(slots),
            first_key=_int32(first_key),
            last_key=_int32([positions] * len(self.layout.groups)),
            page_tables=tuple(tables),
            logit_rows=_int32(wanted),
        )

    def _give_pages(self, group: int, sequence: PagedSequence, count: int, window: int) -> list[int]:
        """Slots of the next ``count`` keys, after letting go of what their first does not see any more."""
        table, free = sequence.tables[group], self._free[group]
        behind = max(0, sequence.length - window + 1) // PAGE if self.let_go else 0
        for index in range(min(behind, len(table))):
            if table[index] >= 0:
                free.append(table[index])
                table[index] = -1
        last = sequence.length + count
        while len(table) * PAGE < last:
            if not free:
                raise UsageError(f"group {group} has {self.pages[group]} pages, and all are taken")
            table.append(free.pop(int(self._random.integers(len(free)))))
        return [table[key // PAGE] * PAGE + key % PAGE for key in range(sequence.length, last)]


def tiny_store(config: GemmaConfig, tokens: int, kv_type: KVType = "f32", *, poisoned: bool = True) -> KVStore:
    """A store with room for ``tokens`` keys in every group, filled with NaN unless told otherwise."""
    layout = kv_layout(config)
    store = KVStore(layout, [-(-tokens // PAGE)] * len(layout.groups), kv_type)
    if poisoned:
        poison(store)
    return store


def poison(store: KVStore) -> None:
    """Makes every stored key and value NaN: whoever reads one that was not written shows it."""
    for kv in store.layers:
        for array in (kv.keys, kv.values):
            array.fill({"bf16": 0x7FC0, "int8": 127}.get(store.kv_type, np.nan))
        for scales in (kv.key_scales, kv.value_scales):
            if scales is not None:
                scales.fill(np.nan)


def run_chunks(
    model: Model, steps: StepMaker, sequence: PagedSequence, ids: Sequence[int] | Int32, chunks: Iterable[int]
) -> Float32:
    """Logits of every position, [len(ids), V], in steps of the given sizes; what they leave over is one last step."""
    logits, start = [], 0
    for size in (*chunks, len(ids)):
        part = ids[start : start + size]
        if len(part):
            logits.append(model.forward(steps.step((sequence, part), logits="all")).copy())
        start += len(part)
    return np.concatenate(logits)


def _int32(values: Sequence[int] | Sequence[Sequence[int]] | list[list[int]]) -> Int32:
    return np.array(values, dtype=np.int32)


def _padded(tables: list[list[int]]) -> Int32:
    """Tables of unequal length as one array, -1 where there is no page."""
    width = max(len(table) for table in tables)
    return _int32([table + [-1] * (width - len(table)) for table in tables])

"""A plan to the arrays of a step (stop 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cabochon.kvcache.groups import KVGroup
from cabochon.kvcache.pages import NO_PAGE, PageTable
from cabochon.types import PAGE, Int32, StepInput


@dataclass(frozen=True, slots=True)
class SequenceRows:
    """Adjacent rows of one sequence. Its keys are numbered as its positions are: key i is that of position i."""

    ids: Sequence[int]
    """[rows] token ids."""
    first: int
    """Position of the first one."""
    tables: Sequence[PageTable]
    """[P] with pages for every key the rows see or store."""
    logit_rows: Sequence[int]
    """Which rows' logits are wanted, counted from the sequence's first row here, ascending."""
    best_rows: Sequence[int] = ()
    """Of which other rows the best id is."""


def build_step(sequences: Sequence[SequenceRows], groups: Sequence[KVGroup]) -> StepInput:
    """One step of all ``sequences``, at least one; each row sees its own key and those before it in the window."""
    lengths = [len(sequence.ids) for sequence in sequences]
    starts = np.cumsum([0, *lengths[:-1]])
    positions = np.concatenate([s.first + np.arange(n) for s, n in zip(sequences, lengths, strict=True)])
    page_tables = tuple(_padded([s.tables[g].entries for s in sequences]) for g in range(len(groups)))
    rows = np.repeat(np.arange(len(sequences)), lengths)
    slots = [table[rows, positions // PAGE] * PAGE + positions % PAGE for table in page_tables]
    first_key = [np.maximum(positions - (group.window or positions + 1) + 1, 0) for group in groups]
    logit_rows = [start + np.array(s.logit_rows, np.int64) for s, start in zip(sequences, starts, strict=True)]
    best_rows = [start + np.array(s.best_rows, np.int64) for s, start in zip(sequences, starts, strict=True)]
    return StepInput(
        ids=np.concatenate([np.array(s.ids, np.int32) for s in sequences]),
        positions=positions.astype(np.int32),
        sequences=rows.astype(np.int32),
        slots=np.array(slots, np.int32),
        first_key=np.array(first_key, np.int32),
        last_key=np.tile(positions.astype(np.int32), (len(groups), 1)),
        page_tables=page_tables,
        logit_rows=np.concatenate(logit_rows).astype(np.int32),
        best_rows=np.concatenate(best_rows).astype(np.int32),
    )


def _padded(tables: Sequence[Int32]) -> Int32:
    """[S, pages] from tables of several lengths."""
    out = np.full((len(tables), max(map(len, tables))), NO_PAGE, np.int32)
    for row, table in enumerate(tables):
        out[row, : len(table)] = table
    return out

"""A text in one step, from empty pages: what cached generation is compared with."""

from __future__ import annotations

from collections.abc import Sequence

from cabochon.engine.batch import SequenceRows, build_step
from cabochon.kvcache.pages import PagePool, PageTable
from cabochon.model.model import Model
from cabochon.types import Float32


def one_pass(model: Model, pools: Sequence[PagePool], ids: Sequence[int]) -> Float32:
    """Normalised hidden states [n, D] of all n ``ids``, all run in one step.

    ``pools`` have pages for them, and no engine over the same pages runs meanwhile. Raises as ``Model.hidden`` does.
    """
    groups = model.store.layout.groups
    tables = [PageTable(pool, group.window, len(ids)) for pool, group in zip(pools, groups, strict=True)]
    try:
        for table in tables:
            table.grow(len(ids))
        return model.hidden(build_step([SequenceRows(ids, 0, tables, range(len(ids)))], groups))
    finally:
        for table in tables:
            table.let_go_all()

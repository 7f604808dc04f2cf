"""The hand-made steps that other tests rely on."""

from __future__ import annotations

import numpy as np
import pytest

from cabochon.errors import UsageError
from cabochon.kvcache.groups import KVGroup, KVLayout
from cabochon.testing.steps import StepMaker
from cabochon.types import PAGE

LAYOUT = KVLayout((KVGroup(20, 1, 8, (0,)), KVGroup(None, 1, 8, (1,))), (0, 1))
SLIDING, GLOBAL = 0, 1


def test_rows_of_two_sequences_lie_side_by_side() -> None:
    steps = StepMaker(LAYOUT, (8, 8))
    a, b = steps.sequence(), steps.sequence()
    steps.step((a, range(30)))
    step = steps.step((a, [5, 6, 7]), (b, [8]))
    assert step.ids.tolist() == [5, 6, 7, 8]
    assert step.positions.tolist() == [30, 31, 32, 0]
    assert step.sequences.tolist() == [0, 0, 0, 1]
    assert step.logit_rows.tolist() == [2, 3]
    assert step.last_key.tolist() == [[30, 31, 32, 0]] * 2
    assert step.first_key[SLIDING].tolist() == [11, 12, 13, 0]
    assert step.first_key[GLOBAL].tolist() == [0, 0, 0, 0]
    for group, table in enumerate(step.page_tables):
        assert table.shape == (2, 2)
        assert table[1, 1] == -1
        pages = table[step.sequences, step.positions // PAGE]
        assert step.slots[group].tolist() == (pages * PAGE + step.positions % PAGE).tolist()
        assert len(set(table[table >= 0].tolist())) == 3, "no page has two owners"


def test_a_page_is_let_go_when_the_window_has_passed_all_of_it() -> None:
    steps = StepMaker(LAYOUT, (8, 8))
    text = steps.sequence()
    steps.step((text, range(PAGE + 18)))
    assert (steps.step((text, [0])).page_tables[SLIDING] >= 0).tolist() == [[True, True]]  # position 50 sees 31
    step = steps.step((text, [0]))
    assert (step.page_tables[SLIDING] >= 0).tolist() == [[False, True]]
    assert (step.page_tables[GLOBAL] >= 0).tolist() == [[True, True]]


def test_pages_run_out_and_come_back() -> None:
    steps = StepMaker(LAYOUT, (8, 1))
    a, b = steps.sequence(), steps.sequence()
    steps.step((a, range(3)))
    with pytest.raises(UsageError, match="group 1 has 1 pages"):
        steps.step((b, range(3)))
    steps.end(a)
    assert steps.step((a, np.arange(3, dtype=np.int32))).positions.tolist() == [0, 1, 2]

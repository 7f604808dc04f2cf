"""The thread pool: every item of every phase once, one phase after another, with any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from cabochon._native import check


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 9])
def test_every_item_of_every_phase_is_done_once_and_in_order(threads: int) -> None:
    for items, chunk in ((1, 1), (2, 1), (5, 3), (64, 1), (1000, 7), (3, 100)):
        visits = check.pool_visits(threads, 3000, items, chunk)
        np.testing.assert_array_equal(visits, np.full(items, 3000))


def test_a_phase_without_items_is_done_at_once() -> None:
    assert check.pool_visits(3, 100, 0, 1).tolist() == []


def test_pools_come_and_go() -> None:
    for _ in range(200):
        assert check.pool_visits(4, 1, 8, 1).tolist() == [1] * 8

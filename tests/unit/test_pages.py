from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from cabochon.kvcache.groups import KVGroup
from cabochon.kvcache.pages import NO_PAGE, PagePool, PageTable, pages_needed, pages_of, plan_pages
from cabochon.types import PAGE

WINDOWS = st.none() | st.integers(1, 100)


def group(window: int | None) -> KVGroup:
    return KVGroup(window, kv_heads=1, head_dim=2, layers=(0,))


def first_seen(window: int | None, query: int) -> int:
    return 0 if window is None else max(0, query - window + 1)


class PoolMachine(RuleBasedStateMachine):
    """A pool against a plain count of owners."""

    owned = Bundle("owned")

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(5)
        self.counts: Counter[int] = Counter()

    @precondition(lambda self: self.pool.free)
    @rule(target=owned)
    def allocate(self) -> int:
        page = self.pool.allocate()
        assert self.counts[page] == 0
        self.counts[page] = 1
        return page

    @rule(target=owned, page=owned)
    def retain(self, page: int) -> int:
        # A bundle keeps names that were let go under another name.
        if not self.counts[page]:
            with pytest.raises(AssertionError, match="nobody owns it"):
                self.pool.retain(page)
            return page
        self.pool.retain(page)
        self.counts[page] += 1
        return page

    @rule(page=consumes(owned))
    def release(self, page: int) -> None:
        if not self.counts[page]:
            with pytest.raises(AssertionError, match="nobody owns it"):
                self.pool.release(page)
            return
        self.pool.release(page)
        self.counts[page] -= 1

    @invariant()
    def free_is_what_nobody_owns(self) -> None:
        assert self.pool.free == self.pool.pages - sum(count > 0 for count in self.counts.values())


class TableMachine(RuleBasedStateMachine):
    """Several sequences in one pool: each table against the keys its queries may see."""

    def __init__(self) -> None:
        super().__init__()
        self.window = 40
        self.pool = PagePool(24)
        self.tables: list[PageTable] = []
        self.lengths: list[int] = []

    @precondition(lambda self: len(self.tables) < 4)
    @rule()
    def begin(self) -> None:
        self.tables.append(PageTable(self.pool, self.window, 400))
        self.lengths.append(0)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), rows=st.integers(1, 90))
    def run(self, data: st.DataObject, rows: int) -> None:
        which = data.draw(st.integers(0, len(self.tables) - 1))
        table, length = self.tables[which], self.lengths[which]
        end = min(length + rows, 400)
        missing = table.missing(end)
        if end == length or missing > self.pool.free:
            return
        before = self.pool.free
        table.grow(end)
        assert before - self.pool.free == missing
        seen = range(first_seen(self.window, length), end)
        assert all(table.entries[key // PAGE] != NO_PAGE for key in seen)
        table.let_go_behind(end)
        self.lengths[which] = end

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        which = data.draw(st.integers(0, len(self.tables) - 1))
        self.tables.pop(which).let_go_all()
        self.lengths.pop(which)

    @invariant()
    def only_what_is_seen_is_held(self) -> None:
        for table, length in zip(self.tables, self.lengths, strict=True):
            behind = first_seen(self.window, length) // PAGE
            assert (table.entries[:behind] == NO_PAGE).all()
            assert table.held == table.entries[behind:].tolist()
            assert NO_PAGE not in table.held

    @invariant()
    def no_page_is_lost_or_shared(self) -> None:
        self.pool.check_integrity(self.tables)


TestPool = PoolMachine.TestCase
TestTables = TableMachine.TestCase
for case in (TestPool, TestTables):
    case.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@given(window=WINDOWS, chunks=st.lists(st.integers(1, 80), min_size=1, max_size=30), spare=st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_the_plan_is_enough_for_any_cutting(window: int | None, chunks: list[int], spare: int) -> None:
    context, chunk = sum(chunks), max(chunks)
    needed = pages_needed(group(window), context, chunk)
    pool = PagePool(needed)
    table = PageTable(pool, window, context + spare)
    length = 0
    for rows in chunks:
        length += rows
        table.grow(length)
        pool.check_integrity([table])
        table.let_go_behind(length)
    table.let_go_all()
    pool.check_integrity([])
    assert pool.free == needed


def test_pages_needed() -> None:
    assert pages_needed(group(None), context=4096, chunk=512) == 128
    assert pages_needed(group(512), context=4096, chunk=512) == 33
    assert pages_needed(group(512), context=4096, chunk=512, running=3) == 99
    # Never more than the whole context.
    assert pages_needed(group(512), context=100, chunk=512) == 4
    assert plan_pages([group(512), group(None)], context=4096, chunk=1) == (18, 128)


def test_the_window_bound_is_exact() -> None:
    """A page goes as soon as its last key is behind the window, and not one query earlier."""
    pool = PagePool(4)
    table = PageTable(pool, 10, 128)
    table.grow(50)
    table.let_go_behind(31 + 9)  # sees keys 31 ... 40
    assert len(table.held) == 2
    table.let_go_behind(31 + 10)  # sees keys 32 ... 41
    assert len(table.held) == 1
    assert table.entries[0] == NO_PAGE


def test_pages_of() -> None:
    assert [pages_of(keys) for keys in (0, 1, 32, 33, 64)] == [0, 1, 1, 2, 2]


def test_a_page_with_two_owners_stays_until_both_let_go() -> None:
    pool = PagePool(1)
    page = pool.allocate()
    pool.retain(page)
    pool.release(page)
    assert pool.free == 0
    pool.release(page)
    assert pool.free == 1


def test_check_integrity_sees_a_lost_page() -> None:
    pool = PagePool(3)
    pool.allocate()
    with pytest.raises(AssertionError, match="counted 1 times"):
        pool.check_integrity([])


def test_check_integrity_sees_a_page_held_twice() -> None:
    pool = PagePool(3)
    table = PageTable(pool, None, 64)
    table.grow(40)
    with pytest.raises(AssertionError, match="counted 1 times"):
        pool.check_integrity([table, table])


def test_check_integrity_sees_a_page_of_another_pool() -> None:
    table = PageTable(PagePool(9), None, 320)
    table.grow(320 - 32)
    pool = PagePool(3)
    for _ in range(3):
        pool.allocate()
    with pytest.raises(AssertionError, match="do not exist"):
        pool.check_integrity([table])


def test_check_integrity_sees_a_free_list_out_of_step() -> None:
    pool = PagePool(3)
    pool._blank.append(2)
    with pytest.raises(AssertionError, match="free pages"):
        pool.check_integrity([])


def test_a_table_that_let_all_go_can_be_filled_again() -> None:
    pool = PagePool(4)
    table = PageTable(pool, None, 128)
    table.grow(100)
    table.let_go_all()
    assert (len(table.entries), table.held, table.missing(40)) == (0, [], 2)
    table.grow(40)
    pool.check_integrity([table])
    assert len(table.held) == 2

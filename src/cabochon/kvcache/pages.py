"""Who owns which page: a pool per group, a table per sequence and group. Integers only; the arrays are in ``store``.

A page is owned as often as it is counted. It goes back to its pool when the last owner lets it go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from cabochon.kvcache.groups import KVGroup
from cabochon.types import PAGE, Int32

NO_PAGE = -1
"""In a table: these keys are not held (any more)."""


class PagePool:
    """The pages of one group. Which free page is handed out next is arbitrary, and may not matter to anyone."""

    def __init__(self, pages: int) -> None:
        self._owners = [0] * pages
        self._free = list(range(pages - 1, -1, -1))

    @property
    def pages(self) -> int:
        """Pages in all."""
        return len(self._owners)

    @property
    def free(self) -> int:
        """Pages nobody owns."""
        return len(self._free)

    def allocate(self) -> int:
        """A page with one owner. The caller makes sure beforehand that one is free."""
        page = self._free.pop()
        self._owners[page] = 1
        return page

    def retain(self, page: int) -> None:
        """One more owner of a page that has one."""
        if self._owners[page] < 1:
            raise AssertionError(f"page {page} is retained, but nobody owns it")
        self._owners[page] += 1

    def release(self, page: int) -> None:
        """One owner less; without any, the page is free."""
        if self._owners[page] < 1:
            raise AssertionError(f"page {page} is let go, but nobody owns it")
        self._owners[page] -= 1
        if not self._owners[page]:
            self._free.append(page)

    def check_integrity(self, tables: Iterable[PageTable]) -> None:
        """Raises ``AssertionError`` unless ``tables`` own each page as often as it is counted, and the rest is free."""
        held = Counter(page for table in tables for page in table.held)
        for page, owners in enumerate(self._owners):
            if held.pop(page, 0) != owners:
                raise AssertionError(f"page {page} is counted {owners} times, which is not how often tables hold it")
        if held:
            raise AssertionError(f"tables hold pages that do not exist: {sorted(held)}")
        if sorted(self._free) != [page for page, owners in enumerate(self._owners) if not owners]:
            raise AssertionError("the free pages are not the pages without an owner")


class PageTable:
    """One sequence's pages in one group: entry i is the page of keys ``PAGE * i ... PAGE * i + PAGE - 1``."""

    def __init__(self, pool: PagePool, window: int | None, capacity: int) -> None:
        """``window`` is the group's; ``capacity`` is the most keys the sequence may have."""
        self._pool = pool
        self._window = window
        self._pages = np.full(pages_of(capacity), NO_PAGE, np.int32)
        self._behind = 0
        self._length = 0

    @property
    def entries(self) -> Int32:
        """[pages] page ids, ``NO_PAGE`` where let go; a view, valid until the table changes."""
        return self._pages[: self._length]

    @property
    def held(self) -> list[int]:
        """The pages this table owns."""
        ids: list[int] = self._pages[self._behind : self._length].tolist()
        return ids

    def missing(self, keys: int) -> int:
        """How many pages ``grow`` would take from the pool."""
        return max(pages_of(keys) - self._length, 0)

    def grow(self, keys: int) -> None:
        """Takes pages from the pool until keys ``0 ... keys - 1`` have one (but for those let go)."""
        for index in range(self._length, pages_of(keys)):
            self._pages[index] = self._pool.allocate()
            self._length = index + 1

    def let_go_behind(self, next_query: int) -> None:
        """Lets go the pages that neither a query at position ``next_query`` nor any later one sees."""
        if self._window is None:
            return
        first_key = max(next_query - self._window + 1, 0)
        self._release_up_to(min(first_key // PAGE, self._length))

    def let_go_all(self) -> None:
        """Lets go every page; the table is then as new."""
        self._release_up_to(self._length)
        self._behind = self._length = 0

    def _release_up_to(self, end: int) -> None:
        for index in range(self._behind, end):
            page = int(self._pages[index])
            self._pages[index] = NO_PAGE
            self._behind = index + 1
            self._pool.release(page)


def pages_of(keys: int) -> int:
    """Pages that hold ``keys`` keys from a page's start on."""
    return -(-keys // PAGE)


def pages_needed(group: KVGroup, context: int, chunk: int, running: int = 1) -> int:
    """Pages of a group with which ``running`` sequences of up to ``context`` keys never run out.

    ``chunk`` is the most rows of one sequence in a step. In a sliding group a sequence holds what the first row of a
    step sees, and the step's own rows; wherever these begin in a page, they reach into one page more at most.
    """
    whole = pages_of(context)
    each = whole if group.window is None else min(pages_of(group.window + chunk) + 1, whole)
    return running * each


def plan_pages(groups: Sequence[KVGroup], context: int, chunk: int, running: int = 1) -> tuple[int, ...]:
    """``pages_needed`` of each group."""
    return tuple(pages_needed(group, context, chunk, running) for group in groups)

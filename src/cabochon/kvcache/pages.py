"""Who owns which page: a pool per group, a table per sequence and group. Integers only; the arrays are in ``store``.

A page is owned as often as it is counted. It goes back to its pool when the last owner lets it go.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from cabochon.kvcache.groups import KVGroup, first_page_seen
from cabochon.types import PAGE, Int32

NO_PAGE = -1
"""In a table: these keys are not held (any more)."""

COPY_ROOM = 2
"""Free pages with which a page can be copied: the source may be one of them."""


class PagePool:
    """The pages of one group.

    A page that nobody owns is *blank*, or it is *kept*: its content has a name (``prefix``), and until its memory is
    needed it can be owned again as it is. Blank pages are handed out first, then the kept ones that were let go longest
    ago, protected ones last. Which page it is may not matter to anyone.
    """

    def __init__(self, pages: int) -> None:
        self._owners = [0] * pages
        self._blank: list[int] = []
        self._named: set[int] = set()
        # Kept pages, the one let go longest ago first; a protected one is only in the second.
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._kept_protected: OrderedDict[int, None] = OrderedDict()
        self._protected: set[int] = set()
        self._on_reuse: Callable[[int], None] = _nobody_told
        self.clear()

    def clear(self) -> None:
        """Nobody owns a page, and all are blank."""
        self._owners = [0] * self.pages
        self._blank = list(range(self.pages - 1, -1, -1))
        for known in (self._named, self._protected, self._kept, self._kept_protected):
            known.clear()

    @property
    def pages(self) -> int:
        """Pages in all."""
        return len(self._owners)

    @property
    def free(self) -> int:
        """Pages nobody owns, kept ones included."""
        return len(self._blank) + self.kept

    @property
    def kept(self) -> int:
        """Pages nobody owns whose content is still known."""
        return len(self._kept) + len(self._kept_protected)

    @property
    def kept_pages(self) -> list[int]:
        """Those pages, the one that is handed out next first."""
        return [*self._kept, *self._kept_protected]

    def tell(self, on_reuse: Callable[[int], None]) -> None:
        """``on_reuse`` is told of each kept page whose memory is needed, before it is handed out without its name."""
        self._on_reuse = on_reuse

    def allocate(self) -> int:
        """A page with one owner. The caller makes sure beforehand that one is free."""
        page = self._blank.pop() if self._blank else self._take_kept()
        self._owners[page] = 1
        return page

    def retain(self, page: int) -> None:
        """One more owner of a page that has one, or whose content is known."""
        if self._owners[page] < 1:
            if page not in self._named:
                raise AssertionError(f"page {page} is retained, but nobody owns it")
            self._kept.pop(page, None)
            self._kept_protected.pop(page, None)
        self._owners[page] += 1

    def release(self, page: int) -> None:
        """One owner less; without any, the page is free."""
        if self._owners[page] < 1:
            raise AssertionError(f"page {page} is let go, but nobody owns it")
        self._owners[page] -= 1
        if not self._owners[page]:
            self._put_back(page)

    def name(self, page: int) -> None:
        """The content of an owned page is known from now on."""
        self._named.add(page)

    def forget(self, page: int) -> None:
        """The content of a page is not known any more; nothing happens if it was not."""
        self._named.discard(page)
        self._protected.discard(page)
        if page in self._kept or page in self._kept_protected:
            self._kept.pop(page, None)
            self._kept_protected.pop(page, None)
            self._blank.append(page)

    def protect(self, page: int, protected: bool) -> None:
        """Whether the page, if it is named, is to be handed out after all others."""
        if protected and page in self._named:
            self._protected.add(page)
        else:
            self._protected.discard(page)
        if page in self._kept or page in self._kept_protected:
            self._kept.pop(page, None)
            self._kept_protected.pop(page, None)
            self._put_back(page)

    @property
    def protected(self) -> int:
        """Named pages that are handed out last."""
        return len(self._protected)

    def check_names(self, named: Iterable[int]) -> None:
        """Raises ``AssertionError`` unless these are the pages whose content is known."""
        if self._named != set(named):
            raise AssertionError("the named pages are not those that a prefix names")

    def check_integrity(self, tables: Iterable[PageTable]) -> None:
        """Raises ``AssertionError`` unless ``tables`` own each page as often as it is counted, and the rest is free."""
        held = Counter(page for table in tables for page in table.held)
        for page, owners in enumerate(self._owners):
            if held.pop(page, 0) != owners:
                raise AssertionError(f"page {page} is counted {owners} times, which is not how often tables hold it")
        if held:
            raise AssertionError(f"tables hold pages that do not exist: {sorted(held)}")
        free = [page for page, owners in enumerate(self._owners) if not owners]
        if sorted([*self._blank, *self._kept, *self._kept_protected]) != free:
            raise AssertionError("the free pages are not the pages without an owner")
        if any(page in self._named for page in self._blank):
            raise AssertionError("a blank page has a name")
        if not self._named.issuperset([*self._kept, *self._kept_protected, *self._protected]):
            raise AssertionError("a page without a name is kept or protected")

    def _put_back(self, page: int) -> None:
        if page not in self._named:
            self._blank.append(page)
        elif page in self._protected:
            self._kept_protected[page] = None
        else:
            self._kept[page] = None

    def _take_kept(self) -> int:
        page, _ = (self._kept or self._kept_protected).popitem(last=False)
        self._named.discard(page)
        self._protected.discard(page)
        self._on_reuse(page)
        return page


def _nobody_told(page: int) -> None:
    """For pools whose pages are never named."""


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
    def window(self) -> int | None:
        """Keys a query sees, itself included; None for all."""
        return self._window

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
        for _ in range(self._length, pages_of(keys)):
            self._adopt_owned(self._pool.allocate())

    def adopt(self, pages: Sequence[int]) -> None:
        """An empty table takes these pages, of keys from 0 on, as they are; ``NO_PAGE`` only before all others."""
        for index, page in enumerate(pages):
            if page == NO_PAGE:
                self._behind = index + 1
            else:
                self._pool.retain(page)
            self._pages[index] = page
            self._length = index + 1

    def adopt_copy(self, page: int, copy: Callable[[int, int], None]) -> None:
        """Takes a page of its own for its next keys, with the content of ``page``, which is owned or kept.

        ``copy`` (source, target) copies it. The caller makes sure that the pool has ``COPY_ROOM`` free pages.
        """
        self._pool.retain(page)  # or making room for the copy might take its source
        self._adopt_owned(self._pool.allocate())
        copy(page, int(self._pages[self._length - 1]))
        self._pool.release(page)

    def fork(self, other: PageTable, keys: int, copy: Callable[[int, int], None]) -> None:
        """An empty table takes the first ``keys`` keys of another, as far as a query after them sees them.

        Full pages are shared; of one that is not full it takes a copy, as ``adopt_copy`` does. The other must hold
        them (``can_fork``).
        """
        whole = keys // PAGE
        pages = other.entries[:whole].tolist()
        first = first_page_seen(self._window, keys)
        self.adopt([NO_PAGE] * min(first, whole) + pages[first:])
        if keys % PAGE:
            self.adopt_copy(int(other.entries[whole]), copy)

    def can_fork(self, keys: int) -> bool:
        """Whether it holds all that a query after its first ``keys`` keys sees."""
        return pages_of(keys) <= self._length and self._behind <= first_page_seen(self._window, keys)

    def cut(self, keys: int) -> None:
        """Lets go the pages that hold none of the first ``keys`` keys."""
        for index in range(self._length - 1, pages_of(keys) - 1, -1):
            self._length = index
            self._give_back(index)

    def let_go_behind(self, next_query: int) -> None:
        """Lets go the pages that neither a query at position ``next_query`` nor any later one sees."""
        self._release_up_to(min(first_page_seen(self._window, next_query), self._length))

    def let_go_all(self) -> None:
        """Lets go every page, the last one first: of those that are kept, a text's beginning stays longest."""
        self.cut(self._behind * PAGE)
        self._behind = self._length = 0

    def forget(self) -> None:
        """The table is as new; what it owned has been let go by ``PagePool.clear``."""
        self._pages[:] = NO_PAGE
        self._behind = self._length = 0

    def _adopt_owned(self, page: int) -> None:
        self._pages[self._length] = page
        self._length += 1

    def _release_up_to(self, end: int) -> None:
        for index in range(self._behind, end):
            self._behind = index + 1
            self._give_back(index)

    def _give_back(self, index: int) -> None:
        page = int(self._pages[index])
        self._pages[index] = NO_PAGE
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

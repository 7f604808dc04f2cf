"""The pages that requests hold: found or copied when they begin, named as they fill, let go when they end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from cabochon.engine.request import RequestState
from cabochon.kvcache.pages import COPY_ROOM, PagePool, PageTable
from cabochon.kvcache.prefix import PrefixCache
from cabochon.kvcache.store import KVStore
from cabochon.types import PAGE


class Holdings:
    """Moves pages between the pools, the prefix cache and the requests."""

    def __init__(self, store: KVStore, pools: Sequence[PagePool], prefixes: PrefixCache | None, context: int) -> None:
        self._store = store
        self._pools = pools
        self._prefixes = prefixes
        self._context = context

    def new_tables(self) -> tuple[PageTable, ...]:
        """[P] tables without pages."""
        groups = zip(self._pools, self._store.layout.groups, strict=True)
        return tuple(PageTable(pool, group.window, self._context) for pool, group in groups)

    def begin(self, state: RequestState) -> None:
        """Gives a request that begins what is stored already of its text, if rows need not be run for their logits."""
        most = min(len(state.ids) - 1, state.reusable)
        if self._prefixes is not None:
            self._begin_with_prefix(state, self._prefixes, most)
        self._fork(state, most)
        if not state.work.prefill_rows:
            state.reused = state.computed

    def stored(self, state: RequestState, computed: int) -> None:
        """Keys and values of the first ``computed`` ids of a request are stored."""
        state.computed = computed
        if self._prefixes is not None and state.trail is not None:
            self._prefixes.extend(state.trail, state.ids, computed, state.tables)
        for table in state.tables:
            table.let_go_behind(computed)

    def let_go(self, state: RequestState) -> None:
        """All pages of a text that ends or has to wait. Those with a name are found again as long as they are kept."""
        for table in state.tables:
            table.let_go_all()
        if self._prefixes is not None and state.trail is not None:
            self._prefixes.end(state.trail, checkpoint=state.phase == "finished")
            state.trail = None

    def start_over(self, states: Iterable[RequestState]) -> None:
        """Nobody owns a page, and nothing is kept."""
        for state in states:
            state.trail = None
            for table in state.tables:
                table.forget()
        for pool in self._pools:
            pool.clear()
        if self._prefixes is not None:
            self._prefixes.clear()

    def check_integrity(self, states: Sequence[RequestState]) -> None:
        """Raises ``AssertionError`` unless the requests own each page as often as it is counted."""
        for group, pool in enumerate(self._pools):
            pool.check_integrity(state.tables[group] for state in states)
        if self._prefixes is not None:
            self._prefixes.check_integrity()

    def _begin_with_prefix(self, state: RequestState, prefixes: PrefixCache, most: int) -> None:
        request = state.request
        ends = (*request.message_ends, len(request.prompt) - 1)
        found = prefixes.begin(state.ids[: most + 1], state.tables, request.tenant, ends)
        state.trail, state.computed = found.trail, found.keys
        if found.part and self._can_copy():
            for group, (table, page) in enumerate(zip(state.tables, found.part, strict=True)):
                table.adopt_copy(page, partial(self._store.copy_page, group))
                # Or the text would hold more than pools must have room for, and never begin.
                table.let_go_behind(found.keys + found.part_keys)
            found.trail.found = state.computed = found.keys + found.part_keys

    def _fork(self, state: RequestState, most: int) -> None:
        """Takes over from the text that a request is forked of, if that holds more than was found."""
        origin = state.fork_of
        if origin is None or origin.phase != "running":
            return
        keys = min(state.shared, origin.computed, most)
        if keys <= state.computed or not all(table.can_fork(keys) for table in origin.tables):
            return
        if keys % PAGE and not self._can_copy():
            return
        for table in state.tables:
            table.let_go_all()
        for group, (table, theirs) in enumerate(zip(state.tables, origin.tables, strict=True)):
            table.fork(theirs, keys, partial(self._store.copy_page, group))
        state.computed = keys
        if self._prefixes is not None and state.trail is not None:
            state.trail.found = keys
            self._prefixes.extend(state.trail, state.ids, keys, state.tables)

    def _can_copy(self) -> bool:
        return all(pool.free >= COPY_ROOM for pool in self._pools)

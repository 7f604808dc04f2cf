"""Pages of a saved conversation, back in their pools and under their names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from cabochon.errors import ConversationError
from cabochon.kvcache.conversation_file import ConversationReader
from cabochon.kvcache.pages import NO_PAGE, PagePool, PageTable
from cabochon.kvcache.prefix import PrefixCache
from cabochon.kvcache.store import KVStore
from cabochon.types import PAGE


def restore(
    file: ConversationReader,
    store: KVStore,
    pools: Sequence[PagePool],
    prefixes: PrefixCache,
    tenant: Hashable = None,
) -> None:
    """The pages of ``file`` are kept, as those of a text that has just ended; what is held of them already stays.

    Raises ``ConversationError`` if too few pages are free, or the file turns out to be damaged. Then no page has a new
    name.
    """
    ids = file.ids[: file.pages * PAGE]
    known, _ = prefixes.held(ids, tenant)
    found = [_found(group, known, store, file.pages) for group in range(len(pools))]
    owned = [_owned(pool, pages) for pool, pages in zip(pools, found, strict=True)]
    try:
        for group, pool in enumerate(pools):
            _check_free(file, store, group, pool, found[group].count(NO_PAGE))
        for pool, pages, own in zip(pools, found, owned, strict=True):
            own.extend(pool.allocate() for _ in range(pages.count(NO_PAGE)))
        filled = [_fill(file, store, group, pages, owned[group]) for group, pages in enumerate(found)]
        file.finish()
        tables = [_table(store, group, pool, filled[group], file.pages) for group, pool in enumerate(pools)]
    finally:
        _let_go(pools, owned)
    # As a text that is run from its beginning and ends.
    trail = prefixes.open(tenant)
    prefixes.extend(trail, ids, len(ids), tables)
    for table in tables:
        table.let_go_all()
    prefixes.end(trail, checkpoint=True)


def _found(group: int, known: Sequence[Sequence[int]], store: KVStore, pages: int) -> list[int]:
    """Of the pages that are in the file, those that are held already; ``NO_PAGE`` for each other."""
    first = store.layout.groups[group].first_page(pages)
    held = [page[group] for page in known[first:]]
    return held + [NO_PAGE] * (pages - first - len(held))


def _owned(pool: PagePool, found: Sequence[int]) -> list[int]:
    """Those that are found, which cannot be handed out any more."""
    pages = [page for page in found if page != NO_PAGE]
    for page in pages:
        pool.retain(page)
    return pages


def _check_free(file: ConversationReader, store: KVStore, group: int, pool: PagePool, needed: int) -> None:
    if needed > pool.free:
        window = store.layout.groups[group].window
        layers = "global layers" if window is None else f"layers with window {window}"
        raise ConversationError(
            f"{file.path}: {needed} more pages of {layers} are needed, and {pool.free} of {pool.pages} are free: others"
            " are in use; load it when less is running, or the model with more kv_memory"
        )


def _fill(
    file: ConversationReader, store: KVStore, group: int, found: Sequence[int], owned: Sequence[int]
) -> list[int]:
    """Reads the pages that are not held; the pages of all, in the text's order."""
    new = iter(owned[len(found) - found.count(NO_PAGE) :])
    pages = []
    for page in found:
        pages.append(next(new) if page == NO_PAGE else page)
        for part in store.page(group, pages[-1]):
            # What is held may be in use: the same bytes go elsewhere.
            file.read(part if page == NO_PAGE else np.empty_like(part))
    return pages


def _table(store: KVStore, group: int, pool: PagePool, filled: Sequence[int], pages: int) -> PageTable:
    """Owns the pages too, at their places in the text."""
    table = PageTable(pool, store.layout.groups[group].window, pages * PAGE)
    table.adopt([NO_PAGE] * (pages - len(filled)) + list(filled))
    return table


def _let_go(pools: Sequence[PagePool], owned: Sequence[Sequence[int]]) -> None:
    for pool, pages in zip(pools, owned, strict=True):
        for page in reversed(pages):
            pool.release(page)

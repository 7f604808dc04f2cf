"""Reuse of keys and values between texts that begin alike: full pages are found again by their content.

A full page is named by SHA-256 over its parent's name and its 32 token ids; the name a text begins with stands for the
model and the tenant. So a name tells everything that its keys and values depend on. Still, names only find pages: on a
hit the ids themselves are compared.

A prefix of n keys (n a multiple of 32, less than the text's length) can be reused if every page of a global group in
[0, n) is held, and every page of a sliding group that the next query sees: those of [n - window + 1, n). Pages nobody
owns are kept until their memory is needed. Sliding pages for which a reuse is likely are a *checkpoint*
(``checkpoints``), and protected: at ends of prompts, of messages in them and of replies, and where texts were seen to
part.

Where a text goes on as the beginning of a held page does, it can begin with a copy of that page.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cabochon.kvcache.checkpoints import Checkpoints
from cabochon.kvcache.groups import KVGroup
from cabochon.kvcache.pages import NO_PAGE, PagePool, PageTable
from cabochon.kvcache.prefix_nodes import PrefixNode, PrefixTrail
from cabochon.types import PAGE


@dataclass(frozen=True, slots=True)
class Found:
    """What is held of the beginning of a text."""

    trail: PrefixTrail
    keys: int
    """Keys in the full pages that the text's tables have adopted."""
    part: tuple[int, ...]
    """[P] a page of each group that begins as the text goes on; none if there is no such page."""
    part_keys: int
    """How many keys of it are the text's."""


@dataclass(slots=True)
class PrefixCounters:
    """What reuse has brought, since the beginning."""

    lookups: int = 0
    hits: int = 0
    """Lookups that found something to reuse."""
    tokens_reused: int = 0
    evictions: int = 0
    """Kept pages whose memory was needed for others, or that were more than a tenant may have."""


class PrefixCache:
    """Finds and names pages. Integers and hashes only; it owns no page."""

    def __init__(
        self,
        groups: Sequence[KVGroup],
        pools: Sequence[PagePool],
        model: str,
        checkpoint_pages: int,
        tenant_pages: int | None = None,
    ) -> None:
        """``model`` names all that keys and values depend on besides ids. ``checkpoint_pages`` is the most protected
        pages of each sliding group, and ``tenant_pages`` the most pages of each group that are kept for one tenant."""
        self._groups = groups
        self._pools = pools
        self._model = model.encode()
        self._tenant_pages = tenant_pages
        self._pages_of_tenant: list[Counter[bytes]] = [Counter() for _ in groups]
        self._nodes: dict[bytes, PrefixNode] = {}
        self._node_of: list[dict[int, PrefixNode]] = [{} for _ in groups]
        self._checkpoints = Checkpoints(groups, pools, checkpoint_pages)
        self.counters = PrefixCounters()
        for group, pool in enumerate(pools):
            pool.tell(partial(self._page_reused, group))

    def begin(
        self, ids: Sequence[int], tables: Sequence[PageTable], tenant: Hashable = None, ends: Iterable[int] = ()
    ) -> Found:
        """Lets empty ``tables`` adopt what is held of the longest prefix of ``ids``.

        ``ends`` are lengths at which other texts may part from this one. At least one id is left to run, so that there
        are logits.
        """
        trail = self.open(tenant)
        trail.ends = {end // PAGE for end in ends}
        self._walk(trail, ids, (len(ids) - 1) // PAGE)
        found = trail.pages
        usable = next(n for n in range(found, -1, -1) if self._held(trail, n))
        if found and (trail.nodes[found].children or usable < found):
            trail.parting = found  # another text went on from here in another way
        for node in trail.nodes[usable + 1 :]:
            node.users -= 1
        del trail.nodes[usable + 1 :]
        for group, table in enumerate(tables):
            first = self._first_page(group, usable)
            table.adopt([NO_PAGE] * first + [node.pages[group] for node in trail.nodes[first + 1 :]])
        self._reach(trail)
        self._checkpoints.use(trail.nodes[-1])
        part, part_keys = _longest_part(trail.nodes[-1], ids[usable * PAGE : min((usable + 1) * PAGE, len(ids) - 1)])
        trail.found = usable * PAGE
        return Found(trail, usable * PAGE, part, part_keys)

    def open(self, tenant: Hashable = None) -> PrefixTrail:
        """The trail of a text of which nothing is named or found yet."""
        trail = PrefixTrail([self._root(tenant)])
        trail.nodes[0].users += 1
        return trail

    def held(self, ids: Sequence[int], tenant: Hashable = None) -> tuple[list[tuple[int, ...]], int]:
        """[n][P] the page of each full page of ``ids`` in each group, or ``NO_PAGE``, as far as any is known; and how
        many of them a longer text can reuse. Nothing is owned or counted."""
        trail = self.open(tenant)
        self._walk(trail, ids, len(ids) // PAGE)
        pages = [tuple(node.pages) for node in trail.nodes[1:]]
        usable = next(n for n in range(trail.pages, -1, -1) if self._held(trail, n))
        self._leave(trail)
        return pages, usable

    def extend(self, trail: PrefixTrail, ids: Sequence[int], computed: int, tables: Sequence[PageTable]) -> None:
        """Names the pages that are full now that the first ``computed`` of ``ids`` are stored.

        To be called before any of them is let go.
        """
        if trail.found is not None:  # it runs: a text that begins and does not fit yet begins again
            self.counters.lookups += 1
            self.counters.hits += trail.found > 0
            self.counters.tokens_reused += trail.found
            trail.found = None
        while not trail.closed and trail.pages < computed // PAGE:
            index = trail.pages
            node = self._child(trail.nodes[-1], tuple(ids[index * PAGE : (index + 1) * PAGE]))
            if node is None:
                trail.closed = True
                break
            node.users += 1
            trail.nodes.append(node)
            for group, table in enumerate(tables):
                page = int(table.entries[index])
                if node.pages[group] == NO_PAGE and page != NO_PAGE and page not in self._node_of[group]:
                    node.pages[group] = page
                    self._node_of[group][page] = node
                    self._pages_of_tenant[group][node.tenant] += 1
                    self._pools[group].name(page)
            self._reach(trail)

    def end(self, trail: PrefixTrail, *, checkpoint: bool) -> None:
        """The text of a trail ends or pauses, and its tables have let go.

        ``checkpoint`` where it may be gone on with from its last full page.
        """
        if checkpoint and trail.pages:
            self._checkpoints.add(trail)
        tenant = trail.nodes[0].name
        self._leave(trail)
        self._keep_quota(tenant)

    def clear(self) -> None:
        """Forgets all; the pools' pages have been let go by ``PagePool.clear``."""
        self._nodes.clear()
        self._checkpoints.clear()
        for nodes, pages in zip(self._node_of, self._pages_of_tenant, strict=True):
            nodes.clear()
            pages.clear()

    def check_integrity(self) -> None:
        """Raises ``AssertionError`` unless nodes and pages name one another and counts are right."""
        children: dict[PrefixNode, dict[bytes, PrefixNode]] = {}
        for name, node in self._nodes.items():
            if name != node.name or not node.needed:
                raise AssertionError("a prefix node is under a wrong name, or of no use")
            if node.parent is not None:
                children.setdefault(node.parent, {})[name] = node
            for group, page in enumerate(node.pages):
                if page != NO_PAGE and self._node_of[group].get(page) is not node:
                    raise AssertionError(f"page {page} of group {group} does not know the prefix that names it")
        for node in self._nodes.values():
            if children.get(node, {}) != node.children:
                raise AssertionError("a prefix node does not know what goes on from it")
        for group, nodes in enumerate(self._node_of):
            if any(node.pages[group] != page for page, node in nodes.items()):
                raise AssertionError(f"a page of group {group} has the name of another")
            if +self._pages_of_tenant[group] != Counter(node.tenant for node in nodes.values()):
                raise AssertionError(f"the pages of a tenant are miscounted in group {group}")
            self._pools[group].check_names(nodes)

    def _root(self, tenant: Hashable) -> PrefixNode:
        name = hashlib.sha256(b"root\0" + self._model + b"\0" + repr(tenant).encode()).digest()
        return self._nodes.setdefault(name, PrefixNode(name, None, (), [NO_PAGE] * len(self._groups), name))

    def _walk(self, trail: PrefixTrail, ids: Sequence[int], pages: int) -> None:
        """Follows the nodes that ``ids`` lead through, ``pages`` of them at most."""
        for index in range(pages):
            part = tuple(ids[index * PAGE : (index + 1) * PAGE])
            node = self._nodes.get(page_name(trail.nodes[-1].name, part))
            if node is None or not _is_child(node, trail.nodes[-1], part):
                return
            node.users += 1
            trail.nodes.append(node)

    def _leave(self, trail: PrefixTrail) -> None:
        """The trail's text goes through its nodes no more."""
        for node in trail.nodes:
            node.users -= 1
        for node in reversed(trail.nodes):
            self._drop_if_unneeded(node)
        trail.nodes.clear()

    def _child(self, parent: PrefixNode, ids: tuple[int, ...]) -> PrefixNode | None:
        """The node of a page after ``parent``, made if there is none; None if its name stands for another text."""
        name = page_name(parent.name, ids)
        node = self._nodes.get(name)
        if node is None:
            node = PrefixNode(name, parent, ids, [NO_PAGE] * len(self._groups), parent.tenant)
            self._nodes[name] = parent.children[name] = node
        return node if _is_child(node, parent, ids) else None

    def _first_page(self, group: int, pages: int) -> int:
        """The first page of a group that the query after ``pages`` full pages sees."""
        return self._groups[group].first_page(pages)

    def _held(self, trail: PrefixTrail, pages: int) -> bool:
        """Whether every page is held that a query after the trail's first ``pages`` sees."""
        return all(
            node.pages[group] != NO_PAGE
            for group in range(len(self._groups))
            for node in trail.nodes[self._first_page(group, pages) + 1 : pages + 1]
        )

    def _reach(self, trail: PrefixTrail) -> None:
        """Protects a checkpoint that the trail has come to."""
        parting = trail.pages == trail.parting
        if trail.pages and (parting or trail.pages in trail.ends):
            self._checkpoints.add(trail, parting=parting)

    def _keep_quota(self, tenant: bytes) -> None:
        """Gives up the pages that a tenant has too many, those let go longest ago first."""
        if self._tenant_pages is None:
            return
        for group, pool in enumerate(self._pools):
            nodes = self._node_of[group]
            for page in pool.kept_pages if self._pages_of_tenant[group][tenant] > self._tenant_pages else ():
                if nodes[page].tenant == tenant:
                    pool.forget(page)
                    self._page_reused(group, page)
                    if self._pages_of_tenant[group][tenant] <= self._tenant_pages:
                        break

    def _page_reused(self, group: int, page: int) -> None:
        node = self._node_of[group].pop(page)
        node.pages[group] = NO_PAGE
        self._pages_of_tenant[group][node.tenant] -= 1
        self.counters.evictions += 1
        self._checkpoints.lose(group, page)
        self._drop_if_unneeded(node)

    def _drop_if_unneeded(self, node: PrefixNode | None) -> None:
        while node is not None and not node.needed:
            if self._nodes.pop(node.name, None) is None:
                return
            self._checkpoints.drop(node)
            if node.parent is not None:
                del node.parent.children[node.name]
            node = node.parent


def page_name(parent: bytes, ids: Sequence[int]) -> bytes:
    """The name of a full page after what ``parent`` names."""
    return hashlib.sha256(parent + np.asarray(ids, "<i4").tobytes()).digest()


def _is_child(node: PrefixNode, parent: PrefixNode, ids: tuple[int, ...]) -> bool:
    return node.parent is parent and node.ids == ids


def _longest_part(parent: PrefixNode, ids: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Of the held pages after ``parent`` the one that begins most as ``ids`` do, in each group, and how many keys."""
    best, most = tuple[int, ...](), 0
    for node in parent.children.values():
        keys = common_ids(node.ids, ids)
        if keys > most and NO_PAGE not in node.pages:
            best, most = tuple(node.pages), keys
    return best, most


def common_ids(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids two texts begin with in common."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))

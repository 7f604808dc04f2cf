"""Places after which a text is likely to go on: the sliding pages that the next query sees are kept longer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from cabochon.kvcache.groups import KVGroup
from cabochon.kvcache.pages import NO_PAGE, PagePool
from cabochon.kvcache.prefix_nodes import PrefixNode, PrefixTrail


class Checkpoints:
    """Protects pages, within a budget. What was used longest ago is given up first, and before any place where texts
    were seen to part: of ends most are never gone on from."""

    def __init__(self, groups: Sequence[KVGroup], pools: Sequence[PagePool], pages: int) -> None:
        """``pages`` is the most that are protected in each sliding group."""
        self._groups = groups
        self._pools = pools
        self._most = pages
        self._protected: OrderedDict[PrefixNode, list[list[int]]] = OrderedDict()
        """[P] the pages of each checkpoint; the one used longest ago first."""
        self._partings: set[PrefixNode] = set()

    def add(self, trail: PrefixTrail, *, parting: bool = False) -> None:
        """Makes the trail's end a checkpoint; with ``parting`` one where texts were seen to part."""
        node = trail.nodes[-1]
        if node in self._protected:
            self.use(node)
            self._partings.update([node] if parting else ())
            return
        seen = [_seen_after(trail, index, group) for index, group in enumerate(self._groups)]
        if not any(seen):
            return
        self._protected[node] = seen
        self._partings.update([node] if parting else ())
        for pool, pages in zip(self._pools, self._protected[node], strict=True):
            for page in pages:
                pool.protect(page, True)
        while self._protected and any(pool.protected > self._most for pool in self._pools):
            ends = (node for node in self._protected if node not in self._partings)
            self.drop(next(ends, next(iter(self._protected))))

    def use(self, node: PrefixNode) -> None:
        """A text went on from here; nothing happens if this is no checkpoint."""
        if node in self._protected:
            self._protected.move_to_end(node)

    def drop(self, node: PrefixNode) -> None:
        """Its pages are protected no longer, but for those of others; nothing happens if this is no checkpoint."""
        self._partings.discard(node)
        for group, pages in enumerate(self._protected.pop(node, ())):
            others = {page for protected in self._protected.values() for page in protected[group]}
            for page in pages:
                if page not in others:
                    self._pools[group].protect(page, False)

    def lose(self, group: int, page: int) -> None:
        """A page is somebody else's now: without it a checkpoint is of no use."""
        for node in [node for node, pages in self._protected.items() if page in pages[group]]:
            self._protected[node][group].remove(page)
            self.drop(node)

    def clear(self) -> None:
        """There are no checkpoints; the pools protect nothing any more."""
        self._protected.clear()
        self._partings.clear()


def _seen_after(trail: PrefixTrail, index: int, group: KVGroup) -> list[int]:
    """The held pages that the query after a trail sees in a sliding group; those of a global one need no protection."""
    if group.window is None:
        return []
    nodes = trail.nodes[group.first_page(trail.pages) + 1 :]
    return [node.pages[index] for node in nodes if node.pages[index] != NO_PAGE]

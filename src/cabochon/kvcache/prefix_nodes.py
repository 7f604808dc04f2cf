"""The texts a prefix cache knows, as a tree of full pages, and the way of one text through it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cabochon.kvcache.pages import NO_PAGE


@dataclass(slots=True, eq=False)
class PrefixNode:
    """A full page of some text, with all that comes before it: the same place in every group."""

    name: bytes
    parent: PrefixNode | None
    ids: tuple[int, ...]
    """The page's 32 ids; none for a root, which stands before a tenant's texts."""
    pages: list[int]
    """[P] the page that holds it in each group, or ``NO_PAGE``."""
    tenant: bytes
    """The root's name."""
    children: dict[bytes, PrefixNode] = field(default_factory=dict)
    """By name."""
    users: int = 0
    """Unfinished texts that go through here."""

    @property
    def needed(self) -> bool:
        """Whether anything can still be found here or through here."""
        return bool(self.children) or self.users > 0 or any(page != NO_PAGE for page in self.pages)


@dataclass(slots=True, eq=False)
class PrefixTrail:
    """A text's way through the nodes: its tenant's root, then a node for each full page named or found so far."""

    nodes: list[PrefixNode]
    ends: set[int] = field(default_factory=set)
    """Places, in pages, whose sliding pages are to be protected once they are stored: ends of prompt and messages."""
    parting: int = 0
    """The same for the place where another text was seen to part from this one; 0 for none."""
    found: int | None = None
    """Keys that were found when the text began, until they have been counted."""
    closed: bool = False
    """True where a name stands for another text already: nothing after it can be named."""

    @property
    def pages(self) -> int:
        """Full pages named or found so far."""
        return len(self.nodes) - 1

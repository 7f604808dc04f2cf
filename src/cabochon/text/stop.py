"""Stop strings in a stream of text deltas.

All stop strings are searched for at once and each character is looked at once, by the automaton of Aho and Corasick
("Efficient string matching: an aid to bibliographic search", 1975): its state is the longest end of the text that
begins a stop string, which is exactly what must be held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from cabochon.errors import UsageError, shown


class StopStrings:
    """Passes text through up to the first stop string, which is dropped with all that follows.

    The first match is the one that ends earliest; of several that end there, the longest. How the text is cut into
    deltas makes no difference, and no part of a match is ever emitted.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        """``stop`` of a generation; one string counts as a list of one.

        Raises ``UsageError`` for an empty stop string or one that is not text.
        """
        self.matched: str | None = None
        """The stop string that was found."""
        self._held = ""
        self._node = 0
        # A node is a beginning of some stop string; node 0 is the empty one.
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._match: list[str | None] = [None]
        self.stops = tuple(_checked(stops))
        """What is looked for."""
        for stop in self.stops:
            self._add(stop)
        self._link()

    def push(self, delta: str) -> tuple[str, bool]:
        """The text that no stop string can touch any more, and whether one was found; later text is dropped."""
        if self.matched is not None:
            return "", True
        text = self._held + delta
        for i in range(len(self._held), len(text)):
            self._node = self._follow(self._node, text[i])
            self.matched = self._match[self._node]
            if self.matched is not None:
                self._held = ""
                return text[: i + 1 - len(self.matched)], True
        safe = len(text) - self._depth[self._node]
        self._held = text[safe:]
        return text[:safe], False

    def flush(self) -> str:
        """The text held back, at the end of the stream; empty after a match."""
        rest, self._held, self._node = self._held, "", 0
        return rest

    def _add(self, stop: str) -> None:
        node = 0
        for char in stop:
            if char not in self._next[node]:
                self._next[node][char] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[node] + 1)
                self._match.append(None)
            node = self._next[node][char]
        self._match[node] = stop

    def _link(self) -> None:
        """Link each node to the longest shorter end of it that is a node, and pass on the matches found there."""
        self._fail = [0] * len(self._next)
        waiting = deque(self._next[0].values())
        while waiting:
            node = waiting.popleft()
            for char, child in self._next[node].items():
                self._fail[child] = self._follow(self._fail[node], char)
                if self._match[child] is None:
                    self._match[child] = self._match[self._fail[child]]
                waiting.append(child)

    def _follow(self, node: int, char: str) -> int:
        while node and char not in self._next[node]:
            node = self._fail[node]
        return self._next[node].get(char, 0)


def _checked(stops: object) -> Iterator[str]:
    if isinstance(stops, bytes) or not isinstance(stops, Iterable):
        raise UsageError(f"stop must be a text or a list of texts, not {shown(stops)}")
    for stop in [stops] if isinstance(stops, str) else stops:
        if not isinstance(stop, str):
            raise UsageError(f"a stop string must be text, not {shown(stop)}")
        if not stop:
            raise UsageError("a stop string must not be empty: it would end every text before its first character")
        yield stop

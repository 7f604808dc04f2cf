"""Guesses at the next tokens of a text from the text itself: where its last tokens stood before, what came after them.

Guesses cost rows of a step and change nothing else: a step runs them behind the last token, and the first that is not
what would have been chosen is dropped with all after it. So their only measure is time.
"""

from __future__ import annotations

from collections.abc import Sequence

NGRAM = 3
"""Tokens that must have stood together before."""

_MOST_PATIENCE = 64


class Drafter:
    """Guesses for one text. It tries more after guesses that were right, and waits longer after each that were not."""

    def __init__(self, most: int) -> None:
        """``most`` guesses at a time; 0 for none."""
        self._most = most
        self._length = min(2, most)
        self._ends: dict[tuple[int, ...], int] = {}
        self._seen = 0
        self._wait = 0
        self._patience = 1

    def draft(self, ids: Sequence[int], most: int) -> tuple[int, ...]:
        """Up to ``most`` guesses at what follows ``ids``, which have only grown since the last call."""
        if min(self._most, most) < 1:
            return ()
        for end in range(max(self._seen, NGRAM), len(ids)):
            self._ends[tuple(ids[end - NGRAM : end])] = end
        self._seen = max(self._seen, len(ids))
        if self._wait > 0:
            self._wait -= 1
            return ()
        found = self._ends.get(tuple(ids[-NGRAM:]))
        return () if found is None else tuple(ids[found : found + min(self._length, most)])

    def learn(self, guessed: int, right: int) -> None:
        """How many guesses of a step were right, from the first on."""
        if not guessed:
            return
        if right == guessed:
            self._length = min(2 * self._length, self._most)
            self._patience = 1
        elif right:
            self._length = max(right, 1)
        else:
            self._length = max(self._length // 2, 1)
            self._wait = self._patience
            self._patience = min(2 * self._patience, _MOST_PATIENCE)

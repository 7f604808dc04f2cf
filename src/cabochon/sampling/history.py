"""The text that the next token is chosen for, as far as choosing depends on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class History:
    """Prompt and reply so far. It is read while a token is chosen and never kept."""

    ids: Sequence[int]
    """Of the whole text; the token is chosen for the place after them."""
    prompt: int
    """How many of them are the prompt's."""

    @property
    def position(self) -> int:
        """The place in the text that a token is chosen for."""
        return len(self.ids)

    def text(self, last_n: int = 0) -> Sequence[int]:
        """The last ``last_n`` ids of prompt and reply; all of them if it is 0."""
        return self.ids[-last_n:]

    def reply(self, last_n: int = 0) -> Sequence[int]:
        """Those of the last ``last_n`` ids that are the reply's; all of the reply if it is 0."""
        first = len(self.ids) - last_n if last_n else 0
        return self.ids[max(first, self.prompt) :]

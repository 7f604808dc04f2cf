"""Ids to text, one at a time (stop 8): the deltas of a stream, joined, equal the decoded whole."""

from __future__ import annotations

import codecs
from typing import Protocol


class PieceSource(Protocol):
    """What the detokenizer needs of a tokenizer."""

    def piece_bytes(self, token_id: int) -> bytes:
        """The bytes a token adds to the text."""
        ...


class Detokenizer:
    """Text of one sequence of ids as they come; each sequence needs its own.

    Holds at most three bytes, the beginning of a character whose end has not come. For any ids the deltas of
    ``push`` and the last one of ``flush``, joined, equal ``Tokenizer.decode`` of all the ids.
    """

    def __init__(self, tokenizer: PieceSource) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that is certain now: whole characters only, often none, once this id is known.

        Raises ``UsageError`` for an id outside the vocabulary; the state is then unchanged.
        """
        return self._decoder.decode(self._tokenizer.piece_bytes(token_id))

    def flush(self) -> str:
        """The rest at the end of the sequence: U+FFFD for a character left unfinished. Ready for a new sequence."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest

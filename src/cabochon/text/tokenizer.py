"""Text to ids and back (stops 2 and 8), from the vocabulary a GGUF file carries.

SentencePiece does the encoding; decoding is defined here and is the same everywhere: the bytes of the pieces, joined,
read as UTF-8 with U+FFFD in place of what is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from cabochon.errors import UsageError, shown
from cabochon.text.sentencepiece_model import load_processor
from cabochon.text.vocabulary import SPACE, TokenKind, Vocabulary, read_vocabulary

_SILENT = (TokenKind.CONTROL, TokenKind.UNKNOWN)


class Tokenizer:
    """Text to ids and ids to text for one vocabulary. Immutable: any number of threads may use one at a time.

    Control tokens (turn markers, BOS and the like) come from text only where the caller asks. User-defined pieces
    (runs of white space, HTML tags) match whole wherever they occur. U+2581 in text reads as a space, as in
    SentencePiece; every other character survives a round trip.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocab_size = vocabulary.size
        self.bos_id = vocabulary.bos_id
        self.eos_id = vocabulary.eos_id
        self.unknown_id = vocabulary.unknown_id
        self._processor, renamed = load_processor(vocabulary)
        self._spellings = {i: vocabulary.tokens[i] for i in sorted(renamed)}
        self._byte_values = vocabulary.byte_values
        self._kinds = vocabulary.kinds.tobytes()
        self._controls = {
            text: i for i, text in reversed(self._spellings.items()) if text and self._kinds[i] in _SILENT
        }
        lengths: dict[str, set[int]] = {}
        for text in self._controls:
            lengths.setdefault(text[0], set()).add(len(text))
        self._control_lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._control_start = re.compile("[" + "".join(map(re.escape, lengths)) + "]" if lengths else r"(?!)")

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> Tokenizer:
        """Tokenizer of a GGUF file's metadata.

        ``add_bos_token`` is not consulted: every Gemma needs BOS in front of a text, whatever a file's flag says.

        Raises ``UnsupportedError`` for another kind of tokenizer, ``CheckpointError`` naming the key for a
        malformed vocabulary.
        """
        return cls(read_vocabulary(metadata))

    def encode(self, text: str, *, bos: bool = True, control: bool = False) -> list[int]:
        """Ids of ``text``; with ``bos`` the first id is BOS, and no second one follows it.

        With ``control`` the strings of control tokens in ``text`` become those tokens (longest first, from the
        left); a text that already begins with BOS gets no other. Without it no text becomes a control token.

        Raises ``UsageError`` for what is no text, or text that is not Unicode (lone surrogates).
        """
        if not isinstance(text, str):
            raise UsageError(f"a text must be a str, not {shown(text)}")
        bad = _lone_surrogate(text)
        if bad is not None:
            raise UsageError(f"text is not valid Unicode: character {bad} is the lone surrogate U+{ord(text[bad]):04X}")
        ids = self._encode_with_controls(text) if control else self._encode_plain(text)
        if not bos:
            return ids
        given = next((n for n, token_id in enumerate(ids) if token_id != self.bos_id), len(ids))
        return [self.bos_id, *ids[given:]]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ``ids``; bytes that are not UTF-8 become U+FFFD, control tokens nothing.

        Raises ``UsageError`` for an id outside the vocabulary.
        """
        return b"".join(map(self.piece_bytes, ids)).decode("utf-8", "replace")

    def piece_bytes(self, token_id: int) -> bytes:
        """The bytes a token adds to the text: one for a byte token, none for a control token.

        Raises ``UsageError`` for an id outside the vocabulary.
        """
        kind = self._kind(token_id)
        if kind == TokenKind.BYTE:
            return bytes([self._byte_values[token_id]])
        return b"" if kind in _SILENT else self.piece(token_id).encode()

    def piece(self, token_id: int) -> str:
        """The name of a token, to show to people: with plain spaces, control and byte tokens spelled out.

        Raises ``UsageError`` for an id outside the vocabulary.
        """
        self._kind(token_id)
        spelling = self._spellings.get(token_id)
        if spelling is None:
            spelling = str(self._processor.id_to_piece(token_id))
        return spelling.replace(SPACE, " ")

    def id_of(self, piece: str) -> int | None:
        """Id of the token of that name (spaces plain or as U+2581), the one that encoding uses; None if none."""
        spelling = piece.replace(SPACE, " ")
        if spelling in self._controls:
            return self._controls[spelling]
        if _lone_surrogate(piece) is not None:
            return None
        token_id = self._processor.piece_to_id(spelling.replace(" ", SPACE))
        return token_id if token_id < self.vocab_size else None

    def is_control(self, token_id: int) -> bool:
        """Whether the token marks structure and shows no text.

        Raises ``UsageError`` for an id outside the vocabulary.
        """
        return self._kind(token_id) in _SILENT

    def _kind(self, token_id: int) -> int:
        if not 0 <= token_id < self.vocab_size:
            raise UsageError(f"token id {token_id} is outside the vocabulary of {self.vocab_size} tokens")
        return self._kinds[token_id]

    def _encode_plain(self, text: str) -> list[int]:
        ids: list[int] = self._processor.encode(text, out_type=int)
        return ids

    def _encode_with_controls(self, text: str) -> list[int]:
        ids: list[int] = []
        done = 0
        for start, end, token_id in self._control_matches(text):
            ids += self._encode_plain(text[done:start])
            ids.append(token_id)
            done = end
        return ids + self._encode_plain(text[done:])

    def _control_matches(self, text: str) -> Iterator[tuple[int, int, int]]:
        """(start, end, id) of each control string in the text, none overlapping."""
        done = 0
        for candidate in self._control_start.finditer(text):
            start = candidate.start()
            if start < done:
                continue
            for length in self._control_lengths[text[start]]:
                token_id = self._controls.get(text[start : start + length])
                if token_id is not None:
                    done = min(start + length, len(text))
                    yield start, done, token_id
                    break


def _lone_surrogate(text: str) -> int | None:
    """Index of the first surrogate code point, if any; text with one has no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None

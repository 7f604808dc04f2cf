"""A SentencePiece model written from vocabulary arrays.

The wire format is protocol buffers; field numbers are those of SentencePiece's ``sentencepiece_model.proto``. A Gemma
vocabulary has a quarter of a million pieces, so all their records are laid out at once: what stands between two pieces
has the same size everywhere.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from cabochon.checkpoint.strings import StringArray
from cabochon.errors import CheckpointError
from cabochon.text.vocabulary import SPACE, TokenKind, Vocabulary

# What lies between two pieces: the end of one record and the beginning of the next.
_SEAM = np.dtype(
    [
        ("score_tag", "u1"),
        ("score", "<f4"),
        ("kind_tag", "u1"),
        ("kind", "u1"),
        ("record_tag", "u1"),
        ("record_length", "<u2"),
        ("piece_tag", "u1"),
        ("piece_length", "<u2"),
    ]
)
_ANY = np.dtype(f"V{_SEAM.itemsize}")
_TAGS = {"score_tag": 0x15, "kind_tag": 0x18, "record_tag": 0x0A, "piece_tag": 0x0A}
_TAIL, _RECORD_HEAD, _PIECE_HEAD = 7, 3, 3
_MAX_PIECE_BYTES = (1 << 14) - 1 - _PIECE_HEAD - _TAIL


def load_processor(vocabulary: Vocabulary) -> tuple[sentencepiece.SentencePieceProcessor, frozenset[int]]:
    """SentencePiece's encoder for a vocabulary, and the ids it knows under another name than the vocabulary's.

    Ids are the vocabulary's; one unknown piece follows the last and is never used, since every byte has its token.
    Renamed are control and unknown tokens, so that no text can spell them, and all tokens but the first of those that
    share one string (byte tokens come before others there): encoding uses the first.

    Raises ``CheckpointError`` where SentencePiece refuses the pieces (an empty one, for instance).
    """
    silent = np.isin(vocabulary.kinds, (TokenKind.CONTROL, TokenKind.UNKNOWN))
    renamed = frozenset(np.flatnonzero(silent).tolist())
    try:
        return _load(vocabulary, renamed), renamed
    except RuntimeError as error:
        # Looking for duplicates would cost every start, and few files have any: look only after a refusal.
        refusal = error
    renamed |= _repeated(vocabulary, renamed)
    try:
        return _load(vocabulary, renamed), renamed
    except RuntimeError:
        message = f"tokenizer.ggml.tokens: SentencePiece refuses the vocabulary: {refusal}"
        raise CheckpointError(message) from None


def _load(vocabulary: Vocabulary, renamed: Collection[int]) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(_model_proto(vocabulary, renamed))
    return processor


def _names(vocabulary: Vocabulary, renamed: Collection[int]) -> StringArray:
    """[V] pieces as SentencePiece knows them.

    New names hold a space: text never does where SentencePiece matches pieces, as spaces are U+2581 by then.
    """
    tokens = vocabulary.tokens
    defined = np.flatnonzero(vocabulary.kinds == TokenKind.USER_DEFINED).tolist()
    names = {token_id: tokens[token_id].replace(" ", SPACE) for token_id in defined}
    return tokens.replaced(names | {token_id: f"token {token_id}" for token_id in renamed})


def _repeated(vocabulary: Vocabulary, renamed: Collection[int]) -> frozenset[int]:
    """Tokens whose string an earlier one has."""
    names = list(_names(vocabulary, renamed))
    repeated: set[int] = set()
    seen: set[str] = set()
    for token_id in sorted(range(vocabulary.size), key=lambda i: (i not in vocabulary.byte_values, i)):
        if names[token_id] in seen:
            repeated.add(token_id)
        seen.add(names[token_id])
    return frozenset(repeated)


def _model_proto(vocabulary: Vocabulary, renamed: Collection[int]) -> bytes:
    kinds = vocabulary.kinds.copy()
    kinds[list(renamed)] = TokenKind.CONTROL
    unknown = StringArray.of(["unknown piece"]), np.zeros(1, np.float32), np.full(1, TokenKind.UNKNOWN, np.int8)
    pieces = _piece_records(_names(vocabulary, renamed), vocabulary.scores, kinds)
    return pieces + _piece_records(*unknown) + _SETTINGS


def _piece_records(names: StringArray, scores: NDArray[np.float32], kinds: NDArray[np.int8]) -> bytes:
    text, lengths = names.joined, names.lengths
    if not text.all():
        raise CheckpointError("tokenizer.ggml.tokens holds a NUL character")
    if lengths.max() > _MAX_PIECE_BYTES:
        raise CheckpointError(
            f"tokenizer.ggml.tokens: token {lengths.argmax()} is longer than {_MAX_PIECE_BYTES} bytes"
        )
    at = np.append(0, np.cumsum(lengths + _SEAM.itemsize))
    seams = np.empty(len(at), _SEAM)
    for name, tag in _TAGS.items():
        seams[name] = tag
    seams["score"][1:] = scores
    seams["kind"][1:] = kinds
    seams["record_length"][:-1] = _two_byte_varint(_PIECE_HEAD + lengths + _TAIL)
    seams["piece_length"][:-1] = _two_byte_varint(lengths)

    # Seams come before, between and behind the pieces; what they leave is the pieces' place.
    out = np.empty(len(text) + seams.nbytes, np.uint8)
    between = np.ones(len(out), np.bool_)
    _anywhere(between)[at] = np.zeros((), _ANY)
    out[between] = text
    _anywhere(out)[at] = seams.view(_ANY)
    return out[_TAIL : len(out) - _RECORD_HEAD - _PIECE_HEAD].tobytes()


def _anywhere(memory: NDArray[Any]) -> NDArray[np.void]:
    """Bytes as so many overlapping seams, one from each byte on."""
    return np.ndarray(len(memory) - _SEAM.itemsize + 1, _ANY, memory.data, strides=(1,))


def _two_byte_varint(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Seven bits a byte, lowest first; the top bit says that another byte follows. Padding is allowed."""
    return values >> 7 << 8 | values & 0x7F | 0x80


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(payload)]) + payload


def _switch(number: int, value: int) -> bytes:
    """A varint field (number < 2048, value < 128)."""
    tag = number << 3
    return (bytes([tag]) if tag < 0x80 else bytes([tag & 0x7F | 0x80, tag >> 7])) + bytes([value])


_BPE = 2
_TRAINER = _switch(3, _BPE) + _switch(35, 1)  # model_type, byte_fallback
_NORMALIZER = (
    _field(1, b"identity")
    + _switch(3, 0)  # add_dummy_prefix
    + _switch(4, 0)  # remove_extra_whitespaces
    + _switch(5, 1)  # escape_whitespaces: a space becomes U+2581
)
_SETTINGS = _field(2, _TRAINER) + _field(3, _NORMALIZER)

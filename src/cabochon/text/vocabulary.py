"""The vocabulary arrays of a GGUF file, read and checked.

Keys (all under ``tokenizer.ggml.``): ``model`` must be ``llama``, GGUF's name for a SentencePiece vocabulary with
scores; ``tokens``, ``scores`` and ``token_type`` are arrays of one length; ``bos_token_id`` and ``eos_token_id`` are
required, ``unknown_token_id`` is not. Pieces are UTF-8 text in which U+2581 stands for a space; user-defined pieces
hold their spaces as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabochon.checkpoint.strings import StringArray
from cabochon.errors import CheckpointError, UnsupportedError, shown
from cabochon.types import Float32

SPACE = "\u2581"
"""Stands for a space inside a piece."""

_PREFIX = "tokenizer.ggml."
_SUPPORTED_MODEL = "llama"
_MUST_BE_OFF = ("add_space_prefix", "remove_extra_whitespaces")
_BYTE_NAME = re.compile(r"<0x([0-9A-F]{2})>")


class TokenKind(IntEnum):
    """What a token is; the numbers are GGUF's and SentencePiece's."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Checked vocabulary arrays; index = token id."""

    tokens: StringArray
    """[V] pieces as the file spells them."""
    scores: Float32
    """[V] merge priority: the pair whose joined piece scores highest is merged first."""
    kinds: NDArray[np.int8]
    """[V] ``TokenKind`` of each token."""
    byte_values: Mapping[int, int]
    """Id -> value of every byte token; all 256 values occur."""
    bos_id: int
    eos_id: int
    unknown_id: int | None

    @property
    def size(self) -> int:
        """V."""
        return len(self.kinds)


def read_vocabulary(metadata: Mapping[str, object]) -> Vocabulary:
    """Vocabulary of a GGUF file's metadata.

    Raises ``UnsupportedError`` for another kind of tokenizer and ``CheckpointError`` naming the key for anything
    missing or malformed.
    """
    model = _required(metadata, "model")
    if model != _SUPPORTED_MODEL:
        raise UnsupportedError(
            f"{_PREFIX}model is {shown(model)}; only {_SUPPORTED_MODEL!r} (SentencePiece) is supported"
        )
    for name in _MUST_BE_OFF:
        value = metadata.get(_PREFIX + name, False)
        if value or not isinstance(value, bool | np.bool_):
            raise UnsupportedError(f"{_PREFIX}{name} is {shown(value)}; Gemma's tokenizer has it false")
    tokens = _tokens(_required(metadata, "tokens"))
    with np.errstate(over="ignore"):
        scores = _array(metadata, "scores", len(tokens)).astype(np.float32)
    if not np.isfinite(scores).all():
        at = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise CheckpointError(f"{_PREFIX}scores holds {scores[at]} for token {at}; scores must be finite")
    kinds = _array(metadata, "token_type", len(tokens))
    known = np.isin(kinds, [int(kind) for kind in TokenKind])
    if not known.all():
        at = int(np.flatnonzero(~known)[0])
        raise CheckpointError(f"{_PREFIX}token_type holds {kinds[at]} for token {at}; known types are 1 to 6")
    return Vocabulary(
        tokens=tokens,
        scores=scores,
        kinds=kinds.astype(np.int8),
        byte_values=_byte_values(tokens, np.flatnonzero(kinds == TokenKind.BYTE).tolist()),
        bos_id=_token_id(metadata, "bos_token_id", len(tokens)),
        eos_id=_token_id(metadata, "eos_token_id", len(tokens)),
        unknown_id=(
            _token_id(metadata, "unknown_token_id", len(tokens)) if _PREFIX + "unknown_token_id" in metadata else None
        ),
    )


def _required(metadata: Mapping[str, object], name: str) -> object:
    value = metadata.get(_PREFIX + name)
    if value is None:
        raise CheckpointError(f"{_PREFIX}{name} is missing; the file holds no usable tokenizer")
    return value


def _tokens(value: object) -> StringArray:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise CheckpointError(f"{_PREFIX}tokens must be an array of strings, not {type(value).__name__}")
    tokens = value if isinstance(value, StringArray) else _laid_out(list(value))
    if not tokens:
        raise CheckpointError(f"{_PREFIX}tokens is empty")
    return tokens


def _laid_out(tokens: Sequence[object]) -> StringArray:
    at = next((i for i, token in enumerate(tokens) if type(token) is not str), None)
    if at is not None:
        raise CheckpointError(f"{_PREFIX}tokens must hold strings; token {at} is of type {type(tokens[at]).__name__}")
    try:
        return StringArray.of(map(str, tokens))
    except UnicodeEncodeError:
        raise CheckpointError(f"{_PREFIX}tokens holds text that is not valid Unicode") from None


def _array(metadata: Mapping[str, object], name: str, length: int) -> NDArray[Any]:
    try:
        array = np.asarray(_required(metadata, name))
    except ValueError:
        array = np.empty(0, np.object_)
    if array.dtype.kind not in "fiu" or array.ndim != 1:
        raise CheckpointError(f"{_PREFIX}{name} must be an array of numbers")
    if len(array) != length:
        raise CheckpointError(f"{_PREFIX}{name} has {len(array)} entries for {length} tokens")
    return array


def _token_id(metadata: Mapping[str, object], name: str, size: int) -> int:
    value = _required(metadata, name)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise CheckpointError(f"{_PREFIX}{name} must be a whole number, not {shown(value)}")
    if not 0 <= value < size:
        raise CheckpointError(f"{_PREFIX}{name} is {value}; the vocabulary has {size} tokens")
    return int(value)


def _byte_values(tokens: Sequence[str], ids: Sequence[int]) -> dict[int, int]:
    values: dict[int, int] = {}
    for token_id in ids:
        match = _BYTE_NAME.fullmatch(tokens[token_id])
        if match is None:
            raise CheckpointError(
                f"{_PREFIX}tokens: byte token {token_id} is {shown(tokens[token_id])}; byte tokens are <0x00> to <0xFF>"
            )
        values[token_id] = int(match[1], 16)
    missing = sorted(set(range(256)) - set(values.values()))
    if missing:
        raise CheckpointError(
            f"{_PREFIX}tokens: byte token <0x{missing[0]:02X}> is missing ({len(missing)} of 256 are)"
        )
    return values

"""A small vocabulary laid out as Gemma's: control tokens, user-defined pieces, bytes, merges, characters.

Text round-trips through it whatever the characters: what it does not know falls back to bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cabochon.errors import UsageError
from cabochon.types import Float32, Int32

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Token types by GGUF's numbers."""

PAD, EOS, BOS, UNK, MASK, START_OF_TURN, END_OF_TURN = range(7)
"""Ids of the control tokens; the first five are every Gemma's."""

_CONTROL = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>")
_USER_DEFINED = ("\n", "\n\n", "\t", "  ", "   ")
_MERGES = (
    *("▁t", "in", "▁a", "er", "on", "he", "re", "▁the", "an", "is", "▁is", "or", "at", "▁c", "▁o", "▁of", "ing", "nd"),
    *("▁and", "ca", "▁ca", "it", "al", "ap", "ital", "▁cap", "▁capital", "Fr", "ce", "ance", "▁Fr"),
)
_CHARACTERS = "▁abcdefghijklmnopqrstuvwxyzTFPA.,!?'é中😀"
_SPECIAL_SCORE = -1000.0


@dataclass(frozen=True, slots=True)
class TinyVocabulary:
    """The arrays a GGUF file holds: token i is ``tokens[i]`` with ``scores[i]`` and ``types[i]``."""

    tokens: tuple[str, ...]
    scores: Float32
    types: Int32


def tiny_vocabulary(size: int) -> TinyVocabulary:
    """Exactly ``size`` tokens; control tokens ``<unused0>`` and up fill the end.

    Raises ``UsageError`` if ``size`` cannot hold what text needs.
    """
    tokens = [*_CONTROL, *_USER_DEFINED]
    types = [CONTROL] * len(_CONTROL) + [USER_DEFINED] * len(_USER_DEFINED)
    scores = [_SPECIAL_SCORE] * len(tokens)
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    types += [BYTE] * 256
    scores += [0.0] * 256
    pieces = _MERGES + tuple(_CHARACTERS)
    tokens += pieces
    types += [NORMAL] * len(pieces)
    scores += [-float(rank) for rank in range(len(pieces))]
    spare = size - len(tokens)
    if spare < 0:
        raise UsageError(f"a tiny vocabulary needs at least {len(tokens)} tokens, not {size}")
    tokens += [f"<unused{i}>" for i in range(spare)]
    types += [CONTROL] * spare
    scores += [_SPECIAL_SCORE] * spare
    return TinyVocabulary(tuple(tokens), np.array(scores, np.float32), np.array(types, np.int32))

"""Malformed vocabularies: one line that names the key, never a traceback of something else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import pytest

from cabochon.errors import CheckpointError, UnsupportedError
from cabochon.testing.vocabulary import BOS, CONTROL, EOS, NORMAL, tiny_vocabulary
from cabochon.text.tokenizer import Tokenizer

SIZE = 400
A_BYTE, A_PIECE = 12 + 0x41, 300


def metadata(**changes: object) -> dict[str, object]:
    vocabulary = tiny_vocabulary(SIZE)
    keys: dict[str, object] = {
        "model": "llama",
        "tokens": vocabulary.tokens,
        "scores": vocabulary.scores,
        "token_type": vocabulary.types,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in (keys | changes).items() if value is not None}


def changed(array: Any, at: int, value: Any) -> list[Any]:
    out = list(array)
    out[at] = value
    return out


TINY = tiny_vocabulary(SIZE)

MALFORMED: dict[str, tuple[dict[str, object], str]] = {
    "no model": ({"model": None}, "tokenizer.ggml.model is missing"),
    "no tokens": ({"tokens": None}, "tokenizer.ggml.tokens is missing"),
    "no scores": ({"scores": None}, "tokenizer.ggml.scores is missing"),
    "no types": ({"token_type": None}, "tokenizer.ggml.token_type is missing"),
    "no bos": ({"bos_token_id": None}, "tokenizer.ggml.bos_token_id is missing"),
    "no eos": ({"eos_token_id": None}, "tokenizer.ggml.eos_token_id is missing"),
    "tokens: one string": ({"tokens": "abc"}, "tokenizer.ggml.tokens must be an array of strings, not str"),
    "tokens: a number": ({"tokens": 3}, "tokenizer.ggml.tokens must be an array of strings, not int"),
    "tokens: numbers": ({"tokens": np.arange(SIZE)}, "tokenizer.ggml.tokens must hold strings; token 0"),
    "tokens: none": ({"tokens": []}, "tokenizer.ggml.tokens is empty"),
    "tokens: not all text": ({"tokens": changed(TINY.tokens, 7, b"x")}, "token 7 is of type bytes"),
    "tokens: NUL": ({"tokens": changed(TINY.tokens, A_PIECE, "a\0b")}, "tokenizer.ggml.tokens holds a NUL"),
    "tokens: surrogate": ({"tokens": changed(TINY.tokens, A_PIECE, "a\udc00")}, "tokens holds text that is not valid"),
    "tokens: empty piece": ({"tokens": changed(TINY.tokens, A_PIECE, "")}, "SentencePiece refuses.*must not be empty"),
    "tokens: huge piece": ({"tokens": changed(TINY.tokens, A_PIECE, "é" * 9000)}, f"token {A_PIECE} is longer than"),
    "tokens: odd byte": ({"tokens": changed(TINY.tokens, A_BYTE, "<0xZZ>")}, f"byte token {A_BYTE} is '<0xZZ>'"),
    "tokens: byte twice": ({"tokens": changed(TINY.tokens, A_BYTE, "<0x42>")}, "byte token <0x41> is missing"),
    "bytes missing": ({"token_type": changed(TINY.types, A_BYTE, NORMAL)}, "byte token <0x41> is missing"),
    "scores: short": ({"scores": TINY.scores[:-1]}, f"scores has {SIZE - 1} entries for {SIZE} tokens"),
    "scores: text": ({"scores": ["x"] * SIZE}, "tokenizer.ggml.scores must be an array of numbers"),
    "scores: ragged": ({"scores": [[1], [2, 3]]}, "tokenizer.ggml.scores must be an array of numbers"),
    "scores: a number": ({"scores": 1.0}, "tokenizer.ggml.scores must be an array of numbers"),
    "scores: matrix": ({"scores": np.zeros((SIZE, 1))}, "tokenizer.ggml.scores must be an array of numbers"),
    "scores: NaN": ({"scores": changed(TINY.scores, 9, np.nan)}, "tokenizer.ggml.scores holds nan for token 9"),
    "scores: infinite": ({"scores": changed(TINY.scores, 9, -np.inf)}, "tokenizer.ggml.scores holds -inf for token 9"),
    "scores: too large": ({"scores": changed(TINY.scores.tolist(), 9, 1e300)}, "tokenizer.ggml.scores holds inf"),
    "types: long": ({"token_type": [*TINY.types, 1]}, f"token_type has {SIZE + 1} entries for {SIZE} tokens"),
    "types: zero": ({"token_type": changed(TINY.types, 5, 0)}, "tokenizer.ggml.token_type holds 0 for token 5"),
    "types: seven": ({"token_type": changed(TINY.types, 5, 7)}, "tokenizer.ggml.token_type holds 7 for token 5"),
    "types: wraps": ({"token_type": changed(TINY.types, 5, 259)}, "tokenizer.ggml.token_type holds 259 for token 5"),
    "types: fraction": ({"token_type": changed(TINY.types, 5, 1.5)}, "tokenizer.ggml.token_type holds 1.5 for token 5"),
    "bos: too large": ({"bos_token_id": SIZE}, f"bos_token_id is {SIZE}; the vocabulary has {SIZE} tokens"),
    "bos: negative": ({"bos_token_id": -1}, "tokenizer.ggml.bos_token_id is -1"),
    "bos: text": ({"bos_token_id": "2"}, "tokenizer.ggml.bos_token_id must be a whole number"),
    "bos: truth": ({"bos_token_id": True}, "tokenizer.ggml.bos_token_id must be a whole number"),
    "eos: too large": ({"eos_token_id": SIZE}, "tokenizer.ggml.eos_token_id is"),
    "unknown: too large": ({"unknown_token_id": SIZE}, "tokenizer.ggml.unknown_token_id is"),
}

UNSUPPORTED: dict[str, tuple[dict[str, object], str]] = {
    "another model": ({"model": "gpt2"}, "tokenizer.ggml.model is 'gpt2'"),
    "no text": ({"model": 7}, "tokenizer.ggml.model is 7"),
    "space prefix": ({"add_space_prefix": True}, "tokenizer.ggml.add_space_prefix is True"),
    "fewer spaces": ({"remove_extra_whitespaces": True}, "tokenizer.ggml.remove_extra_whitespaces is True"),
    "not a truth value": ({"add_space_prefix": 0}, "tokenizer.ggml.add_space_prefix is 0"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed(case: str) -> None:
    changes, message = MALFORMED[case]
    with pytest.raises(CheckpointError, match=message) as raised:
        Tokenizer.from_gguf(metadata(**changes))
    assert not isinstance(raised.value, UnsupportedError)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported(case: str) -> None:
    changes, message = UNSUPPORTED[case]
    with pytest.raises(UnsupportedError, match=message):
        Tokenizer.from_gguf(metadata(**changes))


class Lazy(Sequence[str]):
    """Strings that are made when asked for."""

    def __len__(self) -> int:
        return SIZE

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return TINY.tokens[at]


@pytest.mark.parametrize("tokens", [list(TINY.tokens), TINY.tokens, iter(TINY.tokens), Lazy()], ids=type)
def test_arrays_may_come_in_any_container(tokens: object) -> None:
    made = Tokenizer.from_gguf(
        metadata(tokens=tokens, scores=TINY.scores.tolist(), bos_token_id=np.uint32(BOS), add_space_prefix=np.False_)
    )
    assert made.encode("the capital") == Tokenizer.from_gguf(metadata()).encode("the capital")
    assert type(made.bos_id) is int


def test_pieces_of_every_length_are_written_right() -> None:
    lengths = [*range(2, 40), 126, 127, 128, 129, 255, 256, 1000]
    names = [f"{length}" + "~" * (length - len(str(length))) for length in lengths]
    more = len(names)
    made = Tokenizer.from_gguf(
        metadata(
            tokens=[*TINY.tokens, *names],
            scores=[*TINY.scores.tolist(), *[-1.0] * more],
            token_type=[*TINY.types.tolist(), *[4] * more],
        )
    )
    for i, name in enumerate(names):
        assert made.encode(name, bos=False) == [SIZE + i]
        assert made.piece(SIZE + i) == name


def test_a_vocabulary_without_control_tokens_has_none() -> None:
    types = np.where(TINY.types == CONTROL, NORMAL, TINY.types)
    made = Tokenizer.from_gguf(metadata(token_type=types))
    assert not any(map(made.is_control, range(SIZE)))
    assert made.encode("<eos> the", control=True) == made.encode("<eos> the")

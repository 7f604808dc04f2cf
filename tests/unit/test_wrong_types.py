"""Whatever is given in place of an argument, the answer is one line that names it, never an error from inside."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cabochon
from cabochon.errors import UsageError
from cabochon.session import Session
from cabochon.testing.fake_model import FakeModel
from cabochon.testing.tiny import tiny_config, tiny_metadata, write_tiny_gguf
from cabochon.testing.vocabulary import tiny_vocabulary
from cabochon.text.tokenizer import Tokenizer
from cabochon.types import SamplingParams

CONFIG = tiny_config(layers=3, pattern=3, window=20)
TOKENIZER = Tokenizer.from_gguf(tiny_metadata(CONFIG, tiny_vocabulary(CONFIG.vocab)))


class Odd:
    """Has a long name of several lines, and is no number, text or truth value to anyone."""

    def __repr__(self) -> str:
        return "odd\n" * 500

    def __bool__(self) -> bool:
        raise ValueError("neither")


ANYTHING: list[Any] = [
    None,
    b"bytes",
    "text",
    5,
    2.5,
    -1,
    2**70,
    1j,
    float("nan"),
    Fraction(1, 3),
    True,
    np.float32(0.5),
    np.array([1, 2]),
    np.array([[1.5, 2], [3, 4]]),
    np.array(["a"]),
    [],
    ["text"],
    [b"bytes"],
    [[1, 2]],
    [None],
    {},
    {1},
    {"a": 1},
    object,
    len,
    Odd(),
    [Odd()],
    Path("path"),
]
NAMES = [str(type(value).__name__) + f" {n}" for n, value in enumerate(ANYTHING)]

OPTIONS = (
    "max_tokens",
    "stop",
    "ignore_eos",
    "logprobs",
    "loop_guard",
    "constraint",
    *(field.name for field in fields(SamplingParams)),
)


def session_of() -> Session:
    return Session(FakeModel(CONFIG, context=64, chunk=16), TOKENIZER, context=64, chunk=16)


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", tiny_config(context_length=64))


def refusal(function: Any, *arguments: Any, **options: Any) -> str | None:
    """The one line of a ``UsageError``; None if there was no error."""
    try:
        function(*arguments, **options)
    except UsageError as error:
        line = str(error)
    else:
        return None
    assert "\n" not in line
    assert len(line) < 400
    return line


@pytest.mark.parametrize("value", ANYTHING, ids=NAMES)
@pytest.mark.parametrize("argument", OPTIONS)
def test_options_of_a_generation(argument: str, value: Any) -> None:
    session = session_of()
    for function in (session.generate, session.stream):
        line = refusal(function, "the", **{"max_tokens": 2, argument: value})
        assert line is None or argument in line
    assert session.idle


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("max_tokens", [None, "text", 2.5, True, [1], Odd()]),
        ("temperature", ["text", True, 1j, [1], Odd()]),
        ("seed", ["text", 2.5, True, 2**70, Odd()]),
        ("stop", [5, 2.5, b"bytes", [b"bytes"], [5], len, Odd()]),
        ("ignore_eos", [None, "text", 5, [], Odd()]),
        ("logprobs", ["text", 2.5, True, [1], Odd()]),
        ("loop_guard", ["text", 2.5, True, 1, [1], Odd()]),
        ("constraint", ["text", 2.5, True, [1], Odd()]),
        ("logit_bias", ["text", 2.5, True, [1], {"a": 1}, {1: "a"}, {1: Odd()}, {2**70: 1.0}, Odd()]),
        ("bad_words", ["", 5, [5], [""], [[]], [b"bytes"], [["text"]], [[[1]]], [Odd()], np.array(5), Odd()]),
        ("dry_sequence_breakers", [5, "", "qqqq", [[1]], [b"bytes"], [2.5], [Odd()], np.array(5), Odd()]),
        ("order", ["text", 5, True, [1], Odd()]),
    ],
)
def test_options_that_are_refused(argument: str, values: list[Any]) -> None:
    for value in values:
        line = refusal(session_of().generate, "the", **{argument: value})
        assert line is not None, value
        assert argument in line


@pytest.mark.parametrize("value", ANYTHING, ids=NAMES)
def test_texts_and_ids(value: Any) -> None:
    session = session_of()
    lines = {
        "prompt": [refusal(session.generate, value, max_tokens=1), refusal(session.score, value)],
        "text": [refusal(session.tokenize, value)],
        "bos": [refusal(session.tokenize, "the", bos=value)],
        "ids": [refusal(session.detokenize, value)],
        "top_logprobs": [refusal(session.score, "the", top_logprobs=value)],
    }
    for name, told in lines.items():
        for line in told:
            assert line is None or name in line or "token id" in line, (name, line)
    assert (lines["text"] == [None]) == isinstance(value, str)
    assert (lines["bos"] == [None]) == isinstance(value, bool)


@pytest.mark.parametrize("value", ANYTHING, ids=NAMES)
@pytest.mark.parametrize(
    "argument", ["backend", "threads", "context", "chunk", "activations", "kv_type", "whole_context", "progress"]
)
def test_arguments_of_load(tiny_path: Path, argument: str, value: Any) -> None:
    if argument == "progress" and callable(value):
        return
    line = refusal(cabochon.load, tiny_path, **{"threads": 1, argument: value})
    assert line is None or argument in line


@pytest.mark.parametrize(
    "value", [None, b"bytes", 5, 2.5, True, [], {}, len, Odd()], ids=lambda value: type(value).__name__
)
def test_models_that_are_no_path(value: Any) -> None:
    line = refusal(cabochon.load, value)
    assert line is not None
    assert "path" in line

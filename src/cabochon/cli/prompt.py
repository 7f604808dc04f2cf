"""Where the prompt comes from: the command line, standard input, a file, or token ids."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import click

from cabochon.cli.stdio import note
from cabochon.errors import UsageError

Prompt: TypeAlias = str | list[int]
"""A text, which gets BOS in front, or ids, which are taken as they are."""

MAX_BYTES = 64 << 20
"""A longer input is refused, so that one without end is."""

_CHOICES = "give PROMPT, '-' for standard input, --file, --ids or --ids-file"


def prompt_input(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds PROMPT and its alternatives; the command gets the one that was given as ``prompt: Prompt``."""

    @functools.wraps(function)
    def command(
        *args: Any, text: str | None, file: str | None, ids: str | None, ids_file: str | None, **rest: Any
    ) -> Any:
        given = (text, file, ids, ids_file)
        if rest.get("lines") is None:
            return function(*args, prompt=read_prompt(*given), **rest)
        if any(source is not None for source in given):
            raise UsageError("--input has prompts of its own; give no other")
        return function(*args, prompt="", **rest)

    for decorate in (
        click.option("--ids-file", metavar="PATH", help="Token ids from a file: a JSON list."),
        click.option("--ids", metavar="2,818,...", help="Token ids instead of text; nothing is put in front."),
        click.option("--file", metavar="PATH", help="Read the prompt from a file, UTF-8, to its last byte."),
        click.argument("text", metavar="[PROMPT]", required=False),
    ):
        command = decorate(command)
    return command


def read_prompt(text: str | None, file: str | None, ids: str | None, ids_file: str | None) -> Prompt:
    """The one of the four that is not None, read and checked.

    Raises ``UsageError`` if none or several are given, or the one is unreadable, malformed or empty.
    """
    given = sum(source is not None for source in (text, file, ids, ids_file))
    if given != 1:
        raise UsageError(f"{'no prompt' if not given else 'more than one prompt'}; {_CHOICES}")
    if ids is not None:
        return _ids_from_text(ids)
    if ids_file is not None:
        return _ids_from_json(_contents(ids_file), ids_file)
    if file is not None:
        return _decoded(_contents(file), file)
    assert text is not None
    if text == "-":
        return _decoded(_standard_input(), "standard input")
    return _decoded(_typed(text), "PROMPT")


def _ids_from_text(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not re.fullmatch(r"-?[0-9]{1,20}", part):  # int() would take 1_0 and other scripts' digits
            raise UsageError(f"--ids: {part[:40]!r} is not a token id; give numbers with commas between")
    return _checked([int(part) for part in parts], "--ids")


def _ids_from_json(data: bytes, path: str) -> list[int]:
    where = f"--ids-file {path}"
    try:
        value = json.loads(data)
    except RecursionError:
        raise UsageError(f"{where}: nested too deep; it must be a JSON list of token ids") from None
    except ValueError as error:
        raise UsageError(f"{where}: not JSON ({error}); it must be a list of token ids") from None
    if not isinstance(value, list):
        raise UsageError(f"{where}: holds no list; it must be a JSON list of token ids")
    for index, item in enumerate(value):
        if type(item) is not int:
            raise UsageError(f"{where}: element {index} is {json.dumps(item)[:40]}, not a token id")
    return _checked(value, where)


def _checked(ids: list[int], where: str) -> list[int]:
    if not ids:
        raise UsageError(f"{where}: the prompt is empty")
    for index, token in enumerate(ids):
        if token < 0:
            raise UsageError(f"{where}: id {index} is {token}; token ids start at 0")
    return ids


def _typed(text: str) -> bytes:
    # Bytes that were no text came in as lone surrogates; they go back to what they were.
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"PROMPT is not text: character {error.start} is a lone surrogate") from None


def _decoded(data: bytes, what: str) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise UsageError(f"{what} is not UTF-8: byte 0x{byte:02X} at offset {error.start}") from None
    if not text:
        raise UsageError(f"{what}: the prompt is empty")
    return text


def _contents(path: str) -> bytes:
    try:
        with Path(path).open("rb") as stream:
            return _bounded(stream, path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read {path}: {reason}") from None


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise UsageError("standard input is closed")
    if sys.stdin.isatty():
        note("reading the prompt from the terminal; Ctrl-D ends it")
    try:
        return _bounded(sys.stdin.buffer, "standard input")
    except OSError as error:
        raise UsageError(f"cannot read standard input: {error.strerror or error}") from None


def _bounded(stream: BinaryIO, what: str) -> bytes:
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UsageError(f"{what}: more than {MAX_BYTES >> 20} MiB, too long for a prompt")
    return data

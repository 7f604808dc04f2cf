"""Standard streams: results on stdout, the rest on stderr, whatever they are connected to."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

from cabochon.errors import RunError

# A model can write any byte; a terminal would obey escape sequences. Tab and newline stay.
_HARMLESS = {
    code: "\N{REPLACEMENT CHARACTER}" for code in [*range(0x20), *range(0x7F, 0xA0)] if chr(code) not in "\t\n"
}


def prepare() -> None:
    """Text leaves as UTF-8, whatever the locale, and its newlines stay as they are."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="")
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")


def write(text: str) -> None:
    """Writes a part of the result to stdout at once.

    Raises ``RunError`` if that cannot be, ``BrokenPipeError`` if nobody reads it any more.
    """
    if sys.stdout is None:
        raise RunError("standard output is closed")
    if sys.stdout.isatty():
        text = text.translate(_HARMLESS)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _give_up_stdout()
        if isinstance(error, BrokenPipeError):
            raise
        raise RunError(f"cannot write to standard output: {error.strerror or error}") from None


def _give_up_stdout() -> None:
    """Python keeps what it could not write and would try again, and fail, at exit: let it succeed there."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def write_json(value: Any) -> None:
    """Writes ``value`` to stdout as one line of JSON."""
    write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")


def note(line: str) -> None:
    """Writes a line to stderr; a closed stderr is no reason to fail."""
    if sys.stderr is None:
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def error(message: str) -> None:
    """Writes an error to stderr as exactly one line."""
    note(" ".join(message.split()))


def table(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> str:
    """``rows`` in aligned columns, those in ``left`` to the left and the others to the right, ending in a newline."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def flush() -> None:
    """What is still buffered goes out."""
    write("")

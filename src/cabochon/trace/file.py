"""Traces in files: one JSON object a line, the header first, then steps and variants, and the end last."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec

from cabochon.errors import TraceError
from cabochon.trace.structure import check_structure
from cabochon.trace.trace import VERSION, End, Header, Step, Trace, VariantRun


class _Version(msgspec.Struct):
    """The one field that every version has."""

    cabochon_trace: int


MOST_BYTES = 1 << 30
"""A larger file is refused, so that one without end is."""

_Line: TypeAlias = Header | Step | VariantRun | End

_VERSION = msgspec.json.Decoder(_Version)
_LINE: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


def encoded(trace: Trace) -> bytes:
    """The lines of a trace, each with its line feed."""
    encoder = msgspec.json.Encoder()
    return encoder.encode_lines([trace.header, *trace.steps, *trace.variants, trace.end])


def decoded(lines: Iterable[bytes], name: str) -> Trace:
    """The trace of these lines. Raises ``TraceError``, which begins with ``name``, if they are no whole trace."""
    parts = [_part(line, number, name) for number, line in enumerate(lines, start=1) if line.strip()]
    if not parts:
        raise TraceError(f"{name}: the file is empty; it is no trace")
    header, middle, end = parts[0], parts[1:-1], parts[-1]
    steps = tuple(part for part in middle if isinstance(part, Step))
    variants = tuple(part for part in middle if isinstance(part, VariantRun))
    if not isinstance(header, Header) or len(steps) + len(variants) != len(middle):
        raise TraceError(f"{name}: its lines are not a header, steps, variants and an end, in this order")
    if not isinstance(end, End):
        raise TraceError(f"{name}: the end is missing; the trace was cut off while it was written, record it again")
    trace = Trace(header, steps, variants, end)
    check_structure(trace, name)
    return trace


def save(trace: Trace, path: str | Path) -> None:
    """Writes a trace to a file. Raises ``TraceError`` if that cannot be."""
    try:
        Path(path).write_bytes(encoded(trace))
    except OSError as error:
        raise TraceError(f"{path}: cannot be written ({error.strerror})") from error


def load(path: str | Path) -> Trace:
    """The trace in a file. Raises ``TraceError`` if it cannot be read, is no trace, or of another version."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror})") from error
    if len(data) > MOST_BYTES:
        raise TraceError(f"{path}: more than {MOST_BYTES >> 20:,} MiB; it is no trace")
    return decoded(data.splitlines(), str(path))


def _part(line: bytes, number: int, name: str) -> _Line:
    try:
        if number == 1:
            _check_version(_VERSION.decode(line).cabochon_trace, name)
        return _LINE.decode(line)
    except msgspec.MsgspecError as error:
        what = "is no trace" if number == 1 else "is damaged"
        raise TraceError(f"{name}: line {number} {what}: {error}") from None
    except RecursionError:
        raise TraceError(f"{name}: line {number} is nested too deep; the file is no trace") from None
    except UnicodeDecodeError:
        raise TraceError(f"{name}: line {number} is no text; the file is no trace, or damaged") from None


def _check_version(version: int, name: str) -> None:
    if version != VERSION:
        raise TraceError(
            f"{name}: a trace of version {version}, but this Cabochon reads version {VERSION}; record it again"
        )

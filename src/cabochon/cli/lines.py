"""Many prompts from a file, a JSON object on each line, and their results to another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from cabochon.cli.progress import loading_bar
from cabochon.cli.report import generation_report
from cabochon.errors import CabochonError, RunError, UsageError, shown
from cabochon.session import Outcome, Session, Stream
from cabochon.session.sampling_arguments import SamplingArguments

OPTIONS = frozenset((*SamplingArguments.__annotations__, "max_tokens", "stop", "ignore_eos", "logprobs", "loop_guard"))
"""Keys of a line, besides ``id`` and ``prompt`` or ``ids``; they go before the command's own options."""

_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line of input."""

    id: Any
    """What the user calls it; its number from 0 unless given."""
    prompt: Any = None
    options: dict[str, Any] | None = None
    error: UsageError | None = None


def run_lines(session: Session, source: str, target: str, defaults: dict[str, Any]) -> int:
    """Generates for each line of ``source`` and appends a line to ``target`` for each, in the same order.

    What ``target`` holds already is not done again. Returns how many lines ended with an error. A line that cannot be
    done gets a line with ``error`` and does not disturb the others. Raises ``RunError`` if a file cannot be read or
    written, ``UsageError`` if ``target`` holds something else than such results.
    """
    lines = list(_read(source))
    done = _done(Path(target), lines)
    failed = 0
    with ExitStack() as stack:
        out = stack.enter_context(_opened(target))
        show = stack.enter_context(loading_bar("generating"))
        jobs = (line.error or _job(session, line, defaults) for line in lines[done:])
        for outcome in session.run_all(jobs):
            index = done + outcome.index
            failed += outcome.error is not None
            _write(out, target, {"id": lines[index].id, "index": index, **_fields(session, outcome)})
            if show is not None:
                show(index + 1, len(lines))
    return failed


def _job(session: Session, line: Line, defaults: dict[str, Any]) -> Stream | CabochonError:
    try:
        return session.stream(line.prompt, **{**defaults, **(line.options or {})})
    except CabochonError as error:
        return error


def _fields(session: Session, outcome: Outcome) -> dict[str, Any]:
    if outcome.result is None:
        return {"error": str(outcome.error)}
    return generation_report(outcome.result, session)


def _read(source: str) -> Iterator[Line]:
    try:
        with Path(source).open("rb") as file:
            for number, text in enumerate(file):
                yield _line(number, text)
    except OSError as error:
        raise RunError(f"--input {source}: {error.strerror or error}") from None


def _line(number: int, text: bytes) -> Line:
    where = f"line {number + 1}"
    if len(text) > _MOST_BYTES:
        return Line(number, error=UsageError(f"{where}: longer than {_MOST_BYTES >> 20} MiB"))
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Line(number, error=UsageError(f"{where}: not JSON ({error})"))
    if not isinstance(entry, dict):
        return Line(number, error=UsageError(f"{where}: not a JSON object"))
    name = entry.pop("id", number)
    prompts = [entry.pop(key) for key in ("prompt", "ids") if key in entry]
    if len(prompts) != 1:
        return Line(name, error=UsageError(f"{where}: give either prompt or ids"))
    unknown = sorted(set(entry) - OPTIONS)
    if unknown:
        return Line(name, error=UsageError(f"{where}: no such option: {', '.join(map(shown, unknown))}"))
    bias = entry.get("logit_bias")
    if isinstance(bias, dict):  # JSON's keys are texts
        entry["logit_bias"] = {int(key) if key.isdecimal() else key: value for key, value in bias.items()}
    return Line(name, prompts[0], entry)


def _done(target: Path, lines: list[Line]) -> int:
    """Results that ``target`` holds; a last line that was not written to its end is taken back."""
    if not target.exists():
        return 0
    try:
        data = target.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with target.open("r+b") as file:
                file.truncate(len(whole))
    except OSError as error:
        raise RunError(f"--output {target}: {error.strerror or error}") from None
    results = whole.splitlines()
    for index, text in enumerate(results):
        try:
            entry = json.loads(text)
            matches = index < len(lines) and entry["index"] == index and entry["id"] == lines[index].id
        except (ValueError, KeyError, TypeError):
            matches = False
        if not matches:
            raise UsageError(f"--output {target}: line {index + 1} is no result of this input; name another file")
    return len(results)


def _opened(target: str) -> BinaryIO:
    try:
        return Path(target).open("ab")
    except OSError as error:
        raise RunError(f"--output {target}: {error.strerror or error}") from None


def _write(out: BinaryIO, target: str, entry: dict[str, Any]) -> None:
    try:
        out.write(json.dumps(entry, ensure_ascii=False, allow_nan=False).encode(errors="backslashreplace") + b"\n")
        out.flush()
    except OSError as error:
        raise RunError(f"--output {target}: {error.strerror or error}") from None

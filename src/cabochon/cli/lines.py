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

OPTIONS = frozenset(
    (
        *SamplingArguments.__annotations__,
        *("max_tokens", "stop", "ignore_eos", "logprobs", "loop_guard", "prompt_logprobs", "n"),
    )
)
"""Keys of a line, besides ``id`` and ``prompt`` or ``ids``; they go before the command's own options."""

_MOST_BYTES = 64 << 20
_MOST_DIGITS = 20


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

    Where ``n`` is given, in a line or in ``defaults``, there are so many, each with its ``choice``; but only one for a
    line that cannot begin. What ``target`` holds already is not done again. Returns how many lines ended with an error.
    A line that cannot be done gets a line with ``error`` and does not disturb the others. Raises ``RunError`` if a file
    cannot be read or written, ``UsageError`` if ``target`` holds something else than such results.
    """
    lines = list(_read(source))
    done = _done(Path(target), lines, defaults)
    failed = 0
    places: list[tuple[int, dict[str, int]]] = []

    def jobs() -> Iterator[Stream | CabochonError]:
        for index in range(done, len(lines)):
            for choice, job in _jobs(session, lines[index], defaults):
                places.append((index, choice))
                yield job

    with ExitStack() as stack:
        out = stack.enter_context(_opened(target))
        show = stack.enter_context(loading_bar("generating"))
        for outcome in session.run_all(jobs()):
            index, choice = places[outcome.index]
            failed += outcome.error is not None
            _write(out, target, {"id": lines[index].id, "index": index, **choice, **_fields(session, outcome)})
            if show is not None:
                show(index + 1, len(lines))
    return failed


def _jobs(
    session: Session, line: Line, defaults: dict[str, Any]
) -> Iterator[tuple[dict[str, int], Stream | CabochonError]]:
    """What is to be run for a line, and which choice each is where it is one of several."""
    if line.error is not None:
        yield {}, line.error
        return
    options = {**defaults, **(line.options or {})}
    n = options.pop("n", None)
    try:
        if n is None:
            yield {}, session.stream(line.prompt, **options)
            return
        streams = session.choices(line.prompt, n, **options)
    except CabochonError as error:
        yield {}, error
        return
    for stream in streams:
        yield {"choice": stream.request.params.choice}, stream


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
    try:
        json.dumps(name, allow_nan=False)
    except (ValueError, RecursionError):
        return Line(number, error=UsageError(f"{where}: its id cannot be written as JSON; give a text or a number"))
    prompts = [entry.pop(key) for key in ("prompt", "ids") if key in entry]
    if len(prompts) != 1:
        return Line(name, error=UsageError(f"{where}: give either prompt or ids"))
    unknown = sorted(set(entry) - OPTIONS)
    if unknown:
        return Line(name, error=UsageError(f"{where}: no such option: {', '.join(map(shown, unknown))}"))
    bias = entry.get("logit_bias")
    if isinstance(bias, dict):  # JSON's keys are texts
        entry["logit_bias"] = {_token_id(key): value for key, value in bias.items()}
    return Line(name, prompts[0], entry)


def _token_id(key: str) -> int | str:
    """The number that a key is, if it can be an id's."""
    return int(key) if key.isdecimal() and len(key) < _MOST_DIGITS else key


def _done(target: Path, lines: list[Line], defaults: dict[str, Any]) -> int:
    """Lines whose results ``target`` holds; those of a last one that are not all there are taken back."""
    if not target.exists():
        return 0
    try:
        data = target.read_bytes()
        results = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
        done, of_last = _whole(target, results, lines, defaults)
        size = sum(map(len, results[: len(results) - of_last]))
        if size < len(data):
            with target.open("r+b") as file:
                file.truncate(size)
    except OSError as error:
        raise RunError(f"--output {target}: {error.strerror or error}") from None
    return done


def _whole(target: Path, results: list[bytes], lines: list[Line], defaults: dict[str, Any]) -> tuple[int, int]:
    """How many lines have all their results, and how many results there are of one that has not."""
    done = choices = 0
    for number, text in enumerate(results, start=1):
        try:
            entry = json.loads(text)
            matches = done < len(lines) and entry["index"] == done and entry["id"] == lines[done].id
            options = {**defaults, **(lines[done].options or {})} if matches else {}
            if matches and "choice" in entry:
                matches = options["n"] is not None and entry["choice"] == (options.get("choice") or 0) + choices
            elif matches:
                matches = not choices and (options.get("n") is None or "error" in entry)
        except (ValueError, KeyError, TypeError):
            matches = False
        if not matches:
            raise UsageError(f"--output {target}: line {number} is no result of this input; name another file")
        choices += 1
        if "choice" not in entry or choices == options["n"]:
            done, choices = done + 1, 0
    return done, choices


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

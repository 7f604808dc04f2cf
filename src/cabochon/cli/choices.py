"""``generate --choices N``: several continuations of one prompt."""

from __future__ import annotations

from typing import Any

from cabochon.cli import stdio
from cabochon.cli.prompt import Prompt
from cabochon.cli.report import generation_report, logprob_tables
from cabochon.session import Generation, Session, Stream


def run_choices(session: Session, prompt: Prompt, n: int, options: dict[str, Any], *, as_json: bool) -> None:
    """Writes ``n`` continuations in their order, each when it is whole, and figures; with ``as_json`` one object.

    Ctrl-C ends all, and what there is is kept. Raises as ``Session.generate``.
    """
    streams = session.choices(prompt, n, **options)
    written = 0
    try:
        for outcome in session.run_all(streams):
            if outcome.error is not None:
                raise outcome.error
            if not as_json:
                _write(streams[written])
            written += 1
    except KeyboardInterrupt:
        if not any(stream.result.token_ids for stream in streams):
            raise
        if not as_json:
            for stream in streams[written:]:
                _write(stream)
    if as_json:
        reports = [{"choice": _number(stream), **generation_report(stream.result, session)} for stream in streams]
        stdio.write_json({"choices": reports})
        return
    stdio.note(_figures(streams))
    for stream in streams:
        for table in logprob_tables(stream.result, session):
            stdio.note(f"choice {_number(stream)}\n{table}")


def _write(stream: Stream) -> None:
    stdio.write(f"--- choice {_number(stream)} ---\n{stream.result.text}\n")


def _number(stream: Stream) -> int:
    return stream.request.params.choice


def _figures(streams: list[Stream]) -> str:
    results: list[tuple[int, Generation]] = [(_number(stream), stream.result) for stream in streams]
    first = results[0][1]
    seed = f", seed {first.seed}" if first.sampled else ""
    rows = [("choice", "tokens", "ended by")]
    rows += [(str(number), str(len(result.token_ids)), result.finish_reason) for number, result in results]
    return f"prompt {first.prompt_tokens} tokens{seed}\n" + stdio.table(rows, left=(2,)).rstrip("\n")

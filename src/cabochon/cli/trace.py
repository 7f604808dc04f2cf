"""``cabochon trace``: what every step of a generation did, recorded and shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Literal

import click
from click.core import ParameterSource

from cabochon.cli import stdio
from cabochon.cli.conversation import check_place
from cabochon.cli.help import Command
from cabochon.cli.loading import load_session
from cabochon.cli.options import EngineOptions, ModelOptions, as_json, ignore_eos, model_options, whole
from cabochon.cli.prompt import Prompt, read_prompt
from cabochon.cli.sampling_options import SamplingOptions, sampling_options
from cabochon.errors import RunError, UsageError
from cabochon.session import Session
from cabochon.session.loading import MAX_GUESSES
from cabochon.trace import file
from cabochon.trace.against import TEXTS, variants_of
from cabochon.trace.check import replay
from cabochon.trace.demo import CONTEXT, demo_runs
from cabochon.trace.explain import Explainer
from cabochon.trace.page import page
from cabochon.trace.record import record
from cabochon.trace.trace import Trace
from cabochon.trace.variants import VARIANTS


@click.command(
    "trace",
    cls=Command,
    epilog="""\b
Examples:
  cabochon trace "The capital of France is"
  cabochon trace "The capital of France is" --step 3
  cabochon trace "Once upon a time" "Water" --temperature 0
  cabochon trace "The capital of France is" --against all --save run.jsonl
  cabochon trace --load run.jsonl --step 0
  cabochon trace "The capital of France is" --against all --html run.html""",
)
@click.argument("texts", metavar="[PROMPT]...", nargs=-1)
@click.option(
    "--file", "files", metavar="PATH", multiple=True, help="A prompt from a file; may be given several times."
)
@click.option("--ids", metavar="2,818,...", multiple=True, help="A prompt of token ids; may be given several times.")
@click.option("--max-tokens", type=whole(1), metavar="N", default=16, show_default=True, help="End each text after N.")
@sampling_options
@ignore_eos
@click.option("--step", type=whole(0), metavar="N", help="All about step N: its rows, and every candidate listed.")
@click.option(
    "--against",
    metavar="LIST",
    help="Record other ways to make the first prompt's steps, too: " + ", ".join(VARIANTS) + "; or 'all'.",
)
@click.option("--attention", metavar="LAYERS", help="Record how each head of these layers looks back: 5,11 or 'all'.")
@click.option(
    "--speculate", type=whole(0, MAX_GUESSES), default=0, show_default=True, metavar="N", help="As in generate."
)
@click.option("--save", metavar="FILE", help="Write the trace to a file, a JSON object on each line.")
@click.option("--html", metavar="FILE", help="Write a page that shows the trace: one file, without a network.")
@click.option(
    "--demo-page",
    metavar="FILE",
    help="Write a page of three runs: a short one, one beyond the window, and unequal prompts. Takes some minutes.",
)
@click.option("--load", metavar="FILE", help="Show a saved trace; no model is needed. Its choices are made again.")
@as_json
@model_options
def command(
    texts: tuple[str, ...],
    files: tuple[str, ...],
    ids: tuple[str, ...],
    max_tokens: int,
    sampling: SamplingOptions,
    ignore_eos: bool,
    step: int | None,
    against: str | None,
    attention: str | None,
    speculate: int,
    save: str | None,
    html: str | None,
    demo_page: str | None,
    load: str | None,
    as_json: bool,
    model: ModelOptions,
) -> None:
    """Show what every step of a generation did.

    For each step: the ids and positions that went in, the slots their keys and values were written to, the keys that
    sliding and global layers read, what was let go, and how the token was chosen. In the end: what it cost, and what
    running the whole text again for every token would. Several prompts run together.

    With --json the lines of the trace go to standard output, as --save writes them.
    """
    prompts = [
        *(read_prompt(text, None, None, None) for text in texts),
        *(read_prompt(None, path, None, None) for path in files),
        *(read_prompt(None, None, listed, None) for listed in ids),
    ]
    for option, path in (("--save", save), ("--html", html), ("--demo-page", demo_page)):
        check_place(option, path)
    if as_json and step is not None:
        raise UsageError("--json is the whole trace, and --step a part in words; give one or the other")
    if demo_page is not None:
        _refuse_others("--demo-page has runs of its own", {"demo_page", *_names(ModelOptions)})
        _write_page(demo_page, list(demo_runs(_demo_session(model))))
        return
    if load is not None:
        _refuse_others("--load shows a run that is over", {"load", "step", "html", "as_json"})
        trace = file.load(load)
        replay(trace)
    else:
        options = {"max_tokens": max_tokens, **asdict(sampling), "ignore_eos": ignore_eos}
        trace = _recorded(
            prompts, against, attention, speculate, options, model, fingerprint=save is not None or as_json
        )
    if save is not None:
        file.save(trace, save)
    if html is not None:
        _write_page(html, [(_title(trace), trace)])
    if as_json:
        stdio.write(file.encoded(trace).decode())
        return
    for line in _lines(trace, step):
        stdio.write(line + "\n")
    if load is not None:
        stdio.write("Replayed: every choice made again from its candidates gives the same text.\n")


def _refuse_others(why: str, allowed: set[str]) -> None:
    """Raises ``UsageError`` naming whatever else was given on the command line: it would be ignored."""
    context = click.get_current_context()
    for param in context.command.params:
        if param.name not in allowed and context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
            name = param.opts[-1] if isinstance(param, click.Option) else "PROMPT"
            raise UsageError(f"{why}; it takes no {name}")


def _names(options: type[ModelOptions]) -> set[str]:
    return {field.name for field in fields(options)}


def _recorded(
    prompts: list[Prompt],
    against: str | None,
    attention: str | None,
    speculate: int,
    options: dict[str, object],
    model: ModelOptions,
    *,
    fingerprint: bool,
) -> Trace:
    if not prompts:
        raise UsageError("no prompt; give one or several, --file, --ids, or --load a saved trace")
    names = [] if against is None else [name.strip() for name in against.split(",")]
    variants_of(names)  # before anything is loaded
    layers = _layers(attention)
    running = max(len(prompts), TEXTS if names else 1)
    engine = EngineOptions(running, None, speculate)
    session = load_session(model, engine=engine, whole_context=bool(names), keep_queries=layers)
    return record(
        session, prompts, against=names, attention=layers, fingerprint=fingerprint, speculate=speculate, **options
    )


def _layers(text: str | None) -> list[int] | Literal["all"]:
    if text is None or text == "all":
        return [] if text is None else "all"
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--attention must be layer numbers with commas between, or 'all', not {text!r}") from None


def _demo_session(model: ModelOptions) -> Session:
    engine = EngineOptions(TEXTS, None, 0)
    return load_session(replace(model, context=model.context or CONTEXT), engine=engine, whole_context=True)


def _write_page(path: str, runs: list[tuple[str, Trace]]) -> None:
    try:
        Path(path).write_text(page(runs), "utf-8")
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror})") from None


def _title(trace: Trace) -> str:
    """What a page calls the run: the first words of its first prompt."""
    ids, pieces = trace.header.prompts[0].ids, trace.header.pieces
    words = "".join(piece for piece in (pieces.get(i, "") for i in ids[:12]) if not piece.startswith("<"))
    return " ".join(words.split())[:60] or "A run"


def _lines(trace: Trace, step: int | None) -> Iterator[str]:
    explainer = Explainer(trace)
    if step is not None:
        yield from explainer.details(step)
        return
    yield from explainer.head()
    yield from explainer.overview()
    yield from explainer.summary()

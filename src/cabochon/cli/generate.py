"""``cabochon generate``: continue a text, as it comes."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import asdict

import click

from cabochon.cli import stdio
from cabochon.cli.choices import run_choices
from cabochon.cli.conversation import ConversationOptions, check_place, conversation_options, prompt_after, save_after
from cabochon.cli.help import Command
from cabochon.cli.interrupts import first_one_waits
from cabochon.cli.lines import run_lines
from cabochon.cli.loading import load_session
from cabochon.cli.options import (
    EngineOptions,
    ModelOptions,
    as_json,
    engine_options,
    ignore_eos,
    max_tokens,
    model_options,
    not_empty,
    whole,
)
from cabochon.cli.prompt import Prompt, prompt_input
from cabochon.cli.report import generation_report, logprob_tables
from cabochon.cli.sampling_options import SamplingOptions, sampling_options
from cabochon.engine.loop_guard import MOST_REPETITIONS
from cabochon.errors import RunError, UsageError
from cabochon.session import Generation, Stream
from cabochon.session.variants import MAX_CHOICES


@click.command(
    "generate",
    cls=Command,
    epilog="""\b
Examples:
  cabochon generate "The capital of France is"
  cabochon generate --file story.txt --max-tokens 500 --seed 7 > more.txt
  echo -n "2, 3, 5, 7," | cabochon generate - --temperature 0 --stop " "
  cabochon generate --ids 2,818,5279 --logprobs 3 --json
  cabochon generate "Once upon a time" -n 4 --max-running 4 --seed 7
  cabochon generate "It was" --save-conversation a.talk
  cabochon generate " And then" --load-conversation a.talk --save-conversation a.talk""",
)
@prompt_input
@max_tokens
@sampling_options
@click.option(
    "--stop", type=not_empty, multiple=True, metavar="TEXT", help="End before this text; may be given several times."
)
@ignore_eos
@click.option(
    "--loop-guard",
    type=whole(0, MOST_REPETITIONS),
    metavar="N",
    default=0,
    show_default=True,
    help="End a text that only repeats itself: N times up to 64 tokens, 48 in all at least. 0 is off.",
)
@click.option(
    "--logprobs",
    type=whole(0),
    metavar="N",
    help="Log-probability of each token, and of the N most probable in its place.",
)
@click.option(
    "--prompt-logprobs",
    type=whole(0),
    metavar="N",
    help="Log-probability of each token of the prompt, and of the N most probable in its place.",
)
@click.option(
    "-n",
    "--choices",
    type=whole(1, MAX_CHOICES),
    metavar="N",
    help="N texts with one seed, the choices 0 to N-1 (or from --choice on). They run together as --max-running says.",
)
@click.option(
    "--input",
    "lines",
    metavar="FILE",
    help="Many prompts instead of one: on each line a JSON object with prompt or ids, options and an id.",
)
@click.option(
    "--output", metavar="FILE", help="Where the results of --input go, a line each. It goes on where it ended."
)
@conversation_options
@as_json
@engine_options
@model_options
def command(
    prompt: Prompt,
    max_tokens: int,
    sampling: SamplingOptions,
    stop: tuple[str, ...],
    ignore_eos: bool,
    loop_guard: int,
    logprobs: int | None,
    prompt_logprobs: int | None,
    choices: int | None,
    lines: str | None,
    output: str | None,
    conversation: ConversationOptions,
    as_json: bool,
    engine: EngineOptions,
    model: ModelOptions,
) -> None:
    """Continue a text.

    The continuation goes to standard output as it comes, with one newline after it; figures follow on standard error.
    Ctrl-C ends it and keeps what there is.

    With --save-conversation and --load-conversation a text goes on in another run where it ended, as if there had been
    one run only.

    With --input and --output it runs many prompts, as many together as --max-running says, and each gives the text that
    it gives alone.
    """
    options = {
        "max_tokens": max_tokens,
        **asdict(sampling),
        "stop": stop,
        "ignore_eos": ignore_eos,
        "logprobs": logprobs,
        "loop_guard": loop_guard,
        "prompt_logprobs": prompt_logprobs,
    }
    if (lines is None) != (output is None):
        raise UsageError("--input and --output go together: many prompts, and where their results go")
    if lines is not None and conversation != ConversationOptions(None, None):
        raise UsageError("--input is many prompts, and a conversation is one; give one or the other")
    several = choices is not None and choices > 1
    if several and conversation.save_conversation is not None:
        raise UsageError("--choices makes several texts, and a conversation is one; give one or the other")
    check_place("--save-conversation", conversation.save_conversation)
    session = load_session(model, engine=engine)
    if lines is not None and output is not None:
        failed = run_lines(session, lines, output, {**options, "n": choices})
        if failed:
            raise RunError(f"{failed} lines ended with an error; see {output}")
        return
    prompt = prompt_after(session, conversation.load_conversation, prompt)
    if choices is not None and several:
        run_choices(session, prompt, choices, options, as_json=as_json)
        return
    path = conversation.save_conversation
    result = _run(session.stream(prompt, **options), quiet=as_json, gently=path is not None)
    if as_json:
        stdio.write_json(generation_report(result, session))
    else:
        stdio.write("\n")
    saved = None if path is None else save_after(session, path, prompt, result.token_ids)
    if as_json:
        return
    stdio.note(_figures(result, saved))
    for table in logprob_tables(result, session):
        stdio.note(table)


def _run(stream: Stream, *, quiet: bool, gently: bool) -> Generation:
    """Writes the text unless ``quiet``, to its end or Ctrl-C; ``gently`` that waits for the end of a step, and what is
    stored stays."""
    with first_one_waits() if gently else nullcontext(lambda: False) as interrupted:
        try:
            with stream:
                for chunk in stream:
                    if chunk.text and not quiet:
                        stdio.write(chunk.text)
                    if interrupted():
                        break
        except KeyboardInterrupt:
            if not stream.result.token_ids:
                raise
    return stream.result


def _figures(result: Generation, saved: str | None) -> str:
    timings = result.timings
    reused = f", {result.reused_tokens} of them reused," if result.reused_tokens else ""
    rows = [
        ("prompt", f"{result.prompt_tokens} tokens{reused}{_at(timings.prefill_tokens_per_s)}"),
        ("text", f"{len(result.token_ids)} tokens{_at(timings.decode_tokens_per_s)}"),
        ("loaded", f"in {timings.load_s:.2f} s"),
    ]
    if timings.first_token_s is not None:
        rows.append(("first token", f"after {timings.first_token_s:.3f} s"))
    rows.append(("ended by", result.finish_reason))
    if result.sampled:
        rows.append(("seed", str(result.seed)))
    if saved is not None:
        rows.append(("saved", saved))
    # A line between text and figures where one terminal shows both.
    gap = "\n" if sys.stdout is not None and sys.stdout.isatty() else ""
    return gap + stdio.table(rows, left=(0, 1)).rstrip("\n")


def _at(rate: float | None) -> str:
    return "" if rate is None else f" at {rate:,.1f} tokens/s"

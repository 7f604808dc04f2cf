"""``cabochon score``: how probable a text is, token by token."""

from __future__ import annotations

import math

import click

from cabochon.cli import stdio
from cabochon.cli.help import Command
from cabochon.cli.loading import load_session
from cabochon.cli.options import ModelOptions, as_json, model_options, whole
from cabochon.cli.prompt import Prompt, prompt_input
from cabochon.cli.tokens import token_table


@click.command(
    "score",
    cls=Command,
    epilog="""\b
Examples:
  cabochon score "The capital of France is Paris."
  cabochon score --file text.txt --context 8192 --json | jq .perplexity
  cabochon score "The capital of France is" --top-logprobs 5""",
)
@prompt_input
@click.option(
    "--top-logprobs",
    type=whole(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Also show the N most probable tokens in each place.",
)
@as_json
@model_options
def command(prompt: Prompt, top_logprobs: int, as_json: bool, model: ModelOptions) -> None:
    """Show the log-probability of every token of a text, and its perplexity.

    Each token's is given those before it, so the first has none. Perplexity is the exponential of minus their mean.
    """
    session = load_session(model)
    score = session.score(prompt, top_logprobs=top_logprobs)
    if as_json:
        # JSON has no infinity.
        perplexity = score.perplexity if score.perplexity not in (None, math.inf) else None
        report = {"token_ids": score.token_ids, "logprobs": score.logprobs, "perplexity": perplexity}
        stdio.write_json(report if score.top is None else {**report, "top": score.top})
        return
    tops = score.top or (None,) * len(score.token_ids)
    stdio.write(token_table(session, 0, score.token_ids, score.logprobs, tops))
    shown = "-" if score.perplexity is None else f"{score.perplexity:,.4f}"
    stdio.write(f"\n\nperplexity {shown} over {len(score.token_ids) - 1} tokens\n")

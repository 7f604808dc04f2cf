"""``cabochon verify``: cached generation held against one pass from nothing."""

from __future__ import annotations

from dataclasses import asdict

import click

from cabochon.cli import stdio
from cabochon.cli.help import Command
from cabochon.cli.loading import load_session
from cabochon.cli.options import (
    ModelOptions,
    as_json,
    ignore_eos,
    max_tokens,
    model_options,
)
from cabochon.cli.prompt import Prompt, prompt_input
from cabochon.cli.sampling_options import SamplingOptions, sampling_options
from cabochon.trace.verify import Verification, verify


@click.command(
    "verify",
    cls=Command,
    epilog="""\b
Examples:
  cabochon verify "The capital of France is"
  cabochon verify --file story.txt --max-tokens 700 --ignore-eos --chunk 17
  CABOCHON_ISA=portable cabochon verify "Once upon a time" --json""",
)
@prompt_input
@max_tokens
@sampling_options
@ignore_eos
@as_json
@model_options
def command(
    prompt: Prompt,
    max_tokens: int,
    sampling: SamplingOptions,
    ignore_eos: bool,
    as_json: bool,
    model: ModelOptions,
) -> int:
    """Prove that the KV cache changes nothing, bit for bit.

    Generates a text through the cache, then runs the finished text once from empty pages, and compares the logits of
    every step. Exits with 0 if all are equal to the last bit, with 1 if not. The torch backend is not expected to be.
    """
    session = load_session(model, whole_context=True)
    outcome = verify(session, prompt, max_tokens=max_tokens, **asdict(sampling), ignore_eos=ignore_eos)
    if as_json:
        report = asdict(outcome)
        del report["token_ids"]
        stdio.write_json(report)
    else:
        stdio.write(_in_words(outcome))
    return 0 if outcome.equal else 1


def _in_words(outcome: Verification) -> str:
    verdict = (
        f"Equal: in all {outcome.steps} steps the cache gave the logits of one pass over the whole text, bit for bit."
        if outcome.equal
        else f"NOT equal: over {outcome.steps} steps, logits differ by up to {outcome.max_abs_difference:.3g}."
    )
    return (
        f"{verdict}\nTokens run through the cache: {outcome.tokens_run_cached:,};"
        f" in one pass: {outcome.tokens_run_recomputed:,}.\n"
    )

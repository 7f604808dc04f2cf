"""``cabochon verify``: cached generation held against one pass from nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from cabochon.checkpoint.dequantize import dequantize
from cabochon.checkpoint.load import load_checkpoint
from cabochon.cli import stdio
from cabochon.cli.comparison import comparison_report, comparison_table
from cabochon.cli.help import Command
from cabochon.cli.loading import load_session
from cabochon.cli.options import (
    EngineOptions,
    ModelOptions,
    as_json,
    ignore_eos,
    max_tokens,
    model_options,
)
from cabochon.cli.prompt import Prompt, prompt_input
from cabochon.cli.sampling_options import SamplingOptions, sampling_options
from cabochon.errors import UsageError
from cabochon.trace.against import TEXTS, compare, variants_of
from cabochon.trace.reference import Agreement, Reference, agreement
from cabochon.trace.variants import VARIANTS
from cabochon.trace.verify import Verification, verify


@click.command(
    "verify",
    cls=Command,
    epilog="""\b
Examples:
  cabochon verify "The capital of France is"
  cabochon verify --file story.txt --max-tokens 700 --ignore-eos --chunk 17
  CABOCHON_ISA=portable cabochon verify "Once upon a time" --json
  cabochon verify "The capital of France is" --max-tokens 24 --against all
  cabochon verify "The capital of France is" --against concat,wrong-position --json
  cabochon verify "The capital of France is" --reference transformers""",
)
@prompt_input
@max_tokens
@sampling_options
@ignore_eos
@click.option(
    "--against",
    metavar="LIST",
    help="Run other ways to make the steps beside it, by name and with commas between: "
    + ", ".join(VARIANTS)
    + "; or 'all'.",
)
@click.option(
    "--reference",
    type=click.Choice(["transformers"]),
    help="Hold the run against an independent implementation instead, in float32 on the same weights.",
)
@as_json
@model_options
def command(
    prompt: Prompt,
    max_tokens: int,
    sampling: SamplingOptions,
    ignore_eos: bool,
    against: str | None,
    reference: str | None,
    as_json: bool,
    model: ModelOptions,
) -> int:
    """Prove that the KV cache changes nothing, bit for bit.

    Generates a text through the cache, then runs the finished text once from empty pages, and compares the logits of
    every step. Exits with 0 if all are equal to the last bit, with 1 if not. The torch backend is not expected to be.

    With --against, the cached loop is run turn by turn beside others on the same prompt. Two must equal it: no-cache
    and concat run the whole text again in every turn. The other five are wrong on purpose and must not. Exits with 0 if
    all of them come out so, with 1 if not; what a run is too short for is not reached.

    With --reference, an independent implementation follows the run turn by turn with its own cache. Exits with 0 if the
    log-probabilities of the tokens differ by 0.002 on average at most, and rounding explains every other token.
    """
    options = {"max_tokens": max_tokens, **asdict(sampling), "ignore_eos": ignore_eos}
    if reference is not None:
        if against is not None:
            raise UsageError("--reference and --against are two ways to verify a run; give one")
        return _beside_reference(model, prompt, options, as_json=as_json)
    if against is not None:
        names = [name.strip() for name in against.split(",")]
        variants_of(names)  # before anything is loaded
        session = load_session(model, engine=EngineOptions(TEXTS, None, 0), whole_context=True)
        comparison = compare(session, prompt, names, **options)
        if as_json:
            stdio.write_json(comparison_report(comparison))
        else:
            stdio.write(comparison_table(comparison))
        return 0 if comparison.as_expected else 1
    session = load_session(model, whole_context=True)
    outcome = verify(session, prompt, **options)
    if as_json:
        report = asdict(outcome)
        del report["token_ids"]
        stdio.write_json(report)
    else:
        stdio.write(_in_words(outcome))
    return 0 if outcome.equal else 1


def _beside_reference(model: ModelOptions, prompt: Prompt, options: dict[str, Any], *, as_json: bool) -> int:
    checkpoint = load_checkpoint(model.model)
    their_model = Reference(checkpoint.config, lambda name: dequantize(checkpoint.tensors[name]), threads=model.threads)
    outcome = agreement(load_session(model), their_model, prompt, **options)
    if as_json:
        stdio.write_json(asdict(outcome))
    else:
        stdio.write(_agreement_in_words(outcome))
    return 0 if outcome.verdict == "agrees" else 1


def _agreement_in_words(outcome: Agreement) -> str:
    verdict = "Agrees" if outcome.verdict == "agrees" else "DIFFERS"
    if outcome.same_text:
        tokens = "the reference's logits give the same text"
    else:
        why = "as rounding may" if outcome.explained else "which rounding does NOT explain"
        where = f"step {outcome.first_step}, where our best logit led by {outcome.margin:.3g}"
        tokens = f"from {where}, the reference's give other tokens, {why}"
    return (
        f"{verdict}: {outcome.steps} tokens; {tokens}.\n"
        f"Log-probabilities of the tokens differ by {outcome.mean_logprob_difference:.2g} on average and"
        f" {outcome.max_logprob_difference:.2g} at most, logits by up to {outcome.max_logit_difference:.2g}.\n"
        f"Seconds: {outcome.seconds:.2f}; the reference's: {outcome.reference_seconds:.2f}.\n"
    )


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

"""The options that say how tokens are chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import click

from cabochon.cli.options import Decorator, bundled, not_empty, real, whole
from cabochon.sampling.defaults import FILE_FIELDS
from cabochon.sampling.params import MAX_BIAS, MAX_CHOICE, MAX_PENALTY, MAX_SEED
from cabochon.types import FilterOrder, SamplingParams


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How tokens are chosen: arguments of ``Session.generate``, None where the model's own default holds."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    order: FilterOrder | None
    seed: int | None
    choice: int | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    penalty_last_n: int | None
    logit_bias: dict[int, float] | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: tuple[str, ...] | None
    xtc_probability: float | None
    xtc_threshold: float | None
    min_tokens: int | None
    bad_words: tuple[str, ...] | None


NO_BREAKERS = "none"
"""Instead of texts: repeated sequences go across everything."""

_SHARE = real("in [0, 1]", lambda x: 0 <= x <= 1)
_SHARE_KEPT = real("in (0, 1]", lambda x: 0 < x <= 1)
_PENALTY = real(f"from -{MAX_PENALTY:g} to {MAX_PENALTY:g}", lambda x: abs(x) <= MAX_PENALTY)
_BIAS = real(f"from -{MAX_BIAS:g} to {MAX_BIAS:g}", lambda x: abs(x) <= MAX_BIAS)


def _id_and_bias(value: str) -> tuple[int, float]:
    token_id, equals, bias = value.partition("=")
    if not equals:
        raise click.BadParameter(f"{value!r} is not a token id and a bias, as in 108=-2.5")
    return whole(0)(token_id), _BIAS(bias)


def sampling_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of ``SamplingOptions``; the command gets them as ``sampling``."""
    decorators: list[Decorator] = [
        _option("--temperature", real("0 or more", lambda x: x >= 0), "0 always takes the most probable token."),
        _option("--top-k", whole(0), "Draw from the N most probable tokens; 0 for all."),
        _option("--top-p", _SHARE_KEPT, "Draw from the fewest tokens that hold this share of the probability."),
        _option(
            "--min-p",
            real("in [0, 1)", lambda x: 0 <= x < 1),
            "Leave out tokens below this share of the best one's probability.",
        ),
        _option("--typical-p", _SHARE_KEPT, "Draw from the most typical tokens that hold this share; 1 for all."),
        click.option(
            "--sampler-order",
            "order",
            type=click.Choice(get_args(FilterOrder)),
            help="'cabochon' takes top-k before top-p, 'gemma_pytorch' after it, as that project does."
            " Default: cabochon.",
        ),
        click.option(
            "--seed",
            type=whole(0, MAX_SEED),
            metavar="N",
            help="The same seed gives the same text. Default: a new one.",
        ),
        _option("--choice", whole(0, MAX_CHOICE), "Which of several texts with one seed this is."),
        _option(
            "--repetition-penalty",
            real(f"above 0 and at most {MAX_PENALTY:g}", lambda x: 0 < x <= MAX_PENALTY),
            "Divide the logits of tokens in prompt and text by this, or multiply negative ones; 1 is off.",
        ),
        _option("--presence-penalty", _PENALTY, "Take this from the logits of tokens in the text."),
        _option("--frequency-penalty", _PENALTY, "Take this from them once for each time they are there."),
        _option("--penalty-last-n", whole(0), "These penalties see only the last N tokens; 0 for all."),
        click.option(
            "--logit-bias",
            type=_id_and_bias,
            multiple=True,
            callback=_biases,
            metavar="ID=X",
            help="Add X to the logit of a token; may be given several times.",
        ),
        _option(
            "--dry-multiplier",
            real(f"from 0 to {MAX_PENALTY:g}", lambda x: 0 <= x <= MAX_PENALTY),
            "Penalty for tokens that lengthen a repeated sequence; 0 is off.",
        ),
        _option(
            "--dry-base",
            real(f"from 1 to {MAX_PENALTY:g}", lambda x: 1 <= x <= MAX_PENALTY),
            "The penalty is this many times larger for each further token repeated.",
        ),
        _option("--dry-allowed-length", whole(1), "Penalise from so many repeated tokens on."),
        _option("--dry-penalty-last-n", whole(0), "Look for repetitions in the last N tokens only; 0 for all."),
        click.option(
            "--dry-sequence-breaker",
            "dry_sequence_breakers",
            type=not_empty,
            multiple=True,
            callback=_breakers,
            metavar="TEXT",
            help="No repetition goes across tokens that contain this; may be given several times. 'none' for no such."
            " Default: a line break, ':', '\"' and '*'.",
        ),
        _option("--xtc-probability", _SHARE, "How often the most probable tokens are left out; 0 is off."),
        _option("--xtc-threshold", _SHARE, "Leave out those of at least this probability, but for the least of them."),
        _option("--min-tokens", whole(0), "The model may not end the text before so many new tokens."),
        click.option(
            "--bad-word",
            "bad_words",
            type=not_empty,
            multiple=True,
            callback=_some,
            metavar="TEXT",
            help="Never spell this, with or without a space in front; may be given several times.",
        ),
    ]
    return bundled(function, "sampling", SamplingOptions, decorators)


def _option(name: str, kind: Callable[[str], float], meaning: str) -> Decorator:
    field = name[2:].replace("-", "_")
    gemma = getattr(SamplingParams(), field)
    default = f"the model's, else {gemma:g}" if field in FILE_FIELDS.values() else f"{gemma:g}"
    metavar = "N" if isinstance(gemma, int) else "X"
    return click.option(name, type=kind, metavar=metavar, help=f"{meaning} Default: {default}.")


def _some(context: click.Context, option: click.Parameter, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    return given or None


def _biases(
    context: click.Context, option: click.Parameter, given: tuple[tuple[int, float], ...]
) -> dict[int, float] | None:
    if len(dict(given)) < len(given):
        raise click.BadParameter("a token id is there twice")
    return dict(given) or None


def _breakers(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...] | None:
    return () if given == (NO_BREAKERS,) else given or None

"""What ``verify --against`` prints: a table and a verdict in words for each way to make the steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from cabochon.trace.against import Comparison, Outcome

_HEAD = ("", "same text", "first step", "logits off by", "tokens run", "pairs", "K/V read", "written", "seconds")


def comparison_report(comparison: Comparison) -> dict[str, Any]:
    """One JSON object."""
    return {
        "as_expected": comparison.as_expected,
        "prompt_tokens": comparison.prompt_tokens,
        "token_ids": comparison.token_ids,
        "cached": _fields(comparison.cached),
        "variants": [_fields(outcome) for outcome in comparison.variants],
    }


def comparison_table(comparison: Comparison) -> str:
    """Text for people."""
    outcomes = (comparison.cached, *comparison.variants)
    rows = [_HEAD, *(_cells(outcome) for outcome in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([*lines, "", *_verdicts(outcomes), "", _in_all(comparison), ""])


def _fields(outcome: Outcome) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(outcome)
    if not math.isfinite(outcome.max_abs_difference):  # JSON has no infinity
        fields["max_abs_difference"] = None
    return {**fields, "as_expected": outcome.as_expected}


def _cells(outcome: Outcome) -> tuple[str, ...]:
    cost = outcome.cost
    return (
        outcome.name,
        "yes" if outcome.same_text else "no",
        "" if outcome.first_step is None else str(outcome.first_step),
        f"{outcome.max_abs_difference:.3g}",
        f"{cost.tokens:,}",
        f"{cost.pairs:,}",
        _mib(cost.bytes_read),
        _mib(cost.bytes_written),
        f"{outcome.seconds:.2f}",
    )


def _mib(n: int) -> str:
    return f"{n / 2**20:,.1f} MiB"


def _verdicts(outcomes: tuple[Outcome, ...]) -> Iterator[str]:
    width = max(len(outcome.name) for outcome in outcomes)
    for outcome in outcomes:
        yield f"{outcome.name:{width}}  {_verdict(outcome)}; {outcome.about}"


def _verdict(outcome: Outcome) -> str:
    unexpected = "" if outcome.as_expected else "NOT AS IT SHOULD BE: "
    words: str = outcome.verdict
    if outcome.first_step is not None and outcome.verdict != "not reached":
        words += f" from step {outcome.first_step} on"
        if outcome.verdict == "rounding":
            words += f" (there the best logit led by {outcome.margin:.3g})"
        elif outcome.difference is not None:
            at = outcome.difference
            words += f", first in layer {at.layer}: the {at.what} of position {at.position}"
    return unexpected + words


def _in_all(comparison: Comparison) -> str:
    if not comparison.as_expected:
        return "Not all came out as they must."
    equal = [outcome.name for outcome in comparison.variants if outcome.equal]
    broken = [outcome.name for outcome in comparison.variants if not outcome.equal and outcome.verdict == "broken"]
    parts = [
        f"equal to the cached loop: {', '.join(equal)}" if equal else "",
        f"broken, as they must be: {', '.join(broken)}" if broken else "",
    ]
    return "As it must be. " + "; ".join(part for part in parts if part).capitalize() + "."

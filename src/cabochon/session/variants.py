"""Requests made of others: several choices of one prompt, and another way to go on from a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cabochon.engine.request import Request
from cabochon.errors import UsageError
from cabochon.sampling.params import MAX_CHOICE, whole_number
from cabochon.session.prompts import listed_ids

MAX_CHOICES = 1024
"""More of one prompt would be a slip of the hand."""


def choices_of(request: Request, n: int) -> list[Request]:
    """``n`` requests that differ in ``choice`` alone, counted up from the request's own.

    Raises ``UsageError`` for a number that cannot be.
    """
    n = whole_number("n", n, at_least=1, at_most=MAX_CHOICES)
    first = request.params.choice
    if first + n - 1 > MAX_CHOICE:
        raise UsageError(f"choice {first} is too large for {n} choices; there are none above {MAX_CHOICE}")
    return [replace(request, params=replace(request.params, choice=first + i)) for i in range(n)]


def kept_and_added(text: Sequence[int], after: int | None, ids: Iterable[int]) -> tuple[int, ...]:
    """The first ``after`` ids of a text, all for None, and then ``ids``; raises ``UsageError`` for what cannot be."""
    kept = len(text) if after is None else whole_number("after", after, at_least=0, at_most=len(text))
    return (*text[:kept], *listed_ids(ids))

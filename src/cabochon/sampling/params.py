"""The one place where sampling parameters are checked, and how numbers and truth values from users are."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from operator import index

import numpy as np

from cabochon.errors import UsageError, shown
from cabochon.types import SamplingParams

MAX_SEED = 2**64 - 1


def checked(params: SamplingParams) -> SamplingParams:
    """The same parameters, as plain ``float`` and ``int``.

    Raises ``UsageError`` naming the field whose value is not of its type or outside its range.
    """
    return SamplingParams(
        temperature=_number("temperature", params.temperature, lambda t: t >= 0, "a number, 0 (greedy) or more"),
        top_k=whole_number("top_k", params.top_k, at_least=0),
        top_p=_number("top_p", params.top_p, lambda p: 0 < p <= 1, "above 0 and at most 1 (keep all)"),
        min_p=_number("min_p", params.min_p, lambda p: 0 <= p < 1, "at least 0 (keep all) and below 1"),
        seed=whole_number("seed", params.seed, at_least=0, at_most=MAX_SEED),
    )


def whole_number(name: str, value: object, *, at_least: int, at_most: int | None = None) -> int:
    """``value`` as a plain ``int`` (NumPy's are taken); raises ``UsageError`` naming it and its range."""
    try:
        # bool is an int to Python, but not to a user.
        number = None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < at_least or (at_most is not None and number > at_most):
        wanted = f"{at_least} or more" if at_most is None else f"from {at_least} to {at_most}"
        raise UsageError(f"{name} must be a whole number, {wanted}, not {shown(value)}")
    return number


def true_or_false(name: str, value: object) -> bool:
    """``value`` as a plain ``bool`` (NumPy's is taken); raises ``UsageError`` naming what is none."""
    if not isinstance(value, bool | np.bool_):
        raise UsageError(f"{name} must be True or False, not {shown(value)}")
    return bool(value)


def _number(name: str, value: object, fits: Callable[[float], bool], wanted: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        number = math.inf
    # NaN fits no range; infinity would fit one.
    if math.isinf(number) or not fits(number):
        raise UsageError(f"{name} must be {wanted}, not {shown(value)}")
    return number

"""The one place where sampling parameters are checked, and how numbers and truth values from users are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from operator import index
from typing import cast, get_args

import numpy as np

from cabochon.errors import UsageError, shown
from cabochon.types import FilterOrder, SamplingParams

MAX_SEED = 2**64 - 1
MAX_CHOICE = 2**31 - 1
MAX_PENALTY = 100.0
"""No penalty, and no factor of one, may be larger."""
MAX_BIAS = 1000.0
"""No bias may be larger either way."""


def checked(params: SamplingParams, vocab: int | None = None) -> SamplingParams:
    """The same parameters, as plain Python values; ids are below ``vocab`` if it is given.

    ``logit_bias`` may be a mapping too, and ``bad_words`` and ``dry_sequence_breakers`` any kind of list.

    Raises ``UsageError`` naming the field whose value is not of its type or outside its range.
    """
    p = params
    return SamplingParams(
        temperature=_number("temperature", p.temperature, lambda t: t >= 0, "a number, 0 (greedy) or more"),
        top_k=whole_number("top_k", p.top_k, at_least=0),
        top_p=_share("top_p", p.top_p),
        min_p=_number("min_p", p.min_p, lambda share: 0 <= share < 1, "at least 0 (keep all) and below 1"),
        seed=whole_number("seed", p.seed, at_least=0, at_most=MAX_SEED),
        choice=whole_number("choice", p.choice, at_least=0, at_most=MAX_CHOICE),
        typical_p=_share("typical_p", p.typical_p),
        repetition_penalty=_number(
            "repetition_penalty",
            p.repetition_penalty,
            lambda factor: 0 < factor <= MAX_PENALTY,
            f"above 0 and at most {MAX_PENALTY:g} (1 changes nothing)",
        ),
        presence_penalty=_penalty("presence_penalty", p.presence_penalty),
        frequency_penalty=_penalty("frequency_penalty", p.frequency_penalty),
        penalty_last_n=whole_number("penalty_last_n", p.penalty_last_n, at_least=0),
        logit_bias=_bias(p.logit_bias, vocab),
        dry_multiplier=_number(
            "dry_multiplier",
            p.dry_multiplier,
            lambda penalty: 0 <= penalty <= MAX_PENALTY,
            f"from 0 (off) to {MAX_PENALTY:g}",
        ),
        dry_base=_number(
            "dry_base", p.dry_base, lambda base: 1 <= base <= MAX_PENALTY, f"a number from 1 to {MAX_PENALTY:g}"
        ),
        dry_allowed_length=whole_number("dry_allowed_length", p.dry_allowed_length, at_least=1),
        dry_penalty_last_n=whole_number("dry_penalty_last_n", p.dry_penalty_last_n, at_least=0),
        dry_sequence_breakers=frozenset(_ids("dry_sequence_breakers", p.dry_sequence_breakers, vocab)),
        xtc_probability=_number(
            "xtc_probability", p.xtc_probability, lambda share: 0 <= share <= 1, "from 0 (off) to 1"
        ),
        xtc_threshold=_number("xtc_threshold", p.xtc_threshold, lambda share: 0 <= share <= 1, "from 0 to 1"),
        min_tokens=whole_number("min_tokens", p.min_tokens, at_least=0),
        bad_words=_bad_words(p.bad_words, vocab),
        order=_order(p.order),
    )


def whole_number(name: str, value: object, *, at_least: int, at_most: int | None = None) -> int:
    """``value`` as a plain ``int`` (NumPy's are taken); raises ``UsageError`` naming it and its range."""
    try:
        # bool is an int to Python, but not to a user.
        # What is no number is what index is there to refuse.
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


def listed(name: str, value: object, of_what: str) -> list[object]:
    """The members of a list, tuple, set or the like; raises ``UsageError`` naming what is none, a text included."""
    try:
        if not isinstance(value, str | bytes) and isinstance(value, Iterable):
            return list(value)
    except TypeError:  # an array without dimensions
        pass
    raise UsageError(f"{name} must be a list of {of_what}, not {shown(value)}")


def _ids(name: str, value: object, vocab: int | None) -> tuple[int, ...]:
    last = None if vocab is None else vocab - 1
    return tuple(
        whole_number(f"{name}: token id", i, at_least=0, at_most=last) for i in listed(name, value, "token ids")
    )


def _bias(value: object, vocab: int | None) -> tuple[tuple[int, float], ...]:
    pairs = listed("logit_bias", value.items() if isinstance(value, Mapping) else value, "(token id, bias) pairs")
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise UsageError(f"logit_bias must be a mapping of token ids to numbers, not {shown(value)}")
    # That all are pairs was checked above, which a type checker cannot see.
    ids = _ids("logit_bias", [pair[0] for pair in pairs], vocab)  # type: ignore[index]
    wanted = f"from -{MAX_BIAS:g} to {MAX_BIAS:g}"
    values = [
        _number(f"logit_bias: bias of {i}", pair[1], lambda b: abs(b) <= MAX_BIAS, wanted)  # type: ignore[index]
        for i, pair in zip(ids, pairs, strict=True)
    ]
    if len(set(ids)) != len(ids):
        raise UsageError(f"logit_bias must be one number for each token id, not several as in {shown(value)}")
    return tuple(sorted(zip(ids, values, strict=True)))


def _bad_words(value: object, vocab: int | None) -> tuple[tuple[int, ...], ...]:
    words = tuple(_ids("bad_words", word, vocab) for word in listed("bad_words", value, "lists of token ids"))
    if () in words:
        raise UsageError("bad_words must be lists of at least one token id, not an empty one")
    return words


def _order(value: object) -> FilterOrder:
    for order in get_args(FilterOrder):
        if isinstance(value, str) and value == order:
            return cast(FilterOrder, order)
    raise UsageError(f"order must be one of {', '.join(get_args(FilterOrder))}, not {shown(value)}")


def _share(name: str, value: object) -> float:
    return _number(name, value, lambda share: 0 < share <= 1, "above 0 and at most 1 (keep all)")


def _penalty(name: str, value: object) -> float:
    return _number(
        name, value, lambda penalty: abs(penalty) <= MAX_PENALTY, f"from -{MAX_PENALTY:g} to {MAX_PENALTY:g}"
    )


def _number(name: str, value: object, fits: Callable[[float], bool], wanted: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        number = math.inf
    # NaN fits no range; infinity would fit one.
    if math.isinf(number) or not fits(number):
        raise UsageError(f"{name} must be {wanted}, not {shown(value)}")
    return number

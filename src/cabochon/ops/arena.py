"""Where values lie in one stretch of memory: two may share a place if they never live at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lifetime:
    """One value: how large it is, and the first and last moment it is needed at, both inclusive."""

    size: int
    first: int
    last: int


def place_values(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """The place of each value and the size of the whole.

    The largest values are placed first, each at the lowest place free for all of its life.
    """
    places = [0] * len(lifetimes)
    placed: list[int] = []
    for index in sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].size):
        value = lifetimes[index]
        place = 0
        for other in sorted(placed, key=places.__getitem__):
            against = lifetimes[other]
            at_once = value.first <= against.last and against.first <= value.last
            if at_once and places[other] < place + value.size:
                place = max(place, places[other] + against.size)
        places[index] = place
        placed.append(index)
    return tuple(places), max((places[i] + lifetimes[i].size for i in placed), default=0)

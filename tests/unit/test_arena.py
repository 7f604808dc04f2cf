"""Values in one stretch of memory never overlap while both live."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from cabochon.ops.arena import Lifetime, place_values

lifetimes = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(1, 50),
        st.integers(0, 30),
        st.integers(0, 10),
    ),
    max_size=25,
)


@given(lifetimes)
def test_values_that_live_at_once_lie_apart(values: list[Lifetime]) -> None:
    places, total = place_values(values)
    for (a, at_a), (b, at_b) in combinations(zip(values, places, strict=True), 2):
        if a.first <= b.last and b.first <= a.last:
            assert at_a + a.size <= at_b or at_b + b.size <= at_a
    assert all(place >= 0 and place + value.size <= total for value, place in zip(values, places, strict=True))
    assert total <= sum(value.size for value in values)


def test_places_are_used_again() -> None:
    places, total = place_values([Lifetime(8, 0, 1), Lifetime(8, 2, 3), Lifetime(4, 1, 2)])
    assert places == (0, 0, 8)
    assert total == 12


def test_a_value_fills_a_gap() -> None:
    places, total = place_values([Lifetime(10, 0, 9), Lifetime(5, 0, 3), Lifetime(4, 0, 9), Lifetime(3, 4, 9)])
    assert places == (0, 10, 15, 10)
    assert total == 19


def test_nothing_takes_no_room() -> None:
    assert place_values([]) == ((), 0)

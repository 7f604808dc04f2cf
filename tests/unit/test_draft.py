"""Guesses at a text from the text itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cabochon.engine.draft import NGRAM, Drafter


@given(ids=st.lists(st.integers(0, 3), max_size=60), most=st.integers(0, 9), grown=st.lists(st.integers(1, 9)))
def test_guesses_are_what_followed_the_last_tokens_before(ids: list[int], most: int, grown: list[int]) -> None:
    drafter, length = Drafter(8), 0
    for more in grown:
        length = min(length + more, len(ids))
        text = ids[:length]
        guesses = drafter.draft(text, most)
        assert len(guesses) <= most
        if guesses:
            last = text[-NGRAM:]
            places = [i for i in range(NGRAM, length) if text[i - NGRAM : i] == last]
            assert guesses == tuple(text[places[-1] : places[-1] + len(guesses)])


def test_it_tries_more_when_right_and_waits_when_wrong() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]
    drafter = Drafter(8)
    assert drafter.draft(text, 8) == (4, 5)
    drafter.learn(2, 2)
    assert drafter.draft(text, 8) == (4, 5, 6, 7)
    drafter.learn(4, 0)
    assert drafter.draft(text, 8) == ()
    assert drafter.draft(text, 8) == (4, 5)
    drafter.learn(2, 0)
    assert [len(drafter.draft(text, 8)) for _ in range(3)] == [0, 0, 1]


def test_none_are_made_where_none_are_asked_for() -> None:
    assert Drafter(0).draft([1, 2, 3, 1, 2, 3], 8) == ()
    assert Drafter(8).draft([1, 2, 3, 1, 2, 3], 0) == ()

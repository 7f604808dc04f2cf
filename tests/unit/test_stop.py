"""Stop strings: the text up to the first match, however it was cut into deltas."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cabochon.errors import UsageError
from cabochon.text.stop import StopStrings


def cut_at_first_match(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The definition: the match that ends first, the longest of those that end there."""
    for end in range(1, len(text) + 1):
        ending_here = [stop for stop in stops if text[:end].endswith(stop)]
        if ending_here:
            longest = max(ending_here, key=len)
            return text[: end - len(longest)], longest
    return text, None


def run(stops: list[str], deltas: list[str]) -> tuple[list[str], StopStrings]:
    """All emitted text, checked on the way: once stopped, nothing more comes."""
    searcher = StopStrings(stops)
    emitted, before = [], False
    for delta in deltas:
        text, stopped = searcher.push(delta)
        assert stopped == (searcher.matched is not None)
        assert not before or (text == "" and stopped)
        before = stopped
        emitted.append(text)
    return [*emitted, searcher.flush()], searcher


few_letters = st.text("ab", min_size=0, max_size=8)
stop_lists = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)
delta_lists = st.lists(few_letters, max_size=12)


@given(stop_lists, delta_lists)
@example(["ab", "abc"], ["a", "b", "c"])
@example(["aab"], ["aaab"])
@example(["abab", "ba"], ["aba", "b"])
@example(["aaaa", "ab"], ["aaab"])
def test_joined_text_is_the_text_cut_at_the_first_match(stops: list[str], deltas: list[str]) -> None:
    emitted, searcher = run(stops, deltas)
    assert ("".join(emitted), searcher.matched) == cut_at_first_match("".join(deltas), stops)


@given(stop_lists, delta_lists)
def test_cutting_makes_no_difference(stops: list[str], deltas: list[str]) -> None:
    text = "".join(deltas)
    whole = "".join(run(stops, [text])[0])
    assert "".join(run(stops, deltas)[0]) == whole
    assert "".join(run(stops, list(text))[0]) == whole


@given(stop_lists, delta_lists, few_letters)
def test_what_was_emitted_is_certain_and_the_rest_may_begin_a_stop(
    stops: list[str], deltas: list[str], later: str
) -> None:
    searcher = StopStrings(stops)
    so_far = "".join(searcher.push(delta)[0] for delta in deltas)
    text = "".join(deltas)
    assert cut_at_first_match(text + later, stops)[0].startswith(so_far)
    if searcher.matched is None:
        held = text[len(so_far) :]
        assert held == "" or any(len(held) < len(stop) and stop.startswith(held) for stop in stops)
        longest = max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        assert len(held) == longest


def test_a_stop_in_pieces_is_held_back_until_it_is_certain() -> None:
    searcher = StopStrings(["\n\nUser:"])
    assert searcher.push("Fine.\n") == ("Fine.", False)
    assert searcher.push("\nUs") == ("", False)
    assert searcher.push("ed") == ("\n\nUsed", False)
    assert searcher.push("\n\nUser: hello") == ("", True)
    assert searcher.matched == "\n\nUser:"
    assert searcher.push("more") == ("", True)
    assert searcher.flush() == ""


def test_the_rest_comes_at_the_end() -> None:
    searcher = StopStrings(["stop"])
    assert searcher.push("do not sto") == ("do not ", False)
    assert searcher.flush() == "sto"
    assert searcher.flush() == ""
    assert searcher.push("p") == ("p", False)


def test_overlapping_stops_end_at_the_earliest_match() -> None:
    assert run(["ab", "abc"], ["xabc"])[0] == ["x", ""]
    assert run(["abc", "ab"], ["xa", "bc"])[0] == ["x", "", ""]
    assert run(["abcd", "bc"], ["xabcd"])[0] == ["xa", ""]


def test_of_stops_that_end_together_the_longest_is_dropped() -> None:
    emitted, searcher = run(["b", "ab", "cab"], ["xcab"])
    assert emitted == ["x", ""]
    assert searcher.matched == "cab"


def test_a_stop_that_overlaps_itself() -> None:
    assert run(["aab"], ["a", "a", "a", "b"])[0] == ["", "", "a", "", ""]


def test_without_stops_text_passes() -> None:
    assert run([], ["a", "", "b"])[0] == ["a", "", "b", ""]


def test_one_string_is_one_stop() -> None:
    assert StopStrings("END").push("N END") == ("N ", True)


def test_a_long_stop_of_one_letter() -> None:
    size = 20_000
    searcher = StopStrings(["a" * size + "b"])
    emitted = "".join(searcher.push("a")[0] for _ in range(20))
    emitted += searcher.push("a" * (2 * size))[0] + searcher.push("c")[0]
    assert emitted == "a" * (2 * size + 20) + "c"


@pytest.mark.parametrize("stops", ["", [""], ["a", ""]])
def test_an_empty_stop_is_refused(stops: str | list[str]) -> None:
    with pytest.raises(UsageError, match="stop string must not be empty"):
        StopStrings(stops)


def test_a_stop_that_is_not_text_is_refused() -> None:
    with pytest.raises(UsageError, match="must be text, not 3"):
        StopStrings(["a", 3])  # type: ignore[list-item]  # wrong on purpose

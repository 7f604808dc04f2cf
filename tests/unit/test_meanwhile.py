from __future__ import annotations

import threading

import pytest

from cabochon.session.meanwhile import Meanwhile


def test_the_result_is_the_functions_and_comes_from_another_thread() -> None:
    with Meanwhile(threading.get_ident) as other:
        pass
    assert other.result != threading.get_ident()


def test_both_go_on_at_once() -> None:
    ours, theirs = threading.Event(), threading.Event()

    def function() -> bool:
        theirs.set()
        return ours.wait(60)

    with Meanwhile(function) as other:
        assert theirs.wait(60)
        ours.set()
    assert other.result


def test_its_error_is_raised_where_the_result_is_asked_for() -> None:
    def function() -> None:
        raise LookupError("nothing there")

    with Meanwhile(function) as other:
        pass
    with pytest.raises(LookupError, match="nothing there"):
        _ = other.result


def test_an_error_of_ones_own_waits_for_the_other_and_goes_before_it() -> None:
    ended = threading.Event()

    def theirs() -> None:
        ended.set()
        raise LookupError

    def ours() -> None:
        with Meanwhile(theirs):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ours()
    assert ended.is_set()

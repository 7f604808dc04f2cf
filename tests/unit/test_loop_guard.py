"""A reply that repeats itself without end is ended; one that does not is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cabochon.engine.engine import Engine, pools_for
from cabochon.engine.loop_guard import loops
from cabochon.engine.request import Limits, Request, RequestState
from cabochon.errors import UsageError
from cabochon.testing.fake_model import FakeModel
from cabochon.types import SamplingParams


def loops_by_definition(reply: list[int], repetitions: int) -> bool:
    for period in range(1, 65):
        length = max(48, period * repetitions)
        end = reply[len(reply) - length :] if length <= len(reply) else []
        if end and all(end[i] == end[i % period] for i in range(length)):
            return True
    return False


@given(
    before=st.lists(st.integers(0, 2), max_size=30),
    unit=st.lists(st.integers(0, 2), min_size=1, max_size=70),
    times=st.integers(1, 60),
    after=st.lists(st.integers(0, 2), max_size=2),
    repetitions=st.integers(2, 6),
    prompt=st.lists(st.integers(0, 2), max_size=20),
)
@example(before=[], unit=[1], times=48, after=[], repetitions=2, prompt=[])
@example(before=[], unit=[1], times=47, after=[], repetitions=2, prompt=[1] * 20)
@example(before=[], unit=[1, *[0] * 63], times=3, after=[], repetitions=3, prompt=[])
@example(before=[], unit=[1, *[0] * 64], times=3, after=[], repetitions=3, prompt=[])
@settings(max_examples=300, deadline=None)
def test_loops_are_those_of_the_definition(
    before: list[int], unit: list[int], times: int, after: list[int], repetitions: int, prompt: list[int]
) -> None:
    reply = [*before, *unit * times, *after]
    assert loops([*prompt, *reply], len(prompt), repetitions) == loops_by_definition(reply, repetitions)


def finished(script: dict[int, int], max_tokens: int = 200, speculate: int = 0, **options: Any) -> RequestState:
    model = FakeModel(script=script)
    engine = Engine(model, pools_for(model.store), Limits(256, model.config.vocab), chunk=32, speculate=speculate)
    state = engine.submit(Request((5, 6, 7), SamplingParams(seed=1), max_tokens, **options))
    while not engine.idle:
        engine.step()
        engine.check_integrity()
    return state


@pytest.mark.parametrize("speculate", [0, 5])
@pytest.mark.parametrize(("period", "repetitions", "tokens"), [(1, 2, 48), (3, 4, 48), (20, 3, 60), (64, 2, 128)])
def test_a_loop_ends_a_reply(period: int, repetitions: int, tokens: int, speculate: int) -> None:
    script = {at: 20 + (at - 13) % period for at in range(13, 256)}
    state = finished(script, speculate=speculate, loop_guard=repetitions)
    assert state.finish_reason == "loop"
    assert len(state.tokens) == 10 + tokens
    assert finished(script, speculate=speculate).finish_reason == "length"


def test_a_loop_is_told_of_even_where_the_reply_is_full() -> None:
    assert finished(dict.fromkeys(range(3, 256), 9), max_tokens=48, loop_guard=4).finish_reason == "loop"
    assert finished(dict.fromkeys(range(3, 256), 9), max_tokens=47, loop_guard=4).finish_reason == "length"


@pytest.mark.parametrize("value", [1, -1, 1001, 1.5, True, "4", None])
def test_what_is_no_number_of_repetitions_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="loop_guard"):
        finished({}, loop_guard=value)

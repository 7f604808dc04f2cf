"""An engine that several threads use: who waits for whom."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from cabochon.engine.engine import Engine, pools_for
from cabochon.engine.request import Limits, Request, RequestState
from cabochon.errors import UsageError
from cabochon.testing.fake_model import FakeModel
from cabochon.types import Float32, SamplingParams, StepInput

PATIENCE = 60
"""Seconds after which a thread that has not ended hangs."""


class SlowModel(FakeModel):
    """A step begins, and ends when it is let go on."""

    def __init__(self) -> None:
        super().__init__(chunk=16)
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)

    def forward(self, step: StepInput) -> Float32:
        self.begun.release()
        assert self.go_on.acquire(timeout=PATIENCE)
        return super().forward(step)


def request(seed: int, tokens: int = 8) -> Request:
    return Request((2, 5 + seed, 9), SamplingParams(seed=seed), tokens)


@pytest.fixture
def model() -> SlowModel:
    return SlowModel()


@pytest.fixture
def engine(model: SlowModel) -> Engine:
    return Engine(model, pools_for(model.store), Limits(256, model.config.vocab), chunk=16, max_running=2)


class Stepping:
    """A thread in the middle of a step."""

    def __init__(self, engine: Engine, model: SlowModel, work: Callable[[], object]) -> None:
        self._model = model
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        assert model.begun.acquire(timeout=PATIENCE)

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            self._errors.append(error)

    def finish(self) -> None:
        self._model.go_on.release(1000)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        assert not self._errors


@pytest.fixture
def first(engine: Engine) -> RequestState:
    return engine.submit(request(0))


@pytest.fixture(params=["step", "advance"])
def stepping(
    request: pytest.FixtureRequest, engine: Engine, model: SlowModel, first: RequestState
) -> Iterator[Stepping]:
    yield Stepping(engine, model, engine.step if request.param == "step" else lambda: engine.advance(first, 0))
    model.go_on.release(1000)


def test_a_request_stands_in_line_while_a_step_runs(engine: Engine, stepping: Stepping) -> None:
    state = engine.submit(request(1))
    assert (state.phase, engine.unfinished) == ("waiting", 2)
    stepping.finish()
    engine.advance(state, 7)
    assert len(state.tokens) == 8


def test_a_request_that_is_cancelled_in_anothers_step_ends_with_it(
    engine: Engine, first: RequestState, stepping: Stepping
) -> None:
    second = engine.submit(request(1))
    for state in (first, second):
        engine.cancel(state)
        assert state.finish_reason is None
    stepping.finish()
    # Nothing else has touched the engine since.
    assert [state.finish_reason for state in (first, second)] == ["cancelled"] * 2
    assert not any(table.held for state in (first, second) for table in state.tables)
    assert engine.idle
    engine.check_integrity()


def test_closing_waits_for_the_step_and_ends_all(engine: Engine, first: RequestState, stepping: Stepping) -> None:
    closing = threading.Thread(target=engine.close, daemon=True)
    closing.start()
    stepping.finish()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    assert first.finish_reason == "cancelled"
    with pytest.raises(UsageError, match="closed"):
        engine.submit(request(1))


def test_a_step_leaves_none_behind_that_is_cancelled_as_it_ends(engine: Engine, model: SlowModel) -> None:
    """Between the last look at who leaves and the moment that the lock is free."""
    model.go_on.release(1000)
    state = engine.submit(request(0))
    see_off = engine._see_off

    def cancel_after() -> None:
        see_off()
        if state.finish_reason is None:
            other = threading.Thread(target=engine.cancel, args=(state,), daemon=True)
            other.start()
            other.join(PATIENCE)
            assert not other.is_alive()

    engine._see_off = cancel_after  # type: ignore[method-assign]  # put in its place for the test
    engine.step()
    assert state.finish_reason == "cancelled"
    assert engine.idle

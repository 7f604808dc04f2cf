"""Streams in coroutines: what they give, who waits for whom, and that nobody is left waiting."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cabochon.engine.request import Request, RequestState
from cabochon.errors import NumericError, UsageError
from cabochon.session import Generation, Session, Stream
from cabochon.testing.fake_model import FakeModel
from cabochon.testing.tiny import tiny_config, tiny_metadata
from cabochon.testing.vocabulary import BOS, EOS, tiny_vocabulary
from cabochon.text.tokenizer import Tokenizer
from cabochon.types import Float32, StepInput

CONFIG = tiny_config(layers=3, pattern=3, window=20, eos_ids=(EOS,))
TOKENIZER = Tokenizer.from_gguf(tiny_metadata(CONFIG, tiny_vocabulary(CONFIG.vocab)))
CONTEXT = 256
PATIENCE = 60
"""Seconds after which what has not happened hangs."""


class SlowModel(FakeModel):
    """A step begins, and ends when it is let go on; one may fail."""

    def __init__(self) -> None:
        super().__init__(CONFIG, chunk=16, pages=(64, 64))
        self.slow = False
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.poisoned: int | None = None
        """An id whose sequence's steps fail."""

    def forward(self, step: StepInput) -> Float32:
        if self.slow:
            self.begun.release()
            assert self.go_on.acquire(timeout=PATIENCE)
        if self.poisoned in step.ids:
            raise NumericError("too large")
        return super().forward(step)

    def hasten(self) -> None:
        """All steps go on, this one and later ones."""
        self.slow = False
        self.go_on.release(1000)


@pytest.fixture
def model() -> Iterator[SlowModel]:
    model = SlowModel()
    yield model
    model.hasten()


@pytest.fixture
def session(model: SlowModel) -> Iterator[Session]:
    with Session(model, TOKENIZER, context=CONTEXT, chunk=16, max_running=3) as session:
        yield session


def run(work: Callable[[], Awaitable[Any]]) -> None:
    """In a loop of its own, where nothing may go wrong unseen."""
    wrong: list[dict[str, Any]] = []

    async def bounded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
        await asyncio.wait_for(work(), PATIENCE)

    asyncio.run(bounded(), debug=True)
    assert wrong == []


def same(got: Generation, expected: Generation) -> bool:
    return replace(got, timings=expected.timings) == expected


def turn_ended(session: Session) -> None:
    """Once the steps' thread has done what it had to do."""
    assert session._driver._worker is not None
    session._driver._worker.submit(lambda: None).result(PATIENCE)


async def step_begun(model: SlowModel) -> None:
    """Once the steps' thread is in the middle of a step."""
    await asyncio.get_running_loop().run_in_executor(None, model.begun.acquire, True, PATIENCE)


OPTIONS: tuple[dict[str, Any], ...] = (
    {"max_tokens": 30, "seed": 1, "ignore_eos": True},
    {"max_tokens": 40, "seed": 2, "stop": ("e", "th"), "logprobs": 2},
    {"max_tokens": 7, "temperature": 0, "seed": 3, "logprobs": 0},
    {"max_tokens": 12, "seed": 4},
    {"max_tokens": 1, "seed": 5},
)


# ---- What they give ---------------------------------------------------------------------------------------------


def test_chunks_and_results_are_those_of_other_streams(session: Session) -> None:
    expected = [list(session.stream("the capital", **options)) for options in OPTIONS]
    results = [session.generate("the capital", **options) for options in OPTIONS]

    async def work() -> None:
        streams = [session.stream("the capital", **options) for options in OPTIONS]

        async def chunks(index: int) -> list[Any]:
            return [chunk async for chunk in streams[index]]

        assert await asyncio.gather(*map(chunks, range(len(streams)))) == expected
        waited = await asyncio.gather(*(session.submit("the capital", **options) for options in OPTIONS))
        for got, stream, result in zip(waited, streams, results, strict=True):
            assert same(got, result)
            assert same(stream.result, result)

    run(work)
    assert session.idle


def test_a_part_can_be_read_and_the_rest_waited_for(session: Session) -> None:
    expected = session.generate("the", **OPTIONS[0])

    async def work() -> None:
        stream = session.submit("the", **OPTIONS[0])
        assert not session.idle
        await anext(stream)
        next(stream)
        first, second = await asyncio.gather(stream, stream)
        assert same(first, expected)
        assert same(second, expected)
        assert same(await stream, expected)
        assert [chunk async for chunk in stream] == []

    run(work)


def test_a_stop_string_ends_a_generation_that_is_waited_for(session: Session, model: SlowModel) -> None:
    ids = [TOKENIZER.id_of(f"<0x{byte:02X}>") for byte in b"one, two"]
    model.script = {position: token for position, token in enumerate(ids, start=1) if token is not None}

    async def work() -> None:
        result = await session.stream([BOS], max_tokens=100, stop=", t")
        assert (result.text, result.finish_reason) == ("one", "stop")

    run(work)
    assert model.rows_run <= len("one, t") + 1
    assert session.idle


def test_no_step_is_run_that_nobody_waits_for(session: Session, model: SlowModel) -> None:
    async def work() -> None:
        async with session.submit("the", max_tokens=50, ignore_eos=True) as stream:
            assert model.steps == []
            for count in range(1, 9):
                await anext(stream)
                turn_ended(session)
                assert len(model.steps) == count

    run(work)


def test_no_step_is_run_for_those_who_have_gone(session: Session, model: SlowModel) -> None:
    async def work() -> None:
        other = session.submit("the")  # nobody waits for it
        with session._driver._lock:  # the turn has to wait
            task = asyncio.ensure_future(session.submit("the"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(session._driver._waiters) == 1
            await _cancel(task)
        turn_ended(session)
        other.close()

    run(work)
    assert model.steps == []
    assert session.idle


# ---- Ending early -----------------------------------------------------------------------------------------------


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def _time_out(task: asyncio.Task[Any]) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(task, 0.001)


@pytest.mark.parametrize("end", [_cancel, _time_out])
@pytest.mark.parametrize("whole", [True, False])
def test_a_task_that_is_cancelled_waits_for_no_step_and_its_pages_are_back_after_it(
    session: Session, model: SlowModel, end: Callable[[asyncio.Task[Any]], Awaitable[None]], *, whole: bool
) -> None:
    async def work() -> None:
        model.slow = True
        stream = session.submit("the", max_tokens=50, ignore_eos=True)
        other = session.submit("capital", max_tokens=3, ignore_eos=True)
        ending = asyncio.ensure_future(stream if whole else anext(stream))
        await step_begun(model)
        await end(ending)  # in the middle of the step
        assert stream.result.finish_reason == "cancelled"
        state = stream._reader.state
        assert state is not None
        assert session.idle is False
        assert any(table.held for table in state.tables)
        waiting = asyncio.ensure_future(other)
        model.go_on.release()
        await step_begun(model)
        assert state.finish_reason == "cancelled"
        assert len(state.tokens) <= 1
        assert not any(table.held for table in state.tables)
        model.hasten()
        assert len((await waiting).token_ids) == 3

    run(work)
    assert session.idle


def test_a_task_may_be_cancelled_when_it_is_about_to_wake(session: Session, model: SlowModel) -> None:
    async def work() -> None:
        model.slow = True
        task = asyncio.ensure_future(session.submit("the", max_tokens=1))
        await step_begun(model)
        model.hasten()
        turn_ended(session)  # not yet seen by this loop
        await _cancel(task)

    run(work)
    assert session.idle


def test_an_end_that_comes_with_the_beginning_is_none_too_early(
    session: Session, model: SlowModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session._engine is not None
    submit = session._engine.submit
    stream = session.stream("the", ignore_eos=True)

    def submit_and_cancel(request: Request, fork_of: RequestState | None = None) -> RequestState:
        state = submit(request, fork_of)
        stream.cancel()  # from another thread, say
        return state

    monkeypatch.setattr(session._engine, "submit", submit_and_cancel)
    stream.start()
    assert session.idle
    assert [chunk.finish_reason for chunk in stream] == ["cancelled"]
    assert model.steps == []


@pytest.mark.parametrize("whole", [True, False])
def test_whoever_reads_gets_what_there_is_when_another_cancels(
    session: Session, model: SlowModel, *, whole: bool
) -> None:
    async def work() -> None:
        stream = session.submit("the", max_tokens=50, ignore_eos=True)
        for _ in range(3):
            await anext(stream)
        model.slow = True

        async def rest() -> Any:
            return [chunk async for chunk in stream][-1]

        waiting = asyncio.ensure_future(stream if whole else rest())
        await step_begun(model)
        stream.cancel()
        model.hasten()
        assert (await waiting).finish_reason == "cancelled"
        assert stream.result.finish_reason == "cancelled"
        assert len(stream.result.token_ids) == 4

    run(work)
    assert session.idle


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_what_is_ended_before_it_begins_gives_nothing(session: Session, model: SlowModel, end: str) -> None:
    async def work() -> None:
        for read in (lambda stream: stream, anext):
            stream = session.stream("the")
            getattr(stream, end)()
            if read is anext:
                with pytest.raises(StopAsyncIteration):
                    await anext(stream)
            result = await stream
            assert (result.finish_reason, result.token_ids) == ("cancelled", ())
            assert list(stream) == []

    run(work)
    assert model.steps == []


def test_the_end_of_a_block_ends_the_generation(session: Session) -> None:
    async def work() -> None:
        async with session.stream("the", max_tokens=50, ignore_eos=True) as stream:
            async for _ in stream:
                break
            assert not session.idle
        other = session.submit("the", max_tokens=50)
        await other.aclose()

    run(work)
    assert session.idle


def test_a_session_closed_meanwhile_leaves_nobody_waiting(session: Session, model: SlowModel) -> None:
    async def work() -> None:
        model.slow = True
        streams = [session.submit("the", max_tokens=50, ignore_eos=True) for _ in range(5)]
        waiting = asyncio.gather(*streams, anext(session.submit("the")))
        await step_begun(model)
        closing = asyncio.get_running_loop().run_in_executor(None, session.close)
        model.hasten()
        results: list[Any] = await waiting
        chunk = results.pop()
        assert {result.finish_reason for result in results} == {"cancelled"}
        assert chunk.finish_reason in ("cancelled", None)
        await closing
        with pytest.raises(UsageError, match="closed"):
            session.submit("the")
        assert (await streams[0]).finish_reason == "cancelled"

    run(work)


# ---- Errors -----------------------------------------------------------------------------------------------------


def test_an_error_reaches_the_one_whose_it_is(session: Session, model: SlowModel) -> None:
    expected = session.generate([BOS, 7], **OPTIONS[0])

    async def work() -> None:
        model.poisoned = 300
        failing = session.stream([BOS, 300], max_tokens=5)
        good = session.submit([BOS, 7], **OPTIONS[0])
        got = await asyncio.gather(failing, good, return_exceptions=True)
        assert isinstance(got[0], NumericError)
        assert isinstance(got[1], Generation)
        assert same(got[1], expected)
        assert failing.result.finish_reason == "error"
        with pytest.raises(NumericError):
            await failing
        assert [chunk async for chunk in failing] == []

    run(work)
    assert session.idle


def test_an_error_after_a_stop_string_is_none_of_the_text(session: Session, model: SlowModel) -> None:
    """Another's steps may run it on before anybody has looked for the string."""
    options: dict[str, Any] = {"max_tokens": 40, "seed": 2, "ignore_eos": True}
    chunks = list(session.stream([BOS, 7], **options))
    ids = [chunk.token.token_id for chunk in chunks if chunk.token is not None]
    place = next(i for i, chunk in enumerate(chunks) if chunk.text and ids[i + 1] not in (BOS, 7, *ids[: i + 1]))
    options["stop"] = chunks[place].text
    expected = session.generate([BOS, 7], **options)
    assert (expected.finish_reason, len(expected.token_ids)) == ("stop", place + 1)
    model.poisoned = ids[place + 1]

    def run_on() -> Stream:
        stream = session.submit([BOS, 7], **options)
        state = stream._reader.state
        assert state is not None
        assert session._engine is not None
        session._engine.advance(state, 40)
        assert state.finish_reason == "error"
        return stream

    async def work() -> None:
        assert same(await run_on(), expected)
        assert "".join([chunk.text async for chunk in run_on()]) == expected.text

    run(work)
    assert "".join(chunk.text for chunk in run_on()) == expected.text


def test_an_error_of_the_engine_itself_leaves_nobody_waiting(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise AssertionError("broken")

    monkeypatch.setattr(session._driver, "_step", broken)

    async def work() -> None:
        streams = [session.submit("the", **OPTIONS[0]) for _ in range(3)]
        for error in await asyncio.gather(*streams, return_exceptions=True):
            assert isinstance(error, AssertionError)

    run(work)
    assert session.idle


# ---- Loops and threads ------------------------------------------------------------------------------------------


def test_a_loop_that_is_closed_while_it_waits_harms_no_other(session: Session, model: SlowModel) -> None:
    expected = session.generate("the", **OPTIONS[0])
    model.slow = True
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it would log that a task is left

    async def wait() -> Generation:
        return await session.stream("the", max_tokens=100, ignore_eos=True)

    task = loop.create_task(wait())
    loop.run_until_complete(step_begun(model))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    model.hasten()

    async def work() -> None:
        assert same(await session.stream("the", **OPTIONS[0]), expected)

    run(work)
    assert not session.idle
    assert not session._driver._waiters
    del task
    gc.collect()
    assert session.idle


def test_loops_and_threads_at_the_same_time(session: Session, capfd: pytest.CaptureFixture[str]) -> None:
    prompts = ("the capital", "of", "is it a", "")
    jobs = [(prompt or [BOS], options) for prompt in prompts for options in OPTIONS]
    expected = [session.generate(prompt, **options) for prompt, options in jobs]
    got: dict[int, list[Generation]] = {}

    def coroutines(number: int) -> None:
        async def work() -> None:
            streams = [session.stream(prompt, **options) for prompt, options in jobs]
            got[number] = list(await asyncio.gather(*streams))

        asyncio.run(work())

    def plain(number: int) -> None:
        got[number] = [session.generate(prompt, **options) for prompt, options in jobs]

    def together(number: int) -> None:
        # None of them failed.
        got[number] = [outcome.result for outcome in session.run_all(session.stream(p, **o) for p, o in jobs)]  # type: ignore[misc]

    works = (coroutines, plain, together) * 2
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert sorted(got) == list(range(len(works)))
    for results in got.values():
        for result, alone in zip(results, expected, strict=True):
            assert same(result, replace(alone, reused_tokens=result.reused_tokens))
    assert session.idle
    assert session._engine is not None
    session._engine.check_integrity()
    assert capfd.readouterr().err == ""


SCRIPT = """
import asyncio, os, signal, sys, threading
from cabochon.errors import RunError
from tests.unit.test_session_async import TOKENIZER, CONFIG, FakeModel, Session

session = Session(FakeModel(CONFIG, context=99000, chunk=16), TOKENIZER, context=99000, chunk=16)
stream = session.submit("the", max_tokens=98000, ignore_eos=True)
"""
INTERRUPTED = """
async def work():
    await anext(stream)
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGINT)
    await stream

async def again():
    await session.stream("the", max_tokens=3, ignore_eos=True)

signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    asyncio.run(work())
except KeyboardInterrupt:
    assert stream.result.finish_reason == "cancelled"
    while not session.idle:
        pass
    asyncio.run(again())
    print("interrupted")
"""
LEFT = """
ready = threading.Event()

async def work():
    await anext(stream)
    ready.set()
    try:
        await stream
    except RunError as error:
        print("left:", error)

threading.Thread(target=lambda: asyncio.run(work())).start()
ready.wait()
"""


@pytest.mark.parametrize(
    ("script", "word"), [(INTERRUPTED, "interrupted"), (LEFT, "left: the program ends; nothing is generated any more")]
)
def test_a_program_ends_in_the_middle_of_a_generation(script: str, word: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(SCRIPT + script)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, word + "\n", "")

"""Alone = in company, whatever threads and event loops the company comes from; on the native backend, bit for bit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cabochon
from cabochon.session import Generation, Score, Session
from cabochon.testing.tiny import tiny_config, write_tiny_gguf

PATIENCE = 120
"""Seconds after which a thread that has not ended hangs."""

SYSTEM = "the capital of it is an "
JOBS: tuple[tuple[str, dict[str, Any]], ...] = (
    (SYSTEM + "or", {"max_tokens": 50, "seed": 1, "logprobs": 1, "ignore_eos": True}),
    (SYSTEM + "and", {"max_tokens": 30, "seed": 2, "stop": ("e", "is"), "logprobs": 0}),
    ("so", {"max_tokens": 45, "temperature": 0, "seed": 3, "logprobs": 2, "bad_words": ["th"], "dry_multiplier": 0.5}),
    (SYSTEM * 4, {"max_tokens": 20, "seed": 4, "logprobs": 0, "repetition_penalty": 1.25, "min_tokens": 4}),
)
"""With all that reads the vocabulary: stop strings, bad words, DRY's breakers, the detokenizer."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config(layers=3, pattern=3, window=20, context_length=400)
    return write_tiny_gguf(tmp_path_factory.mktemp("threads") / "tiny.gguf", config)


@pytest.fixture(scope="module")
def expected(path: Path) -> list[Generation]:
    with cabochon.load(path, context=400, threads=1, prefix_cache=False) as alone:
        return [alone.generate(prompt, **options) for prompt, options in JOBS]


@pytest.fixture(params=[1, 3])
def session(request: pytest.FixtureRequest, path: Path) -> Iterator[Session]:
    with cabochon.load(path, context=400, threads=2, chunk=24, max_running=request.param, speculate=2) as session:
        yield session


def generate(session: Session) -> list[Generation]:
    return [session.generate(prompt, **options) for prompt, options in JOBS]


def stream(session: Session) -> list[Generation]:
    """All at once, read in turns."""
    streams = [session.submit(prompt, **options) for prompt, options in JOBS]
    while not all(stream.ended for stream in streams):
        for stream in streams:
            next(stream, None)
    return [stream.result for stream in streams]


def generate_all(session: Session) -> list[Generation]:
    prompt, options = JOBS[0]
    return [*session.generate_all([prompt] * 3, **options)[:1], *generate(session)[1:]]


def coroutines(session: Session) -> list[Generation]:
    async def work() -> list[Generation]:
        given_up = asyncio.ensure_future(session.submit("the", max_tokens=300, ignore_eos=True))
        results = await asyncio.gather(*(session.submit(prompt, **options) for prompt, options in JOBS))
        given_up.cancel()
        await asyncio.wait([given_up])
        return list(results)

    return asyncio.run(work())


def test_threads_and_loops_get_what_each_gets_alone(
    session: Session, expected: list[Generation], monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    got: list[list[Generation]] = []
    scores: list[Score] = []
    begin = threading.Barrier(8)

    def run(work: Callable[[Session], list[Generation]]) -> None:
        begin.wait(PATIENCE)
        scores.append(session.score(SYSTEM * 2, top_logprobs=1))
        got.append(work(session))

    works = (generate, stream, generate_all, coroutines) * 2
    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert raised == []
    assert len(got) == len(works)
    for results in got:
        for result, alone in zip(results, expected, strict=True):
            assert replace(result, timings=alone.timings, reused_tokens=0) == alone
    assert scores == [session.score(SYSTEM * 2, top_logprobs=1)] * len(works)
    assert session.idle
    assert session._engine is not None
    session._engine.check_integrity()

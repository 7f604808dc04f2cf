"""A generation's handle: to iterate over, to wait for, to end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from types import TracebackType
from typing import Any

from cabochon.engine.engine import Engine
from cabochon.engine.request import Request, Work
from cabochon.session.driver import Driver
from cabochon.session.reader import Reader
from cabochon.session.results import Chunk, Generation, Timings
from cabochon.text.stop import StopStrings
from cabochon.text.tokenizer import Tokenizer


class Stream(Iterator[Chunk], AsyncIterator[Chunk]):
    """One generation, chunk by chunk or as a whole.

        for chunk in stream: ...            # this thread runs the steps
        async for chunk in stream: ...      # other coroutines go on meanwhile
        result = await stream               # asyncio, too; a ``Generation``

    It runs only while somebody asks for more of it, or of another generation: those that stand in line run together.
    Left early (``close``, the end of a ``with`` or ``async with``, a cancelled task, or simply forgotten) it ends the
    generation and frees its pages, at the end of the step that runs. None of that waits for the step.
    """

    def __init__(
        self,
        engine: Engine,
        driver: Driver,
        request: Request,
        tokenizer: Tokenizer,
        stops: StopStrings,
        load_s: float,
        fork_of: Stream | None = None,
    ) -> None:
        """``request`` has been checked by the engine's limits. What it begins with like ``fork_of`` is run once, while
        that one runs."""
        self._driver = driver
        self._load_s = load_s
        self.request = request
        """What was asked for; the stop strings are the session's."""
        self.stops = stops.stops
        """Stop strings."""
        # It does not know this object: without a cycle, forgetting the stream ends the generation at once.
        self._reader: Reader = Reader(engine, request, tokenizer, stops, None if fork_of is None else fork_of._reader)

    def start(self) -> None:
        """Puts the generation in line, if it is not: asking for the first chunk does so too.

        Raises as ``Engine.submit``.
        """
        self._reader.start()

    def __next__(self) -> Chunk:
        reader = self._reader
        state = reader.start()
        try:
            while state is not None and (engine := reader.engine) is not None:
                engine.advance(state, reader.wanted)
                chunk = reader.take()
                if chunk is not None:
                    return chunk
        except BaseException:
            reader.end()
            raise
        raise StopIteration

    async def __anext__(self) -> Chunk:
        reader = self._reader
        state = reader.start()
        try:
            while state is not None and reader.engine is not None:
                await self._driver.advance(state, reader.wanted)
                chunk = reader.take()
                if chunk is not None:
                    return chunk
        except BaseException:
            reader.end()
            raise
        raise StopAsyncIteration

    def __await__(self) -> Generator[Any, None, Generation]:
        """The generation, when it has ended, however that came; raises what ended it with an error."""
        return self._whole().__await__()

    async def _whole(self) -> Generation:
        reader = self._reader
        state = reader.start()
        try:
            while state is not None and reader.engine is not None:
                await self._driver.advance(state, reader.wanted_for_all)
                while reader.take() is not None:
                    pass
        except BaseException:
            reader.end()
            raise
        if reader.finish_reason == "error" and state is not None and state.error is not None:
            raise state.error
        return self.result

    def runs_on(self, engine: Engine) -> bool:
        """Whether that engine runs it; False once it has ended."""
        return self._reader.engine is engine

    @property
    def ready(self) -> bool:
        """Whether the next chunk is there without a step."""
        return self._reader.ready

    @property
    def ended(self) -> bool:
        """Whether the last chunk has been given."""
        return self._reader.finish_reason is not None

    def cancel(self) -> None:
        """Ends the generation, if it has not ended. Whoever reads it gets what there is, and ``cancelled`` as reason.

        Any thread and any coroutine may call this.
        """
        self._reader.cancel()

    def close(self) -> None:
        """Ends the generation, if it has not ended, as ``cancelled``; there are no more chunks."""
        self._reader.end()

    async def aclose(self) -> None:
        """As ``close``."""
        self.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def result(self) -> Generation:
        """All that has been streamed; ``cancelled`` is the reason of one that goes on or was closed early."""
        reader, request, state = self._reader, self._reader.request, self._reader.state
        work = Work() if state is None else state.work
        asked = request.logprobs is not None
        tokens = tuple(reader.tokens)
        return Generation(
            text="".join(reader.texts),
            token_ids=tuple(token.token_id for token in tokens),
            logprobs=tuple(t.logprob for t in tokens if t.logprob is not None) if asked else None,
            top=tuple(token.top for token in tokens) if request.logprobs else None,
            finish_reason=reader.finish_reason or "cancelled",
            prompt_tokens=len(request.prompt),
            timings=Timings(
                load_s=self._load_s,
                first_token_s=reader.first_token_s,
                prefill_tokens_per_s=_rate(work.prefill_rows, work.prefill_s) if reader.first_token_s else None,
                decode_tokens_per_s=_rate(work.decode_tokens, work.decode_s),
            ),
            seed=request.params.seed,
            reused_tokens=0 if state is None else state.reused,
            sampled=request.params.temperature > 0,
            **self._prompt_fields(),
        )

    def _prompt_fields(self) -> dict[str, Any]:
        """What is told of the prompt's own tokens, if anything is asked for."""
        request, state = self.request, self._reader.state
        if request.prompt_logprobs is None:
            return {}
        scores = () if state is None else tuple(state.scores)
        return {
            "prompt_token_ids": request.prompt,
            "prompt_logprobs": (None, *(score.logprob for score in scores)),
            "prompt_top": (None, *(score.top for score in scores)) if request.prompt_logprobs else None,
        }


def _rate(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if tokens and seconds > 0 else None

"""A generation as it comes (stop 8): tokens to text, stop strings, figures."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from types import TracebackType

from cabochon.engine.engine import Engine
from cabochon.engine.request import Request, RequestState, Work
from cabochon.session.results import Chunk, Generation, Timings
from cabochon.text.detokenizer import Detokenizer
from cabochon.text.stop import StopStrings
from cabochon.text.tokenizer import Tokenizer
from cabochon.types import FinishReason, TokenOut


@dataclass(slots=True)
class _Record:
    """What has been streamed so far."""

    texts: list[str] = field(default_factory=list)
    tokens: list[TokenOut] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    first_token_s: float | None = None
    started: bool = False
    state: RequestState | None = None
    work: Work = field(default_factory=Work)


class Stream(Iterator[Chunk]):
    """The chunks of one generation.

    It runs only while it is asked for the next chunk. Left early (``close``, the end of a ``with``, or simply
    forgotten) it ends the generation and frees its pages.
    """

    def __init__(
        self, engine: Engine, request: Request, tokenizer: Tokenizer, stops: StopStrings, load_s: float
    ) -> None:
        """``request`` has been checked by the engine's limits."""
        self._request = request
        self._load_s = load_s
        self._record = _Record()
        # The generator must not know this object: without a cycle, forgetting the stream closes it at once.
        self._chunks = _run(engine, request, Detokenizer(tokenizer), stops, self._record)

    def start(self) -> None:
        """Puts the generation in line, if it is not: asking for the first chunk does so too.

        Raises as ``Engine.submit``.
        """
        if not self._record.started:
            self._record.started = True
            next(self._chunks)

    def __next__(self) -> Chunk:
        self.start()
        chunk = next(self._chunks)
        assert chunk is not None
        return chunk

    @property
    def ready(self) -> bool:
        """Whether the next chunk is there without a step."""
        state = self._record.state
        return state is not None and (len(state.tokens) > len(self._record.tokens) or state.finish_reason is not None)

    @property
    def ended(self) -> bool:
        """Whether the last chunk has been given."""
        return self._record.finish_reason is not None

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the generation, if it has not ended, as ``cancelled``."""
        self._chunks.close()
        if self._record.finish_reason is None:
            self._record.finish_reason = "cancelled"

    @property
    def result(self) -> Generation:
        """All that has been streamed; ``cancelled`` is the reason of one that goes on or was closed early."""
        record, request = self._record, self._request
        work = record.work
        asked = request.logprobs is not None
        return Generation(
            text="".join(record.texts),
            token_ids=tuple(token.token_id for token in record.tokens),
            logprobs=tuple(t.logprob for t in record.tokens if t.logprob is not None) if asked else None,
            top=tuple(token.top for token in record.tokens) if request.logprobs else None,
            finish_reason=record.finish_reason or "cancelled",
            prompt_tokens=len(request.prompt),
            timings=Timings(
                load_s=self._load_s,
                first_token_s=record.first_token_s,
                prefill_tokens_per_s=_rate(work.prefill_rows, work.prefill_s) if record.first_token_s else None,
                decode_tokens_per_s=_rate(work.decode_steps, work.decode_s),
            ),
            seed=request.params.seed,
            reused_tokens=0 if record.state is None else record.state.reused,
            sampled=request.params.temperature > 0,
        )


def _run(
    engine: Engine, request: Request, detokenizer: Detokenizer, stops: StopStrings, record: _Record
) -> Generator[Chunk | None, None, None]:
    """Nothing once the request stands in line, then chunk after chunk."""
    start = time.perf_counter()
    state = engine.submit(request)
    record.state, record.work = state, state.work
    try:
        yield None
        while record.finish_reason is None:
            engine.advance(state, len(record.tokens))
            if record.first_token_s is None:
                record.first_token_s = time.perf_counter() - start
            if state.error is not None:
                raise state.error
            chunk = _next_chunk(engine, state, detokenizer, stops, record)
            record.texts.append(chunk.text)
            record.finish_reason = chunk.finish_reason
            yield chunk
    finally:
        engine.cancel(state)
        # An error in a step has given the reason; a stream that is left early has none yet.
        record.finish_reason = record.finish_reason or state.finish_reason


def _next_chunk(
    engine: Engine, state: RequestState, detokenizer: Detokenizer, stops: StopStrings, record: _Record
) -> Chunk:
    token, text, stopped = None, "", False
    if len(record.tokens) < len(state.tokens):
        token = state.tokens[len(record.tokens)]
        record.tokens.append(token)
        text, stopped = stops.push(detokenizer.push(token.token_id))
    if stopped:
        engine.cancel(state)
        return Chunk(text, token, "stop")
    if len(record.tokens) < len(state.tokens) or state.finish_reason is None:
        return Chunk(text, token, None)
    rest, stopped = stops.push(detokenizer.flush())
    return Chunk(text + rest + stops.flush(), token, "stop" if stopped else state.finish_reason)


def _rate(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if tokens and seconds > 0 else None

"""From a request's tokens to chunks of text (stop 8): detokenizing, stop strings, and when the last chunk has come."""

from __future__ import annotations

import time
from threading import Lock

from cabochon.engine.engine import Engine
from cabochon.engine.request import Request, RequestState
from cabochon.session.results import Chunk
from cabochon.text.detokenizer import Detokenizer
from cabochon.text.stop import StopStrings
from cabochon.text.tokenizer import Tokenizer
from cabochon.types import FinishReason, TokenOut


class Reader:
    """Reads one generation. Nothing here waits: who reads sees to it that there is something to read."""

    def __init__(
        self,
        engine: Engine,
        request: Request,
        tokenizer: Tokenizer,
        stops: StopStrings,
        fork_of: Reader | None = None,
    ) -> None:
        self.request = request
        self.state: RequestState | None = None
        """The request in the engine, once it stands in line."""
        self.texts: list[str] = []
        self.tokens: list[TokenOut] = []
        self.finish_reason: FinishReason | None = None
        """Why there are no more chunks; None while there may be."""
        self.first_token_s: float | None = None
        self.engine: Engine | None = engine
        """Where it runs; None once there are no more chunks, so that a handle kept for its result keeps no model."""
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = stops
        self._started_s = 0.0
        self._cancelled = False
        self._fork_of = fork_of
        self._lock = Lock()

    @property
    def wanted(self) -> int:
        """So many tokens have to be exceeded, or the request to end, for the next chunk to be there."""
        return len(self.tokens)

    @property
    def wanted_for_all(self) -> int:
        """As ``wanted``, for one who does not look at single chunks: only a stop string has to be seen at once."""
        return self.wanted if self._stops.stops else self.request.max_tokens

    @property
    def ready(self) -> bool:
        """Whether the next chunk is there."""
        state = self.state
        return state is not None and (len(state.tokens) > len(self.tokens) or state.finish_reason is not None)

    def start(self) -> RequestState | None:
        """Puts the request in line, if it is not; None if it was ended before. Raises as ``Engine.submit``."""
        with self._lock:
            if self.state is None and self._cancelled:
                self._finish("cancelled")
            if self.state is None and self.engine is not None:
                self._started_s = time.perf_counter()
                self.state = self.engine.submit(self.request, None if self._fork_of is None else self._fork_of.state)
                self._fork_of = None
        if self._cancelled:
            self.cancel()
        return self.state

    def take(self) -> Chunk | None:
        """The next chunk; None if it is not there yet, or the last one has been given.

        Raises what ended the request with an error, in place of a last chunk.
        """
        with self._lock:
            state = self.state
            if state is None or self.engine is None or not self.ready:
                return None
            if self.first_token_s is None:
                self.first_token_s = time.perf_counter() - self._started_s
            if state.error is not None and len(state.tokens) == len(self.tokens):
                self._finish("error")
                raise state.error
            chunk = self._next(state)
            self.texts.append(chunk.text)
            if chunk.finish_reason is not None:
                self.cancel()  # a stop string ends the text where the model would go on
                self._finish(chunk.finish_reason)
            return chunk

    def cancel(self) -> None:
        """Ends the request, now or as soon as it stands in line; what it has brought can still be read."""
        self._cancelled = True
        state, engine = self.state, self.engine
        if state is not None and engine is not None:
            engine.cancel(state)

    def end(self) -> None:
        """Ends the request, if it has not ended, and the reading."""
        self.cancel()
        if self.finish_reason is None:
            reason = None if self.state is None else self.state.finish_reason
            self._finish(reason or "cancelled")

    def _finish(self, reason: FinishReason) -> None:
        self.finish_reason, self.engine = reason, None

    def _next(self, state: RequestState) -> Chunk:
        token, text, stopped = None, "", False
        if len(self.tokens) < len(state.tokens):
            token = state.tokens[len(self.tokens)]
            self.tokens.append(token)
            text, stopped = self._stops.push(self._detokenizer.push(token.token_id))
        if stopped:
            return Chunk(text, token, "stop")
        # In this order: while another thread runs a step, the last token comes before the reason.
        reason = state.finish_reason
        if reason is None or len(self.tokens) < len(state.tokens) or state.error is not None:
            return Chunk(text, token, None)
        rest, stopped = self._stops.push(self._detokenizer.flush())
        return Chunk(text + rest + self._stops.flush(), token, "stop" if stopped else reason)

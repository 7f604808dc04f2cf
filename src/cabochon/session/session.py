"""One loaded model, its tokenizer and its engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from cabochon.engine.engine import Engine, Observer, pools_for
from cabochon.engine.one_pass import one_pass
from cabochon.engine.request import Limits, Request
from cabochon.errors import CabochonError, UsageError
from cabochon.kvcache.conversation_file import Origin
from cabochon.kvcache.pages import PageTable
from cabochon.kvcache.prefix import PrefixCache
from cabochon.model.model import Model
from cabochon.sampling.constraint import Constraint
from cabochon.sampling.params import true_or_false, whole_number
from cabochon.session.batch import Outcome, results_of, run_all
from cabochon.session.conversations import Conversations
from cabochon.session.driver import Driver
from cabochon.session.prompts import listed_ids, prompt_ids
from cabochon.session.results import Generation, SavedConversation, Score
from cabochon.session.sampling_arguments import RequestArguments, SamplingArguments, SamplingReader
from cabochon.session.scoring import score_of
from cabochon.session.stream import Stream
from cabochon.session.variants import choices_of, kept_and_added
from cabochon.text.stop import StopStrings
from cabochon.text.tokenizer import Tokenizer
from cabochon.types import Float32, SamplingParams

MAX_TOKENS = 128
"""Tokens of a generation unless told otherwise."""


class Session:
    """Generates and scores with one model; ``load`` makes one. Any thread may use it, and any asyncio event loop.

    What is generated at the same time runs together, as far as ``max_running`` allows, else in order of arrival; each
    gives what it would give alone. A Ctrl-C in the middle of a step ends all that is under way.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        context: int,
        chunk: int,
        rows: int | None = None,
        name: str = "",
        load_s: float = 0.0,
        defaults: SamplingParams | None = None,
        max_running: int = 1,
        checkpoint_pages: int | None = None,
        speculate: int = 0,
        origin: Callable[[], Origin] | None = None,
    ) -> None:
        """``model`` takes ``rows`` rows a step (``chunk`` unless given); its store's pages were planned for them.

        ``max_running`` generations run together. With ``checkpoint_pages`` (see ``kvcache/prefix.py``) texts share what
        is stored of their beginnings. ``origin`` tells what keys and values come from, for conversations in files.
        """
        self.tokenizer = tokenizer
        self.chunk = chunk
        self.rows = rows or chunk
        """The most rows of one step of the model; ``verify`` needs them all, generation takes ``chunk``."""
        self.name = name
        """What the model calls itself."""
        self.load_s = load_s
        """Seconds that loading took."""
        self._sampling = SamplingReader(tokenizer)
        self.defaults = defaults or SamplingParams()
        """Sampling where a call says nothing else; the seed is then random."""
        self.limits = Limits(context, min(tokenizer.vocab_size, model.config.vocab))
        self.config = model.config
        """The model's description."""
        self._pools = pools_for(model.store)
        self._model: Model | None = model
        groups = model.store.layout.groups
        self._engine: Engine | None = Engine(
            model,
            self._pools,
            self.limits,
            chunk=chunk,
            max_running=max_running,
            prefixes=None if checkpoint_pages is None else PrefixCache(groups, self._pools, name, checkpoint_pages),
            speculate=speculate,
        )
        self._origin = origin
        self._driver = Driver(self._engine)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def context(self) -> int:
        """The most tokens of a prompt and its continuation."""
        return self.limits.context

    @property
    def model(self) -> Model:
        """The loaded model; raises ``UsageError`` once the session is closed."""
        return self._check_open()

    @property
    def idle(self) -> bool:
        """Whether no generation is unfinished."""
        return self._engine is None or self._engine.idle

    def new_engine(self, observer: Observer | None = None, max_running: int = 1, speculate: int = 0) -> Engine:
        """Another engine over the same pages, without reuse. Only one may have unfinished requests at a time."""
        return Engine(
            self.model,
            self._pools,
            self.limits,
            chunk=self.chunk,
            max_running=max_running,
            speculate=speculate,
            observer=observer,
        )

    def fingerprint(self) -> str | None:
        """SHA-256 of all that keys and values depend on, in hex; None if the session has no model file.

        The first time the file is read once more. Raises ``CheckpointError`` if it has been written to.
        """
        return None if self._origin is None else self._origin().model

    def new_tables(self) -> list[PageTable]:
        """Page tables of a text that keeps all of its pages, one for each group; for when nothing else runs."""
        return [PageTable(pool, None, self.context) for pool in self._pools]

    def one_pass(self, ids: Sequence[int]) -> Float32:
        """Normalised hidden states [n, D] of n ids in one step, from empty pages, while nothing else runs."""
        return one_pass(self.model, self._pools, ids)

    def close(self) -> None:
        """Ends what is running, at the end of a step, and lets the model go. Closing twice does nothing."""
        engine = self._engine
        if engine is not None:
            engine.close()
            self._driver.close()
        self._model = self._engine = self._origin = None

    def tokenize(self, text: str, *, bos: bool = True) -> list[int]:
        """Ids of a text, BOS in front as in a prompt unless ``bos`` is false. No text becomes a control token."""
        return self.tokenizer.encode(text, bos=true_or_false("bos", bos))

    def detokenize(self, ids: Iterable[int]) -> str:
        """Text of ids; raises ``UsageError`` for one outside the vocabulary."""
        return self.tokenizer.decode(whole_number("token id", i, at_least=0) for i in listed_ids(ids))

    def request(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = MAX_TOKENS,
        ignore_eos: bool = False,
        logprobs: int | None = None,
        loop_guard: int = 0,
        constraint: Constraint | None = None,
        prompt_logprobs: int | None = None,
        **sampling: Unpack[SamplingArguments],
    ) -> Request:
        """A generation to be done, checked; arguments and errors are those of ``generate``."""
        self._check_open()
        params = self._sampling.params(sampling, self.defaults)
        stop_ids = frozenset(() if true_or_false("ignore_eos", ignore_eos) else self.config.eos_ids)
        request = Request(
            self.prompt_ids(prompt),
            params,
            max_tokens,
            stop_ids,
            logprobs,
            constraint=constraint,
            loop_guard=loop_guard,
            prompt_logprobs=prompt_logprobs,
        )
        return self.limits.check(request)

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = MAX_TOKENS,
        stop: str | Iterable[str] = (),
        ignore_eos: bool = False,
        logprobs: int | None = None,
        loop_guard: int = 0,
        constraint: Constraint | None = None,
        prompt_logprobs: int | None = None,
        **sampling: Unpack[SamplingArguments],
    ) -> Generation:
        """Continues ``prompt``: a text, which gets BOS in front, or ids, which are taken as they are.

        ``max_tokens`` is cut to what the context leaves; both end a text with ``length``. The text ends before the
        first of the ``stop`` strings, and at the model's end-of-text ids unless ``ignore_eos``. With ``loop_guard`` it
        ends after so many repetitions of a short sequence. ``logprobs`` asks for log-probabilities: of the chosen
        token, and of that many of the most probable; ``prompt_logprobs`` for the same of the prompt's own tokens, which
        then are all run, stored or not. ``constraint`` says at every step which tokens may be chosen.
        ``sampling`` is as in ``docs/sampling.md``: None takes the default, and for ``seed`` a new random one.

        Raises:
            ContextLengthError: the prompt leaves no room for a token.
            UsageError: an argument cannot be; the message names it.
            ConstraintError: the constraint, bad words and ``min_tokens`` leave no token to choose.
            NumericError: a value left the range of its type; the message names the remedy.
        """
        stream = self.stream(
            prompt,
            max_tokens=max_tokens,
            stop=stop,
            ignore_eos=ignore_eos,
            logprobs=logprobs,
            loop_guard=loop_guard,
            constraint=constraint,
            prompt_logprobs=prompt_logprobs,
            **sampling,
        )
        with stream:
            for _ in stream:
                pass
        return stream.result

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        stop: str | Iterable[str] = (),
        **options: Unpack[RequestArguments],
    ) -> Stream:
        """As ``generate``, chunk by chunk. Arguments are checked now; running begins when a chunk is asked for.

        ``for`` and ``async for`` give the chunks, ``await`` the whole ``Generation``.
        """
        return self._handle(self.request(prompt, **options), StopStrings(stop))

    def submit(self, prompt: str | Sequence[int], **options: Any) -> Stream:
        """As ``stream``, and the generation stands in line at once: it runs along as soon as any other is waited for.

        It never waits for a step, so a coroutine may call it. Options are those of ``generate``.
        """
        stream = self.stream(prompt, **options)
        stream.start()
        return stream

    def choices(
        self, prompt: str | Sequence[int], n: int, *, stop: str | Iterable[str] = (), **options: Any
    ) -> list[Stream]:
        """``n`` continuations of one prompt, with one seed and ``choice`` counted up from 0 or the one given.

        Each gives what ``generate`` gives with that seed and choice; the prompt is run once, if the first begins first
        and they run together. Options are those of ``generate``; running begins when a chunk is asked for, or all are
        given to ``run_all``.
        """
        stops = StopStrings(stop)
        first, *others = choices_of(self.request(prompt, **options), n)
        stream = self._handle(first, stops)
        return [stream, *(self._handle(request, StopStrings(stops.stops), stream) for request in others)]

    def generate_choices(self, prompt: str | Sequence[int], n: int, **options: Any) -> list[Generation]:
        """The results of ``choices``, run together as far as ``max_running`` allows. Raises as ``generate`` does."""
        return list(results_of(self.run_all(self.choices(prompt, n, **options))))

    def branch(
        self,
        stream: Stream,
        after: int | None = None,
        ids: Iterable[int] = (),
        *,
        max_tokens: int | None = None,
        stop: str | Iterable[str] | None = None,
        **sampling: Unpack[SamplingArguments],
    ) -> Stream:
        """Another way to go on from the text of a stream, which may still run: it is left as it is.

        The first ``after`` ids of its prompt and the reply read so far are kept (all of them unless given), ``ids``
        follow, and from there on it is a generation of its own. What is not given is as in the stream, the seed
        included; but its prompt is not scored. What is still stored of the text is not run again.
        """
        text = (*stream.request.prompt, *stream.result.token_ids)
        params = self._sampling.params({"seed": stream.request.params.seed, **sampling}, stream.request.params)
        request = replace(
            stream.request,
            prompt=kept_and_added(text, after, ids),
            params=params,
            max_tokens=stream.request.max_tokens if max_tokens is None else max_tokens,
            prompt_logprobs=None,
        )
        return self._handle(self.limits.check(request), StopStrings(stream.stops if stop is None else stop), stream)

    def run_all(self, streams: Iterable[Stream | CabochonError]) -> Generator[Outcome, None, None]:
        """Runs streams that have not begun, together; what became of each, in their order, as soon as it is known.

        An error in their place is its own outcome.
        """
        engine = self._open_engine()
        return run_all(engine, streams, 2 * engine.max_running)

    def generate_all(
        self,
        prompts: Iterable[str | Sequence[int]],
        *,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> list[Generation]:
        """Continues every one of ``prompts``, as many together as run at a time; options are those of ``generate``.

        The texts are those that ``generate`` gives one by one. ``progress`` is told how many are done. Raises as
        ``generate`` does, for the first prompt that fails.
        """
        if isinstance(prompts, str | bytes):
            raise UsageError("prompts must be a list of prompts; for a single one there is generate")
        results = []
        for result in results_of(self.run_all(self.stream(prompt, **options) for prompt in prompts)):
            results.append(result)
            if progress is not None:
                progress(len(results))
        return results

    def score(self, prompt: str | Sequence[int], *, top_logprobs: int = 0) -> Score:
        """Log-probability of every token of ``prompt`` (as for ``generate``), run through the cache in chunks.

        Raises as ``generate`` does; ``ContextLengthError`` if the text is longer than the context.
        """
        self._check_open()
        ids = self.limits.check_ids("prompt", self.prompt_ids(prompt))
        top = whole_number("top_logprobs", top_logprobs, at_least=0, at_most=self.limits.vocab)
        return score_of(self._open_engine(), ids, top)

    def save_conversation(self, path: str | Path, ids: Iterable[int]) -> SavedConversation:
        """Writes a text so far, prompt and reply, and what is stored of it to the file ``path``.

        Keys and values of its full pages are written as far as they are still held; of a text just generated that is
        all but the last 32 tokens at most. The file replaces an old one only when it is whole. The first time, the
        model's own file is read once more, to tell it from others.

        Raises:
            UsageError: the ids cannot be, or the session has no prefix cache.
            ContextLengthError: there are more than the context has room for.
            ConversationError: the file cannot be written.
            CheckpointError: the model's file has been written to.
        """
        return self._conversations().save(path, self.limits.check_ids("conversation", listed_ids(ids)))

    def load_conversation(self, path: str | Path) -> tuple[int, ...]:
        """The ids of a saved conversation; what was stored of it is so again, and kept like that of any other text.

        A generation that goes on from these ids runs only what is new and 32 tokens at most, and gives the same bits as
        if it ran all.

        Raises:
            UsageError: the session has no prefix cache.
            ConversationError: the file cannot be read, is damaged, of another format, model or ``kv_type``, or does not
                fit into the context or the free pages; nothing is changed then.
            CheckpointError: the model's file has been written to.
        """
        return self._conversations().load(path)

    def prompt_ids(self, prompt: str | Sequence[int]) -> tuple[int, ...]:
        """Ids of a prompt as ``generate`` takes it; raises ``UsageError`` for an empty text or what is no prompt."""
        return prompt_ids(self.tokenizer, prompt)

    def _handle(self, request: Request, stops: StopStrings, fork_of: Stream | None = None) -> Stream:
        return Stream(self._open_engine(), self._driver, request, self.tokenizer, stops, self.load_s, fork_of)

    def _check_open(self) -> Model:
        if self._model is None:
            raise UsageError("the session is closed")
        return self._model

    def _open_engine(self) -> Engine:
        if self._engine is None:
            raise UsageError("the session is closed")
        return self._engine

    def _conversations(self) -> Conversations:
        return Conversations(self._open_engine(), self._pools, self.model.store, self._origin)

"""What is asked of an engine, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from cabochon.engine.draft import Drafter
from cabochon.engine.loop_guard import checked_loop_guard
from cabochon.errors import ContextLengthError, UsageError, shown
from cabochon.kvcache.pages import PageTable
from cabochon.kvcache.prefix_nodes import PrefixTrail
from cabochon.sampling.constraint import Constraint
from cabochon.sampling.params import checked, whole_number
from cabochon.types import FinishReason, SamplingParams, TokenOut

Phase = Literal["waiting", "running", "finished"]


@dataclass(frozen=True, slots=True)
class Request:
    """A generation to be done; ``Limits.check`` makes sure that it can be."""

    prompt: tuple[int, ...]
    """Ids, at least one."""
    params: SamplingParams
    max_tokens: int
    """The most tokens to choose; 0 where only the prompt is to be scored."""
    stop_ids: frozenset[int] = frozenset()
    """Choosing one of these ends the text before it."""
    logprobs: int | None = None
    """Log-probabilities: None for none, else of the chosen token and of that many of the most probable."""
    tenant: str = ""
    """Whose keys and values may be reused, and who may reuse these."""
    constraint: Constraint | None = None
    """Which ids may be chosen at each step."""
    loop_guard: int = 0
    """So many repetitions of a short sequence end the reply (``loop_guard.py``); 0 for none."""
    prompt_logprobs: int | None = None
    """Log-probabilities of the prompt's ids and of that many of the most probable in their place; None for none."""
    message_ends: tuple[int, ...] = ()
    """Lengths of the prompt at which a message ends: other texts may go on from there."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine can take."""

    context: int
    """The most tokens of a sequence, prompt and reply."""
    vocab: int
    """Ids from 0 to one less are tokens."""
    max_waiting: int | None = None
    """The most requests in line; None for any number."""
    max_waiting_tokens: int | None = None
    """The most tokens of their prompts."""

    def check(self, request: Request) -> Request:
        """The request in plain types, with ``max_tokens`` and ``min_tokens`` cut to what the context leaves.

        Raises ``ContextLengthError`` for a prompt that leaves no room for a token, ``UsageError`` naming any other
        value that cannot be.
        """
        prompt = self.check_ids("prompt", request.prompt)
        logprobs = self._checked_logprobs("logprobs", request.logprobs)
        prompt_logprobs = self._checked_logprobs("prompt_logprobs", request.prompt_logprobs)
        max_tokens = whole_number("max_tokens", request.max_tokens, at_least=0 if prompt_logprobs is not None else 1)
        if len(prompt) > self.context:
            raise ContextLengthError(f"the text has {len(prompt)} tokens, more than the context of {self.context}")
        if len(prompt) == self.context and max_tokens:
            raise ContextLengthError(
                f"the prompt has {len(prompt)} tokens; a context of {self.context} takes at most {self.context - 1}"
                " and the token after them"
            )
        params = checked(request.params, self.vocab)
        if params.min_tokens > max_tokens:
            raise UsageError(f"min_tokens must be at most max_tokens, {max_tokens}, not {params.min_tokens}")
        room = min(max_tokens, self.context - len(prompt))
        return replace(
            request,
            prompt=prompt,
            params=replace(params, min_tokens=min(params.min_tokens, room)),
            max_tokens=room,
            stop_ids=frozenset(self.check_ids("stop_ids", request.stop_ids, empty=True)),
            logprobs=logprobs,
            constraint=_checked_constraint(request.constraint),
            loop_guard=checked_loop_guard(request.loop_guard),
            prompt_logprobs=prompt_logprobs,
            message_ends=tuple(
                whole_number("message_ends", end, at_least=1, at_most=len(prompt)) for end in request.message_ends
            ),
        )

    def check_ids(self, name: str, ids: Iterable[int], *, empty: bool = False) -> tuple[int, ...]:
        """The ids as plain ``int``; raises ``UsageError`` where one is none of the vocabulary, or there is none."""
        plain = tuple(whole_number(f"{name}: token id", i, at_least=0, at_most=self.vocab - 1) for i in ids)
        if not plain and not empty:
            raise UsageError(f"the {name} is empty; at least one token is needed")
        return plain

    def _checked_logprobs(self, name: str, number: int | None) -> int | None:
        return None if number is None else whole_number(name, number, at_least=0, at_most=self.vocab)


def _checked_constraint(constraint: Constraint | None) -> Constraint | None:
    if constraint is not None and not callable(getattr(constraint, "allowed", None)):
        raise UsageError(f"constraint must be an object with a method 'allowed', not {shown(constraint)}")
    return constraint


@dataclass(slots=True)
class Work:
    """What has been run for a request, and the time of the steps it had a share in."""

    prefill_rows: int = 0
    """Rows until the first token was chosen; fewer than the prompt's where some were stored already."""
    prefill_s: float = 0.0
    decode_steps: int = 0
    """Steps after the first token."""
    decode_tokens: int = 0
    """Tokens they brought, a stop id included: more than one a step where guesses were right."""
    decode_s: float = 0.0

    def count(self, rows: int, tokens: int, seconds: float, *, decoding: bool) -> None:
        """A step that took so long has run some rows of it, and brought so many tokens."""
        if decoding:
            self.decode_steps += 1
            self.decode_tokens += tokens
            self.decode_s += seconds
        else:
            self.prefill_rows += rows
            self.prefill_s += seconds


@dataclass(slots=True, eq=False)
class RequestState:
    """A request in an engine, and the handle its submitter holds. Only the engine changes it."""

    number: int
    """In order of arrival."""
    request: Request
    tables: Sequence[PageTable]
    """[P] its pages in each group."""
    ids: list[int]
    """The prompt and the tokens chosen so far."""
    drafter: Drafter
    best_only: bool = False
    """Whether its tokens are the ids with the largest logits, and nothing else is asked about logits."""
    fork_of: RequestState | None = None
    """A request whose text begins as this one's does: what it has stored of that need not be run again."""
    shared: int = 0
    """Ids that both begin with."""
    trail: PrefixTrail | None = None
    """Its way through the prefix cache, while it runs."""
    computed: int = 0
    """Positions whose keys and values are stored: those before it."""
    reused: int = 0
    """Positions that were stored already when it began."""
    phase: Phase = "waiting"
    tokens: list[TokenOut] = field(default_factory=list)
    """Tokens chosen, without a stop id."""
    scores: list[TokenOut] = field(default_factory=list)
    """The prompt's ids from the second on, as far as they have been scored."""
    finish_reason: FinishReason | None = None
    """Why it ended; None while it has not."""
    work: Work = field(default_factory=Work)
    """What has been run for it."""
    error: Exception | None = None
    """What ended it with ``error``: for whoever holds this handle, when another's call ran the step."""

    @property
    def left(self) -> int:
        """Ids known and not yet stored; at least one while it is not finished."""
        return len(self.ids) - self.computed

    @property
    def to_score(self) -> int:
        """How many rows' logits are still wanted for scores: those from ``len(scores)`` on."""
        wanted = 0 if self.request.prompt_logprobs is None else len(self.request.prompt) - 1
        return wanted - len(self.scores)

    @property
    def reusable(self) -> int:
        """Positions that need not be run if they are stored."""
        return len(self.scores) if self.to_score else len(self.ids)

    @property
    def awaits_origin(self) -> bool:
        """Whether the request it is forked of is about to store what both begin with."""
        origin = self.fork_of
        return origin is not None and origin.phase != "finished" and origin.computed < self.shared

    def has_come(self, tokens: int) -> bool:
        """Whether more than ``tokens`` tokens have been chosen, or it has ended."""
        return len(self.tokens) > tokens or self.finish_reason is not None

    def check(self) -> None:
        """Raises ``AssertionError`` unless all lengths agree with one another."""
        prompt, chosen, length = len(self.request.prompt), len(self.tokens), len(self.ids)
        if length != prompt + chosen:
            raise AssertionError(f"{length} ids are not {prompt} of the prompt and {chosen} chosen")
        if self.to_score < 0:
            raise AssertionError(f"{len(self.scores)} scores of a prompt of {prompt}")
        if chosen > self.request.max_tokens:
            raise AssertionError(f"{chosen} tokens were chosen where {self.request.max_tokens} were asked for")
        # The last id is never run ahead: what is computed stays behind what is known.
        if self.phase != "finished" and not self.computed < length:
            raise AssertionError(f"{self.computed} positions are computed of {length} ids")
        if (self.phase == "finished") != (self.finish_reason is not None):
            raise AssertionError(f"{self.phase}, but the finish reason is {self.finish_reason}")
        if self.phase != "running" and any(table.held for table in self.tables):
            raise AssertionError(f"{self.phase}, but pages are held")

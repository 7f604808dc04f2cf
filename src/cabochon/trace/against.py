"""The cached loop beside other ways to make its steps (``variants.py``), on one prompt and one model.

Every variant is given the cached run's tokens, so each of its turns can be held against the same turn of that run; it
has the same text if it would have chosen them all itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from cabochon.engine.request import Request
from cabochon.errors import NumericError, UsageError
from cabochon.events import Choice, SequencePlan, StepPlan, StepRecord
from cabochon.model.native_model import NativeModel
from cabochon.sampling.history import History
from cabochon.sampling.sampler import sample
from cabochon.session.session import Session
from cabochon.trace.by_hand import KVDifference, PagedText, first_difference
from cabochon.trace.costs import cost_of, counted
from cabochon.trace.trace import NOTHING, Cost, Verdict
from cabochon.trace.variants import CACHED, VARIANTS, Stranger, Turn, Variant
from cabochon.trace.verify import check_room, finished
from cabochon.types import Float32, Logits, StepInput

TEXTS = 3
"""Sequences that are stored at a time: the cached run, the variant, and a stranger."""

LOGIT_TOLERANCE = 1e-2
"""On a backend that rounds in an order of its own: largest difference of logits that is taken for rounding, as a share
of their standard deviation or 1. Keys and values of 16 bits round, too; what is broken is off by far more."""

KV_TOLERANCE = 1e-2
"""The same of keys and values, as a share of a layer's root mean square."""


Watch: TypeAlias = Callable[[str, StepRecord], None]
"""Told of every turn of a variant, by its name, as an engine's observer is of a step."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one way to make the steps."""

    name: str
    about: str
    equal: bool
    """Whether it had to give what the cached run gave."""
    verdict: Verdict
    same_text: bool
    first_step: int | None
    """The first turn, from 0, whose logits differed."""
    first_token: int | None
    """The first turn that would have chosen another token."""
    max_abs_difference: float
    """Of two logits, over all turns."""
    margin: float | None
    """How far the cached run's largest logit was above the next one in ``first_step``."""
    difference: KVDifference | None
    """Where keys or values differed after ``first_step``, if they did."""
    cost: Cost
    """Counted from the steps' integers."""
    counted: Cost | None
    """Counted by the native core while it ran them; None on another backend."""
    seconds: float
    """Of the model's work."""

    @property
    def as_expected(self) -> bool:
        """Equal where it had to be, or broken where it had to be, or not reached."""
        return self.verdict == "not reached" or (self.verdict == "broken") != self.equal


@dataclass(frozen=True, slots=True)
class Comparison:
    """The cached run, and the others beside it."""

    prompt_tokens: int
    token_ids: tuple[int, ...]
    """Tokens generated."""
    cached: Outcome
    variants: tuple[Outcome, ...]

    @property
    def as_expected(self) -> bool:
        """Whether everything is as the laws say."""
        return self.cached.as_expected and all(outcome.as_expected for outcome in self.variants)


def variants_of(names: Iterable[str]) -> tuple[Variant, ...]:
    """Variants by their names, ``all`` for every one; raises ``UsageError`` naming one that is unknown."""
    found: list[Variant] = []
    for name in names:
        if name != "all" and name not in VARIANTS:
            raise UsageError(f"there is no variant {name!r}; there are {', '.join(VARIANTS)}, and all")
        found += VARIANTS.values() if name == "all" else (VARIANTS[name],)
    return tuple(dict.fromkeys(found))


def compare(
    session: Session,
    prompt: str | Sequence[int],
    names: Iterable[str] = ("all",),
    **options: Any,
) -> Comparison:
    """Runs a generation and then, beside it, the variants of these names; options are those of ``Session.request``.

    The session must have been loaded with ``whole_context`` and room for ``TEXTS`` generations, and be idle.

    Raises ``UsageError`` if it has no room or is busy, or a name is unknown, and whatever ``generate`` raises.
    """
    return compare_request(session, session.request(prompt, **options), names)


def compare_request(session: Session, request: Request, names: Iterable[str], watch: Watch | None = None) -> Comparison:
    """As ``compare``, for what is asked already: its seed, too, which without one given is another in each request."""
    variants = variants_of(names)
    check_room(session, request)
    state = finished(session.new_engine(), request)
    if state.error is not None:
        raise state.error
    run = _CachedRun(session, request, tuple(state.ids), len(state.tokens) + (state.finish_reason == "stop"))
    cached = _Comparing(run).run(CACHED)
    outcomes = tuple(_Comparing(run, watch).run(variant) for variant in variants)
    return Comparison(len(request.prompt), run.ids[len(request.prompt) :], cached, outcomes)


@dataclass(frozen=True, slots=True)
class _CachedRun:
    """What the engine did."""

    session: Session
    request: Request
    ids: tuple[int, ...]
    """Prompt and reply."""
    turns: int
    """Tokens chosen, a stop id included."""


class _Comparing:
    """The cached loop and a variant beside it, turn by turn."""

    def __init__(self, run: _CachedRun, watch: Watch | None = None) -> None:
        self._run = run
        self._watch = watch
        self._model = run.session.model
        self._cost = NOTHING
        self._counted: Cost | None = None
        self._seconds = 0.0
        self._exact = isinstance(self._model, NativeModel)
        self._largest = 0.0
        self._beyond = False
        self._first_step: int | None = None
        self._first_token: int | None = None
        self._margin: float | None = None
        self._difference: KVDifference | None = None

    def run(self, variant: Variant) -> Outcome:
        """Runs all turns of both."""
        run, model = self._run, self._model
        right, mine, other = (PagedText(model.store, run.session.new_tables()) for _ in range(TEXTS))
        prompt = run.request.prompt
        stranger = Stranger(other, (*prompt[:0:-1], (prompt[-1] + 1) % run.session.limits.vocab))
        try:
            for number in range(run.turns):
                end = len(prompt) + number
                turn = Turn(run.ids[:end], end - 1 if number else 0)
                expected = self._logits(CACHED.make(right, turn, stranger)).copy()
                steps = variant.make(mine, turn, stranger)
                start = time.perf_counter()
                got = self._measured(steps)
                choice = self._choice(turn, got)
                if self._watch is not None:
                    self._watch(variant.name, _record(steps[-1], got, choice, time.perf_counter() - start))
                self._hold(number, turn, expected, got, choice)
                if self._first_step == number:
                    self._difference = first_difference(mine, right, end, 0.0 if self._exact else KV_TOLERANCE)
        finally:
            for text in (right, mine, other):
                text.close()
        layout = model.store.layout
        windows = [layout.groups[group].window for group in layout.group_of]
        return self._outcome(variant, reached=variant.reached(len(prompt), run.turns, windows))

    def _logits(self, steps: Sequence[StepInput]) -> Float32:
        """[V] after the last of the steps, valid until the model's next."""
        for step in steps:
            logits = self._model.forward(step)
        row: Float32 = logits[0]
        return row

    def _measured(self, steps: Sequence[StepInput]) -> Float32:
        """As ``_logits``; only the last step is the variant's own."""
        *others, own = steps
        for step in others:
            self._model.forward(step)
        self._cost += cost_of(own, self._model.config, self._model.store)
        before, start = counted(self._model), time.perf_counter()
        row = self._logits((own,))
        self._seconds += time.perf_counter() - start
        after = counted(self._model)
        if before is not None and after is not None:
            self._counted = (self._counted or NOTHING) + (after - before)
        return row

    def _hold(self, number: int, turn: Turn, expected: Float32, got: Float32, choice: Choice | None) -> None:
        """Holds a turn's logits against those of the cached loop, and what would be chosen against what was."""
        if got.tobytes() != expected.tobytes():
            off = float(np.abs(got - expected).max())
            off = off if math.isfinite(off) else math.inf
            self._largest = max(self._largest, off)
            self._beyond = self._beyond or off > LOGIT_TOLERANCE * max(float(np.std(expected)), 1.0)
            if self._first_step is None:
                second, first = np.partition(expected, -2)[-2:]
                self._first_step, self._margin = number, float(first - second)
        ended = len(turn.ids) == len(self._run.ids)  # by a stop id, which is no part of the text
        right = _token(self._choice(turn, expected)) if ended else self._run.ids[len(turn.ids)]
        if self._first_token is None and _token(choice) != right:
            self._first_token = number

    def _choice(self, turn: Turn, logits: Float32) -> Choice | None:
        """What would be chosen; None where nothing can be."""
        request = self._run.request
        history = History(turn.ids, len(request.prompt))
        try:
            return sample(
                logits,
                request.params,
                history,
                self._run.session.limits.vocab,
                stop_ids=request.stop_ids,
                constraint=request.constraint,
            )
        except NumericError:
            return None

    def _outcome(self, variant: Variant, *, reached: bool) -> Outcome:
        verdict: Verdict = "identical bits"
        if not reached:
            verdict = "not reached"
        elif self._first_step is not None:
            verdict = "broken" if self._exact or self._beyond else "rounding"
        return Outcome(
            name=variant.name,
            about=variant.about,
            equal=variant.equal,
            verdict=verdict,
            same_text=self._first_token is None,
            first_step=self._first_step,
            first_token=self._first_token,
            max_abs_difference=self._largest,
            margin=self._margin,
            difference=self._difference,
            cost=self._cost,
            counted=self._counted,
            seconds=self._seconds,
        )


def _token(choice: Choice | None) -> int | None:
    return None if choice is None else choice.token.token_id


def _record(step: StepInput, logits: Float32, choice: Choice | None, seconds: float) -> StepRecord:
    """A turn as an engine would tell of it."""
    first = int(step.last_key[0, -1]) + 1 - step.rows
    plan = StepPlan((SequencePlan(0, first, step.rows, samples=True),))
    choices = () if choice is None else (choice,)
    return StepRecord(plan, step, Logits(logits[None]), (choices,), seconds)

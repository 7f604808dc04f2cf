"""Random mixes of requests on random tiny models, and what each of them gives alone.

A case is made of a seed and nothing else. Its engine has few pages, filled with NaN beforehand; requests arrive at
random steps, wait, are cut into pieces, make room for one another, begin again, share pages with texts that begin
alike, go on from one another's replies, branch from one another at any token, are scored, and are cancelled.
``run_case`` raises ``AssertionError`` unless each token and log-probability is that of the request alone, from empty
pages. Some ask for no log-probabilities, so that the model may keep most logits to itself; alone they do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from tests.laws.company_models import CONTEXT, MOST_ROWS, SPARE, VOCAB, drawn_number, native_model
from tests.laws.company_params import drawn_constraint, drawn_params

from cabochon.engine.engine import Engine
from cabochon.engine.request import Limits, Request, RequestState
from cabochon.kvcache.pages import PagePool, plan_pages
from cabochon.kvcache.prefix import PrefixCache
from cabochon.model.model import Model
from cabochon.sampling.constraint import Constraint
from cabochon.testing.steps import poison
from cabochon.types import PAGE, SamplingParams, TokenOut

Same = Callable[[str, RequestState, RequestState], None]
"""Raises ``AssertionError``, beginning with the words, unless a request gave in company what it gives alone."""


@dataclass
class Planned:
    """A request of a case; its prompt is known when what it goes on from has ended."""

    begins: tuple[int, ...]
    own: tuple[int, ...]
    after: int | None
    """The number of the request whose whole text it goes on from."""
    like: int | None
    """The number of the request whose text it begins with, as far as that has come."""
    branch: float | None
    """Which part of that text, in 0 ... 1; None for its prompt and nothing else."""
    forked: bool
    """It says so."""
    scored: bool
    """Log-probabilities of its prompt are asked for."""
    silent: bool
    """No log-probabilities of its tokens are."""
    messages: tuple[float, ...]
    """Where messages end in its prompt, in 0 ... 1."""
    full_pages: bool
    """Its prompt is cut to full pages."""
    arrives: int
    cancelled: int | None
    params: SamplingParams
    max_tokens: int
    stop_ids: frozenset[int]
    constraint: Constraint | None
    loop_guard: int
    tenant: str


def planned(draw: Random) -> list[Planned]:
    """The requests of a case; every second one begins as another does, or goes on from it."""

    def ids(n: int) -> tuple[int, ...]:
        return tuple(draw.randint(3, 130) for _ in range(n))

    beginnings = [ids(n) for n in (33, 64, 90)]
    plans = []
    for number in range(draw.randint(1, 6)):
        after = draw.randrange(number) if number and draw.random() < 0.3 else None
        like = draw.randrange(number) if number and after is None and draw.random() < 0.4 else None
        begins = draw.choice(beginnings) if after is None and draw.random() < 0.7 else ()
        params, max_tokens, loop_guard = drawn_params(draw, VOCAB), draw.randint(1, 12), 0
        if draw.random() < 0.03:
            # Of a greedy reply of these models a loop is what often comes.
            params, max_tokens, loop_guard = SamplingParams(temperature=0.0), 90, 2
        constraint, min_tokens = drawn_constraint(draw, VOCAB), draw.choice([0, 0, 3, 9])
        silent = draw.random() < 0.4
        if silent and draw.random() < 0.7:
            params, constraint, min_tokens = SamplingParams(temperature=0.0), None, 0
        scored = draw.random() < 0.1
        if scored and draw.random() < 0.3:
            max_tokens = 0
        plans.append(
            Planned(
                begins=begins[: draw.choice([len(begins), draw.randint(0, len(begins))])],
                own=ids(draw.randint(1, 20)),
                after=after,
                like=like,
                branch=draw.choice([None, draw.random()]),
                forked=draw.random() < 0.8,
                scored=scored,
                silent=silent,
                messages=tuple(draw.random() for _ in range(draw.choice([0, 0, 0, 2]))),
                full_pages=draw.random() < 0.1,
                arrives=draw.choice([0, draw.randint(0, 60)]),
                cancelled=draw.randint(0, 40) if draw.random() < 0.2 else None,
                params=replace(params, min_tokens=min(max_tokens, min_tokens)),
                max_tokens=max_tokens,
                stop_ids=frozenset(draw.choice([(), (7, 8, 9)])),
                constraint=constraint,
                loop_guard=loop_guard,
                tenant=draw.choice(["", "", "", "another"]),
            )
        )
    return plans


def engine_of(draw: Random, model: Model) -> Engine:
    """An engine with as few pages as can be, or a little more."""
    groups = model.store.layout.groups
    chunk = draw.choice([1, draw.randint(2, 12), draw.randint(13, MOST_ROWS)])
    spare = draw.choice([0, draw.randint(0, SPARE)])
    pools = [PagePool(pages + spare) for pages in plan_pages(groups, CONTEXT, chunk)]
    quota = draw.choice([None, None, draw.randint(1, 12)])
    prefixes = PrefixCache(groups, pools, "tiny", draw.randint(0, 8), quota) if draw.random() < 0.8 else None
    limits = Limits(CONTEXT, model.config.vocab)
    running, speculate = draw.randint(1, 5), draw.choice([0, 0, 1, 3, 8])
    return Engine(model, pools, limits, chunk=chunk, max_running=running, prefixes=prefixes, speculate=speculate)


def alone(model: Model, request: Request) -> RequestState:
    """The request by itself, from empty pages, without reuse."""
    poison(model.store)
    pools = [PagePool(pages) for pages in model.store.pages]
    engine = Engine(model, pools, Limits(CONTEXT, model.config.vocab), chunk=MOST_ROWS)
    state = engine.submit(request)
    while not engine.idle:
        engine.step()
    return state


def same(words: str, got: RequestState, want: RequestState) -> None:
    """Every token and log-probability is the same, and the end; of what was cancelled, as far as it came."""
    tokens = [TokenOut(token.token_id) for token in want.tokens] if got.request.logprobs is None else want.tokens
    for mine, right in ((got.tokens, tokens), (got.scores, want.scores)):
        if mine != (right[: len(mine)] if got.finish_reason == "cancelled" else right):
            raise AssertionError(f"{words}: {mine} is not what it gives alone, {right}")
    if got.finish_reason not in ("cancelled", want.finish_reason):
        raise AssertionError(f"{words}: ended with {got.finish_reason}, alone with {want.finish_reason}")


def run_case(
    seed: int, model_of: Callable[[int], Model] = native_model, check: Same = same, logprobs: int = 1
) -> Counter[str]:
    """Runs one case; how often things happened in it that are worth having happened."""
    draw = Random(seed)
    model = model_of(drawn_number(draw))
    plans = planned(draw)
    poison(model.store)
    engine = engine_of(draw, model)
    states = _run_together(engine, plans, logprobs)
    for number, state in states.items():
        check(f"case {seed}, request {number}", state, alone(model, replace(state.request, logprobs=logprobs)))
    tokens, steps = (sum(n) for n in zip(*((len(s.tokens), s.work.decode_steps) for s in states.values()), strict=True))
    forks = [state for number, state in states.items() if plans[number].forked and plans[number].like is not None]
    loops = sum(state.finish_reason == "loop" for state in states.values())
    happened = Counter(
        cases=1, requests=len(states), pauses=engine.pauses, loops=loops, tokens=tokens, decode_steps=steps
    )
    happened.update(
        shared=sum(state.reused > 0 for state in forks),
        copied=sum(state.reused % PAGE > 0 for state in forks),
        scores=sum(len(state.scores) for state in states.values()),
        bests=sum(len(state.tokens) for state in states.values() if state.best_only),
    )
    if engine.prefixes is not None:
        counters = engine.prefixes.counters
        happened.update(hits=counters.hits, tokens_reused=counters.tokens_reused, evictions=counters.evictions)
    return happened


def _run_together(engine: Engine, plans: list[Planned], logprobs: int) -> dict[int, RequestState]:
    states: dict[int, RequestState] = {}
    for step in range(5000):
        for number, plan in enumerate(plans):
            if number not in states and plan.arrives <= step:
                request = _request(plan, states, logprobs)
                if request is not None:
                    origin = None if plan.like is None or not plan.forked else states[plan.like]
                    states[number] = engine.submit(request, origin)
        if engine.idle and len(states) == len(plans):
            return states
        engine.step()
        engine.check_integrity()
        for number, state in states.items():
            if plans[number].cancelled == step:
                engine.cancel(state)
    raise AssertionError("the requests do not end")


def _request(plan: Planned, states: dict[int, RequestState], logprobs: int) -> Request | None:
    """The request of a plan, or None while what it needs of another is not known."""
    before: tuple[int, ...] = (2, *plan.begins)
    if plan.after is not None:
        earlier = states.get(plan.after)
        if earlier is None or earlier.finish_reason is None:
            return None
        before = tuple(earlier.ids)
    room = CONTEXT - 1 - len(plan.own)
    prompt = (*before[:room], *plan.own)
    if plan.like is not None:
        earlier = states.get(plan.like)
        if earlier is None:
            return None
        prompt = earlier.request.prompt
        if plan.branch is not None:
            prompt = (*earlier.ids[: 1 + round(plan.branch * (len(earlier.ids) - 1))][:room], *plan.own)
    if plan.full_pages:
        prompt = prompt[: len(prompt) // PAGE * PAGE] or prompt
    return Request(
        prompt,
        plan.params,
        plan.max_tokens,
        plan.stop_ids,
        logprobs=None if plan.silent else logprobs,
        tenant=plan.tenant,
        constraint=plan.constraint,
        loop_guard=plan.loop_guard,
        prompt_logprobs=logprobs if plan.scored else None,
        message_ends=tuple(1 + int(end * len(prompt)) for end in sorted(plan.messages)),
    )

"""Law 2: a request gives what it gives alone, whatever runs beside it, and law 7: nothing is lost on the way.

Random mixes of requests go through an engine with few pages: they wait, are cut into pieces, make room for one another,
begin again, share pages with texts that begin alike, and are cancelled. The model (``testing/fake_model.py``) notices
one wrong key; what must come out is computed from the ids alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.engine.engine import Engine, pools_for
from cabochon.engine.request import Limits, Request, RequestState
from cabochon.kvcache.pages import plan_pages
from cabochon.kvcache.prefix import PrefixCache
from cabochon.model.layout import kv_layout
from cabochon.sampling.sampler import sample
from cabochon.testing.fake_model import FakeModel
from cabochon.testing.tiny import tiny_config
from cabochon.types import SamplingParams, TokenOut

CONTEXT = 200
STOP = 5


@dataclass(frozen=True)
class Plan:
    """One request of a mix."""

    request: Request
    arrives: int
    """Before which step."""
    cancelled: int | None
    """After how many steps of the engine, if ever."""


def expected(model: FakeModel, request: Request) -> list[TokenOut]:
    """The tokens of a request alone, without pages or steps."""
    ids, tokens = list(request.prompt), list[TokenOut]()
    while len(tokens) < request.max_tokens:
        token = sample(model.expected_logits(ids), request.params, len(ids), model.config.vocab, request.logprobs)
        if token.token_id in request.stop_ids:
            break
        tokens.append(token)
        ids.append(token.token_id)
    return tokens


@st.composite
def mixes(draw: st.DrawFn) -> list[Plan]:
    """Requests of which many begin alike."""
    beginnings = [draw(st.lists(st.integers(6, 20), min_size=n, max_size=n)) for n in (0, 34, 100)]
    plans = []
    for number in range(draw(st.integers(1, 7))):
        begins = draw(st.sampled_from(beginnings))
        own = draw(st.lists(st.integers(6, 360), min_size=1, max_size=60))
        params = SamplingParams(
            temperature=draw(st.sampled_from([0.0, 0.7, 1.5])), top_k=draw(st.sampled_from([0, 3, 40])), seed=number
        )
        request = Request(
            prompt=(2, *begins[: draw(st.integers(0, len(begins)))], *own),
            params=params,
            max_tokens=draw(st.integers(1, 40)),
            stop_ids=frozenset(draw(st.sampled_from([(), (STOP,)]))),
            logprobs=draw(st.sampled_from([None, 2])),
            tenant=draw(st.sampled_from(["", "a"])),
        )
        cancelled = draw(st.none() | st.integers(0, 60)) if draw(st.booleans()) else None
        plans.append(Plan(request, draw(st.integers(0, 40)), cancelled))
    return plans


@st.composite
def engines(draw: st.DrawFn) -> Engine:
    """A model of random shape, and an engine over as few pages as can be, or some more."""
    config = tiny_config(
        layers=draw(st.integers(1, 7)),
        pattern=draw(st.integers(1, 4)),
        window=draw(st.integers(4, 40)),
        kv_heads=draw(st.sampled_from([1, 2, 4])),
    )
    groups = kv_layout(config).groups
    chunk, running = draw(st.integers(1, 80)), draw(st.integers(1, 5))
    spare = draw(st.integers(0, 12))
    model = FakeModel(config, pages=[pages + spare for pages in plan_pages(groups, CONTEXT, chunk)])
    pools = pools_for(model.store)
    prefixes = PrefixCache(groups, pools, "fake", draw(st.integers(0, 9))) if draw(st.booleans()) else None
    limits = Limits(CONTEXT, config.vocab)
    return Engine(model, pools, limits, chunk=chunk, max_running=running, prefixes=prefixes)


def run_mix(engine: Engine, plans: list[Plan]) -> list[RequestState]:
    """Every request, submitted and cancelled when its plan says so."""
    states: dict[int, RequestState] = {}
    for step in range(3000):
        for number, plan in enumerate(plans):
            if plan.arrives <= step and number not in states:
                states[number] = engine.submit(plan.request)
        if len(states) == len(plans) and engine.idle:
            return [states[number] for number in range(len(plans))]
        engine.step()
        engine.check_integrity()
        for number, state in states.items():
            if plans[number].cancelled == step:
                engine.cancel(state)
    raise AssertionError("the requests do not end")


@settings(deadline=None, max_examples=200)
@given(engine=engines(), plans=mixes())
def test_company_changes_nothing(engine: Engine, plans: list[Plan]) -> None:
    plans = [replace(plan, request=engine.limits.check(plan.request)) for plan in plans]
    states = run_mix(engine, plans)
    for plan, state in zip(plans, states, strict=True):
        alone = expected(engine._model, plan.request)  # type: ignore[arg-type]
        if state.finish_reason == "cancelled":
            assert state.tokens == alone[: len(state.tokens)]
        else:
            assert state.tokens == alone
            assert state.finish_reason == ("length" if len(alone) == plan.request.max_tokens else "stop")

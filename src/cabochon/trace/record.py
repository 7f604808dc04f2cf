"""A run of the engine, recorded: several prompts together, and other ways to make the steps beside the first."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

from msgspec.structs import replace

from cabochon.engine.engine import Engine
from cabochon.engine.request import Request, RequestState
from cabochon.errors import UsageError
from cabochon.model.native_model import NativeModel
from cabochon.session.session import Session
from cabochon.text.detokenizer import Detokenizer
from cabochon.trace.against import Outcome, compare_request, variants_of
from cabochon.trace.attention import attention_of
from cabochon.trace.choices import LISTED
from cabochon.trace.costs import cost_of, counted, position_bytes, recomputing
from cabochon.trace.recorder import Recorded, Recorder
from cabochon.trace.trace import (
    NOTHING,
    VERSION,
    End,
    FirstDifference,
    Header,
    LayerGroup,
    ModelFacts,
    Prompt,
    SequenceEnd,
    Step,
    Trace,
    VariantRun,
)
from cabochon.trace.verify import check_idle
from cabochon.types import PAGE, SamplingParams

LISTED_OF_VARIANTS = 10
"""Candidates listed of each choice of a variant."""

_OFF = asdict(SamplingParams())
_ALWAYS = ("temperature", "top_k", "top_p", "min_p", "order")
"""Sampling parameters that are told even where they are as always."""


def record(
    session: Session,
    prompts: Sequence[str | Sequence[int]],
    *,
    against: Iterable[str] = (),
    attention: Iterable[int] | Literal["all"] = (),
    fingerprint: bool = False,
    speculate: int = 0,
    **options: Any,
) -> Trace:
    """Generates from all ``prompts`` together and writes every step down; options are those of ``Session.request``.

    ``against`` names variants (``variants.py``) that are then run beside the first prompt; the session must be one that
    ``compare`` can use. ``attention`` names layers, or ``all``, whose attention weights are recorded; the session must
    have been loaded with ``keep_queries`` for them. With ``fingerprint`` the header has the model's, for which its file
    is read once more.

    Raises ``UsageError`` if there is no prompt, the session is busy, or a variant is unknown, and whatever ``generate``
    raises.
    """
    if not prompts:
        raise UsageError("there is no prompt; give at least one")
    check_idle(session)
    names = [variant.name for variant in variants_of(against)]
    requests = [session.request(prompt, **options) for prompt in prompts]
    pieces = {i: session.tokenizer.piece(i) for request in requests for i in request.prompt}
    model, recorder = session.model, recorder_of(session, pieces)
    layers = range(model.config.layers) if attention == "all" else sorted(set(attention))
    if layers:
        recorder.attention_of = lambda step: attention_of(model, step, layers)
    engine = session.new_engine(recorder, max_running=len(requests), speculate=speculate)
    before, start = counted(model), time.perf_counter()
    states = _run(engine, requests, recorder)
    seconds, after = time.perf_counter() - start, counted(model)
    steps = tuple(_with_texts(recorder.steps(), states, session))
    header = Header(VERSION, _facts(session, fingerprint), PAGE, tuple(map(_prompt, requests)), pieces)
    variants = tuple(_variants(session, requests[0], names, recorder.named)) if names else ()
    end = End(
        sequences=tuple(_end(state, session) for state in states),
        cost=sum((step.cost for step in steps), NOTHING),
        counted=None if before is None or after is None else after - before,
        recomputing=sum(
            (recomputing(len(s.request.prompt), _turns(s), model.config, model.store) for s in states), NOTHING
        ),
        seconds=round(seconds, 6),
    )
    return Trace(header, steps, variants, end)


def recorder_of(session: Session, named: Iterable[int] = (), listed: int = LISTED) -> Recorder:
    """A recorder for an engine of the session; its ``sequences`` are yet to be given. ``named`` ids have names."""
    model = session.model
    return Recorder(
        sequences={},
        cost_of=lambda step: cost_of(step, model.config, model.store),
        piece=session.tokenizer.piece,
        listed=listed,
        named=set(named),
    )


def _run(engine: Engine, requests: Sequence[Request], recorder: Recorder) -> list[RequestState]:
    """All requests, together, to their ends."""
    states = []
    try:
        for index, request in enumerate(requests):
            states.append(engine.submit(request))
            recorder.sequences[states[-1].number] = Recorded(index, len(request.prompt), request.params.temperature)
        while not engine.idle:
            engine.step()
    finally:
        engine.cancel_all()
    for state in states:
        if state.error is not None:
            raise state.error
    return states


def _with_texts(steps: Iterable[Step], states: Sequence[RequestState], session: Session) -> Iterator[Step]:
    """The steps with what each choice added to its text, and with the reason for which the last one ended it."""
    texts = [_text(state, session) for state in states]
    for step in steps:
        shares = []
        for share in step.shares:
            # What guesses brought after the end is of no text.
            choices = tuple(
                replace(choice, **told) for choice, told in zip(share.choices, texts[share.sequence], strict=False)
            )
            shares.append(replace(share, choices=choices))
        yield replace(step, shares=tuple(shares))


def _text(state: RequestState, session: Session) -> Iterator[dict[str, str | None]]:
    """For each choice of a sequence, in order, its text and end."""
    detokenizer, last = Detokenizer(session.tokenizer), len(state.tokens) - 1
    stopped = state.finish_reason == "stop"
    for number, token in enumerate(state.tokens):
        text, ends = detokenizer.push(token.token_id), number == last and not stopped
        yield {"text": text + detokenizer.flush() if ends else text, "ends": state.finish_reason if ends else None}
    if stopped:
        yield {"text": detokenizer.flush(), "ends": "stop"}


def _variants(session: Session, request: Request, names: Sequence[str], named: set[int]) -> Iterator[VariantRun]:
    recorders = {name: recorder_of(session, named, LISTED_OF_VARIANTS) for name in names}
    for recorder in recorders.values():
        recorder.sequences[0] = Recorded(0, len(request.prompt), request.params.temperature)
    comparison = compare_request(session, request, names, lambda name, record: recorders[name](record))
    for outcome in comparison.variants:
        steps = tuple(recorders[outcome.name].steps())
        pieces = {i: piece for step in steps for i, piece in step.pieces.items()}
        yield _variant(outcome, tuple(replace(step, pieces={}) for step in steps), pieces)


def _variant(outcome: Outcome, steps: tuple[Step, ...], pieces: dict[int, str]) -> VariantRun:
    at, off = outcome.difference, outcome.max_abs_difference
    return VariantRun(
        variant=outcome.name,
        about=outcome.about,
        equal=outcome.equal,
        verdict=outcome.verdict,
        as_expected=outcome.as_expected,
        same_text=outcome.same_text,
        first_step=outcome.first_step,
        first_token=outcome.first_token,
        max_abs_difference=off if math.isfinite(off) else None,
        margin=outcome.margin,
        difference=None if at is None else FirstDifference(at.layer, at.what, at.position),
        cost=outcome.cost,
        seconds=round(outcome.seconds, 6),
        steps=steps,
        pieces=pieces,
    )


def _facts(session: Session, fingerprint: bool) -> ModelFacts:
    model = session.model
    config, store = model.config, model.store
    return ModelFacts(
        name=session.name,
        architecture=config.architecture,
        fingerprint=session.fingerprint() if fingerprint else None,
        layers=config.layers,
        hidden=config.hidden,
        heads=config.heads,
        vocab=config.vocab,
        final_softcap=config.final_softcap,
        attn_softcap=config.attn_softcap,
        groups=tuple(
            LayerGroup(g.window, g.layers, g.kv_heads, g.head_dim, position_bytes(g, store.kv_type))
            for g in store.layout.groups
        ),
        kv_type=store.kv_type,
        backend="native" if isinstance(model, NativeModel) else "torch",
    )


def _prompt(request: Request) -> Prompt:
    params = request.params
    changed = {name: value for name, value in asdict(params).items() if name in _ALWAYS or value != _OFF[name]}
    plain = {name: value if isinstance(value, int | float | str) else str(value) for name, value in changed.items()}
    return Prompt(request.prompt, plain, params.seed, request.max_tokens)


def _end(state: RequestState, session: Session) -> SequenceEnd:
    ids = tuple(token.token_id for token in state.tokens)
    return SequenceEnd(ids, session.tokenizer.decode(ids), str(state.finish_reason))


def _turns(state: RequestState) -> int:
    """Tokens chosen, a stop id included."""
    return len(state.tokens) + (state.finish_reason == "stop")

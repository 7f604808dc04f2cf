"""The engine on a model that tells what each row saw (``testing/fake_model.py``)."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.engine.batch import SequenceRows, build_step
from cabochon.engine.engine import Engine, Observer, pools_for
from cabochon.engine.one_pass import one_pass
from cabochon.engine.request import Limits, Request, RequestState
from cabochon.engine.scheduler import SCORED_ROWS
from cabochon.errors import ContextLengthError, NumericError, QueueFullError, UsageError
from cabochon.events import StepPlan, StepRecord
from cabochon.kvcache.groups import group_layers
from cabochon.kvcache.pages import PagePool, PageTable
from cabochon.kvcache.prefix import PrefixCache
from cabochon.sampling.history import History
from cabochon.sampling.sampler import sample, with_logprobs
from cabochon.testing.fake_model import FakeModel
from cabochon.testing.steps import StepMaker
from cabochon.types import PAGE, Float32, SamplingParams, StepInput, TokenOut

CONTEXT = 256
PARAMS = SamplingParams(seed=11)


def engine_of(
    model: FakeModel,
    *,
    context: int = CONTEXT,
    chunk: int = 32,
    vocab: int | None = None,
    observer: Observer | None = None,
) -> Engine:
    limits = Limits(context, vocab or model.config.vocab)
    return Engine(model, pools_for(model.store), limits, chunk=chunk, observer=observer)


def run(engine: Engine, state: RequestState) -> RequestState:
    for _ in range(2000):
        engine.check_integrity()
        if state.finish_reason is not None:
            return state
        engine.step()
    raise AssertionError("the request does not end")


def expected_tokens(model: FakeModel, request: Request) -> list[TokenOut]:
    """What must come out, from the definition: no pages, no steps."""
    ids = list(request.prompt)
    tokens: list[TokenOut] = []
    while len(tokens) < request.max_tokens:
        history = History(ids, len(request.prompt))
        token = sample(model.expected_logits(ids), request.params, history, model.config.vocab, request.logprobs).token
        if token.token_id in request.stop_ids:
            break
        tokens.append(token)
        ids.append(token.token_id)
    return tokens


def prompt_of(length: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(0, 367, length).tolist())


# ---- What is asked of the model -----------------------------------------------------------------------------------

GREEDY = replace(PARAMS, temperature=0.0)


class EveryOther:
    """Allows even ids."""

    def allowed(self, chosen: Sequence[int]) -> Any:
        return np.arange(367) % 2 == 0


@pytest.mark.parametrize(
    ("params", "others", "only_best"),
    [
        (GREEDY, {}, True),
        (replace(PARAMS, top_k=1), {}, True),
        (replace(GREEDY, top_p=0.5, min_p=0.3, typical_p=0.7, xtc_probability=1.0), {}, True),
        (GREEDY, {"stop_ids": frozenset((5,)), "loop_guard": 3}, True),
        (PARAMS, {}, False),
        (GREEDY, {"logprobs": 0}, False),
        (GREEDY, {"constraint": EveryOther()}, False),
        (replace(GREEDY, min_tokens=2), {}, False),
        (replace(GREEDY, bad_words=((1, 2),)), {}, False),
        (replace(GREEDY, logit_bias=((7, 3.0),)), {}, False),
        (replace(GREEDY, repetition_penalty=1.1), {}, False),
        (replace(GREEDY, presence_penalty=0.1), {}, False),
        (replace(GREEDY, frequency_penalty=0.1), {}, False),
        (replace(GREEDY, dry_multiplier=0.5), {}, False),
    ],
)
def test_the_model_is_asked_for_no_more_than_a_request_looks_at(
    params: SamplingParams, others: dict[str, Any], *, only_best: bool
) -> None:
    for observed, vocab in ((False, None), (True, None), (False, 300)):
        model = FakeModel(context=CONTEXT, chunk=32)
        observer = (lambda record: None) if observed else None
        if vocab and "constraint" in others:
            continue  # its mask is of the other vocabulary
        engine = engine_of(model, vocab=vocab, observer=observer)
        request = Request(tuple(range(40)), params, 6, **others)
        run(engine, engine.submit(request))
        bests, logits = (sum(len(rows) for rows in kind) for kind in _wanted(model))
        assert (bests > 0, logits > 0) == ((True, False) if only_best and not observed and not vocab else (False, True))


def _wanted(model: FakeModel) -> tuple[list[Any], list[Any]]:
    return [step.best_rows for step in model.steps], [step.logit_rows for step in model.steps]


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_requests_that_look_at_more_and_less_share_steps(data: st.DataObject) -> None:
    chunk = data.draw(st.integers(3, 40))
    kinds = data.draw(st.lists(st.sampled_from((GREEDY, PARAMS)), min_size=2, max_size=4))
    model = FakeModel(pages=(60, 60), context=CONTEXT, chunk=chunk)
    limits = Limits(CONTEXT, model.config.vocab)
    engine = Engine(model, pools_for(model.store), limits, chunk=chunk, max_running=4, speculate=3)
    requests = [
        Request(prompt_of(data.draw(st.integers(1, 60)), seed), replace(params, seed=seed), 9, logprobs=logprobs)
        for seed, (params, logprobs) in enumerate((params, data.draw(st.sampled_from((None, 1)))) for params in kinds)
    ]
    states = [engine.submit(request) for request in requests]
    for state, request in zip(states, requests, strict=True):
        assert run(engine, state).tokens == expected_tokens(model, request)


def test_a_best_id_that_is_none_ends_the_request() -> None:
    model = FakeModel(context=CONTEXT, chunk=32)
    real = model.head
    # Put in its place for the test.
    model.head = lambda hidden: np.where(np.arange(367) == 9, np.float32(np.inf), real(hidden))  # type: ignore[method-assign]
    engine = engine_of(model)
    state = engine.submit(Request(prompt_of(40), GREEDY, 5))
    with_logits = engine.submit(Request(prompt_of(40), GREEDY, 5, logprobs=0))
    for ended in (state, with_logits):
        run(engine, ended)
        assert ended.finish_reason == "error"
    assert isinstance(state.error, NumericError)
    assert str(state.error) == str(with_logits.error)


# ---- What comes out ---------------------------------------------------------------------------------------------


@given(
    length=st.integers(1, 150), chunk=st.integers(1, 70), max_tokens=st.integers(1, 60), seed=st.integers(0, 2**64 - 1)
)
@settings(max_examples=40, deadline=None)
def test_tokens_are_those_of_the_definition(length: int, chunk: int, max_tokens: int, seed: int) -> None:
    model = FakeModel(context=CONTEXT, chunk=chunk)
    engine = engine_of(model, chunk=chunk)
    request = Request(prompt_of(length), replace(PARAMS, seed=seed), max_tokens, logprobs=2)
    state = run(engine, engine.submit(request))
    assert state.tokens == expected_tokens(model, request)
    assert state.finish_reason == "length"
    assert engine.idle
    # No row is run twice, and the last token not at all.
    assert model.rows_run == length + max_tokens - 1
    assert max(step.rows for step in model.steps) <= chunk


def test_only_rows_that_need_logits_ask_for_them() -> None:
    model = FakeModel(chunk=8)
    engine = engine_of(model, chunk=8)
    run(engine, engine.submit(Request(prompt_of(21), PARAMS, 3)))
    assert [step.rows for step in model.steps] == [8, 8, 5, 1, 1]
    assert [step.logit_rows.tolist() for step in model.steps] == [[], [], [4], [0], [0]]


def test_requests_run_one_after_the_other_in_order_of_arrival() -> None:
    model = FakeModel()
    engine = engine_of(model)
    requests = [Request(prompt_of(40 + n, seed=n), replace(PARAMS, seed=n), 5) for n in range(3)]
    states = [engine.submit(request) for request in requests]
    run(engine, states[1])
    assert [state.phase for state in states] == ["finished", "finished", "waiting"]
    run(engine, states[2])
    for request, state in zip(requests, states, strict=True):
        assert state.tokens == expected_tokens(model, request)


def test_a_request_that_made_room_begins_anew() -> None:
    model = FakeModel()  # pages for one text of the whole context
    engine = forking_engine(model)
    requests = [Request(prompt_of(100, seed=n), replace(PARAMS, seed=n), 60) for n in range(3)]
    states = [engine.submit(request) for request in requests]
    for _ in range(1000):
        engine.step()
        engine.check_integrity()
    assert engine.idle
    assert engine.pauses
    for request, state in zip(requests, states, strict=True):
        assert state.tokens == expected_tokens(model, request)


def test_events_tell_each_token_once_and_the_end_once() -> None:
    engine = engine_of(FakeModel(chunk=8), chunk=8)
    state = engine.submit(Request(prompt_of(21), PARAMS, 3))
    events = [engine.step() for _ in range(6)]
    assert [len(step) for step in events] == [0, 0, 1, 1, 1, 0]
    flat = [event for step in events for event in step]
    assert [event.token for event in flat] == state.tokens
    assert [event.finish_reason for event in flat] == [None, None, "length"]
    assert {event.request for event in flat} == {state.number}


def test_an_idle_engine_does_nothing() -> None:
    model = FakeModel()
    engine = engine_of(model)
    assert engine.step() == ()
    assert engine.idle
    assert model.steps == []


# ---- The end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [106, 1])
def test_any_stop_id_ends_the_text_before_it(stop: int) -> None:
    model = FakeModel(script={13: 50, 14: 51, 15: stop, 16: 52})
    engine = engine_of(model)
    state = run(engine, engine.submit(Request(prompt_of(13), PARAMS, 20, stop_ids=frozenset({1, 106}), logprobs=0)))
    assert [token.token_id for token in state.tokens] == [50, 51]
    assert state.finish_reason == "stop"


def test_without_stop_ids_generation_goes_on() -> None:
    model = FakeModel(script={13: 1, 14: 1})
    engine = engine_of(model)
    state = run(engine, engine.submit(Request(prompt_of(13), PARAMS, 4)))
    assert [token.token_id for token in state.tokens][:2] == [1, 1]
    assert (len(state.tokens), state.finish_reason) == (4, "length")


def test_a_stop_id_at_once_gives_no_tokens() -> None:
    engine = engine_of(FakeModel(script={13: 1}))
    state = run(engine, engine.submit(Request(prompt_of(13), PARAMS, 4, stop_ids=frozenset({1}))))
    assert (state.tokens, state.finish_reason) == ([], "stop")


@pytest.mark.parametrize(
    ("length", "asked", "given"), [(31, 5, 1), (30, 10, 2), (30, 2, 2), (22, 10, 10), (1, 10**9, 31)]
)
def test_the_context_cuts_max_tokens(length: int, asked: int, given: int) -> None:
    engine = engine_of(FakeModel(context=32), context=32)
    state = run(engine, engine.submit(Request(prompt_of(length), PARAMS, asked)))
    assert (len(state.tokens), state.finish_reason) == (given, "length")


@pytest.mark.parametrize("length", [32, 33, 1000])
def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers(length: int) -> None:
    engine = engine_of(FakeModel(context=32), context=32)
    with pytest.raises(ContextLengthError, match=rf"{length} tokens.*context of 32"):
        engine.submit(Request(prompt_of(length), PARAMS, 5))
    assert engine.idle
    assert run(engine, engine.submit(Request(prompt_of(3), PARAMS, 1))).finish_reason == "length"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"prompt": ()}, "prompt is empty"),
        *(({"prompt": (3, bad)}, "prompt: token id") for bad in (-1, 367, 2**31, 2**32 + 5, 1.0, "3", None, True)),
        *(({"stop_ids": frozenset({bad})}, "stop_ids: token id") for bad in (-1, 367, 2**32 + 5)),
        *(({"max_tokens": bad}, "max_tokens") for bad in (0, -1, 1.5, "5", None, math.nan)),
        *(({"logprobs": bad}, "logprobs") for bad in (-1, 368, 0.5, True)),
        ({"params": SamplingParams(temperature=-1)}, "temperature"),
    ],
)
def test_what_cannot_be_is_refused_and_named(change: dict[str, object], name: str) -> None:
    engine = engine_of(FakeModel())
    request = Request(prompt_of(3), PARAMS, 5)
    with pytest.raises(UsageError, match=f"^(the )?{name}"):
        engine.submit(replace(request, **change))  # type: ignore[arg-type]  # wrong on purpose
    assert engine.idle


def test_numpy_integers_are_numbers() -> None:
    model = FakeModel()
    engine = engine_of(model)
    plain = Request((5, 6, 7), PARAMS, 3, logprobs=1)
    # NumPy's own types are taken, too.
    odd = Request(tuple(np.array([5, 6, 7])), PARAMS, np.int64(3), logprobs=np.int32(1))  # type: ignore[arg-type]
    assert run(engine, engine.submit(odd)).tokens == expected_tokens(model, plain)


def test_ids_beyond_the_tokenizer_are_never_chosen() -> None:
    model = FakeModel()
    engine = engine_of(model, vocab=300)
    hot = SamplingParams(temperature=50.0, top_k=0, top_p=1.0)
    state = run(engine, engine.submit(Request((1,), hot, 200)))
    assert max(state.ids) < 300
    with pytest.raises(UsageError, match="token id"):
        engine.submit(Request((300,), PARAMS, 1))


# ---- Cancelling and failing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 9])
def test_cancel_frees_everything_at_any_moment(steps: int) -> None:
    model = FakeModel(chunk=16)
    engine = engine_of(model, chunk=16)
    state, other = (engine.submit(Request(prompt_of(40, seed=n), PARAMS, 20)) for n in range(2))
    for _ in range(steps):
        engine.step()
    engine.cancel(state)
    engine.check_integrity()
    assert (state.phase, state.finish_reason) == ("finished", "cancelled")
    assert not any(table.held for table in state.tables)
    assert run(engine, other).tokens == expected_tokens(model, other.request)
    engine.cancel(state)
    assert other.finish_reason == "length"


def test_a_waiting_request_can_be_cancelled() -> None:
    engine = engine_of(FakeModel())
    first, second = (engine.submit(Request(prompt_of(9), PARAMS, 3)) for _ in range(2))
    engine.step()
    engine.cancel(second)
    assert (second.tokens, second.finish_reason) == ([], "cancelled")
    assert len(run(engine, first).tokens) == 3


class FailingModel(FakeModel):
    """Raises in its third step, or makes a logit that is no number there."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__(chunk=16)
        self.error = error

    def forward(self, step: StepInput) -> Float32:
        logits = super().forward(step)
        if len(self.steps) == 3:
            if self.error is not None:
                raise self.error
            logits[0, 3] = np.nan
        return logits


@pytest.mark.parametrize(("error", "kept"), [(NumericError("too large"),) * 2, (MemoryError(),) * 2, (None, None)])
def test_an_error_in_a_step_ends_its_request_and_frees_its_pages(
    error: Exception | None, kept: Exception | None
) -> None:
    model = FailingModel(error)
    engine = engine_of(model, chunk=16)
    state, other = (engine.submit(Request(prompt_of(40, seed=n), PARAMS, 20)) for n in range(2))
    engine.step()
    engine.step()
    assert [(event.request, event.finish_reason) for event in engine.step()] == [(state.number, "error")]
    engine.check_integrity()
    assert (state.phase, state.finish_reason) == ("finished", "error")
    assert state.error is kept if kept is not None else isinstance(state.error, NumericError)
    assert run(engine, other).tokens == expected_tokens(model, other.request)


class SpoiltModel(FakeModel):
    """Raises whenever a step holds a certain token, or makes its sequence's logits no numbers."""

    spoilt = 77

    def __init__(self, *, raises: bool) -> None:
        super().__init__(chunk=64, pages=(40, 40))
        self.raises = raises

    def forward(self, step: StepInput) -> Float32:
        logits = super().forward(step)
        bad = set(step.sequences[step.ids == self.spoilt].tolist())
        if bad and self.raises:
            raise NumericError("too large")
        for row, at in enumerate(step.logit_rows):
            if step.sequences[at] in bad:
                logits[row] = np.nan
        return logits


@pytest.mark.parametrize("raises", [True, False])
def test_an_error_of_one_request_is_not_its_companys(*, raises: bool) -> None:
    model = SpoiltModel(raises=raises)
    engine = Engine(model, pools_for(model.store), Limits(CONTEXT, model.config.vocab), chunk=64, max_running=3)
    prompts = [(2, 9, 8), (2, 9, SpoiltModel.spoilt), (2, 7)]
    states = [engine.submit(Request(prompt, PARAMS, 6)) for prompt in prompts]
    for state in states:
        run(engine, state)
    assert isinstance(states[1].error, NumericError)
    assert states[1].finish_reason == "error"
    for state in (states[0], states[2]):
        assert state.tokens == expected_tokens(model, state.request)


@pytest.mark.parametrize("at", range(1, 12))
def test_an_interruption_ends_all_and_the_pools_are_as_new(at: int) -> None:
    """Ctrl-C may come at any line; here it comes at one of those calls that change pages."""
    model = FakeModel(chunk=16)
    engine = engine_of(model, chunk=16)
    states = [engine.submit(Request(prompt_of(40, seed=n), PARAMS, 20)) for n in range(2)]
    calls = 0

    def interrupted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.endswith(("pages.py", "scheduler.py")):
            calls += 1
            if calls == at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def steps() -> None:
        for _ in range(100):
            engine.step()

    sys.setprofile(interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            steps()
    finally:
        sys.setprofile(None)
    assert [state.finish_reason for state in states] == ["cancelled"] * 2
    assert engine.idle
    engine.check_integrity()
    again = engine.submit(Request(prompt_of(40), PARAMS, 20))
    assert run(engine, again).tokens == expected_tokens(model, again.request)


def test_an_interruption_wherever_it_can_come_leaves_the_engine_usable_while_its_traceback_is_kept() -> None:
    """Python looks for signals where a function begins and where one of C's has returned."""
    model = FakeModel(chunk=64)
    request = Request(prompt_of(40), PARAMS, 2)
    expected = expected_tokens(model, request)
    for at in range(1, 2000):
        engine = engine_of(model, chunk=64)
        places = 0

        def interrupted(frame: FrameType, event: str, argument: object, at: int = at) -> None:
            nonlocal places
            if frame.f_code.co_filename.endswith(("engine.py", "scheduler.py", "contextlib.py")):
                places += event in ("call", "c_return")
                if places == at:
                    sys.setprofile(None)
                    raise KeyboardInterrupt

        kept = None
        sys.setprofile(interrupted)
        try:
            engine.advance(engine.submit(request), 1)
        except KeyboardInterrupt as error:
            kept = error
        finally:
            sys.setprofile(None)
        engine.check_integrity()
        again = engine.submit(request)
        engine.advance(again, 1)
        assert again.tokens == expected
        engine.close()
        assert engine.idle
        if kept is None:
            break
    assert 50 < at < 1999


def test_an_error_in_the_observer_ends_the_request() -> None:
    def broken(record: StepRecord) -> None:
        raise ValueError("broken")

    engine = engine_of(FakeModel(), observer=broken)
    state = engine.submit(Request(prompt_of(4), PARAMS, 20))
    engine.step()
    assert state.finish_reason == "error"
    assert isinstance(state.error, ValueError)
    assert engine.idle


def test_a_checked_request_stays_as_it_is() -> None:
    limits = Limits(20, 367)
    once = limits.check(Request(prompt_of(17), replace(PARAMS, min_tokens=8), 12))
    assert (once.max_tokens, once.params.min_tokens) == (3, 3)
    assert limits.check(once) == once


def test_a_full_line_takes_no_more() -> None:
    model = FakeModel()
    limits = Limits(CONTEXT, model.config.vocab, max_waiting=2, max_waiting_tokens=20)
    engine = Engine(model, pools_for(model.store), limits, chunk=32)
    first = engine.submit(Request(prompt_of(9), PARAMS, 3))
    with pytest.raises(QueueFullError, match="9 tokens are waiting already; 12 more would be more than the 20"):
        engine.submit(Request(prompt_of(12), PARAMS, 3))
    engine.submit(Request(prompt_of(5), PARAMS, 3))
    with pytest.raises(QueueFullError, match="2 requests are waiting already"):
        engine.submit(Request(prompt_of(1), PARAMS, 3))
    engine.step()
    assert first.phase == "running"
    engine.submit(Request(prompt_of(12), PARAMS, 3))


def test_the_observer_sees_every_step() -> None:
    seen: list[tuple[StepPlan, int, Float32]] = []
    model = FakeModel(chunk=8)
    engine = engine_of(
        model,
        chunk=8,
        observer=lambda record: seen.append((record.plan, record.step.rows, record.logits.values.copy())),
    )
    state = run(engine, engine.submit(Request(prompt_of(21), PARAMS, 3)))
    assert [rows for _, rows, _ in seen] == [8, 8, 5, 1, 1]
    for plan, rows, logits in seen:
        (share,) = plan.sequences
        assert (plan.rows, share.rows, share.request) == (rows, rows, state.number)
        assert len(logits) == share.samples
        if share.samples:
            np.testing.assert_array_equal(logits[0], model.expected_logits(state.ids[: share.end]))


def test_pools_too_small_for_the_context_are_refused() -> None:
    model = FakeModel(context=64)
    with pytest.raises(UsageError, match=r"too small.*context of 256"):
        engine_of(model, context=256)


def test_the_tokens_of_a_step_are_counted_also_where_guesses_bring_several() -> None:
    ids = [50, 51, 52, 53] * 12
    model = FakeModel(script=dict(enumerate(ids)))
    engine = Engine(model, pools_for(model.store), Limits(CONTEXT, 367), chunk=16, speculate=4)
    state = run(engine, engine.submit(Request(tuple(ids[:12]), PARAMS, 30)))
    assert state.work.decode_tokens == 29
    assert state.work.decode_steps < 15


class FailsAt:
    """A constraint that cannot say what comes after so many tokens."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def allowed(self, chosen: Sequence[int]) -> None:
        if len(chosen) >= self.tokens:
            raise NumericError("no more")


@pytest.mark.parametrize("tokens", range(4, 12))
def test_an_error_after_a_guess_comes_where_it_comes_without_guesses(tokens: int) -> None:
    ids = [50, 51, 52, 53] * 12
    model = FakeModel(script=dict(enumerate(ids)))
    engine = Engine(model, pools_for(model.store), Limits(CONTEXT, 367), chunk=16, speculate=4)
    state = run(engine, engine.submit(Request(tuple(ids[:12]), PARAMS, 30, constraint=FailsAt(tokens))))
    assert isinstance(state.error, NumericError)
    assert state.tokens == expected_tokens(model, replace(state.request, max_tokens=tokens))


def test_nothing_is_generated_from_within_a_step() -> None:
    class Asks:
        def allowed(self, chosen: Sequence[int]) -> None:
            if chosen:
                engine.advance(other, 8)

    model = FakeModel(pages=(30, 30))
    engine = Engine(model, pools_for(model.store), Limits(CONTEXT, 367), chunk=32, max_running=2)
    other = engine.submit(Request(prompt_of(50), PARAMS, 9))
    asks = run(engine, engine.submit(Request(prompt_of(40, seed=1), PARAMS, 9, constraint=Asks())))
    assert isinstance(asks.error, UsageError)
    assert len(asks.tokens) == 1
    assert run(engine, other).tokens == expected_tokens(model, other.request)


# ---- Scores ---------------------------------------------------------------------------------------------------


def expected_scores(model: FakeModel, ids: Sequence[int], top: int) -> list[TokenOut]:
    return [with_logprobs(ids[n], model.expected_logits(ids[:n]), model.config.vocab, top) for n in range(1, len(ids))]


@given(
    length=st.integers(1, 120),
    chunk=st.integers(1, 70),
    max_tokens=st.integers(0, 9),
    top=st.integers(0, 2),
    guesses=st.integers(0, 4),
)
@settings(max_examples=30, deadline=None)
def test_scores_are_those_of_the_definition(length: int, chunk: int, max_tokens: int, top: int, guesses: int) -> None:
    model = FakeModel(context=CONTEXT, chunk=chunk)
    limits = Limits(CONTEXT, model.config.vocab)
    engine = Engine(model, pools_for(model.store), limits, chunk=chunk, speculate=guesses)
    request = Request(prompt_of(length), PARAMS, max_tokens, prompt_logprobs=top)
    state = run(engine, engine.submit(request))
    assert state.scores == expected_scores(model, request.prompt, top)
    assert state.tokens == expected_tokens(model, request)
    assert state.finish_reason == "length"
    assert max(len(step.logit_rows) for step in model.steps) <= SCORED_ROWS


def test_a_text_as_long_as_the_context_can_be_scored_but_not_gone_on_with() -> None:
    model = FakeModel(context=CONTEXT)
    engine = engine_of(model)
    state = run(engine, engine.submit(Request(prompt_of(CONTEXT), PARAMS, 0, prompt_logprobs=0)))
    assert len(state.scores) == CONTEXT - 1
    with pytest.raises(ContextLengthError, match=f"{CONTEXT + 1} tokens"):
        engine.submit(Request(prompt_of(CONTEXT + 1), PARAMS, 0, prompt_logprobs=0))
    with pytest.raises(ContextLengthError, match="the token after them"):
        engine.submit(Request(prompt_of(CONTEXT), PARAMS, 1, prompt_logprobs=0))


def test_nothing_to_do_is_refused() -> None:
    with pytest.raises(UsageError, match="max_tokens"):
        engine_of(FakeModel()).submit(Request(prompt_of(4), PARAMS, 0))


def test_requests_that_score_share_the_rows_of_a_step() -> None:
    model = FakeModel(pages=(40, 40), chunk=200)
    engine = Engine(model, pools_for(model.store), Limits(CONTEXT, 367), chunk=200, max_running=4)
    requests = [Request(prompt_of(50, seed=n), PARAMS, 2, prompt_logprobs=1) for n in range(3)]
    states = [engine.submit(request) for request in requests]
    while not engine.idle:
        engine.step()
        engine.check_integrity()
    for request, state in zip(requests, states, strict=True):
        assert state.scores == expected_scores(model, request.prompt, 1)
        assert state.tokens == expected_tokens(model, request)
    assert max(len(step.logit_rows) for step in model.steps) <= SCORED_ROWS + 3


def test_a_text_in_one_pass() -> None:
    model = FakeModel(chunk=90)
    pools, ids = pools_for(model.store), prompt_of(90)
    logits = model.head(one_pass(model, pools, ids))
    assert len(model.steps) == 1
    for n in range(len(ids)):
        np.testing.assert_array_equal(logits[n], model.expected_logits(ids[: n + 1]))
    assert all(pool.free == pool.pages for pool in pools)


# ---- Forks ----------------------------------------------------------------------------------------------------


def forking_engine(model: FakeModel, chunk: int = 32, **options: Any) -> Engine:
    return Engine(model, pools_for(model.store), Limits(CONTEXT, 367), chunk=chunk, max_running=8, **options)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 70])
@pytest.mark.parametrize("reuse", [False, True])
def test_choices_of_one_prompt_run_it_once(length: int, *, reuse: bool) -> None:
    model = FakeModel(pages=(60, 60))
    groups, pools = model.store.layout.groups, pools_for(model.store)
    prefixes = PrefixCache(groups, pools, "fake", 8) if reuse else None
    engine = Engine(model, pools, Limits(CONTEXT, 367), chunk=16, max_running=8, prefixes=prefixes)
    requests = [Request(prompt_of(length), replace(PARAMS, choice=n, temperature=9.0), 20) for n in range(4)]
    first = engine.submit(requests[0])
    states = [first, *(engine.submit(request, fork_of=first) for request in requests[1:])]
    while not engine.idle:
        engine.step()
        engine.check_integrity()
    for request, state in zip(requests, states, strict=True):
        assert state.tokens == expected_tokens(model, request)
    assert len({tuple(state.ids) for state in states}) == 4
    assert [state.reused for state in states] == [0, *[length - 1] * 3]
    assert model.rows_run == length + 3 + 4 * 19


@given(steps=st.integers(1, 40), kept=st.integers(1, 120), own=st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_a_text_can_part_from_one_that_runs_at_any_token(steps: int, kept: int, own: int) -> None:
    model = FakeModel(pages=(30, 30))
    engine = forking_engine(model)
    first = engine.submit(Request(prompt_of(70), PARAMS, 40))
    for _ in range(steps):
        engine.step()
    branch = engine.submit(Request((*first.ids[:kept], *prompt_of(own, seed=1)), PARAMS, 9), fork_of=first)
    while not engine.idle:
        engine.step()
        engine.check_integrity()
    for state in (first, branch):
        assert state.tokens == expected_tokens(model, state.request)


def test_a_fork_of_a_text_that_ended_or_was_cancelled_runs_by_itself() -> None:
    model = FakeModel(pages=(30, 30))
    engine = forking_engine(model)
    first = run(engine, engine.submit(Request(prompt_of(70), PARAMS, 4)))
    later = engine.submit(Request(prompt_of(70), PARAMS, 4), fork_of=first)
    cancelled = engine.submit(Request(prompt_of(70, seed=3), PARAMS, 4))
    waiting = engine.submit(Request(prompt_of(70, seed=3), PARAMS, 5), fork_of=cancelled)
    engine.cancel(cancelled)
    for state in (later, waiting):
        assert run(engine, state).tokens == expected_tokens(model, state.request)


def test_a_fork_of_another_engines_text_runs_by_itself() -> None:
    other, model = forking_engine(FakeModel(pages=(30, 30))), FakeModel(pages=(30, 30))
    theirs = other.submit(Request(prompt_of(70), PARAMS, 9))
    other.advance(theirs, 3)
    engine = forking_engine(model)
    first = engine.submit(Request(prompt_of(70, seed=3), PARAMS, 9))
    engine.advance(first, 0)
    fork = engine.submit(Request(prompt_of(90), PARAMS, 4), fork_of=theirs)
    for state in (first, fork):
        assert run(engine, state).tokens == expected_tokens(model, state.request)
    assert fork.reused == 0


def test_a_fork_takes_no_copy_where_there_is_no_room_for_one() -> None:
    model = FakeModel()  # pages for one text
    engine = forking_engine(model)
    first = engine.submit(Request(prompt_of(200), PARAMS, 50))
    fork = engine.submit(Request(prompt_of(200), replace(PARAMS, choice=1), 50), fork_of=first)
    for state in (first, fork):
        assert run(engine, state).tokens == expected_tokens(model, state.request)


def test_a_fork_of_another_tenants_text_shares_nothing() -> None:
    model = FakeModel(pages=(30, 30))
    engine = forking_engine(model)
    first = engine.submit(Request(prompt_of(70), PARAMS, 9))
    engine.advance(first, 3)
    fork = engine.submit(Request(prompt_of(70), replace(PARAMS, choice=1), 9, tenant="another"), fork_of=first)
    assert run(engine, fork).tokens == expected_tokens(model, fork.request)
    assert fork.reused == 0


# ---- The arrays of a step ---------------------------------------------------------------------------------------


@given(
    parts=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 40)), min_size=1, max_size=4),
    window=st.integers(1, 70),
    logits=st.sampled_from(["all", "last", "none"]),
)
@settings(max_examples=60, deadline=None)
def test_the_arrays_are_those_made_by_hand(parts: list[tuple[int, int]], window: int, logits: str) -> None:
    """Against ``StepMaker``, which shares no code with ``build_step``; page ids differ, what they stand for may not."""
    layout = group_layers([window, None], [1, 1], [2, 2])
    pools = [PagePool(40), PagePool(40)]
    maker = StepMaker(layout, [40, 40])
    sequences, chunks = [], []
    for number, (before, rows) in enumerate(parts):
        tables = [PageTable(pool, g.window, 200) for pool, g in zip(pools, layout.groups, strict=True)]
        by_hand = maker.sequence()
        if before:
            maker.step((by_hand, [0] * before))
        for table in tables:
            table.grow(before)
            table.let_go_behind(before)
            table.grow(before + rows)
        ids = list(range(100 * number, 100 * number + rows))
        wanted: Sequence[int] = {"all": range(rows), "last": [rows - 1], "none": []}[logits]
        sequences.append(SequenceRows(ids, before, tables, wanted))
        chunks.append((by_hand, ids))
    # Chunks of either kind.
    step, expected = build_step(sequences, layout.groups), maker.step(*chunks, logits=logits)  # type: ignore[arg-type]
    for name in ("ids", "positions", "sequences", "first_key", "last_key", "logit_rows"):
        array = getattr(step, name)
        np.testing.assert_array_equal(array, getattr(expected, name), err_msg=name)
        assert array.dtype == np.int32
        assert array.flags.c_contiguous
    for group in range(2):
        mine, theirs = step.page_tables[group], expected.page_tables[group]
        assert mine.dtype == np.int32
        np.testing.assert_array_equal(mine < 0, theirs < 0)
        held = mine[mine >= 0]
        assert len(set(held.tolist())) == held.size
        place = {int(page): place for place, page in np.ndenumerate(mine) if page >= 0}
        expected_place = {int(page): place for place, page in np.ndenumerate(theirs) if page >= 0}
        for slot, expected_slot in zip(step.slots[group].tolist(), expected.slots[group].tolist(), strict=True):
            assert slot % PAGE == expected_slot % PAGE
            assert place[slot // PAGE] == expected_place[expected_slot // PAGE]

"""Sessions over a model that tells what each row saw (``testing/fake_model.py``) and a small real tokenizer."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cabochon
from cabochon.engine.scheduler import SCORED_ROWS
from cabochon.errors import CheckpointError, ContextLengthError, NumericError, UsageError
from cabochon.ops.cpus import MAX_THREADS
from cabochon.session import Session
from cabochon.testing.fake_model import FakeModel
from cabochon.testing.tiny import tiny_config, tiny_metadata, write_tiny_gguf
from cabochon.testing.vocabulary import BOS, END_OF_TURN, EOS, tiny_vocabulary
from cabochon.text.tokenizer import Tokenizer
from cabochon.trace.verify import verify
from cabochon.types import BackendName, Float32, SamplingParams, StepInput

CONFIG = tiny_config(layers=3, pattern=3, window=20, eos_ids=(EOS, END_OF_TURN))
TOKENIZER = Tokenizer.from_gguf(tiny_metadata(CONFIG, tiny_vocabulary(CONFIG.vocab)))
CONTEXT = 256


def session_of(
    script: Mapping[int, int] | None = None, *, chunk: int = 16, rows: int | None = None, model: FakeModel | None = None
) -> Session:
    model = model or FakeModel(CONFIG, context=CONTEXT, chunk=rows or chunk, script=script)
    return Session(model, TOKENIZER, context=CONTEXT, chunk=chunk, rows=rows)


def check_integrity(session: Session) -> None:
    assert session._engine is not None
    session._engine.check_integrity()


def script_of(ids: Iterable[int], prompt: int = 1) -> dict[int, int]:
    return dict(enumerate(ids, start=prompt))


def byte_ids(text: str | bytes) -> list[int]:
    data = text.encode() if isinstance(text, str) else text
    return [token for byte in data for token in [TOKENIZER.id_of(f"<0x{byte:02X}>")] if token is not None]


def model_of(session: Session) -> FakeModel:
    assert isinstance(session.model, FakeModel)
    return session.model


# ---- Text -------------------------------------------------------------------------------------------------------


def test_a_text_is_what_its_tokens_spell() -> None:
    session = session_of()
    result = session.generate("the capital", max_tokens=40, seed=3, ignore_eos=True)
    assert len(result.token_ids) == 40
    assert result.text == session.detokenize(result.token_ids)
    assert result.prompt_tokens == len(session.tokenize("the capital"))
    assert (result.finish_reason, result.seed) == ("length", 3)
    assert (result.logprobs, result.top) == (None, None)


@given(
    text=st.text(st.sampled_from("abé中😀\n "), max_size=12),
    cut=st.integers(0, 3),
    stops=st.lists(st.text(st.sampled_from("abé中😀\n �"), min_size=1, max_size=3), max_size=3),
)
@settings(max_examples=80, deadline=None)
def test_joined_deltas_are_the_whole_up_to_the_first_stop_string(text: str, cut: int, stops: list[str]) -> None:
    data = text.encode()
    ids = byte_ids(data[: max(len(data) - cut, 0)])
    session = session_of(script_of([*ids, EOS]))
    chunks = list(session.stream([BOS], stop=stops))
    result = session.generate([BOS], stop=stops)
    whole = session.detokenize(ids)
    ends = [whole.find(stop) + len(stop) for stop in stops if stop in whole]
    if ends:
        first = min(ends)
        longest = max((stop for stop in stops if whole[:first].endswith(stop)), key=len)
        whole = whole[: first - len(longest)]
    assert "".join(chunk.text for chunk in chunks) == whole
    assert result.text == whole
    assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert result.finish_reason == "stop"
    streamed = tuple(chunk.token.token_id for chunk in chunks if chunk.token is not None)
    assert streamed == result.token_ids == tuple(ids[: len(streamed)])


def test_a_stop_string_ends_the_run_at_once() -> None:
    session = session_of(script_of(byte_ids("one, two, three")))
    result = session.generate([BOS], max_tokens=100, stop=", t")
    assert (result.text, result.finish_reason) == ("one", "stop")
    assert session.detokenize(result.token_ids) == "one, t"
    assert model_of(session).rows_run == len("one, t")
    assert session.idle


def test_a_stop_string_may_end_in_a_character_left_unfinished() -> None:
    session = session_of(script_of([*byte_ids("ab"), byte_ids("é")[0], EOS]))
    result = session.generate([BOS], stop="b�")
    assert (result.text, result.finish_reason) == ("a", "stop")


@pytest.mark.parametrize("eos", [EOS, END_OF_TURN])
def test_every_end_of_text_id_ends_the_text(eos: int) -> None:
    script = script_of([*byte_ids("hi"), eos, *byte_ids("junk")])
    result = session_of(script).generate([BOS], max_tokens=50)
    assert (result.text, result.finish_reason, len(result.token_ids)) == ("hi", "stop", 2)
    going_on = session_of(script).generate([BOS], max_tokens=7, ignore_eos=True)
    assert (going_on.text, going_on.finish_reason, len(going_on.token_ids)) == ("hijunk", "length", 7)


def test_the_text_of_a_marker_is_no_marker() -> None:
    text = "so <end_of_turn> it is"
    result = session_of(script_of([*byte_ids(text), EOS])).generate([BOS])
    assert result.text == text


# ---- Prompts ----------------------------------------------------------------------------------------------------


def test_text_gets_bos_and_ids_are_taken_as_they_are() -> None:
    session = session_of()
    ids = session.tokenize("the capital")
    assert ids[0] == BOS
    assert session.tokenize("the capital", bos=False) == ids[1:]
    by_text = session.generate("the capital", max_tokens=5, seed=1)
    assert session.generate(ids, max_tokens=5, seed=1).token_ids == by_text.token_ids
    # NumPy's own types are taken, too.
    assert session.generate(np.array(ids), max_tokens=5, seed=1).token_ids == by_text.token_ids  # type: ignore[arg-type]
    assert session.generate(ids[1:], max_tokens=5, seed=1).token_ids != by_text.token_ids


@pytest.mark.parametrize(
    ("prompt", "words"),
    [("", "prompt is empty"), ([], "prompt is empty"), (b"ab", "not bytes"), (5, "not 5"), (None, "not None")],
)
def test_what_is_no_prompt_is_refused_and_the_next_request_works(prompt: object, words: str) -> None:
    session = session_of()
    for method in (session.generate, session.stream, session.score):
        with pytest.raises(UsageError, match=words):
            method(prompt)  # type: ignore[arg-type]  # wrong on purpose
    assert len(session.generate(" ", max_tokens=2, ignore_eos=True).token_ids) == 2


@pytest.mark.parametrize("method", ["generate", "stream"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_p": 1.0}, "min_p"),
        ({"seed": -1}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"logprobs": -1}, "logprobs"),
        ({"stop": ""}, "stop string"),
        ({"stop": [3]}, "stop string"),
    ],
)
def test_options_are_checked_at_the_call(method: str, options: dict[str, object], words: str) -> None:
    session = session_of()
    with pytest.raises(UsageError, match=words):
        getattr(session, method)("the", **options)
    assert session.idle


def test_detokenize_refuses_what_is_no_id() -> None:
    for bad in (-1, CONFIG.vocab, 1.5, "3"):
        with pytest.raises(UsageError, match="token id"):
            session_of().detokenize([bad])  # type: ignore[list-item]  # wrong on purpose


# ---- Seeds and defaults -----------------------------------------------------------------------------------------


def test_without_a_seed_every_text_is_another_and_the_seed_is_told() -> None:
    session = session_of()
    results = [session.generate("the", max_tokens=12, ignore_eos=True) for _ in range(5)]
    assert len({result.token_ids for result in results}) == 5
    for result in results:
        again = session.generate("the", max_tokens=12, ignore_eos=True, seed=result.seed)
        assert again.token_ids == result.token_ids


def test_a_seed_gives_the_same_text_whatever_ran_before() -> None:
    session = session_of()
    first = session.generate("the", seed=42, max_tokens=20)
    for n in range(5):
        session.generate("other", seed=n, max_tokens=n + 1)
    assert session.generate("the", seed=42, max_tokens=20).text == first.text
    assert session_of().generate("the", seed=42, max_tokens=20).text == first.text


def test_defaults_are_the_models_unless_told_otherwise() -> None:
    model = FakeModel(CONFIG, context=CONTEXT, chunk=16)
    greedy = SamplingParams(temperature=0.0, top_k=3, top_p=0.5, min_p=0.1)
    session = Session(model, TOKENIZER, context=CONTEXT, chunk=16, defaults=greedy)
    assert replace(session.request("the").params, seed=0) == greedy
    asked = {"temperature": 0.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 9}
    # Any of its options.
    assert session.request("the", **asked).params == SamplingParams(**asked)  # type: ignore[arg-type]
    plain = Session(model, TOKENIZER, context=CONTEXT, chunk=16)
    assert replace(plain.request("the").params, seed=0) == SamplingParams(1.0, 64, 0.95, 0.0, 0)


# ---- Streams ----------------------------------------------------------------------------------------------------


def test_nothing_runs_before_the_first_chunk_is_asked_for() -> None:
    session = session_of()
    stream = session.stream("the", max_tokens=5)
    assert session.idle
    assert model_of(session).steps == []
    stream.close()
    assert stream.result.finish_reason == "cancelled"


@pytest.mark.parametrize("taken", [1, 2, 9])
def test_a_stream_left_early_frees_its_pages(taken: int) -> None:
    session = session_of()
    with session.stream("the", max_tokens=50, ignore_eos=True) as stream:
        for _ in range(taken):
            next(stream)
        assert model_of(session).rows_run > 0
    assert session.idle
    assert (stream.result.finish_reason, len(stream.result.token_ids)) == ("cancelled", taken)
    with pytest.raises(StopIteration):
        next(stream)
    check_integrity(session)


@pytest.mark.parametrize("stop", [(), "o"])
def test_nothing_is_held_once_the_last_chunk_has_come(stop: str) -> None:
    session = session_of(script_of(byte_ids("long")))
    stream = session.stream([BOS], max_tokens=4, stop=stop)
    while next(stream).finish_reason is None:
        pass
    assert session.idle
    stream.close()
    assert stream.result.finish_reason == ("stop" if stop else "length")


def test_a_stream_that_is_forgotten_frees_its_pages() -> None:
    session = session_of()
    gc.disable()
    try:
        for _ in session.stream("the", max_tokens=50, ignore_eos=True):
            break
        assert session.idle
    finally:
        gc.enable()


def test_streams_in_turns_give_what_they_give_alone() -> None:
    session = session_of()
    prompts = ("the capital", "of", "is it a")
    alone = [session.generate(p, max_tokens=9, seed=n, logprobs=1) for n, p in enumerate(prompts)]
    streams = [session.stream(p, max_tokens=9, seed=n, logprobs=1) for n, p in enumerate(prompts)]
    for stream in (streams[2], streams[0], streams[1], *streams, streams[0]):
        next(stream)
    for stream in reversed(streams):
        for _ in stream:
            pass
    for stream, expected in zip(streams, alone, strict=True):
        assert replace(stream.result, timings=expected.timings) == expected


class FailingModel(FakeModel):
    """Raises in its fourth step."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(CONFIG, context=CONTEXT, chunk=16)
        self.error = error

    def hidden(self, step: StepInput) -> Float32:
        states = super().hidden(step)
        if len(self.steps) == 4:
            raise self.error
        return states


@pytest.mark.parametrize(
    ("error", "reason"), [(NumericError("too large"), "error"), (KeyboardInterrupt(), "cancelled")]
)
def test_an_error_reaches_the_caller_and_the_next_request_works(error: BaseException, reason: str) -> None:
    session = session_of(model=FailingModel(error))
    with session.stream("the", max_tokens=50, ignore_eos=True) as stream:
        for _ in range(3):
            next(stream)
        with pytest.raises(type(error)):
            next(stream)
    assert (stream.result.finish_reason, len(stream.result.token_ids)) == (reason, 3)
    assert session.idle
    assert len(session.generate("the", max_tokens=6, ignore_eos=True).token_ids) == 6


def test_the_failure_of_one_stream_is_its_own() -> None:
    session = session_of(model=FailingModel(NumericError("too large")))
    failing = session.stream("the", max_tokens=50, ignore_eos=True)
    next(failing)
    with session.stream("capital", max_tokens=5, ignore_eos=True) as other:
        tokens = sum(chunk.token is not None for chunk in other)  # runs the step in which the first stream fails
    assert (tokens, other.result.finish_reason) == (5, "length")
    with pytest.raises(NumericError, match="too large"):
        list(failing)
    assert failing.result.finish_reason == "error"
    assert session.idle


def test_a_closed_session_refuses_and_ends_what_runs() -> None:
    with session_of() as session:
        stream = session.stream("the", max_tokens=50, ignore_eos=True)
        next(stream)
        waiting = session.stream("the", max_tokens=50, ignore_eos=True)
    session.close()
    assert [chunk.finish_reason for chunk in stream] == ["cancelled"]
    with pytest.raises(UsageError, match="closed"):
        next(waiting)
    for use in (lambda: session.generate("the"), lambda: session.stream("the"), lambda: session.score("the")):
        with pytest.raises(UsageError, match="closed"):
            use()


def test_a_closed_session_lets_the_model_go() -> None:
    session = session_of()
    session.generate("the", max_tokens=2)
    model = weakref.ref(session.model)
    session.close()
    gc.collect()
    assert model() is None


def test_timings_say_what_was_measured() -> None:
    session = session_of()
    one = session.generate("the", max_tokens=1, ignore_eos=True).timings
    assert one.first_token_s is not None
    assert one.prefill_tokens_per_s is not None
    assert one.decode_tokens_per_s is None
    assert session.generate("the", max_tokens=2, ignore_eos=True).timings.decode_tokens_per_s is not None
    stream = session.stream("the")
    stream.close()
    assert (stream.result.timings.first_token_s, stream.result.timings.prefill_tokens_per_s) == (None, None)


# ---- Log-probabilities and scores -------------------------------------------------------------------------------


def test_logprobs_as_asked_for() -> None:
    session = session_of()
    chosen = session.generate("the", max_tokens=5, seed=1, logprobs=0, ignore_eos=True)
    assert chosen.logprobs is not None
    assert (len(chosen.logprobs), chosen.top) == (5, None)
    both = session.generate("the", max_tokens=5, seed=1, logprobs=3, ignore_eos=True)
    assert both.logprobs == chosen.logprobs
    assert both.top is not None
    assert [len(top) for top in both.top] == [3] * 5


@pytest.mark.parametrize("chunk", [1, 7, 40, 200])
def test_scores_are_those_of_generation(chunk: int) -> None:
    session = session_of(chunk=chunk)
    made = session.generate("the capital of", max_tokens=90, seed=5, logprobs=2, ignore_eos=True)
    ids = [*session.tokenize("the capital of"), *made.token_ids]
    score = session.score(ids, top_logprobs=2)
    check_integrity(session)
    assert score.token_ids == tuple(ids)
    assert score.logprobs[0] is None
    assert score.logprobs[made.prompt_tokens :] == made.logprobs
    assert score.top is not None
    assert made.top is not None
    assert score.top[0] is None
    assert score.top[made.prompt_tokens :] == made.top
    known = [value for value in score.logprobs if value is not None]
    assert score.perplexity == pytest.approx(math.exp(-sum(known) / len(known)))
    assert session.score(ids).top is None


def test_log_probabilities_of_the_prompt_come_with_the_text() -> None:
    session = session_of()
    prompt = "the capital of it is an "
    expected = session.score(prompt, top_logprobs=2)
    plain = session.generate(prompt, max_tokens=9, seed=1)
    assert (plain.prompt_token_ids, plain.prompt_logprobs, plain.prompt_top) == (None, None, None)
    asked = session.generate(prompt, max_tokens=9, seed=1, prompt_logprobs=0)
    assert (asked.prompt_token_ids, asked.prompt_logprobs) == (expected.token_ids, expected.logprobs)
    assert asked.prompt_top is None
    assert (asked.token_ids, asked.text, asked.logprobs) == (plain.token_ids, plain.text, None)
    for choice in session.generate_choices(prompt, 2, max_tokens=9, seed=1, prompt_logprobs=2):
        assert (choice.prompt_logprobs, choice.prompt_top) == (expected.logprobs, expected.top)
    stream = session.stream(prompt, prompt_logprobs=0)
    assert stream.result.prompt_logprobs == (None,)
    with pytest.raises(UsageError, match="prompt_logprobs"):
        session.stream(prompt, prompt_logprobs=-1)


def test_a_score_of_one_token_has_no_perplexity() -> None:
    score = session_of().score([BOS])
    assert (score.token_ids, score.logprobs, score.perplexity) == ((BOS,), (None,), None)


def test_a_text_fills_the_context_but_not_more() -> None:
    session = session_of()
    assert len(session.score([5] * CONTEXT).logprobs) == CONTEXT
    with pytest.raises(ContextLengthError, match=rf"{CONTEXT + 1} tokens.*{CONTEXT}"):
        session.score([5] * (CONTEXT + 1))


def test_scoring_waits_in_line_behind_an_open_stream() -> None:
    session = session_of()
    score = session.score("the capital")
    with session.stream("the", max_tokens=9, ignore_eos=True) as stream:
        next(stream)
        assert session.score("the capital") == score
        for _ in stream:
            pass
    assert stream.result.text == session.generate("the", max_tokens=9, ignore_eos=True, seed=stream.result.seed).text


def test_a_score_cut_short_is_no_score() -> None:
    class Closing(FakeModel):
        def head(self, hidden: Float32) -> Float32:
            session.close()
            return super().head(hidden)

    session = session_of(model=Closing(CONFIG, context=CONTEXT, chunk=16))
    with pytest.raises(UsageError, match="closed"):
        session.score([5] * 100)


class CountingModel(FakeModel):
    """Remembers how many rows the head was asked for at once."""

    def __init__(self) -> None:
        super().__init__(CONFIG, context=CONTEXT, chunk=100)
        self.asked: list[int] = []

    def head(self, hidden: Float32) -> Float32:
        self.asked.append(len(hidden))
        return super().head(hidden)


def test_logits_are_never_made_for_a_whole_prompt() -> None:
    model = CountingModel()
    session = session_of(chunk=100, model=model)
    session.generate([5] * 150, max_tokens=3, ignore_eos=True)
    assert model.asked == [0, 1, 1, 1]
    model.asked.clear()
    session.score([5] * 150)
    assert max(model.asked) == SCORED_ROWS
    assert sum(model.asked) <= 150


def test_a_logit_that_is_no_number_is_an_error_in_scores_too() -> None:
    class Broken(FakeModel):
        def head(self, hidden: Float32) -> Float32:
            logits = super().head(hidden)
            logits[0, 7] = np.nan
            return logits

    session = session_of(model=Broken(CONFIG, context=CONTEXT, chunk=16))
    with pytest.raises(NumericError, match="position") as error:
        session.score([BOS, *[7] * (CONTEXT - 1)])
    # Whoever keeps the error, with all the frames it came through, keeps no pages.
    check_integrity(session)
    del error
    check_integrity(session)


# ---- Verify -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("chunk", "max_tokens"), [(16, 60), (1, 5), (200, 1)])
def test_verify_compares_every_step_with_one_pass(chunk: int, max_tokens: int) -> None:
    session = session_of(chunk=chunk, rows=CONTEXT)
    prompt = session.tokenize("the capital of it")
    result = verify(session, "the capital of it", max_tokens=max_tokens, ignore_eos=True, seed=4)
    assert result.equal
    assert (result.steps, result.max_abs_difference) == (max_tokens, 0.0)
    assert result.tokens_run_cached == len(prompt) + max_tokens - 1
    assert result.tokens_run_recomputed == len(prompt) + max_tokens
    # One step holds the whole sequence.
    assert max(step.rows for step in model_of(session).steps) == len(prompt) + max_tokens
    generated = session.generate("the capital of it", max_tokens=max_tokens, ignore_eos=True, seed=4)
    assert result.token_ids == generated.token_ids


def test_verify_includes_the_step_that_chose_a_stop_id() -> None:
    session = session_of(script_of([*byte_ids("ab"), EOS]), rows=CONTEXT)
    result = verify(session, [BOS], max_tokens=50)
    assert (result.equal, result.steps, len(result.token_ids)) == (True, 3, 2)


class Unfaithful(FakeModel):
    """One logit is a little higher in steps of one row."""

    def forward(self, step: StepInput) -> Float32:
        logits = super().forward(step)
        if step.rows == 1 and len(logits):
            logits[0, 300] += 0.25
        return logits


def test_verify_finds_a_difference() -> None:
    session = session_of(model=Unfaithful(CONFIG, context=CONTEXT, chunk=CONTEXT), rows=CONTEXT)
    result = verify(session, "the capital", max_tokens=10, ignore_eos=True, temperature=0)
    assert not result.equal
    assert result.max_abs_difference == pytest.approx(0.25, abs=1e-5)
    assert result.steps == 10


class Wandering(FakeModel):
    """Chooses another token late in every second run."""

    def forward(self, step: StepInput) -> Float32:
        logits = super().forward(step)
        if step.positions[0] == 8 and sum(s.positions[0] == 8 for s in self.steps) > 1:
            logits[0, 300] = 1000
        return logits


def test_verify_stops_where_the_texts_part() -> None:
    session = session_of(model=Wandering(CONFIG, context=CONTEXT, chunk=CONTEXT), rows=CONTEXT)
    result = verify(session, [BOS], max_tokens=30, ignore_eos=True, temperature=0)
    assert (result.equal, result.steps) == (False, 9)
    assert session.idle


def test_verify_refuses_what_it_cannot_do() -> None:
    session = session_of(chunk=16)
    with pytest.raises(UsageError, match="whole_context"):
        verify(session, "the", max_tokens=20)
    with session.stream("the", ignore_eos=True) as stream:
        next(stream)
        with pytest.raises(UsageError, match="unfinished generation"):
            verify(session, "the", max_tokens=3)
    assert verify(session, "the", max_tokens=3, ignore_eos=True).equal


# ---- Loading ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", tiny_config(context_length=300))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "cuda"}, "backend must be one of auto, native, torch, not 'cuda'"),
        ({"activations": "int4"}, "activations must be one of"),
        ({"kv_type": "f8"}, "kv_type must be one of"),
        ({"backend": "torch", "activations": "int8"}, "activations int8 is of the native backend"),
        *(({name: bad}, name) for name in ("threads", "context", "chunk") for bad in (0, -1, 1.5, "2", True)),
        ({"threads": MAX_THREADS + 1}, f"threads must be a whole number, from 1 to {MAX_THREADS}"),
        ({"context": 301}, "context 301 is more than the 300 tokens"),
    ],
)
def test_load_refuses_what_cannot_be(tiny_path: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        cabochon.load(tiny_path, **options)  # type: ignore[arg-type]  # any of its options


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_load_and_use(tiny_path: Path, backend: BackendName) -> None:
    told: list[tuple[int, int]] = []
    with cabochon.load(
        tiny_path,
        backend=backend,
        threads=1,
        progress=lambda done, total: told.append((done, total)),
    ) as session:
        assert (session.context, session.chunk, session.rows) == (300, 300, 300)
        assert session.name == "Tiny Gemma"
        assert session.load_s > 0
        result = session.generate("the capital", max_tokens=5, seed=1, logprobs=0, ignore_eos=True)
        score = session.score([*session.tokenize("the capital"), *result.token_ids])
        assert result.logprobs is not None
        # They were asked for.
        np.testing.assert_allclose(score.logprobs[-5:], result.logprobs, atol=1e-4)  # type: ignore[arg-type]
    assert all(done <= total for done, total in told)


def test_load_tells_of_a_vocabulary_found_unusable_only_in_the_end(tmp_path: Path) -> None:
    tokens = [*tiny_vocabulary(CONFIG.vocab).tokens]
    tokens[300] = ""
    path = write_tiny_gguf(tmp_path / "odd.gguf", CONFIG, metadata={"tokenizer.ggml.tokens": tuple(tokens)})
    with pytest.raises(CheckpointError, match="SentencePiece refuses the vocabulary"):
        cabochon.load(path, threads=1)


def test_load_plans_memory_by_chunk_and_context(tiny_path: Path) -> None:
    small = cabochon.load(tiny_path, backend="torch", context=200, chunk=8, threads=1)
    whole = cabochon.load(tiny_path, backend="torch", context=200, chunk=8, whole_context=True, threads=1)
    assert (small.rows, whole.rows) == (8, 200)
    assert (small.chunk, whole.chunk) == (8, 8)
    # A window of 20 takes a page more for each of the four places to go on from; nothing does without reuse.
    assert small.model.store.pages == (2 + 4, 7)
    assert whole.model.store.pages == (7 + 4, 7)
    alone = cabochon.load(tiny_path, backend="torch", context=200, chunk=8, prefix_cache=False, threads=1)
    assert alone.model.store.pages == (2, 7)
    assert verify(small, [BOS], max_tokens=5).steps > 0

"""Several choices of one prompt, and branches of a text: each is what it would be on its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.errors import ContextLengthError, NumericError, UsageError
from cabochon.sampling.params import MAX_CHOICE
from cabochon.session import Generation, Session
from cabochon.session.variants import MAX_CHOICES
from cabochon.testing.fake_model import FakeModel
from cabochon.testing.tiny import tiny_config, tiny_metadata
from cabochon.testing.vocabulary import BOS, EOS, tiny_vocabulary
from cabochon.text.tokenizer import Tokenizer
from cabochon.types import Float32, StepInput

CONFIG = tiny_config(layers=3, pattern=3, window=20, eos_ids=(EOS,))
TOKENIZER = Tokenizer.from_gguf(tiny_metadata(CONFIG, tiny_vocabulary(CONFIG.vocab)))
CONTEXT = 256
PROMPT = "the capital of it is an "


def session_of(running: int = 4, model: FakeModel | None = None) -> Session:
    model = model or FakeModel(CONFIG, chunk=16, pages=(64, 64))
    return Session(model, TOKENIZER, context=CONTEXT, chunk=16, max_running=running, checkpoint_pages=12)


@pytest.fixture
def session() -> Iterator[Session]:
    with session_of() as session:
        yield session
        assert session.idle
        assert session._engine is not None
        session._engine.check_integrity()


def same(got: Generation, expected: Generation) -> bool:
    return replace(got, timings=expected.timings, reused_tokens=expected.reused_tokens) == expected


# ---- Choices ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [1, 2, 4])
@pytest.mark.parametrize("options", [{}, {"stop": ["e", "th"], "logprobs": 1}, {"choice": 5, "top_k": 3}])
def test_each_choice_is_what_it_is_alone(running: int, options: dict[str, Any]) -> None:
    session, alone = session_of(running), session_of()
    got = session.generate_choices(PROMPT, 5, seed=9, max_tokens=30, **options)
    for index, result in enumerate(got, start=options.get("choice", 0)):
        assert same(result, alone.generate(PROMPT, seed=9, max_tokens=30, **{**options, "choice": index}))
    assert len({result.token_ids for result in got}) == 5
    assert session.idle


def test_choices_have_one_seed_that_is_told(session: Session) -> None:
    got = session.generate_choices(PROMPT, 3, max_tokens=20)
    (seed,) = {result.seed for result in got}
    again = session.generate_choices(PROMPT, 3, max_tokens=20, seed=seed)
    assert [result.token_ids for result in again] == [result.token_ids for result in got]
    assert {result.seed for result in session.generate_choices(PROMPT, 3, max_tokens=2)} != {seed}


def test_choices_are_streams(session: Session) -> None:
    expected = session.generate_choices(PROMPT, 3, seed=1, max_tokens=15, stop=iter(["e"]))

    async def work() -> list[Generation]:
        return list(await asyncio.gather(*session.choices(PROMPT, 3, seed=1, max_tokens=15, stop=["e"])))

    for got, result in zip(asyncio.run(work()), expected, strict=True):
        assert same(got, result)
    streams = session.choices(PROMPT, 3, seed=1, max_tokens=15, stop="e")
    for stream, result in zip(reversed(streams), reversed(expected), strict=True):
        assert "".join(chunk.text for chunk in stream) == result.text


@pytest.mark.parametrize("cached", [True, False])
def test_the_prompt_of_several_choices_is_run_once(*, cached: bool) -> None:
    model = FakeModel(CONFIG, chunk=16, pages=(64, 64))
    session = Session(
        model, TOKENIZER, context=CONTEXT, chunk=16, max_running=4, checkpoint_pages=12 if cached else None
    )
    prompt = [BOS, *(5 + n for n in range(74))]
    results = session.generate_choices(prompt, 4, max_tokens=10, ignore_eos=True)
    assert model.rows_run <= 75 + 4 * 9 + 3  # all forks run the prompt's last id: their first token comes of it
    assert [result.reused_tokens for result in results] == [0, 74, 74, 74]
    assert session.idle


def test_a_branch_of_a_text_that_runs_shares_it_to_the_token() -> None:
    model = FakeModel(CONFIG, chunk=16, pages=(64, 64))
    session = Session(model, TOKENIZER, context=CONTEXT, chunk=16, max_running=2)
    with session.stream([BOS, *range(5, 79)], max_tokens=50, ignore_eos=True) as stream:
        for _ in range(11):
            next(stream)
        rows = model.rows_run
        branch = session.branch(stream, 75 + 9, [7], max_tokens=1)
        next(branch)
        assert branch.result.reused_tokens == 75 + 9
        assert model.rows_run == rows + 2


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2", None, MAX_CHOICES + 1])
def test_a_number_of_choices_that_cannot_be_is_named(session: Session, n: Any) -> None:
    with pytest.raises(UsageError, match="n must be a whole number"):
        session.generate_choices(PROMPT, n)


def test_other_options_are_checked_as_always(session: Session) -> None:
    with pytest.raises(UsageError, match=f"choice {MAX_CHOICE - 1} is too large for 3 choices"):
        session.choices(PROMPT, 3, choice=MAX_CHOICE - 1)
    assert len(session.choices(PROMPT, 2, choice=MAX_CHOICE - 1)) == 2
    with pytest.raises(UsageError, match="top_k"):
        session.choices(PROMPT, 2, top_k=-1)
    with pytest.raises(UsageError, match="stop string"):
        session.choices(PROMPT, 2, stop="")


def test_a_stream_of_another_session_is_an_error_and_disturbs_none(session: Session) -> None:
    prompt = session.tokenize(PROMPT)
    theirs = session_of().stream(prompt, max_tokens=3)
    mine = session.stream(prompt, max_tokens=3, seed=1)
    first, second = session.run_all([theirs, mine])
    assert str(first.error) == "the stream is another session's; only that one can run it"
    assert second.result == mine.result


def test_the_error_of_one_choice_is_raised_and_ends_the_others() -> None:
    class Failing(FakeModel):
        def forward(self, step: StepInput) -> Float32:
            if len(self.steps) == 4:
                raise NumericError("too large")
            return super().forward(step)

    session = session_of(1, Failing(CONFIG, chunk=16, pages=(64, 64)))
    with pytest.raises(NumericError) as error:
        session.generate_choices(PROMPT, 3, max_tokens=30, ignore_eos=True)
    assert session.idle, error  # though the error is kept, and the frames it came through


# ---- Branches ---------------------------------------------------------------------------------------------------


@given(read=st.integers(0, 60), after=st.integers(0, 90), ids=st.lists(st.integers(2, 300), max_size=5))
@settings(max_examples=12, deadline=None)
def test_a_branch_is_what_its_text_gives_alone(read: int, after: int, ids: list[int]) -> None:
    session, alone = session_of(), session_of()
    prompt = session.tokenize(PROMPT)
    options: dict[str, Any] = {"max_tokens": 50, "seed": 3, "ignore_eos": True, "logprobs": 1, "top_k": 9}
    expected = alone.generate(prompt, **options)
    with session.stream(prompt, **options) as stream:
        for _ in range(min(read, 49)):
            next(stream)
        text = [*prompt, *stream.result.token_ids]
        after = min(after, len(text))
        cut = [*text[:after], *ids] or [BOS]
        branch = session.branch(stream, after, ids if after or ids else [BOS])
        list(zip(branch, range(7), strict=False))  # in turns
        list(stream)
        list(branch)
        assert same(stream.result, expected)
    assert same(branch.result, alone.generate(cut, **options))
    # And of what has ended.
    again = session.branch(stream, after, cut[after:], temperature=0, stop=["e"], max_tokens=9)
    list(again)
    changed = {**options, "temperature": 0, "stop": "e", "max_tokens": 9}
    assert same(again.result, alone.generate(cut, **changed))


def test_a_branch_without_more_is_the_same_text_going_on(session: Session) -> None:
    whole = session.generate(PROMPT, max_tokens=40, seed=3, ignore_eos=True, stop="\x01")
    with session.stream(PROMPT, max_tokens=40, seed=3, ignore_eos=True, stop="\x01") as stream:
        for _ in range(10):
            next(stream)
        branch = session.branch(stream, max_tokens=30)
        assert branch.stops == ("\x01",)
        list(branch)
    assert (*stream.result.token_ids, *branch.result.token_ids) == whole.token_ids


def test_a_branch_runs_little_of_what_is_stored(session: Session) -> None:
    ids = [BOS, *(5 + n % 200 for n in range(99))]
    with session.stream(ids, max_tokens=60, seed=3, ignore_eos=True) as stream:
        list(stream)
    branch = session.branch(stream, max_tokens=2)
    list(branch)
    assert branch.result.reused_tokens >= 96 + 32


def test_what_cannot_be_branched_is_named(session: Session) -> None:
    stream = session.stream(PROMPT, max_tokens=3, seed=1)
    list(stream)
    length = len(stream.request.prompt) + 3
    for after in (-1, length + 1, 1.5, "2", True):
        with pytest.raises(UsageError, match=f"after must be a whole number, from 0 to {length}"):
            session.branch(stream, after)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(UsageError, match="the prompt is empty"):
        session.branch(stream, 0)
    for ids in ("text", 5, b"a"):
        with pytest.raises(UsageError, match="ids must be a list of token ids"):
            session.branch(stream, 2, ids)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(UsageError, match="token id"):
        session.branch(stream, 2, [CONFIG.vocab])
    with pytest.raises(ContextLengthError):
        session.branch(stream, 2, [5] * CONTEXT)
    with pytest.raises(UsageError, match="no option"):
        session.branch(stream, 2, hot=1)  # type: ignore[call-arg]  # wrong on purpose

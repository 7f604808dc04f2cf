"""Texts and plain values of a caller become the engine's parameters."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from cabochon.errors import UsageError
from cabochon.sampling.constraint import Mask
from cabochon.session import Session
from cabochon.session.sampling_arguments import DRY_BREAKERS, SamplingArguments
from cabochon.testing.fake_model import FakeModel
from cabochon.testing.tiny import tiny_config, tiny_metadata
from cabochon.testing.vocabulary import tiny_vocabulary
from cabochon.text.containing import TokensContaining
from cabochon.text.tokenizer import Tokenizer
from cabochon.types import SamplingParams

CONFIG = tiny_config(layers=3, pattern=3, window=20)
TOKENIZER = Tokenizer.from_gguf(tiny_metadata(CONFIG, tiny_vocabulary(CONFIG.vocab)))


def session_of(script: dict[int, int] | None = None) -> Session:
    return Session(FakeModel(CONFIG, context=200, chunk=16, script=script), TOKENIZER, context=200, chunk=16)


def test_every_parameter_can_be_said() -> None:
    assert set(SamplingArguments.__annotations__) == {field.name for field in fields(SamplingParams)}


ASKED: dict[str, Any] = {
    "temperature": 0.5,
    "top_k": 3,
    "top_p": 0.5,
    "min_p": 0.25,
    "typical_p": 0.75,
    "seed": 9,
    "choice": 2,
    "repetition_penalty": 1.5,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.25,
    "penalty_last_n": 30,
    "logit_bias": {9: 1.5, 4: -1},
    "dry_multiplier": 0.5,
    "dry_base": 2.0,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": 40,
    "dry_sequence_breakers": [7],
    "xtc_probability": 0.5,
    "xtc_threshold": 0.25,
    "min_tokens": 4,
    "bad_words": [[5, 6]],
    "order": "gemma_pytorch",
}


def test_what_is_asked_for_reaches_the_engine() -> None:
    params = session_of().request("the", **ASKED).params
    expected = {
        **ASKED,
        "logit_bias": ((4, -1.0), (9, 1.5)),
        "dry_sequence_breakers": frozenset({7}),
        "bad_words": ((5, 6),),
    }
    assert params == SamplingParams(**expected)
    # None of it is the default: each was carried over.
    default = SamplingParams()
    assert all(getattr(params, field.name) != getattr(default, field.name) for field in fields(params))
    nothing: dict[str, Any] = dict.fromkeys(ASKED)
    assert session_of().request("the", **{**nothing, "seed": 0}).params == default


@pytest.mark.parametrize("method", ["request", "generate", "stream"])
def test_an_option_that_does_not_exist_is_named(method: str) -> None:
    with pytest.raises(UsageError, match="no option 'temprature'"):
        getattr(session_of(), method)("the", temprature=0.5)


def test_a_bad_word_is_its_tokens_with_and_without_a_space() -> None:
    words = session_of().request("the", bad_words=["the", [5, 6]]).params.bad_words
    bare, spaced = (tuple(TOKENIZER.encode(text, bos=False)) for text in ("the", " the"))
    assert words == (bare, spaced, (5, 6))
    assert bare != spaced
    assert session_of().request("the", bad_words="the").params.bad_words == (bare, spaced)


def test_a_bad_word_does_not_come() -> None:
    spelled = TOKENIZER.encode(" the", bos=False)
    script = {10 + n: token_id for n, token_id in enumerate(spelled)}
    plain, without = (
        session_of(script).generate([5] * 10, max_tokens=len(spelled), temperature=0, bad_words=words)
        for words in ([], ["the"])
    )
    assert plain.text == " the"
    assert "the" not in without.text


def test_breakers_are_the_tokens_that_contain_them() -> None:
    session = session_of()
    found = session.request("the", dry_sequence_breakers=["e", 5]).params.dry_sequence_breakers
    showing = {i for i in range(CONFIG.vocab) if "e" in TOKENIZER.decode([i])}
    assert len(showing) > 1
    assert found == showing | {5}


def test_line_breaks_and_some_signs_are_breakers_unless_told_otherwise() -> None:
    session = session_of()
    assert session.request("the").params.dry_sequence_breakers == frozenset()
    breakers = session.request("the", dry_multiplier=0.8).params.dry_sequence_breakers
    assert breakers == {i for i in range(CONFIG.vocab) for text in DRY_BREAKERS if text in TOKENIZER.decode([i])}
    assert session.request("the", dry_multiplier=0.8, dry_sequence_breakers=[]).params.dry_sequence_breakers == set()


class CountingTokenizer(Tokenizer):
    asked = 0

    def piece_bytes(self, token_id: int) -> bytes:
        self.asked += 1
        return super().piece_bytes(token_id)


def test_the_vocabulary_is_searched_once() -> None:
    tokenizer = CountingTokenizer.from_gguf(tiny_metadata(CONFIG, tiny_vocabulary(CONFIG.vocab)))
    assert isinstance(tokenizer, CountingTokenizer)
    containing = TokensContaining(tokenizer)
    for _ in range(3):
        containing.ids(["e", "t"])
    assert tokenizer.asked == CONFIG.vocab


def test_a_text_that_no_token_shows_is_refused() -> None:
    for text in ("", "the the the"):
        with pytest.raises(UsageError, match="dry_sequence_breakers: no token's text contains"):
            session_of().request("the", dry_sequence_breakers=[text])


def test_a_reply_that_loops_is_ended_and_says_so() -> None:
    script = dict.fromkeys(range(2, 200), 9)
    result = session_of(script).generate([5, 6], max_tokens=100, loop_guard=4)
    assert (result.finish_reason, len(result.token_ids)) == ("loop", 48)
    stream = session_of(script).stream([5, 6], max_tokens=100, loop_guard=4)
    assert "".join(chunk.text for chunk in stream) == result.text
    assert stream.result.finish_reason == "loop"


def test_a_constraint_reaches_the_engine() -> None:
    class Nine:
        def allowed(self, chosen: object) -> Mask:
            return np.isin(np.arange(CONFIG.vocab), 9)

    assert session_of().generate("the", max_tokens=5, constraint=Nine()).token_ids == (9,) * 5

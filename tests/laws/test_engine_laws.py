"""Laws 1 to 4 through the whole engine, on small random models of real shape; bit for bit on the native backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cabochon.session import Generation, Session, load
from cabochon.testing.tiny import MIXED_TYPES, tiny_config, tiny_config_k, write_tiny_gguf
from cabochon.trace.verify import verify
from cabochon.types import Activations, KVType, WeightType

WINDOW = 20
PROMPT = [2, *np.random.default_rng(8).integers(7, 360, 69).tolist()]
"""Three and a half windows, and over two pages."""

TOKENS = 50
CONTEXT = 320
"""More than a segment of attention."""

Opener = Callable[..., Session]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    # With random weights and a tied head a token's most probable successor is the token itself, always.
    float_config, mixed_config = (make(window=WINDOW, tied_head=False) for make in (tiny_config, tiny_config_k))
    mixed_types = {**MIXED_TYPES, "head": WeightType.Q8_0}
    return {
        "float": write_tiny_gguf(folder / "float.gguf", float_config, types=WeightType.F16),
        "mixed": write_tiny_gguf(folder / "mixed.gguf", mixed_config, types=mixed_types),
    }


@pytest.fixture
def opened(paths: dict[str, Path]) -> Opener:
    def open_model(model: str = "mixed", **options: object) -> Session:
        # Any of its options.
        return load(paths[model], **{"context": CONTEXT, "threads": 1, **options})  # type: ignore[arg-type]

    return open_model


def generated(session: Session, prompt: list[int] = PROMPT, *, tokens: int = TOKENS, seed: int = 6) -> Generation:
    return session.generate(prompt, max_tokens=tokens, seed=seed, logprobs=2, ignore_eos=True)


def outcome(result: Generation) -> tuple[object, ...]:
    return result.token_ids, result.logprobs, result.top, result.text


@pytest.mark.parametrize("model", ["float", "mixed"])
@pytest.mark.parametrize("activations", ["int8x2", "int8"])
def test_the_cutting_of_the_prompt_changes_nothing(opened: Opener, model: str, activations: Activations) -> None:
    whole = generated(opened(model, activations=activations))
    assert len(set(whole.token_ids)) > TOKENS // 2, "the text is too dull to show anything"
    for chunk in (1, 3, 7, 64):
        assert outcome(generated(opened(model, activations=activations, chunk=chunk))) == outcome(whole), chunk


@pytest.mark.parametrize("kv_type", ["f16", "bf16", "f32", "int8"])
def test_the_cutting_changes_nothing_whatever_the_cache_holds(opened: Opener, kv_type: KVType) -> None:
    whole = generated(opened(kv_type=kv_type))
    assert outcome(generated(opened(kv_type=kv_type, chunk=5))) == outcome(whole)


def test_threads_and_reserved_memory_change_nothing(opened: Opener) -> None:
    one = outcome(generated(opened()))
    assert outcome(generated(opened(threads=2))) == one
    assert outcome(generated(opened(context=len(PROMPT) + TOKENS))) == one
    assert outcome(generated(opened(whole_context=True, chunk=9))) == one


@pytest.mark.parametrize(("chunk", "threads"), [(1, 2), (7, 1), (512, 2)])
@pytest.mark.parametrize("model", ["float", "mixed"])
def test_every_cached_step_equals_one_pass(opened: Opener, model: str, chunk: int, threads: int) -> None:
    session = opened(model, chunk=chunk, threads=threads, whole_context=True)
    result = verify(session, PROMPT, max_tokens=TOKENS, seed=2, ignore_eos=True)
    assert (result.equal, result.max_abs_difference, result.steps) == (True, 0.0, TOKENS)


def test_every_cached_step_equals_one_pass_over_several_segments(opened: Opener) -> None:
    session = opened(chunk=50, whole_context=True)
    result = verify(session, PROMPT, max_tokens=CONTEXT - len(PROMPT), seed=2, ignore_eos=True)
    assert result.equal
    assert result.tokens_run_recomputed == CONTEXT


def test_the_same_seed_gives_the_same_text_and_another_another(opened: Opener) -> None:
    session = opened()
    first = generated(session, seed=6)
    assert outcome(generated(session, seed=6)) == outcome(first)
    assert generated(session, seed=7).token_ids != first.token_ids


@pytest.mark.parametrize("taken", [1, 13, 32])
def test_random_numbers_belong_to_positions(opened: Opener, taken: int) -> None:
    """A text begun anew from any of its beginnings, with the same seed, goes on as it did."""
    session = opened()
    whole = generated(session)
    rest = generated(session, [*PROMPT, *whole.token_ids[:taken]], tokens=TOKENS - taken)
    assert rest.token_ids == whole.token_ids[taken:]
    assert whole.logprobs is not None
    assert rest.logprobs == whole.logprobs[taken:]


def test_requests_in_turns_give_what_they_give_alone(opened: Opener) -> None:
    session = opened()
    alone = [generated(session, PROMPT[: 10 + 30 * n], tokens=12, seed=n) for n in range(3)]
    streams = [
        session.stream(PROMPT[: 10 + 30 * n], max_tokens=12, seed=n, logprobs=2, ignore_eos=True) for n in range(3)
    ]
    for stream in (streams[2], streams[0], *streams):
        next(stream)
    for stream in streams:
        for _ in stream:
            pass
    assert [outcome(stream.result) for stream in streams] == [outcome(result) for result in alone]


@pytest.mark.parametrize("chunk", [1, 6, 512])
def test_scoring_gives_the_numbers_of_generating(opened: Opener, chunk: int) -> None:
    session = opened(chunk=chunk)
    made = generated(session)
    score = session.score([*PROMPT, *made.token_ids], top_logprobs=2)
    assert score.logprobs[len(PROMPT) :] == made.logprobs
    assert score.top is not None
    assert score.top[len(PROMPT) :] == made.top


def test_deltas_join_to_the_text(opened: Opener) -> None:
    session = opened()
    whole = generated(session)
    chunks = list(session.stream(PROMPT, max_tokens=TOKENS, seed=6, ignore_eos=True))
    assert "".join(chunk.text for chunk in chunks) == whole.text == session.detokenize(whole.token_ids)


def test_the_torch_backend_keeps_the_first_laws_within_its_tolerance(opened: Opener) -> None:
    made = generated(opened("float", backend="torch", kv_type="f32"), tokens=12)
    for chunk in (5, 64):
        score = opened("float", backend="torch", kv_type="f32", chunk=chunk).score([*PROMPT, *made.token_ids])
        ours = np.array(score.logprobs[len(PROMPT) :], np.float64)
        np.testing.assert_allclose(ours, np.array(made.logprobs, np.float64), atol=1e-4)

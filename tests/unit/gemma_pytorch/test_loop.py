"""The generation loop: what it feeds, when it ends, and that company, room and slots change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.gemma_pytorch.conftest import CONFIG, WINDOW, Build, Calls, Ids, text
from torch import Tensor

import cabochon
from cabochon.compat.gemma_pytorch.config import AttentionType
from cabochon.compat.gemma_pytorch.from_gguf import get_config_for_gguf
from cabochon.compat.gemma_pytorch.model import GemmaForCausalLM, visible
from cabochon.errors import ContextLengthError, NumericError, UsageError

PROMPT = [30, 41, 59, 26, 53]
LIMIT = CONFIG.context_length


@pytest.fixture(scope="module")
def model(build: Build) -> GemmaForCausalLM:
    return build()


def greedy(model: GemmaForCausalLM, prompt: Sequence[int], output_len: int) -> list[int]:
    answer = model.generate(text(prompt), "cpu", output_len=output_len, temperature=None)
    assert isinstance(answer, str)
    return [int(word) for word in answer.split()]


def assert_near(got: Tensor, expected: Tensor) -> None:
    """Equal to rounding, as a share of the values' root mean square."""
    unit = expected.square().mean().sqrt().item()
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4 * unit)


# ---- What is put in ----


def test_first_the_prompt_then_one_id_and_one_position(model: GemmaForCausalLM) -> None:
    with Calls(model) as calls:
        greedy(model, PROMPT, 4)
    assert calls.shapes == [(1, 6), (1, 1), (1, 1), (1, 1)]
    assert calls.positions == [[0, 1, 2, 3, 4, 5], [6], [7], [8]]


def test_a_batch_begins_with_as_much_as_its_shortest_prompt_has(model: GemmaForCausalLM) -> None:
    with Calls(model) as calls:
        model.generate(["7", "7 8 9 10"], "cpu", output_len=2, temperature=0)
    assert calls.shapes == [(2, 2), *[(2, 1)] * 4]


def test_every_step_equals_the_whole_text_put_in_at_once(model: GemmaForCausalLM) -> None:
    """Well past the window: what one id and one position give is what all of them give."""
    with Calls(model) as calls:
        ids = [2, *PROMPT, *greedy(model, PROMPT, 3 * WINDOW)]
    assert len(calls.logits) == 3 * WINDOW
    for step, logits in enumerate(calls.logits):
        assert_near(logits, run(model, ids[: 6 + step]))


# ---- What comes out ----


def test_one_text_gives_a_text_and_a_list_gives_a_list(model: GemmaForCausalLM) -> None:
    alone = model.generate("7 8", "cpu", output_len=3, temperature=0)
    assert isinstance(alone, str)
    assert len(alone.split()) == 3
    assert model.generate(["7 8"], "cpu", output_len=3, temperature=0) == [alone]
    assert model.generate(("7 8",), torch.device("cpu"), output_len=3, temperature=0) == [alone]
    assert model.generate("7 8", "cpu", output_len=0) == ""


lengths = st.lists(st.integers(1, 2 * WINDOW + 3), min_size=2, max_size=4)


@settings(max_examples=25, deadline=None)
@given(lengths=lengths, seed=st.integers(0, 2**32 - 1), output_len=st.integers(1, WINDOW + 4))
def test_a_batch_of_unequal_prompts_equals_single_runs(
    model: GemmaForCausalLM, lengths: list[int], seed: int, output_len: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(5, CONFIG.vocab, (length,), generator=random).tolist() for length in lengths]
    together = model.generate([text(prompt) for prompt in prompts], "cpu", output_len=output_len, temperature=0)
    for prompt, answer in zip(prompts, together, strict=True):
        with Calls(model) as calls:
            alone = greedy(model, prompt, output_len)
        best = torch.cat(calls.logits).topk(2).values  # [output_len, 2]
        # Two tokens this close are one to rounding, which company may change; the texts may part there.
        close = (best[:, 0] - best[:, 1] < 1e-3).tolist()
        sure = close.index(True) if True in close else output_len
        assert [int(word) for word in answer.split()][:sure] == alone[:sure]


def test_room_for_more_changes_no_bit(model: GemmaForCausalLM) -> None:
    with Calls(model) as few:
        short = greedy(model, PROMPT, 5)
    with Calls(model) as many:
        long = greedy(model, PROMPT, 60)
    assert long[:5] == short
    assert all(torch.equal(a, b) for a, b in zip(few.logits, many.logits, strict=False))


def test_the_global_generator_decides_and_nothing_else(model: GemmaForCausalLM) -> None:
    def drawn(seed: int) -> str | list[str]:
        torch.manual_seed(seed)
        return model.generate("7 8", "cpu", output_len=12, temperature=2.0, top_p=1.0, top_k=None)

    assert drawn(1) == drawn(1) != drawn(2)


def test_the_text_is_that_of_the_engine(path: Path) -> None:
    """With the file's own tokenizer, beside ``cabochon.load``."""
    compat = GemmaForCausalLM(get_config_for_gguf(path, "float32"))
    compat.load_weights(path)
    prompts = ["the capital of France is", "a", "hello"]
    answers = compat.generate(prompts, "cpu", output_len=20, temperature=0)
    with cabochon.load(path, backend="torch", threads=1, kv_type="f32") as session:
        assert answers == [session.generate(prompt, max_tokens=20, temperature=0).text for prompt in prompts]


# ---- When it ends ----


def test_it_ends_when_every_row_has_ended(build: Build) -> None:
    prompts = [[7, 8], [30, 41, 59, 26]]
    free = build()
    eos = greedy(free, prompts[0], 6)[3]
    model = build(eos_id=eos)
    # Where each row ends: behind EOS, or behind its last token.
    answers = [greedy(free, prompt, 6) for prompt in prompts]
    cut = [answer[: answer.index(eos)] if eos in answer else answer for answer in answers]
    assert len(cut[0]) == 3
    with Calls(model) as calls:
        assert greedy(model, prompts[0], 6) == cut[0]
    assert len(calls.shapes) == 4
    with Calls(model) as calls:
        together = model.generate([text(prompt) for prompt in prompts], "cpu", output_len=6, temperature=0)
    assert together == [text(answer) for answer in cut]
    ends = [1 + len(p) + min(len(c) + 1, 6) for p, c in zip(prompts, cut, strict=True)]
    assert len(calls.shapes) == max(ends) - 3
    with Calls(model) as calls:
        model.generate([text(prompts[0])] * 2, "cpu", output_len=LIMIT - 3, temperature=0)
    assert len(calls.shapes) == 4


def test_an_end_inside_a_prompt_ends_nothing(build: Build) -> None:
    eos = 99
    model = build(eos_id=eos)
    prompts = [[7], [7, 8, eos, 9, 10]]
    together = model.generate([text(prompt) for prompt in prompts], "cpu", output_len=3, temperature=0)
    free = build()
    assert together == [text(greedy(free, prompt, 3)) for prompt in prompts]


def test_no_room_for_tokens_takes_no_step(model: GemmaForCausalLM) -> None:
    with Calls(model) as calls:
        assert model.generate(["7", "7 8 9"], "cpu", output_len=0) == ["", ""]
    assert calls.shapes == []


# ---- forward ----


def run(model: GemmaForCausalLM, ids: Sequence[int]) -> Tensor:
    """Logits [1, V] behind ``ids``, put in at once."""
    return step(model, model.empty_caches(1, len(ids)), ids, range(len(ids)))[1]


def step(
    model: GemmaForCausalLM,
    caches: list[tuple[Tensor, Tensor]],
    ids: Sequence[int],
    at: Sequence[int],
    **changes: Any,
) -> tuple[Tensor, Tensor]:
    positions = torch.tensor(list(at))
    slots = caches[0][0].shape[1]
    arguments: dict[str, Any] = {
        "input_token_ids": torch.tensor([list(ids)]),
        "input_positions": positions,
        "kv_write_indices": None,
        "kv_caches": caches,
        "mask": visible(positions, slots),
        "output_positions": torch.tensor(len(ids) - 1),
        "temperatures": None,
        "top_ps": None,
        "top_ks": None,
        "local_mask": visible(positions, slots, WINDOW),
    }
    next_tokens, logits = model(**{**arguments, **changes})
    return next_tokens, logits


def test_keys_are_stored_where_kv_write_indices_says(model: GemmaForCausalLM) -> None:
    ids = torch.randint(5, CONFIG.vocab, (20,), generator=torch.Generator().manual_seed(0)).tolist()
    straight, moved = model.empty_caches(1, 24), model.empty_caches(1, 24)
    slot_of = torch.randperm(24, generator=torch.Generator().manual_seed(1))[:20]  # [20], by position
    held = torch.full((24,), 1000)  # [24]: the position that a slot holds, by slot
    held[slot_of] = torch.arange(20)

    def seen(at: range, window: int | None = None) -> Tensor:
        behind = torch.tensor(list(at))[:, None] - held
        hidden = (behind < 0) | (behind >= (window or 1000))
        return torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[None, None]

    for at in (range(17), range(17, 18), range(18, 20)):
        _, expected = step(model, straight, [ids[i] for i in at], at)
        _, got = step(
            model,
            moved,
            [ids[i] for i in at],
            at,
            kv_write_indices=slot_of[list(at)],
            mask=seen(at),
            local_mask=seen(at, WINDOW),
        )
        assert_near(got, expected)
    for (keys, values), (moved_keys, moved_values) in zip(straight, moved, strict=True):
        assert_near(moved_keys[:, slot_of], keys[:, :20])
        assert_near(moved_values[:, slot_of], values[:, :20])


def test_logits_are_the_same_however_a_token_is_chosen(model: GemmaForCausalLM) -> None:
    best, greedy_logits = step(model, model.empty_caches(1, 3), [2, 7, 8], range(3))
    settings = {"temperatures": torch.tensor([0.5]), "top_ps": torch.tensor([0.9]), "top_ks": torch.tensor([3])}
    drawn, logits = step(model, model.empty_caches(1, 3), [2, 7, 8], range(3), **settings)
    assert torch.equal(logits, greedy_logits)
    assert best.shape == drawn.shape == (1,)
    assert best == greedy_logits.argmax()
    assert drawn in greedy_logits.topk(3).indices


def test_a_sliding_layer_needs_no_mask_of_its_own_within_the_window(model: GemmaForCausalLM) -> None:
    expected = run(model, [2, *range(10, 10 + WINDOW - 1)])
    _, got = step(
        model, model.empty_caches(1, WINDOW), [2, *range(10, 10 + WINDOW - 1)], range(WINDOW), local_mask=None
    )
    assert torch.equal(got, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"local_mask": None}, "local_mask is needed: the cache has 9 slots and a sliding layer sees 8"),
        ({"images": 3}, "forward has no argument images"),
        ({"input_positions": torch.tensor([0, 1])}, r"input_positions must have shape \[3\], not \[2\]"),
        ({"kv_write_indices": torch.tensor([0])}, r"kv_write_indices must have shape \[3\], not \[1\]"),
        ({"input_token_ids": torch.tensor([1, 2, 3])}, r"input_token_ids must be \[B, L\], not \[3\]"),
        ({"mask": torch.zeros(9, 9)}, r"mask must have shape \[1, 1, 3, 9\], not \[9, 9\]"),
        ({"local_mask": torch.zeros(1, 1, 3, 8)}, r"local_mask must have shape \[1, 1, 3, 9\], not \[1, 1, 3, 8\]"),
        ({"kv_caches": []}, "kv_caches must have 3 entries, one a layer, not 0"),
        (
            {"kv_caches": [(torch.zeros(1, 9, 2, 16), torch.zeros(2, 9, 2, 16))] * 3},
            r"each of kv_caches must have shape \[1, 9, 2, 16\], not \[2, 9, 2, 16\]",
        ),
    ],
)
def test_forward_refuses(model: GemmaForCausalLM, change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        step(model, model.empty_caches(1, 9), [2, 7, 8], range(3), **change)


# ---- generate's arguments ----


@pytest.mark.parametrize(
    ("prompts", "change", "message"),
    [
        ([], {}, "prompts is empty"),
        (3, {}, "prompts must be a list of texts, not 3"),
        (["7", 8], {}, "prompts must be texts, not 8"),
        ("7", {"output_len": -1}, "output_len must be a whole number, 0 or more, not -1"),
        ("7", {"temperature": -0.5}, r"temperature must be a number, 0 \(the most probable token\) or more, not -0.5"),
        ("7", {"temperature": float("inf")}, "temperature must be a number"),
        ("7", {"top_p": 1.5}, "top_p must be a number, from 0 to 1, not 1.5"),
        ("7", {"top_p": "0.9"}, "top_p must be a number"),
        ("7", {"top_k": -1}, "top_k must be a whole number, 0 or more, not -1"),
        ("7", {"device": "cuda-ish"}, "device 'cuda-ish': PyTorch cannot use it"),
        ("7", {"device": 3}, "device must be the name of a device, not 3"),
        ("7", {"device": "meta"}, r"device is meta, but the model is on cpu; move it with model.to\('meta'\)"),
    ],
)
def test_generate_refuses(model: GemmaForCausalLM, prompts: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        model.generate(prompts, **{"device": "cpu", **change})


def test_a_text_longer_than_the_model_is_refused_with_a_remedy(model: GemmaForCausalLM) -> None:
    prompt = text([7] * (LIMIT - 5))
    assert len(greedy(model, [7] * (LIMIT - 5), 4)) == 4
    with pytest.raises(ContextLengthError, match=f"tokens and output_len 5 are more than the {LIMIT} .*shorten"):
        model.generate(["7", prompt], "cpu", output_len=5)


def test_no_tokenizer(build: Build) -> None:
    model = build()
    model.tokenizer = None
    with pytest.raises(UsageError, match=r"^generate needs a tokenizer: set config\.tokenizer"):
        model.generate("7", "cpu")


def test_a_tokenizer_of_another_model(build: Build, path: Path) -> None:
    config = get_config_for_gguf(path)
    config.vocab_size = 300
    with pytest.raises(UsageError, match=f"^the tokenizer has {CONFIG.vocab} tokens, config.vocab_size 300"):
        GemmaForCausalLM(config)


def test_a_logit_that_is_no_number_is_an_error(build: Build) -> None:
    model = build()
    model.model.norm.weight[0] = torch.nan
    for temperature in (0, 1.0):
        with pytest.raises(NumericError, match=r"^a logit is not a finite number"):
            model.generate("7", "cpu", output_len=1, temperature=temperature)


# ---- Types of numbers ----


def test_rotations_outlive_a_change_of_type(build: Build) -> None:
    changed = build().to(torch.bfloat16).to(torch.float32)
    rounded = build()
    rounded.load_state_dict({name: w.bfloat16().float() for name, w in rounded.state_dict().items()})
    ids = [2, *range(10, 30)]
    assert torch.equal(run(changed, ids), run(rounded, ids))


def test_pytorchs_default_type_changes_nothing(path: Path) -> None:
    """Programs set it while they make a model."""

    def drawn() -> tuple[str | list[str], list[float]]:
        model = GemmaForCausalLM(get_config_for_gguf(path, "float32"))
        model.load_weights(path)
        settings: list[float] = []
        model.sampler.register_forward_pre_hook(lambda _, given: settings.extend([*given[3], *given[4], *given[5]]))
        torch.manual_seed(4)
        return model.generate("a", "cpu", output_len=9, temperature=1.3, top_p=0.949), settings

    expected = drawn()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert drawn() == expected
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_near(build: Build, dtype: str) -> None:
    ids = [2, *range(10, 30)]
    expected, got = run(build(), ids), run(build(dtype), ids)
    assert got.dtype == getattr(torch, dtype)
    error = (got.float() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert error < {"bfloat16": 0.1, "float16": 0.02}[dtype]


def test_the_embedding_scale_is_rounded_to_the_type(build: Build) -> None:
    model = build("bfloat16")
    ids = list(range(CONFIG.vocab))
    h = put_into_layers(model, ids)[0]
    scale = torch.tensor(CONFIG.hidden**0.5).bfloat16()
    assert scale.item() != CONFIG.hidden**0.5
    assert torch.equal(h[0], model.embedder.weight * scale)


def test_angles_are_in_float32_whatever_the_type(build: Build) -> None:
    at = torch.arange(LIMIT, dtype=torch.float64)[:, None]
    exponents = torch.arange(0, CONFIG.head_dim, 2, dtype=torch.float64) / CONFIG.head_dim
    angles = put_into_layers(build("bfloat16"), [2] * LIMIT)[1]
    for kind, rope in (
        (AttentionType.LOCAL_SLIDING, CONFIG.layer_ropes[0]),
        (AttentionType.GLOBAL, CONFIG.layer_ropes[2]),
    ):
        expected = at * rope.theta**-exponents / rope.factor
        torch.testing.assert_close(angles[kind].double(), expected, rtol=1e-6, atol=0)


def put_into_layers(model: GemmaForCausalLM, ids: Sequence[int]) -> tuple[Any, ...]:
    """What the layers are given for ``ids``: the residual stream and the angles first."""
    seen: list[tuple[Any, ...]] = []
    handle = model.model.register_forward_pre_hook(lambda _, given: seen.append(given))
    run(model, ids)
    handle.remove()
    return seen[0]


def test_what_is_visible() -> None:
    mask = visible(torch.tensor([0, 2]), 4, window=2)
    assert (mask == 0).tolist() == [[[[True, False, False, False], [False, True, True, False]]]]
    assert visible(torch.tensor([2]), 4)[0, 0, 0].tolist() == [0, 0, 0, -torch.inf]


def test_caches_follow_the_weights(build: Build) -> None:
    caches = build("bfloat16").empty_caches(2, 5)
    assert len(caches) == CONFIG.layers
    assert {tensor.dtype for pair in caches for tensor in pair} == {torch.bfloat16}
    assert caches[0][0].shape == (2, 5, CONFIG.kv_heads, CONFIG.head_dim)


def test_global_layers_alone(build: Build) -> None:
    """A model none of whose layers slides needs no window."""
    kinds = [AttentionType.GLOBAL]
    wide = build(attn_types=kinds, sliding_window_size=None, rope_wave_length={AttentionType.GLOBAL: 1e6})
    assert isinstance(wide.tokenizer, Ids)
    assert len(greedy(wide, PROMPT, 12)) == 12

"""Faults that users of other programs reported, each as a small model on which it would show.

They are about windows, positions, storage and rotation; every backend must be free of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cabochon.errors import NumericError
from cabochon.kvcache.store import KVStore
from cabochon.model.layout import kv_layout
from cabochon.model.model import Model
from cabochon.ops.protocol import Rope
from cabochon.testing.steps import StepMaker, poison, run_chunks, tiny_store
from cabochon.testing.tiny import tiny_config, tiny_weights
from cabochon.types import Float32, Int32

Load = Callable[..., Model]

SMALL: dict[str, Any] = {"hidden": 32, "head_dim": 16, "ffn": 56, "vocab": 345, "query_scale": 10**-0.5}
TOLERANCE = 1e-3
"""Largest difference of logits of size 25 between two ways to compute them; a fault gives some units."""


def some_ids(count: int, seed: int = 0) -> Int32:
    return np.random.default_rng(seed).integers(3, SMALL["vocab"], count, dtype=np.int32)


def changed(ids: Int32, place: int) -> Int32:
    """``ids`` with another id at one place."""
    other = ids.copy()
    other[place] = 3 + (ids[place] - 2) % (SMALL["vocab"] - 3)
    return other


def run(model: Model, ids: Int32, chunks: tuple[int, ...] | list[int] = (), *, let_go: bool = True) -> Float32:
    """Logits of every position, from empty pages."""
    poison(model.store)
    steps = StepMaker(model.store.layout, model.store.pages, let_go=let_go)
    return run_chunks(model, steps, steps.sequence(), ids, chunks)


@pytest.mark.parametrize("window", [1, 4, 8])
@pytest.mark.parametrize("single_steps", [False, True])
def test_a_sliding_query_sees_exactly_its_window(load: Load, window: int, single_steps: bool) -> None:
    """KV-02, KV-08: one key more or less; a window forgotten while decoding from storage that keeps everything."""
    config = tiny_config(**SMALL, layers=1, window=window)
    ids = some_ids(24)
    model = load(config, tiny_weights(config), tokens=len(ids))
    chunks = [1] * len(ids) if single_steps else []
    before = run(model, ids, chunks, let_go=False)
    place = 9
    after = run(model, changed(ids, place), chunks, let_go=False)
    moved = np.flatnonzero((before != after).any(axis=1))
    assert moved.tolist() == list(range(place, place + window))


def test_positions_go_on_after_the_window_is_full(load: Load) -> None:
    """KV-04, KV-18: a position or a length taken from a sliding layer stops at the window."""
    config = tiny_config(**SMALL, layers=3, pattern=3, window=8)
    ids = some_ids(100)
    weights = tiny_weights(config)
    full = run(load(config, weights, tokens=len(ids)), ids)

    def just_enough(config: Any) -> KVStore:
        return KVStore(kv_layout(config), [2, 4], "f32")

    stepped = run(load(config, weights, tokens=0, store=just_enough), ids, [12, *[1] * 88])
    np.testing.assert_allclose(stepped, full, atol=TOLERANCE)


def test_the_sixth_layer_is_global_where_the_file_says_nothing(
    load: Load, oracle: Callable[..., Float32], random_weights: Callable[..., dict[str, Float32]]
) -> None:
    """KV-05: the order of sliding and global layers inverted or shifted."""
    config = tiny_config(**SMALL, layers=12, window=4)
    weights, ids = random_weights(config), some_ids(40)
    model = load(config, weights, tokens=40, metadata={"gemma3.attention.sliding_window_pattern": None})
    assert [layer for layer, window in enumerate(model.config.layer_windows) if window is None] == [5, 11]
    expected = oracle(config, weights, ids, layer_types=None)
    np.testing.assert_allclose(run(model, ids), expected, atol=TOLERANCE)


def test_an_explicit_order_of_layers_wins(
    load: Load, oracle: Callable[..., Float32], random_weights: Callable[..., dict[str, Float32]]
) -> None:
    """KV-05: a list in the file is followed, however odd."""
    slides = [False, True, True, False, True]
    narrow, wide = tiny_config().layer_ropes[0], tiny_config().layer_ropes[5]
    config = tiny_config(
        **SMALL,
        layers=5,
        layer_windows=tuple(4 if sliding else None for sliding in slides),
        layer_ropes=tuple(narrow if sliding else wide for sliding in slides),
    )
    weights, ids = random_weights(config), some_ids(40)
    got = run(load(config, weights, tokens=40), ids, [11, 1, 1])
    np.testing.assert_allclose(got, oracle(config, weights, ids), atol=TOLERANCE)


@pytest.mark.parametrize(("layers", "reaches"), [(5, False), (6, True)])
def test_only_a_global_layer_sees_far_back(load: Load, layers: int, reaches: bool) -> None:
    """KV-06: every layer taken for a sliding one, or for a global one; five windows of 4 reach 15 positions back."""
    config = tiny_config(**SMALL, layers=layers, window=4)
    model = load(config, tiny_weights(config), tokens=41)
    ids = some_ids(41)
    assert bool((run(model, ids)[-1] != run(model, changed(ids, 0))[-1]).any()) == reaches


def test_rows_of_unequal_length_keep_their_own_positions(load: Load) -> None:
    """KV-10: one position vector for a whole batch."""
    config = tiny_config(**SMALL, layers=3, pattern=3, window=8)
    model = load(config, tiny_weights(config), tokens=200)
    prompts = [some_ids(length, seed=length) for length in (3, 7, 12)]
    steps = StepMaker(model.store.layout, model.store.pages)
    texts = [steps.sequence() for _ in prompts]
    logits = model.forward(steps.step(*zip(texts, prompts, strict=True))).copy()
    rows = [list(prompt) for prompt in prompts]
    for _ in range(15):
        for row, scores in zip(rows, logits, strict=True):
            row.append(int(scores.argmax()))
        logits = model.forward(steps.step(*((text, row[-1:]) for text, row in zip(texts, rows, strict=True)))).copy()
    for row, prompt, last in zip(rows, prompts, logits, strict=True):
        alone = run(model, np.array(row, np.int32))
        np.testing.assert_allclose(last, alone[-1], atol=TOLERANCE)
        assert row[len(prompt) :] == alone[len(prompt) - 1 : -1].argmax(axis=1).tolist()


@pytest.mark.parametrize("length", [1, 2, 1022, 1023, 1024, 1025])
def test_texts_shorter_than_the_window_and_just_beyond(load: Load, length: int) -> None:
    """KV-19: a slice of the last ``window`` keys where there are not so many."""
    config = tiny_config(**SMALL, layers=2, pattern=2, window=1024)
    model = load(config, tiny_weights(config), tokens=1056)
    ids = some_ids(length)
    full = run(model, ids)
    stepped = run(model, ids, [max(length - 3, 1), 1, 1])
    np.testing.assert_allclose(stepped, full, atol=TOLERANCE)


def test_reserved_space_changes_nothing(load: Load) -> None:
    """KV-20: unused slots leak into attention, through a mask as large as the space."""
    config = tiny_config(**SMALL, layers=3, pattern=2, window=8)
    weights, ids = tiny_weights(config), some_ids(20)
    small, *larger = [run(load(config, weights, tokens=tokens), ids, [5, 9]) for tokens in (20, 64, 512)]
    for other in larger:
        np.testing.assert_array_equal(other, small)


def test_logits_are_capped_where_the_file_says_so_and_nowhere_else(load: Load) -> None:
    """MA-09: a cap that goes with the family and not with the model."""
    config = tiny_config(**SMALL, layers=2, window=8)
    weights, ids = tiny_weights(config, logit_scale=30.0), some_ids(20)
    free = run(load(config, weights, tokens=20), ids)
    assert np.abs(free).max() > 60
    capped = run(load(replace(config, final_softcap=30.0), weights, tokens=20), ids)
    np.testing.assert_allclose(capped, 30 * np.tanh(free.astype(np.float64) / 30), atol=TOLERANCE)


def at_positions(model: Model, ids: Int32, stride: int) -> Float32:
    """Logits of one pass whose row i stands at position ``stride * i`` but sees and stores key i as ever."""
    poison(model.store)
    steps = StepMaker(model.store.layout, model.store.pages)
    step = steps.step((steps.sequence(), ids), logits="all")
    return model.forward(replace(step, positions=step.positions * np.int32(stride))).copy()


def test_a_linear_factor_divides_positions_on_global_layers(load: Load) -> None:
    """MA-11: the factor read and not used; 8 * 512 is exact, so the results are too."""
    ids = some_ids(30)
    scaled = tiny_config(**SMALL, layers=2, window=None, global_rope=Rope(1e6, 8.0))
    plain = tiny_config(**SMALL, layers=2, window=None, global_rope=Rope(1e6))
    weights = tiny_weights(scaled)
    expected = at_positions(load(plain, weights, tokens=30), ids, 64)
    np.testing.assert_array_equal(at_positions(load(scaled, weights, tokens=30), ids, 512), expected)


def test_a_linear_factor_leaves_sliding_layers_alone(load: Load) -> None:
    """MA-12: the factor taken for all layers."""
    config = tiny_config(**SMALL, layers=2, window=8)
    weights, ids = tiny_weights(config), some_ids(30)
    expected = run(load(config, weights, tokens=30), ids)
    factor = {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}
    np.testing.assert_array_equal(run(load(config, weights, tokens=30, metadata=factor), ids), expected)


def test_a_value_beyond_float16_is_an_error_that_names_the_remedy(load: Load) -> None:
    """MA-15: infinities in a float16 cache, and from there silence or the same token for ever."""
    config = tiny_config(**SMALL, layers=2, window=8)
    weights = tiny_weights(config)
    weights["layers.1.value"] *= 1e5
    ids = some_ids(5)
    refusing = load(config, weights, tokens=5, store=lambda config: tiny_store(config, 5, "f16"))
    with pytest.raises(NumericError, match=r"float16.*--kv-type bf16"):
        run(refusing, ids)
    for kv_type in ("bf16", "f32"):
        fine = load(config, weights, tokens=5, kv_type=kv_type)
        assert np.isfinite(run(fine, ids)).all()


def test_only_wanted_rows_get_logits(load: Load) -> None:
    """PF-01: a quarter of a million logits for every position of a prompt."""
    config = tiny_config(hidden=8, head_dim=8, ffn=24, vocab=262_144, layers=3, pattern=2, window=8)
    model = load(config, tiny_weights(config), tokens=420, logit_rows=20)
    steps = StepMaker(model.store.layout, model.store.pages)
    text, ids = steps.sequence(), some_ids(420)
    assert model.forward(steps.step((text, ids[:400]), logits="none")).shape == (0, config.vocab)
    step = steps.step((text, ids[400:]))
    last = model.forward(step).copy()
    assert last.shape == (1, config.vocab)
    every = model.head(model.hidden(replace(step, logit_rows=np.arange(20, dtype=np.int32))))
    np.testing.assert_allclose(last[0], every[-1], atol=TOLERANCE)

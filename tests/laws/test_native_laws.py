"""Laws 1 and 2 on the native backend, to the bit: on every instruction set, for every type of cache and of weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.model.native_model import NativeModel, build_native_model
from cabochon.ops.machine import available_instruction_sets
from cabochon.testing.steps import StepMaker, Wanted, poison, run_chunks, tiny_store
from cabochon.testing.tiny import MIXED_TYPES, tiny_config, tiny_config_k, tiny_tensors, tiny_weights
from cabochon.types import Activations, Float32, Int32, KVType, WeightType

ISAS = available_instruction_sets()

LENGTH = 300
"""Many windows, and keys on both sides of a border between segments."""

HALVES = {"embedding": WeightType.F16, "query": WeightType.BF16, "gate": WeightType.F16, "up": WeightType.F32}
BLOCKS_OF_32 = {"embedding": WeightType.Q8_0, "query": WeightType.Q5_0, "key": WeightType.Q8_0, "down": WeightType.Q5_0}
WEIGHTS: dict[str, Mapping[str, WeightType]] = {
    "f32": {},
    "halves": HALVES,
    "blocks of 32": BLOCKS_OF_32,  # next to float weights in the same product
    "K-quants": MIXED_TYPES,
}

chunks = st.lists(st.one_of(st.integers(1, 4), st.integers(1, 130)), max_size=20)


@cache
def model(
    isa: str,
    *,
    threads: int = 2,
    weights: str = "blocks of 32",
    kv_type: KVType = "f16",
    window: int = 20,
    head_dim: int = 32,
    kv_heads: int = 2,
    activations: Activations = "int8x2",
    softcap: float | None = None,
) -> NativeModel:
    if weights == "K-quants":
        config = tiny_config_k(layers=2, window=window, ffn=256, vocab=131, head_dim=64)
    else:
        config = tiny_config(
            layers=3,
            pattern=2,
            window=window,
            hidden=64,
            ffn=96,
            vocab=131,
            head_dim=head_dim,
            kv_heads=kv_heads,
            attn_softcap=softcap,
            final_softcap=softcap,
        )
    tensors = tiny_tensors(config, tiny_weights(config, seed=window), WEIGHTS[weights])
    store = tiny_store(config, 5 * (LENGTH + 32), kv_type)
    return build_native_model(
        config, tensors, store, threads=threads, activations=activations, isa=isa, max_rows=LENGTH, max_logit_rows=7
    )


def ids_of(seed: int, vocab: int, length: int = LENGTH) -> Int32:
    return np.random.default_rng(seed).integers(3, vocab, length, dtype=np.int32)


def run(of: NativeModel, ids: Int32, sizes: list[int], seed: int = 0) -> Float32:
    poison(of.store)
    steps = StepMaker(of.store.layout, of.store.pages, seed=seed)
    return run_chunks(of, steps, steps.sequence(), ids, sizes)


def assert_same_bits(got: Float32, want: Float32) -> None:
    assert np.isfinite(want).all()
    assert got.dtype == want.dtype == np.float32
    np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


@cache
def one_pass(isa: str, seed: int, window: int = 20) -> Float32:
    of = model(isa, window=window)
    return run(of, ids_of(seed, of.config.vocab), [])


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2), sizes=chunks, window=st.sampled_from([1, 20, 32, 33, 270]))
def test_cached_equals_recomputed(isa: str, seed: int, sizes: list[int], window: int) -> None:
    of = model(isa, window=window)
    assert_same_bits(run(of, ids_of(seed, of.config.vocab), sizes, seed), one_pass(isa, seed, window))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", ["bf16", "f32", "int8"])
def test_cached_equals_recomputed_whatever_the_cache(isa: str, kv_type: KVType) -> None:
    of = model(isa, kv_type=kv_type)
    ids = ids_of(1, of.config.vocab, 270)
    assert_same_bits(run(of, ids, [100, 1, 1, 37, 64, 17, 1, 1, 40], seed=3), run(of, ids, []))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_cached_equals_recomputed_whatever_the_weights(isa: str, weights: str) -> None:
    of = model(isa, weights=weights)
    ids = ids_of(1, of.config.vocab, 90)
    assert_same_bits(run(of, ids, [1, 2, 3, 4, 5, 6, 1, 17, 40, 1], seed=3), run(of, ids, []))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "variant",
    [
        {"activations": "int8"},
        {"softcap": 20.0},
        {"head_dim": 16, "kv_heads": 1},
        {"head_dim": 18, "kv_type": "int8"},  # no whole vectors, no whole blocks
        {"kv_heads": 4},
    ],
    ids=str,
)
def test_cached_equals_recomputed_in_other_shapes(isa: str, variant: dict[str, Any]) -> None:
    of = model(isa, **variant)
    ids = ids_of(2, of.config.vocab, 270)
    assert_same_bits(run(of, ids, [99, 1, 1, 58, 97, 1]), run(of, ids, []))


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=10, deadline=None)
@given(data=st.data(), seed=st.integers(0, 5))
def test_alone_equals_in_company(isa: str, data: st.DataObject, seed: int) -> None:
    """Up to five sequences advance by unequal chunks, in steps they share in any order and with any of the others."""
    of = model(isa)
    count = data.draw(st.integers(2, 5))
    lengths = data.draw(st.lists(st.integers(1, LENGTH), min_size=count, max_size=count))
    texts = [ids_of(10 * seed + i, of.config.vocab, length) for i, length in enumerate(lengths)]
    alone = [run(of, ids, []) for ids in texts]
    poison(of.store)
    steps = StepMaker(of.store.layout, of.store.pages, seed=seed)
    sequences = [steps.sequence() for _ in texts]
    while waiting := [i for i in range(count) if sequences[i].length < lengths[i]]:
        members = data.draw(st.lists(st.sampled_from(waiting), min_size=1, unique=True))
        starts = [sequences[i].length for i in members]
        most = LENGTH // len(members)
        parts = [texts[i][sequences[i].length :][: data.draw(st.integers(1, most))] for i in members]
        wanted: Wanted = data.draw(st.sampled_from(["all", "last"]))
        step = steps.step(*((sequences[i], part) for i, part in zip(members, parts, strict=True)), logits=wanted)
        logits = of.forward(step).copy()
        for place, (i, start) in enumerate(zip(members, starts, strict=True)):
            first = start if wanted == "all" else sequences[i].length - 1
            assert_same_bits(logits[step.sequences[step.logit_rows] == place], alone[i][first : sequences[i].length])


@pytest.mark.parametrize("kv_type", ["f16", "int8"])
@pytest.mark.parametrize("weights", ["blocks of 32", "K-quants"])
def test_threads_and_instruction_sets_change_no_bit(kv_type: KVType, weights: str) -> None:
    of = model("portable", threads=1, weights=weights, kv_type=kv_type)
    ids = ids_of(4, of.config.vocab, 90 if weights == "K-quants" else 270)
    want = run(of, ids, [])
    for isa in ISAS:
        for threads, sizes in ((1, []), (2, []), (3, [70, 1, 9, 1]), (5, [7, 80])):
            other = model(isa, threads=threads, weights=weights, kv_type=kv_type)
            assert_same_bits(run(other, ids, sizes), want)


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=8, deadline=None)
@given(wanted=st.sets(st.integers(0, 79)), before=st.integers(0, 60))
def test_asking_for_fewer_logits_changes_none(isa: str, wanted: set[int], before: int) -> None:
    of = model(isa)
    ids = ids_of(1, of.config.vocab, before + 80)
    every = run(of, ids, [])
    poison(of.store)
    steps = StepMaker(of.store.layout, of.store.pages)
    text = steps.sequence()
    if before:
        assert of.forward(steps.step((text, ids[:before]), logits="none")).shape == (0, of.config.vocab)
    rows = sorted(wanted)
    step = replace(steps.step((text, ids[before:])), logit_rows=np.array(rows, np.int32))
    assert_same_bits(of.forward(step), every[[before + row for row in rows]])


@pytest.mark.parametrize("isa", ISAS)
def test_forward_is_the_head_of_hidden(isa: str) -> None:
    of = model(isa)
    ids = ids_of(5, of.config.vocab, 40)
    want = run(of, ids, [])
    poison(of.store)
    steps = StepMaker(of.store.layout, of.store.pages)
    hidden = of.hidden(steps.step((steps.sequence(), ids), logits="all"))
    assert hidden.shape == (40, of.config.hidden)
    assert_same_bits(of.head(hidden), want)
    for first, last in ((0, 1), (3, 10), (39, 40), (7, 7)):
        assert_same_bits(of.head(hidden[first:last]), want[first:last])
    assert_same_bits(of.head(hidden[::3]), want[::3])

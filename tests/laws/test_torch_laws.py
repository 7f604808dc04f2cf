"""Laws 1 and 2 on the torch backend: to rounding, since PyTorch's sums depend on how many rows they are made for.

The native backend keeps the same laws to the bit; its tests are elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.checkpoint.dequantize import dequantize
from cabochon.model.torch_model import TorchModel, build_torch_model
from cabochon.testing.steps import StepMaker, poison, run_chunks, tiny_store
from cabochon.testing.tiny import MIXED_TYPES, tiny_config, tiny_config_k, tiny_tensors, tiny_weights
from cabochon.types import Float32, Int32, KVType

LENGTH = 70
"""Three windows and more, over three pages."""

TOLERANCE: dict[KVType, float] = {"f32": 1e-4, "f16": 1e-2, "bf16": 1e-1, "int8": 1e-1}
"""Largest difference of logits, as a share of their root mean square.

A key that lies between two values of a narrow type may be rounded either way, and then differs by a whole step of it.
"""

chunks = st.lists(st.integers(1, 40), max_size=12)


@cache
def model(window: int = 20, kv_type: KVType = "f32", *, mixed: bool = False) -> TorchModel:
    config = tiny_config_k(window=window) if mixed else tiny_config(layers=4, pattern=3, window=window, kv_heads=1)
    tensors = tiny_tensors(config, tiny_weights(config, seed=window), MIXED_TYPES if mixed else {})
    store = tiny_store(config, 4 * (LENGTH + 32), kv_type)
    return build_torch_model(config, lambda name: dequantize(tensors[name]), store, threads=1)


def ids_of(seed: int, vocab: int, length: int = LENGTH) -> Int32:
    return np.random.default_rng(seed).integers(3, vocab, length, dtype=np.int32)


def run(of: TorchModel, ids: Int32, sizes: list[int], seed: int = 0) -> Float32:
    poison(of.store)
    steps = StepMaker(of.store.layout, of.store.pages, seed=seed)
    return run_chunks(of, steps, steps.sequence(), ids, sizes)


def assert_close(got: Float32, expected: Float32, kv_type: KVType = "f32") -> None:
    unit = float(np.sqrt(np.mean(expected**2)))
    assert np.abs(got - expected).max() <= TOLERANCE[kv_type] * unit


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 5), sizes=chunks, window=st.sampled_from([1, 20, 32, 33]))
def test_cached_equals_recomputed(seed: int, sizes: list[int], window: int) -> None:
    of = model(window)
    ids = ids_of(seed, of.config.vocab)
    assert_close(run(of, ids, sizes, seed), run(of, ids, []))


@pytest.mark.parametrize("kv_type", ["f16", "bf16", "int8"])
def test_cached_equals_recomputed_with_rounded_keys_and_values(kv_type: KVType) -> None:
    of = model(kv_type=kv_type)
    ids = ids_of(7, of.config.vocab)
    whole = run(of, ids, [])
    assert_close(run(of, ids, [*[1] * 30, 17, 2]), whole, kv_type)
    exact = run(model(), ids, [])
    assert not np.array_equal(whole, exact), "one pass reads rounded keys too"


def test_cached_equals_recomputed_on_quantised_weights() -> None:
    of = model(mixed=True)
    ids = ids_of(3, of.config.vocab)
    assert_close(run(of, ids, [31, 1, 1, 5]), run(of, ids, []))


@settings(max_examples=20, deadline=None)
@given(data=st.data(), seed=st.integers(0, 5))
def test_alone_equals_in_company(data: st.DataObject, seed: int) -> None:
    """Up to four sequences advance by unequal chunks, in steps they share in any order and with any of the others."""
    of = model()
    count = data.draw(st.integers(2, 4))
    lengths = data.draw(st.lists(st.integers(1, LENGTH), min_size=count, max_size=count))
    texts = [ids_of(10 * seed + i, of.config.vocab, length) for i, length in enumerate(lengths)]
    alone = [run(of, ids, []) for ids in texts]
    poison(of.store)
    steps = StepMaker(of.store.layout, of.store.pages, seed=seed)
    sequences = [steps.sequence() for _ in texts]
    while waiting := [i for i in range(count) if sequences[i].length < lengths[i]]:
        members = data.draw(st.lists(st.sampled_from(waiting), min_size=1, unique=True))
        starts = [sequences[i].length for i in members]
        parts = [texts[i][sequences[i].length :][: data.draw(st.integers(1, 40))] for i in members]
        step = steps.step(*((sequences[i], part) for i, part in zip(members, parts, strict=True)), logits="all")
        logits = of.forward(step)
        for place, (i, start) in enumerate(zip(members, starts, strict=True)):
            assert_close(logits[step.sequences == place], alone[i][start : sequences[i].length])


@settings(max_examples=15, deadline=None)
@given(wanted=st.sets(st.integers(0, LENGTH - 1)), before=st.integers(0, 20))
def test_asking_for_fewer_logits_changes_none(wanted: set[int], before: int) -> None:
    of = model()
    ids = ids_of(1, of.config.vocab, before + LENGTH)
    every = run(of, ids, [])
    poison(of.store)
    steps = StepMaker(of.store.layout, of.store.pages)
    text = steps.sequence()
    if before:
        of.forward(steps.step((text, ids[:before]), logits="none"))
    step = steps.step((text, ids[before:]))
    rows = sorted(wanted)
    logits = of.forward(replace(step, logit_rows=np.array(rows, np.int32)))
    assert logits.shape == (len(rows), of.config.vocab)
    if rows:
        assert_close(logits, every[[before + row for row in rows]])

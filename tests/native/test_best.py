"""The largest output of a row, found without computing most of them: bounds that hold, and the id that all give."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.native.kernel_tests import ISAS, assert_same_bits
from tests.native.test_linear import QUANTIZED, activations, linear
from tests.native.weight_bytes import FORMATS, Bytes, Format, all_ones, random_matrix

from cabochon._native import check
from cabochon.errors import UsageError
from cabochon.model.native_model import NativeModel, build_native_model
from cabochon.testing.steps import StepMaker, poison, tiny_store
from cabochon.testing.tiny import tiny_config_k, tiny_tensors, tiny_weights
from cabochon.types import NO_BEST, PAGE, BestId, Float32, StepInput, WeightType

COLS = {32: (32, 64, 352, 640), 256: (256, 512)}


def largest_of_groups(y: Float32) -> Float32:
    """[T, groups] of outputs [T, N]."""
    padded = np.full((len(y), -(-y.shape[1] // 16) * 16), -np.inf, np.float32)
    padded[:, : y.shape[1]] = y
    groups: Float32 = padded.reshape(len(y), -1, 16).max(axis=2)
    return groups


def rough(isa: str, fmt: Format, rows: int, file: Bytes, x: Float32, *, two_terms: bool) -> tuple[Float32, Float32]:
    return check.rough(isa, fmt.number, rows, file, x, two_terms)


def excluded(bounds: Float32, y: Float32) -> None:
    """No bound excludes what is there."""
    assert not (bounds < largest_of_groups(y)).any()
    missed = ~np.isfinite(largest_of_groups(np.where(np.isfinite(y), 0, np.inf).astype(np.float32)))
    assert not (bounds[missed] < np.inf).any(), "an output that is not finite has to be seen"


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_output_is_above_its_bound(isa: str, data: st.DataObject) -> None:
    fmt = FORMATS[data.draw(st.sampled_from(QUANTIZED))]
    tokens, rows = data.draw(st.integers(1, 16)), data.draw(st.integers(1, 50))
    cols = data.draw(st.sampled_from(COLS[fmt.inputs]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    file = random_matrix(rng, fmt, rows, cols, data.draw(st.sampled_from(("usual", "extreme"))))
    x = activations(rng, tokens, cols)
    two_terms = data.draw(st.booleans())
    bounds, norms = rough(isa, fmt, rows, file, x, two_terms=two_terms)
    excluded(bounds, linear(isa, fmt, rows, file, x, two_terms=two_terms))
    for got, want in zip((bounds, norms), rough(ISAS[0], fmt, rows, file, x, two_terms=two_terms), strict=True):
        assert_same_bits(got, want)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", QUANTIZED)
def test_the_largest_integers_do_not_overflow(name: str, isa: str) -> None:
    fmt, rng = FORMATS[name], np.random.default_rng(1)
    file = all_ones(fmt, 16, 512)
    x = np.ones((9, 512), np.float32)
    x[1] = -1
    x[2, ::4] = x[2, 1::4] = -1  # all that one sum takes in has one sign
    x[3] = rng.choice([-1, 1], 512)
    x[4, 8:] = 0
    x[5] = np.where(np.arange(512) % 32 == 0, 1, 2.0**-20)
    x[6:] = rng.standard_normal((3, 512))
    for two_terms in (True, False):
        excluded(
            rough(isa, fmt, 16, file, x, two_terms=two_terms)[0], linear(isa, fmt, 16, file, x, two_terms=two_terms)
        )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", QUANTIZED)
def test_bounds_allow_for_roundings(name: str, isa: str) -> None:
    fmt, rng = FORMATS[name], np.random.default_rng(3)
    file = random_matrix(rng, fmt, 160, 512)
    x = np.zeros((16, 512), np.float32)
    x[:, 5::32] = 487680 * np.exp2(rng.integers(-25, -15, (16, 16)))  # all three scales are exact, and nothing is lost
    for two_terms in (True, False):
        excluded(
            rough(isa, fmt, 160, file, x, two_terms=two_terms)[0], linear(isa, fmt, 160, file, x, two_terms=two_terms)
        )


@pytest.mark.parametrize("name", QUANTIZED)
def test_norms_are_those_of_the_blocks(name: str) -> None:
    fmt, rng = FORMATS[name], np.random.default_rng(2)
    file = random_matrix(rng, fmt, 40, 512)
    weights = np.zeros((48, 512), np.float32)
    weights[:40] = check.dequantize("reference", fmt.number, 40, 512, file, 1.0)
    true = np.linalg.norm(weights.reshape(3, 16, 16, 32).astype(np.float64), axis=3).max(axis=1)
    _, norms = rough(ISAS[0], fmt, 40, file, np.ones((1, 512), np.float32), two_terms=True)
    assert (norms >= true * (1 - 1e-6)).all()
    if fmt.name not in ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K"):  # theirs are those of scales and minima, added
        np.testing.assert_allclose(norms, true, rtol=1e-5)


@pytest.mark.parametrize("name", QUANTIZED)
def test_bounds_are_near_enough_to_be_of_use(name: str) -> None:
    fmt, rng = FORMATS[name], np.random.default_rng(4)
    rows, cols = 4096, 512
    file = random_matrix(rng, fmt, rows, cols)
    x = rng.standard_normal((4, cols)).astype(np.float32)
    x += 0.2 * check.dequantize("reference", fmt.number, rows, cols, file, 1.0)[rng.integers(0, rows, 4)] / 0.05
    y = linear(ISAS[0], fmt, rows, file, x)
    bounds, _ = rough(ISAS[0], fmt, rows, file, x, two_terms=True)
    assert (bounds >= y.max(axis=1)[:, None]).mean() < 0.3


# ---- In a model -------------------------------------------------------------------------------------------------

Change = Literal["none", "every row twice", "one row infinite"]


@cache
def model(isa: str, kind: WeightType, change: Change = "none", softcap: float | None = None) -> NativeModel:
    config = tiny_config_k(vocab=299, window=40, final_softcap=softcap)
    weights = tiny_weights(config)
    if change == "every row twice":
        weights["embedding"][150:] = weights["embedding"][:149]
    tensors = tiny_tensors(config, weights, kind)
    if change == "one row infinite":
        rows = tensors["embedding"].data.reshape(299, -1)
        rows[200, :2] = np.array([np.inf], np.float16).view(np.uint8)
    store = tiny_store(config, 40 * PAGE, "f32")
    return build_native_model(config, tensors, store, threads=2, isa=isa, max_rows=64, max_logit_rows=5)


def step_of(of: NativeModel, random: np.random.Generator, sequences: int) -> StepInput:
    """A step of new sequences of 4 rows each; of each row the logits are wanted, the best id or neither."""
    poison(of.store)
    steps = StepMaker(of.store.layout, of.store.pages)
    step = steps.step(*((steps.sequence(), random.integers(0, 150, 4).astype(np.int32)) for _ in range(sequences)))
    wanted = random.integers(0, 3, step.rows) if sequences < 16 else np.ones(step.rows)
    rows = np.arange(step.rows, dtype=np.int32)
    return replace(step, logit_rows=rows[wanted == 0], best_rows=rows[wanted == 1])


def assert_best(of: NativeModel, step: StepInput) -> list[int]:
    """The best ids are those of all logits, and neither kind of row disturbs the other."""
    every = of.forward(replace(step, logit_rows=np.arange(step.rows, dtype=np.int32), best_rows=step.best_rows[:0]))
    every = every.copy()
    out = of.run(step)
    assert_same_bits(out.values, every[step.logit_rows])
    assert [*out.bests] == [BestId.of(row) for row in every[step.best_rows]]
    return [best.token_id for best in out.bests]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", [WeightType[name] for name in (*QUANTIZED, "F32")])
def test_the_best_ids_are_those_of_all_logits(kind: WeightType, isa: str) -> None:
    of, random = model(isa, kind), np.random.default_rng(int(kind))
    found = [i for sequences in (1, 2, 5, 16) for i in assert_best(of, step_of(of, random, sequences))]
    assert len(set(found)) > 10


@pytest.mark.parametrize("isa", ISAS)
def test_of_equal_logits_the_first_is_best(isa: str) -> None:
    of, random = model(isa, WeightType.Q8_0, "every row twice"), np.random.default_rng(5)
    for sequences in (1, 9, 16):
        assert max(assert_best(of, step_of(of, random, sequences)), default=0) < 150


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("change", ["none", "one row infinite"])
def test_a_row_with_a_logit_that_is_not_finite_has_no_best(isa: str, change: Change) -> None:
    of, random = model(isa, WeightType.Q8_0, change), np.random.default_rng(6)
    for sequences in (1, 16):
        step = step_of(of, random, sequences)
        found = assert_best(of, step)
        assert (NO_BEST in found) == (change != "none" and len(found) > 0)


def test_where_logits_are_capped_the_best_is_that_of_the_capped_ones() -> None:
    of, random = model(ISAS[0], WeightType.Q8_0, softcap=0.001), np.random.default_rng(7)
    for sequences in (1, 16):
        assert_best(of, step_of(of, random, sequences))


@pytest.mark.parametrize("bad", [[-1], [64], [3, 3], [5, 4], list(range(12))])
def test_bad_rows_are_refused(bad: list[int]) -> None:
    of = model(ISAS[0], WeightType.Q8_0)
    step = step_of(of, np.random.default_rng(8), 3)
    step = replace(step, logit_rows=np.arange(2, dtype=np.int32), best_rows=np.array(bad, np.int32))
    with pytest.raises(UsageError, match=r"^step: .*best_rows"):
        of.run(step)

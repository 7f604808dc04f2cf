"""Matrix products equal the scalar reference bit for bit, whatever the instruction set and however many rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.native.kernel_tests import ISAS, assert_same_bits, placed
from tests.native.weight_bytes import FORMATS, Bytes, Format, all_ones, random_matrix

from cabochon._native import check
from cabochon.types import Float32

NAMES = tuple(FORMATS)
QUANTIZED = tuple(name for name in NAMES if FORMATS[name].quantized)
TOKENS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33, 64, 70)
ROWS = (1, 15, 16, 17, 40)
COLS = {1: (1, 7, 32, 100, 640), 32: (32, 64, 96, 512, 544, 640), 256: (256, 512, 768)}


def activations(rng: np.random.Generator, tokens: int, cols: int) -> Float32:
    """Finite rows of every magnitude: blocks of zeros, subnormals, huge values, numbers half way between integers."""
    blocks = -(-cols // 32)
    magnitude = np.exp2(rng.integers(-3, 4, (tokens, blocks)))
    odd = rng.random((tokens, blocks))
    odd[rng.random(tokens) < 0.5] = 1.0  # one huge block drowns all others, so half the rows have none
    magnitude[odd < 0.2] = 0.0
    magnitude[(odd >= 0.2) & (odd < 0.3)] = 2.0**-135
    magnitude[(odd >= 0.3) & (odd < 0.35)] = 2.0**-100
    magnitude[(odd >= 0.35) & (odd < 0.4)] = 2.0**120
    x = rng.standard_normal((tokens, blocks, 32)) * magnitude[..., None]
    below_zero = rng.random((tokens, blocks)) < 0.2
    x[below_zero] = -np.abs(x[below_zero])
    halves = rng.random((tokens, blocks)) < 0.1
    x[halves] = rng.integers(-255, 256, (int(halves.sum()), 32)) / 2
    x[halves, 0] = 127.0
    x[rng.random(x.shape) < 0.02] = -0.0
    return placed(x.astype(np.float32).reshape(tokens, -1)[:, :cols], int(rng.integers(0, 16)))


def linear(isa: str, fmt: Format, rows: int, file: Bytes, x: Float32, *, two_terms: bool = True) -> Float32:
    return check.linear(isa, fmt.number, rows, file, x, two_terms)


def modes(fmt: Format) -> tuple[bool, ...]:
    return (True, False) if fmt.quantized else (True,)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", NAMES)
def test_equals_the_reference_for_every_number_of_rows(name: str, isa: str) -> None:
    fmt, rng = FORMATS[name], np.random.default_rng(7)
    for i, tokens in enumerate(TOKENS):
        rows, cols = ROWS[i % len(ROWS)], COLS[fmt.inputs][i % len(COLS[fmt.inputs])]
        file = random_matrix(rng, fmt, rows, cols, "extreme" if i % 3 == 0 else "usual")
        x = activations(rng, tokens, cols)
        for two_terms in modes(fmt):
            want = linear("reference", fmt, rows, file, x, two_terms=two_terms)
            assert_same_bits(linear(isa, fmt, rows, file, x, two_terms=two_terms), want)


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_equals_the_reference_for_any_shape(isa: str, data: st.DataObject) -> None:
    fmt = FORMATS[data.draw(st.sampled_from(NAMES))]
    tokens, rows = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 50))
    cols = fmt.inputs * data.draw(st.integers(1, 70 if fmt.inputs < 256 else 8))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    file = random_matrix(rng, fmt, rows, cols, data.draw(st.sampled_from(("usual", "extreme"))))
    x = activations(rng, tokens, cols)
    two_terms = data.draw(st.sampled_from(modes(fmt)))
    want = linear("reference", fmt, rows, file, x, two_terms=two_terms)
    assert_same_bits(linear(isa, fmt, rows, file, x, two_terms=two_terms), want)


@pytest.mark.parametrize("two_terms", [True, False])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", QUANTIZED)
def test_the_largest_integers_do_not_overflow(name: str, isa: str, sign: float, *, two_terms: bool) -> None:
    fmt = FORMATS[name]
    file = all_ones(fmt, 16, 512)
    x = np.full((7, 512), sign, np.float32)
    want = linear("reference", fmt, 16, file, x, two_terms=two_terms)
    for tokens in (1, 7):
        got = linear(isa, fmt, 16, file, x[:tokens], two_terms=two_terms)
        assert_same_bits(got, want[:tokens])


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("isa", [*ISAS, "reference"])
@pytest.mark.parametrize("name", QUANTIZED)
def test_a_row_that_is_not_finite_gives_nan_and_disturbs_no_other(name: str, isa: str, bad: float) -> None:
    fmt, rng = FORMATS[name], np.random.default_rng(3)
    file = random_matrix(rng, fmt, 17, 512)
    x = rng.standard_normal((9, 512)).astype(np.float32)
    clean = linear(isa, fmt, 17, file, x)
    for column in (0, 31, 300, 511):
        spoilt = x.copy()
        spoilt[4, column] = bad
        y = linear(isa, fmt, 17, file, spoilt)
        assert np.isnan(y[4]).all()
        assert_same_bits(np.delete(y, 4, axis=0), np.delete(clean, 4, axis=0))
        assert np.isnan(linear(isa, fmt, 17, file, spoilt[4:5])).all()


@pytest.mark.parametrize("isa", [*ISAS, "reference"])
@pytest.mark.parametrize("name", NAMES)
def test_zeros_give_plus_zero(name: str, isa: str) -> None:
    fmt = FORMATS[name]
    file = random_matrix(np.random.default_rng(5), fmt, 17, 256)
    for tokens in (1, 8):
        y = linear(isa, fmt, 17, file, np.zeros((tokens, 256), np.float32))
        assert_same_bits(y, np.zeros((tokens, 17), np.float32))


@pytest.mark.parametrize("isa", [*ISAS, "reference"])
@pytest.mark.parametrize(
    ("w", "x", "want"),
    [
        ([1 + 2.0**-23, 2.0**-12 * (1 + 2.0**-18)], [1.0, 2.0**-12 * (1 - 2.0**-18)], 1 + 2.0**-23),
        ([1 + 2.0**-22, 2.0**-75 * (1 + 2.0**-23)], [2.0**-127, 2.0**-75 * (1 - 2.0**-23)], 2.0**-127 + 2.0**-149),
    ],
    ids=["normal", "subnormal"],
)
def test_a_product_and_its_sum_round_once(isa: str, w: list[float], x: list[float], want: float) -> None:
    # The sum is a hair below half way between two floats. Rounded to binary64 first, it would be half way, and then go
    # to the even float above.
    y = linear(isa, FORMATS["F32"], 1, np.array(w, np.float32).view(np.uint8), np.array([x], np.float32))
    assert_same_bits(y, np.array([[want]], np.float32))


def extreme_blocks() -> Float32:
    """Blocks whose largest magnitude is at the edges of what is quantised."""
    edges = [0.0, -0.0, 1e-45, 2.0**-101, np.nextafter(np.float32(2.0**-100), np.float32(0)), 2.0**-100, 1.0, 3.4e38]
    rng = np.random.default_rng(11)
    blocks = rng.uniform(-1, 1, (len(edges), 32)).astype(np.float32)
    for block, edge in zip(blocks, edges, strict=True):
        block *= np.float32(edge)
        block[5] = -edge
    return blocks.reshape(-1)


@pytest.mark.parametrize("two_terms", [True, False])
@pytest.mark.parametrize("isa", ISAS)
def test_activations_are_quantised_as_the_reference_does(isa: str, *, two_terms: bool) -> None:
    rng = np.random.default_rng(13)
    for x in (extreme_blocks(), *activations(rng, 4, 640)):
        for offset in (0, 1, 9):
            want_scales, want_sums = check.quantize("reference", x, two_terms)
            scales, sums = check.quantize(isa, placed(x, offset), two_terms)
            assert_same_bits(scales, want_scales)
            assert_same_bits(sums, want_sums)


def test_the_reference_quantises_as_documented() -> None:
    x = extreme_blocks()
    for two_terms, limit in ((True, np.float32(32512)), (False, np.float32(127))):
        scales, sums = check.quantize("reference", x, two_terms)
        for block, scale, two_sums in zip(x.reshape(-1, 32), scales, sums.reshape(-1, 2), strict=True):
            a = np.abs(block).max()
            if a < np.float32(2.0**-100):
                assert scale == 0
                assert list(two_sums) == [0, 0]
            else:
                q = np.rint(block * (limit / a)).astype(np.int64)
                assert np.abs(q).max() == limit
                assert scale == a / limit
                assert list(two_sums) == [q[:16].sum(), q[16:].sum()]


@pytest.mark.parametrize("two_terms", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_the_reference_is_near_the_exact_product(name: str, *, two_terms: bool) -> None:
    fmt, rng = FORMATS[name], np.random.default_rng(17)
    rows, cols, tokens = 33, 768, 5
    file = random_matrix(rng, fmt, rows, cols)
    x = rng.standard_normal((tokens, cols)).astype(np.float32)
    w = check.dequantize("reference", fmt.number, rows, cols, file, 1.0).astype(np.float64)
    largest = np.abs(x).reshape(tokens, -1, 32).max(axis=2)
    step = np.repeat(largest, 32, axis=1) / (32512 if two_terms else 127) if fmt.quantized else np.zeros_like(x)
    # Half a step of every activation, and binary32's rounding: of each product and of the sum so far.
    bound = (0.5 * step + 1e-4 * np.abs(x)) @ np.abs(w).T
    error = np.abs(linear("reference", fmt, rows, file, x, two_terms=two_terms) - x.astype(np.float64) @ w.T)
    assert (error <= bound).all()
    if fmt.quantized and not two_terms:
        assert error.max() > 1e-2 * bound.max()


def test_bytes_that_are_not_those_of_the_matrix_are_refused() -> None:
    x = np.zeros((1, 64), np.float32)
    for fmt, rows, size in (("Q8_0", 2, 135), ("Q8_0", 0, 0), ("Q4_K", 1, 144), ("F32", 1, 255)):
        with pytest.raises(ValueError, match="not those of such a matrix"):
            linear("reference", FORMATS[fmt], rows, np.zeros(size, np.uint8), x)
    with pytest.raises(ValueError, match="not those of such a matrix"):
        check.linear("reference", 9, 1, np.zeros(36, np.uint8), x, True)

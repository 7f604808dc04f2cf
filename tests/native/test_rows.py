"""Each row kernel equals the scalar reference bit for bit; the reference is right, by NumPy's float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.native.kernel_tests import ISAS, assert_same_bits, empty, kv_layer, placed

from cabochon._native import check
from cabochon.types import PAGE, Float32, KVType

EPS = float(np.float32(1e-6))
SIZES = [*range(1, 71), 96, 256, 640]


def random_floats(rng: np.random.Generator, n: int) -> Float32:
    """Values of very different sizes, some zero."""
    values = rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 2, n)
    values[rng.random(n) < 0.05] = 0.0
    return values.astype(np.float32)


Binary = Callable[[str, Float32, Float32, Float32], None]

ELEMENTWISE: dict[str, Binary] = {
    "rms_norm": lambda isa, a, b, out: check.rms_norm(isa, a, b, EPS, out),
    "add_norm": lambda isa, a, b, out: check.add_norm(isa, b, a, a, EPS, out),
    "add": lambda isa, a, b, out: check.add(isa, a, b, out),
    "gated_gelu": lambda isa, a, b, out: check.gated_gelu(isa, a, b, out),
    "softcap": lambda isa, a, b, out: check.softcap(isa, a, 30.0, out),
    "exp": lambda isa, a, b, out: check.exp(isa, a, out),
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_kernels_equal_the_reference(isa: str, name: str) -> None:
    rng = np.random.default_rng(1)
    kernel = ELEMENTWISE[name]
    for n in SIZES:
        a, b = random_floats(rng, n), random_floats(rng, n)
        want = empty(n)
        kernel("reference", placed(a), placed(b), want)
        for offset in (0, 1, 7):
            got = empty(n, offset)
            kernel(isa, placed(a, offset), placed(b, (offset + 3) % 16), got)
            assert_same_bits(got, want)
        in_place = placed(a)
        kernel(isa, in_place, placed(b), in_place)
        assert_same_bits(in_place, want)


@pytest.mark.parametrize("isa", ISAS)
def test_kernels_write_only_their_row(isa: str) -> None:
    for n in (1, 15, 17, 33):
        for kernel in ELEMENTWISE.values():
            room = np.full(n + 64, 7.0, np.float32)
            kernel(isa, placed(np.ones(n)), placed(np.ones(n)), room[32 : 32 + n])
            assert (room[:32] == 7).all()
            assert (room[32 + n :] == 7).all()


def test_the_reference_follows_the_formulas() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal(640), rng.standard_normal(640)
    x, y = a.astype(np.float32), b.astype(np.float32)
    wide, other = x.astype(np.float64), y.astype(np.float64)
    normed = wide / np.sqrt(np.mean(wide**2) + EPS)
    gelu = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    expected = {
        "rms_norm": normed * other,
        "add_norm": other + normed * wide,
        "add": wide + other,
        "gated_gelu": gelu * other,
        "softcap": 30 * np.tanh(wide / 30),
        "exp": np.exp(wide),
    }
    for name, kernel in ELEMENTWISE.items():
        got = empty(640)
        kernel("reference", x, y, got)
        np.testing.assert_allclose(got, expected[name], rtol=2e-6, atol=1e-6, err_msg=name)


# ---- Functions --------------------------------------------------------------------------------------------------


def all_kinds_of_floats() -> Float32:
    """Every 4,099th binary32 pattern (a prime, so that low bits vary too) and the edges of exp."""
    patterns = np.arange(0, 1 << 32, 4099, dtype=np.uint32).view(np.float32)
    edges = np.array([0, -0.0, -87, 88, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 127, -126, 3e38], np.float32)
    around = [np.nextafter(edges, np.float32(np.inf)), np.nextafter(edges, np.float32(-np.inf))]
    return np.concatenate([patterns, edges, *around])


@pytest.mark.parametrize("isa", ISAS)
def test_exp_equals_the_reference_for_all_kinds_of_floats(isa: str) -> None:
    x = all_kinds_of_floats()
    got, want = np.empty_like(x), np.empty_like(x)
    check.exp(isa, x, got)
    check.exp("reference", x, want)
    assert_same_bits(got, want)


def test_exp_is_accurate_and_rises() -> None:
    x = np.linspace(-87, 88, 1_000_001, dtype=np.float32)
    y = np.empty_like(x)
    check.exp("reference", x, y)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(y / exact - 1).max() < 2.0**-23
    assert (np.diff(y) >= 0).all()


def test_exp_at_its_edges() -> None:
    below, above = np.nextafter(np.float32(-87), np.float32(-88)), np.nextafter(np.float32(88), np.float32(89))
    x = np.array([below, above, -np.inf, np.inf, np.nan, 0, -0.0], np.float32)
    for isa in (*ISAS, "reference"):
        y = np.empty_like(x)
        check.exp(isa, x, y)
        assert_same_bits(y, np.array([0, np.inf, 0, np.inf, np.nan, 1, 1], np.float32))


@pytest.mark.parametrize("isa", ISAS)
def test_angles_equal_the_reference_and_the_true_values(isa: str) -> None:
    rng = np.random.default_rng(3)
    # Up to angles far beyond any position, where a sloppy reduction of the argument shows.
    inv_freq = np.concatenate([[1.0, 0.0], 10.0 ** rng.uniform(-7, 0, 200)]).astype(np.float32)
    n = len(inv_freq)
    for position in (0, 1, 2, 3, 1000, 32_767, 131_071, 8_388_609, 2**31 - 1):
        got, want = (empty(n), empty(n)), (empty(n), empty(n))
        check.angles(isa, position, inv_freq, *got)
        check.angles("reference", position, inv_freq, *want)
        angle = (np.float32(position) * inv_freq).astype(np.float64)
        for g, w, exact in zip(got, want, (np.cos(angle), np.sin(angle)), strict=True):
            assert_same_bits(g, w)
            np.testing.assert_allclose(g, exact, rtol=2.0**-23, atol=1e-12)


# ---- Over the vocabulary ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", ISAS)
def test_log_sum_exp_equals_the_reference(isa: str) -> None:
    rng = np.random.default_rng(4)
    for n in (1, 2, 15, 16, 17, 100, 1023, 1024, 1025, 2047, 2049, 5000):
        for scale in (0.0, 1.0, 30.0):
            x = placed(rng.standard_normal(n) * scale, n % 16)
            want = check.log_sum_exp("reference", x)
            assert check.log_sum_exp(isa, x) == want
            wide = x.astype(np.float64)
            exact = wide.max() + np.log(np.exp(wide - wide.max()).sum())
            assert want == pytest.approx(exact, rel=1e-6, abs=2e-6)


@pytest.mark.parametrize("isa", ISAS)
def test_log_sum_exp_of_rows_with_a_nan_is_nan(isa: str) -> None:
    for at in (0, 1000, 1024, 2000):
        x = np.zeros(2048, np.float32)
        x[at] = np.nan
        assert np.isnan(check.log_sum_exp(isa, x))
        assert np.isnan(check.log_sum_exp("reference", x))


@pytest.mark.parametrize("isa", [*ISAS, "reference"])
def test_top_k_is_sorting(isa: str) -> None:
    rng = np.random.default_rng(5)
    for n, k in ((1, 1), (5, 5), (16, 3), (100, 1), (100, 64), (1000, 40), (3000, 3000)):
        for levels in (2, 30, 10**6):  # few levels: many ties, which the smaller id wins
            x = placed(rng.integers(-levels, levels, n) / 8, n % 16)
            ids, values = check.top_k(isa, x, k)
            want = np.lexsort((np.arange(n), -x))[:k]
            np.testing.assert_array_equal(ids, want)
            assert_same_bits(values, x[want])


@pytest.mark.parametrize("isa", [*ISAS, "reference"])
def test_top_k_takes_nan_for_the_least(isa: str) -> None:
    x = np.array([np.nan, 1, np.nan, -np.inf, 3, 0.0, -0.0], np.float32)
    ids, values = check.top_k(isa, x, 7)
    assert ids.tolist() == [4, 1, 5, 6, 0, 2, 3]
    assert_same_bits(values, x[ids])


# ---- Queries, keys and values -----------------------------------------------------------------------------------

KV_TYPES: tuple[KVType, ...] = ("f16", "bf16", "f32", "int8")
DTYPES = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "int8": np.int8}


def arrays(kv_type: KVType, pages: int, heads: int, dim: int) -> list[NDArray[Any]]:
    """Keys, values and scales of one layer, all 1s; no scales except for int8."""
    blocks = -(-dim // 32)
    found = [np.ones((pages, heads, dim, PAGE), DTYPES[kv_type]), np.ones((pages, heads, PAGE, dim), DTYPES[kv_type])]
    if kv_type == "int8":
        found += [np.ones((pages, heads, blocks, PAGE), np.float32), np.ones((pages, heads, PAGE, blocks), np.float32)]
    return found


def store_one(
    isa: str, kv_type: KVType, qkv: Float32, heads: int, kv_heads: int, dim: int, *, slot: int = 37, norm: bool = True
) -> tuple[bool, Float32, list[NDArray[Any]]]:
    rng = np.random.default_rng(6)
    query_gain, key_gain = (placed(rng.uniform(0.5, 1.5, dim), 5) if norm else None for _ in range(2))
    angles = rng.uniform(0, 6, dim // 2)
    memory = arrays(kv_type, 3, kv_heads, dim)
    layer = kv_layer(kv_type, memory)
    q = empty(heads * dim, 1)
    cosine, sine = placed(np.cos(angles), 2), placed(np.sin(angles), 9)
    fits = check.norm_rope_store(isa, qkv, heads, query_gain, key_gain, EPS, 0.3, cosine, sine, layer, slot, q)
    return fits, q, memory


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_norm_rope_store_equals_the_reference(isa: str, kv_type: KVType) -> None:
    rng = np.random.default_rng(7)
    for heads, kv_heads, dim in [(1, 1, 2), (2, 1, 6), (2, 2, 16), (3, 1, 34), (4, 2, 64), (1, 1, 70), (4, 1, 256)]:
        qkv = placed(random_floats(rng, (heads + 2 * kv_heads) * dim), heads)
        for norm in (True, False):
            fits, q, memory = store_one(isa, kv_type, qkv, heads, kv_heads, dim, norm=norm)
            want_fits, want_q, want_memory = store_one("reference", kv_type, qkv, heads, kv_heads, dim, norm=norm)
            assert fits
            assert want_fits
            assert_same_bits(q, want_q)
            for got, want in zip(memory, want_memory, strict=True):
                assert_same_bits(got, want)


def test_keys_and_values_go_to_their_slot_and_nowhere_else() -> None:
    heads, kv_heads, dim, slot = 2, 2, 4, 2 * PAGE + 5
    qkv = np.arange(1, (heads + 2 * kv_heads) * dim + 1, dtype=np.float32)
    memory = arrays("f32", 3, kv_heads, dim)
    layer = kv_layer("f32", memory)
    still, q = np.ones(2, np.float32), empty(heads * dim)
    check.norm_rope_store("reference", qkv, heads, None, None, EPS, 2.0, still, 0 * still, layer, slot, q)
    np.testing.assert_array_equal(q, 2 * qkv[:8])
    np.testing.assert_array_equal(memory[0][2, :, :, 5], qkv[8:16].reshape(2, 4))
    np.testing.assert_array_equal(memory[1][2, :, 5, :], qkv[16:].reshape(2, 4))
    assert sum((array != 1).sum() for array in memory) == 16


def test_rotation_turns_pairs_half_a_head_apart() -> None:
    dim, angle = 6, 0.7
    qkv = np.zeros(3 * dim, np.float32)
    qkv[1] = 1.0  # of the pair (1, 4)
    layer = kv_layer("f32", arrays("f32", 1, 1, dim))
    cosine, sine = np.full(3, np.cos(angle), np.float32), np.full(3, np.sin(angle), np.float32)
    for isa in (*ISAS, "reference"):
        q = empty(dim)
        check.norm_rope_store(isa, qkv, 1, None, None, EPS, 1.0, cosine, sine, layer, 0, q)
        np.testing.assert_array_equal(q, np.array([0, cosine[0], 0, 0, sine[0], 0], np.float32))


@pytest.mark.parametrize("isa", [*ISAS, "reference"])
def test_float16_overflow_is_told(isa: str) -> None:
    for place in (4, 5, 11):  # in the key's first and second half (unrotated here), and in the value
        for value, expected in ((65504, True), (65505, False), (-1e30, False), (np.inf, True), (np.nan, True)):
            qkv = np.zeros(12, np.float32)
            qkv[place] = value
            for kv_type in KV_TYPES:
                memory = arrays(kv_type, 1, 1, 4)
                layer = kv_layer(kv_type, memory)
                still, q = np.ones(2, np.float32), empty(4)
                fits = check.norm_rope_store(isa, qkv, 1, None, None, EPS, 1.0, still, 0 * still, layer, 0, q)
                assert fits == (expected or kv_type != "f16")


@pytest.mark.parametrize("isa", ISAS)
def test_stored_16_bit_values_are_rounded_as_numpy_does(isa: str) -> None:
    rng = np.random.default_rng(8)
    values = rng.standard_normal(512) * 10.0 ** rng.uniform(-8, 4, 512)
    values[:4] = [65504, 6e-8, 2.98e-8, -2.99e-8]
    qkv = np.concatenate([np.zeros(1024), values]).astype(np.float32)
    half = qkv[1024:].astype(np.float16)
    for kv_type in ("f16", "bf16"):
        memory = arrays(kv_type, 1, 1, 512)
        layer = kv_layer(kv_type, memory)
        still, q = np.ones(256, np.float32), empty(512)
        check.norm_rope_store(isa, qkv, 1, None, None, EPS, 1.0, still, 0 * still, layer, 0, q)
        if kv_type == "f16":
            assert_same_bits(memory[1][0, 0, 0], half)
        else:
            bits = qkv[1024:].view(np.uint32).astype(np.uint64)
            np.testing.assert_array_equal(memory[1][0, 0, 0], (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


@pytest.mark.parametrize("isa", [*ISAS, "reference"])
def test_int8_blocks_of_odd_values(isa: str) -> None:
    qkv = np.zeros(3 * 128, np.float32)
    value = qkv[256:].reshape(4, 32)
    value[0], value[1, 3], value[2, 5], value[3] = 2.0**-101, np.inf, np.nan, -(2.0**-100)
    memory = arrays("int8", 1, 1, 128)
    layer = kv_layer("int8", memory)
    still, q = np.ones(64, np.float32), empty(128)
    check.norm_rope_store(isa, qkv, 1, None, None, EPS, 1.0, still, 0 * still, layer, 0, q)
    assert_same_bits(memory[3][0, 0, 0], np.array([0, np.nan, np.nan, np.float32(2.0**-100) / 127], np.float32))
    np.testing.assert_array_equal(memory[1][0, 0, 0].reshape(4, 32)[:, 0], [0, 0, 0, -127])

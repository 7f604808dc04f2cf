"""Attention kernels equal the scalar reference bit for bit, and nothing out of a key range reaches a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.native.kernel_tests import ISAS, assert_same_bits, kv_layer, placed

from cabochon._native import check
from cabochon.types import PAGE, SEGMENT, Float32, KVType

KV_TYPES: tuple[KVType, ...] = ("f16", "bf16", "f32", "int8")


@dataclass
class Keys:
    """Stored keys of one sequence in scattered pages; memory that holds none is NaN."""

    kv_type: KVType
    heads: int
    dim: int
    held: range
    """The keys that are stored."""
    memory: list[NDArray[Any]]
    table: NDArray[np.int32]
    """-1 for pages without a stored key."""

    @property
    def layer(self) -> check.Layer:
        return kv_layer(self.kv_type, self.memory)

    def values(self) -> tuple[Float32, Float32]:
        """Keys and values as they read back, [heads, last key + 1, dim], NaN where none is stored."""
        k, v = (self._widened(array) for array in self.memory[:2])
        if self.kv_type == "int8":
            k = k * np.repeat(self.memory[2], 32, axis=2)[:, :, : self.dim]
            v = v * np.repeat(self.memory[3], 32, axis=3)[:, :, :, : self.dim]
        out = np.full((2, self.heads, self.held.stop, self.dim), np.nan, np.float32)
        for key in self.held:
            page, slot = self.table[key // PAGE], key % PAGE
            out[0, :, key], out[1, :, key] = k[page, :, :, slot], v[page, :, slot]
        return out[0], out[1]

    def _widened(self, array: NDArray[Any]) -> Float32:
        if self.kv_type == "bf16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(np.float32)


def stored_keys(kv_type: KVType, heads: int, dim: int, held: range, seed: int = 0) -> Keys:
    rng = np.random.default_rng(seed)
    indices = range(held.start // PAGE, (held.stop - 1) // PAGE + 1)
    pages, blocks = len(indices) + 2, -(-dim // 32)
    table = np.full(held.stop // PAGE + 2, -1, np.int32)
    table[indices.start : indices.stop] = rng.permutation(pages)[: len(indices)]
    k, v = (rng.standard_normal(shape) for shape in ((pages, heads, dim, PAGE), (pages, heads, PAGE, dim)))
    memory: list[NDArray[Any]] = [k.astype(np.float32), v.astype(np.float32)]
    if kv_type == "f16":
        memory = [array.astype(np.float16) for array in memory]
    elif kv_type == "bf16":
        memory = [(array.view(np.uint32) >> 16).astype(np.uint16) for array in memory]
    elif kv_type == "int8":
        scale_shapes = ((pages, heads, blocks, PAGE), (pages, heads, PAGE, blocks))
        memory = [np.clip(40 * array, -127, 127).astype(np.int8) for array in memory]
        memory += [rng.uniform(0.01, 0.03, shape).astype(np.float32) for shape in scale_shapes]
    stored = np.zeros((pages, PAGE), bool)
    for key in held:
        stored[table[key // PAGE], key % PAGE] = True
    for array, slots_last in zip(memory, (True, False, True, False), strict=False):
        by_slot = np.moveaxis(array, -1, 1) if slots_last else np.moveaxis(array, 2, 1)
        by_slot[~stored] = {"bf16": 0x7FC0, "int8": 127}.get(kv_type, np.nan) if array.dtype != np.float32 else np.nan
    return Keys(kv_type, heads, dim, held, memory, table)


def attend(
    isa: str, keys: Keys, q: Float32, ranges: list[tuple[int, int]], *, head: int = 0, softcap: float = 0.0
) -> Float32:
    first, last = (np.array(column, np.int32) for column in zip(*ranges, strict=True))
    out = np.full(q.shape, np.nan, np.float32)
    check.attend(isa, keys.layer, head, keys.table, q, first, last, softcap, out)
    return out


def queries(rows: int, heads: int, dim: int, seed: int = 1) -> Float32:
    values = np.random.default_rng(seed).standard_normal((rows, heads, dim))
    return placed(1.5 * values / np.sqrt(dim) ** 0.5, rows % 16)


def causal(rows: int, end: int, window: int | None = None) -> list[tuple[int, int]]:
    """Ranges of the last ``rows`` of ``end`` positions."""
    return [(0 if window is None else max(0, last - window + 1), last) for last in range(end - rows, end)]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_tiles_of_every_shape_equal_the_reference(isa: str, kv_type: KVType) -> None:
    keys = stored_keys(kv_type, 2, 32, range(300))
    for rows in (*range(1, 17), 24, 47, 48):
        for heads in (1, 2, 4):
            if rows * heads <= 48:
                q = queries(rows, heads, 32)
                ranges = causal(rows, 300)
                want = attend("reference", keys, q, ranges, head=1)
                assert_same_bits(attend(isa, keys, q, ranges, head=1), want)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_head_dims_equal_the_reference(isa: str, kv_type: KVType) -> None:
    for dim in (2, 4, 6, 14, 16, 18, 30, 34, 48, 64, 70, 128, 256, 512):
        keys = stored_keys(kv_type, 1, dim, range(70), seed=dim)
        for rows in (1, 3, 15):
            q = queries(rows, 1, dim)
            assert_same_bits(attend(isa, keys, q, causal(rows, 70)), attend("reference", keys, q, causal(rows, 70)))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", ["f16", "int8"])
def test_ranges_at_the_borders_of_pages_and_segments(isa: str, kv_type: KVType) -> None:
    borders = [b + off for b in (0, PAGE, SEGMENT, 2 * SEGMENT) for off in (-2, -1, 0, 1, 15, 16)]
    places = sorted({b for b in borders if 0 <= b < 2 * SEGMENT + 20})
    q = queries(1, 2, 16)
    for first in places:
        for last in (p for p in places if p >= first):
            keys = stored_keys(kv_type, 1, 16, range(first, last + 1), seed=first + last)
            got = attend(isa, keys, q, [(first, last)])
            assert np.isfinite(got).all()
            assert_same_bits(got, attend("reference", keys, q, [(first, last)]))


@pytest.mark.parametrize("isa", ISAS)
def test_rows_of_a_tile_with_unlike_ranges(isa: str) -> None:
    rng = np.random.default_rng(9)
    keys = stored_keys("f16", 1, 32, range(3 * SEGMENT))
    for trial in range(40):
        rows, heads = int(rng.integers(1, 13)), int(rng.integers(1, 5))
        spans = np.sort(rng.integers(0, 3 * SEGMENT, (rows, 2)), axis=1)
        ranges = [(int(a), int(b)) for a, b in spans]
        q = queries(rows, heads, 32, seed=trial)
        together = attend(isa, keys, q, ranges)
        assert_same_bits(together, attend("reference", keys, q, ranges))
        for row in range(rows):
            assert_same_bits(together[row : row + 1], attend(isa, keys, q[row : row + 1], ranges[row : row + 1]))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_row_is_not_touched_by_keys_that_only_its_neighbours_see(isa: str, poison: float) -> None:
    clean, dirty = (stored_keys("f32", 1, 32, range(200)) for _ in range(2))
    for array, axis in zip(dirty.memory, (3, 2), strict=True):
        for key in (0, 60, 197, 198, 199):
            np.moveaxis(array, axis, 1)[dirty.table[key // PAGE], key % PAGE] = poison
    ranges = [(1, 59), (61, 196), (0, 199), (61, 196), (30, 60), (61, 61), (195, 198)]
    unharmed = [0, 1, 3, 5]
    for heads in (1, 3):
        q = queries(len(ranges), heads, 32)
        got, want = attend(isa, dirty, q, ranges), attend(isa, clean, q, ranges)
        assert_same_bits(got[unharmed], want[unharmed])
        for row in set(range(len(ranges))) - set(unharmed):
            assert np.isnan(got[row]).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_a_window_reads_no_page_behind_it(isa: str, kv_type: KVType) -> None:
    end, window = 700, 100
    for rows in (1, 9):
        held = range(end - rows - window + 1, end)
        keys = stored_keys(kv_type, 1, 64, held)
        assert (keys.table[: held.start // PAGE] == -1).all()
        q = queries(rows, 4, 64)
        got = attend(isa, keys, q, causal(rows, end, window))
        assert np.isfinite(got).all()
        assert_same_bits(got, attend("reference", keys, q, causal(rows, end, window)))


@pytest.mark.parametrize("isa", ISAS)
def test_soft_cap_equals_the_reference(isa: str) -> None:
    keys = stored_keys("f16", 1, 32, range(290))
    q = 20 * queries(5, 2, 32)
    want = attend("reference", keys, q, causal(5, 290), softcap=5.0)
    assert_same_bits(attend(isa, keys, q, causal(5, 290), softcap=5.0), want)
    assert not np.array_equal(want, attend("reference", keys, q, causal(5, 290)))


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("softcap", [0.0, 4.0])
def test_the_reference_is_attention(kv_type: KVType, softcap: float) -> None:
    keys = stored_keys(kv_type, 2, 48, range(37, 600))
    q = queries(3, 2, 48)
    ranges = [(37, 37), (100, 450), (37, 599)]
    got = attend("reference", keys, q, ranges, head=1, softcap=softcap)
    k, v = (array[1].astype(np.float64) for array in keys.values())
    for row, (first, last) in enumerate(ranges):
        scores = q[row].astype(np.float64) @ k[first : last + 1].T
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        exact = (p / p.sum(axis=1, keepdims=True)) @ v[first : last + 1]
        np.testing.assert_allclose(got[row], exact, rtol=1e-5, atol=2e-6)


def test_segments_are_merged_in_ascending_order() -> None:
    """The order of a fold is part of the arithmetic: the reference is that of docs/arithmetic.md, not any other."""
    keys = stored_keys("f32", 1, 2, range(3 * SEGMENT))
    q = queries(1, 1, 2)
    m, total, o = np.float32(0), np.float32(0), np.zeros(2, np.float32)
    k, v = (array[0] for array in keys.values())

    def fma(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
        return np.float32(np.longdouble(a) * np.longdouble(b) + np.longdouble(c))

    def exp(x: np.float32) -> np.float32:
        y = np.empty(1, np.float32)
        check.exp("reference", np.array([x], np.float32), y)
        return np.float32(y[0])

    for segment in range(3):
        span = range(segment * SEGMENT, (segment + 1) * SEGMENT)
        s = [fma(q[0, 0, 1], k[key, 1], fma(q[0, 0, 0], k[key, 0], np.float32(0))) for key in span]
        m_s = max(s)
        p = np.array([exp(score - m_s) for score in s])
        lanes = np.zeros(16, np.float32)
        for part in p.reshape(-1, 16):
            lanes = lanes + part
        while len(lanes) > 1:
            lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
        o_s = np.zeros(2, np.float32)
        for weight, key in zip(p, span, strict=True):
            o_s = np.array([fma(weight, v[key, e], o_s[e]) for e in range(2)], np.float32)
        if segment == 0:
            m, total, o = m_s, lanes[0], o_s
            continue
        merged = max(m, m_s)
        a, b = exp(m - merged), exp(m_s - merged)
        total = fma(total, a, lanes[0] * b)
        o = np.array([fma(o[e], a, o_s[e] * b) for e in range(2)], np.float32)
        m = merged
    assert_same_bits(attend("reference", keys, q, [(0, 3 * SEGMENT - 1)])[0, 0], o / total)


@pytest.mark.parametrize("isa", ISAS)
def test_however_rows_are_spread_over_threads(isa: str) -> None:
    """Long and short sequences, few rows and many, one thread and several, room for all partial results or for one."""
    rng = np.random.default_rng(11)
    for case, (kv_heads, heads) in enumerate([(1, 4), (2, 2), (2, 6), (1, 50)]):
        counts, lengths = [1, 30, 1, 2], [5 * SEGMENT + 9, 40, 700, 33]
        sequence_of = np.repeat(np.arange(4, dtype=np.int32), counts)
        last = np.concatenate([np.arange(n - c, n) for n, c in zip(lengths, counts, strict=True)]).astype(np.int32)
        first = np.maximum(0, last - rng.integers(0, 3000, len(last))).astype(np.int32)
        keys = stored_keys("f16", kv_heads, 32, range(max(lengths)), seed=case)
        tables = np.stack([keys.table] * 4)  # the same keys: who reads the wrong sequence is caught by the ranges
        q = queries(len(last), heads, 32, seed=case)
        want = np.empty_like(q)
        group = heads // kv_heads
        for row in range(len(last)):
            for head in range(heads):
                one = placed(q[row : row + 1, head : head + 1])
                ranges = [(int(first[row]), int(last[row]))]
                want[row, head] = attend(isa, keys, one, ranges, head=head // group)[0, 0]
        for threads, room in ((1, 0), (2, 0), (2, 20_000), (3, 1 << 20), (16, 4000)):
            got = np.full_like(q, np.nan)
            check.attend_rows(isa, threads, room, keys.layer, q, sequence_of, first, last, tables, 0.0, got)
            assert_same_bits(got, want)

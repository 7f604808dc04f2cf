"""The recorder: what the native program computes is what was recorded, with memory shared where that does no harm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cabochon import _native
from cabochon.errors import UnsupportedError
from cabochon.kvcache.groups import KVGroup, KVLayout
from cabochon.kvcache.store import KVStore
from cabochon.ops.machine import open_machine
from cabochon.ops.native import KVArrays, NativeOps, NativeWeight, Value
from cabochon.ops.protocol import AttentionShape, Rope
from cabochon.types import Float32, WeightType

V, D = 50, 16
EPS = 1e-6

Model = Callable[[NativeOps, NativeWeight, NativeWeight], Value]
"""Records a body from (ops, embedding table, gain)."""


def numpy_norm(x: Float32, gain: Float32) -> Float32:
    normed: Float32 = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + np.float32(EPS)) * gain
    return normed


class Recorded:
    """A body of some operations and a head that is the table; ``table`` and ``gain`` are random."""

    def __init__(self, model: Model, *, head_softcap: float | None = None) -> None:
        rng = np.random.default_rng(0)
        self.table = rng.standard_normal((V, D)).astype(np.float32)
        self.gain = rng.uniform(0.5, 1.5, D).astype(np.float32)
        machine = open_machine(2)
        memory = _native.WeightMemory(_native.packed_bytes(WeightType.F32, V, D))
        packed = _native.Weight(memory, WeightType.F32, V, D)
        machine.pack(packed, self.table.view(np.uint8).reshape(-1), 0, packed.groups)
        ops = NativeOps()
        table, gain = ops.matrix(packed), ops.gain(self.gain)
        hidden = model(ops, table, gain)
        head = ops.head_input(D)
        logits = ops.linear(head, table)
        if head_softcap is not None:
            logits = ops.softcap(logits, head_softcap)
        store = KVStore(KVLayout((KVGroup(None, 1, 4, (0,)),), (0,)), [1], "f32")
        kv = KVArrays(0, "f32", store.layers[0].keys, store.layers[0].values, None, None)
        self.program = ops.program(
            machine,
            [kv],
            hidden=hidden,
            head_input=head,
            logits=logits,
            max_rows=8,
            max_head_rows=2,
            two_terms=True,
        )

    def run(self, ids: list[int], rows: list[int]) -> Float32:
        """Hidden states of ``rows``."""
        positions = np.arange(len(ids), dtype=np.int32)
        slots = last_key = positions[None]
        failed = self.program.run(
            np.array(ids, np.int32),
            positions,
            0 * positions,
            slots,
            0 * last_key,
            last_key,
            (np.zeros((1, 1), np.int32),),
            np.array(rows, np.int32),
            np.empty(0, np.int32),
            False,
        )
        assert failed == -1
        return self.program.hidden().copy()


IDS = [7, 0, 49, 7, 30]


def test_a_value_needed_later_keeps_its_memory() -> None:
    def model(ops: NativeOps, table: NativeWeight, gain: NativeWeight) -> Value:
        h = ops.embed(None, table, 2.0)
        normed = ops.rms_norm(h, gain, EPS)  # h lives on
        both = ops.add_norm(normed, h, gain, EPS)  # so does normed
        total = ops.add(ops.add(both, normed), h)
        return ops.keep_logit_rows(None, total)

    recorded = Recorded(model)
    x = recorded.table[IDS] * np.float32(2)
    normed = numpy_norm(x, recorded.gain)
    want = normed + numpy_norm(x, recorded.gain) + normed + x
    np.testing.assert_allclose(recorded.run(IDS, [0, 2, 4]), want[[0, 2, 4]], rtol=1e-5, atol=1e-5)


def test_values_that_are_done_with_share_memory() -> None:
    def model(ops: NativeOps, table: NativeWeight, gain: NativeWeight) -> Value:
        h = ops.embed(None, table, 1.0)
        for _ in range(20):
            h = ops.add_norm(h, ops.rms_norm(h, gain, EPS), gain, EPS)
        return ops.rms_norm(ops.keep_logit_rows(None, h), gain, EPS)

    few = Recorded(model).program.nbytes
    assert few <= 4 * (8 * 3 * D + 2 * (D + V))


def test_the_head_runs_on_any_hidden_states() -> None:
    recorded = Recorded(lambda ops, table, gain: ops.keep_logit_rows(None, ops.embed(None, table, 1.0)), head_softcap=3)
    hidden = np.random.default_rng(1).standard_normal((2, D)).astype(np.float32)
    recorded.program.run_head(hidden)
    want = 3 * np.tanh(hidden @ recorded.table.T / 3)
    np.testing.assert_allclose(recorded.program.logits(2), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(recorded.run(IDS, []), np.zeros((0, D), np.float32))


def test_parts_that_do_not_fit_are_refused() -> None:
    shape = AttentionShape(layer=0, group=0, heads=2, kv_heads=1, head_dim=4)
    rope = Rope(1e4)

    def attention(shape: AttentionShape) -> Model:
        def model(ops: NativeOps, table: NativeWeight, gain: NativeWeight) -> Value:
            q = ops.norm_rope_store(None, ops.embed(None, table, 1.0), shape, rope, None, EPS, 1.0)
            mixed = ops.attend(None, ops.keep_logit_rows(None, q), shape, None)
            return ops.linear(mixed, NativeWeight(0, (D, 8)))

        return model

    wrong: dict[str, Model] = {
        "width": attention(shape),  # the last product is given a matrix of other columns than it says
        "no layer": attention(AttentionShape(1, 0, 2, 1, 4)),
        "heads": attention(AttentionShape(0, 0, 3, 1, 4)),
        "rows": lambda ops, table, gain: ops.embed(None, table, 1.0),
        "a missing weight": lambda ops, table, gain: ops.linear(
            ops.keep_logit_rows(None, ops.embed(None, table, 1.0)), NativeWeight(5, (D, D))
        ),
        "gain": lambda ops, table, gain: ops.rms_norm(
            ops.keep_logit_rows(None, ops.embed(None, table, 1.0)), NativeWeight(3, (D,)), EPS
        ),
    }
    for name, model in wrong.items():
        with pytest.raises(UnsupportedError, match="the native backend cannot run this model"):
            raise AssertionError(f"{name} was taken: {Recorded(model)}")

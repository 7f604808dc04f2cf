"""The PyTorch operations against their definitions, written out with loops; storage; and life without PyTorch."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from cabochon.checkpoint.dequantize import dequantize
from cabochon.errors import MissingDependencyError, NumericError, UsageError
from cabochon.kvcache.groups import KVGroup, KVLayout
from cabochon.kvcache.store import INT8_BLOCK, KVStore
from cabochon.model.torch_model import TorchModel, build_torch_model
from cabochon.ops.protocol import AttentionShape, Rope
from cabochon.ops.torch import TorchOps, rotate
from cabochon.ops.torch_kv import TorchKV
from cabochon.testing.steps import StepMaker, poison, tiny_store
from cabochon.testing.tiny import tiny_config, tiny_tensors, tiny_weights
from cabochon.types import PAGE, Float32, KVType

CONFIG = tiny_config(layers=2, pattern=2, window=8)


def small_store(kv_type: KVType, head_dim: int, *, kv_heads: int = 2, window: int | None = None) -> KVStore:
    store = KVStore(KVLayout((KVGroup(window, kv_heads, head_dim, (0,)),), (0,)), [6], kv_type)
    poison(store)
    return store


def kv_of(store: KVStore) -> TorchKV:
    layer = store.layers[0]
    return TorchKV.of(layer.keys, layer.values, layer.key_scales, layer.value_scales, INT8_BLOCK, "cpu")


def tiny_model(**options: str | int) -> TorchModel:
    tensors = tiny_tensors(CONFIG, tiny_weights(CONFIG))
    build = {"threads": 1, **options}
    # Any of its options.
    return build_torch_model(CONFIG, lambda name: dequantize(tensors[name]), tiny_store(CONFIG, 64), **build)  # type: ignore[arg-type]


@pytest.mark.parametrize("group", [0, 1])
def test_no_two_rows_may_write_to_one_slot(group: int) -> None:
    model = tiny_model()
    steps = StepMaker(model.store.layout, model.store.pages)
    step = steps.step((steps.sequence(), [1] * 7), (steps.sequence(), [1] * 3))
    slots = step.slots.copy()
    slots[group, 8] = slots[group, 2]
    with pytest.raises(UsageError, match=rf"^step: the slot of row 8 is {slots[group, 2]}: another row's as well"):
        model.forward(replace(step, slots=slots))
    model.forward(step)


# ---- Operations ----


@pytest.mark.parametrize("softcap", [None, 5.0])
def test_attention_is_its_definition(softcap: float | None) -> None:
    heads, kv_heads, head_dim, window = 6, 2, 10, 9
    shape = AttentionShape(layer=0, group=0, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    store = small_store("f32", head_dim, window=window)
    ops = TorchOps([kv_of(store)], threads=1)
    steps = StepMaker(store.layout, store.pages)
    rng = np.random.default_rng(0)
    texts = [steps.sequence(), steps.sequence()]
    stored: list[list[tuple[Float32, Float32]]] = [[], []]
    for lengths in ((40, 3), (7, 1)):
        step = steps.step(*((text, [0] * n) for text, n in zip(texts, lengths, strict=True)), logits="all")
        rows = sum(lengths)
        q, k, v = (rng.standard_normal((rows, n, head_dim), np.float32) for n in (heads, kv_heads, kv_heads))
        kv_of(store).write(torch.from_numpy(step.slots[0].astype(np.int64)), torch.from_numpy(k), torch.from_numpy(v))
        got = ops.attend(ops.step(step), torch.from_numpy(q).flatten(1), shape, softcap).view(rows, heads, head_dim)
        for row in range(rows):
            own = stored[step.sequences[row]]
            own.append((k[row], v[row]))
            for head in range(heads):
                group = head // (heads // kv_heads)
                scores = [float(q[row, head] @ key[group]) for key, _ in own[-window:]]
                if softcap:
                    scores = [softcap * math.tanh(score / softcap) for score in scores]
                shares = np.exp(np.array(scores) - max(scores))
                mixed = (
                    sum(p * value[group] for p, (_, value) in zip(shares, own[-window:], strict=True)) / shares.sum()
                )
                np.testing.assert_allclose(got[row, head].numpy(), mixed, rtol=1e-4, atol=1e-5)


def test_rotation_turns_each_pair_by_its_angle() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 2, 8), np.float32)
    angles = rng.uniform(0, 6, (3, 4)).astype(np.float32)
    turned = (x[..., :4] + 1j * x[..., 4:]) * np.exp(1j * angles.astype(np.float64))[:, None]
    expected = np.concatenate([turned.real, turned.imag], axis=-1)
    np.testing.assert_allclose(rotate(torch.from_numpy(x), torch.from_numpy(angles)).numpy(), expected, atol=1e-5)


def test_values_are_stored_as_they_are_and_keys_are_normed_then_rotated() -> None:
    shape = AttentionShape(layer=0, group=0, heads=2, kv_heads=1, head_dim=4)
    store = small_store("f32", 4, kv_heads=1)
    ops = TorchOps([kv_of(store)], threads=1)
    steps = StepMaker(store.layout, store.pages)
    text = steps.sequence()
    step = ops.step(steps.step((text, [0, 0])))
    qkv = torch.arange(1.0, 33.0).view(2, 16)
    gains = (torch.tensor([1.0, 2, 3, 4]), torch.tensor([5.0, 6, 7, 8]))
    rope = Rope(100.0)
    q = ops.norm_rope_store(step, qkv, shape, rope, gains, 1e-6, 0.5)
    page, slot = divmod(int(step.slots[0, 1]), PAGE)

    def turned(x: torch.Tensor, gain: torch.Tensor) -> list[float]:
        a = [float(v) for v in x / math.sqrt(float((x * x).mean()) + 1e-6) * gain]
        angles = (1.0, 0.1)  # position 1, theta 100, head_dim 4
        low = [a[i] * math.cos(angles[i]) - a[i + 2] * math.sin(angles[i]) for i in (0, 1)]
        return low + [a[i + 2] * math.cos(angles[i]) + a[i] * math.sin(angles[i]) for i in (0, 1)]

    np.testing.assert_allclose(store.layers[0].keys[page, 0, :, slot], turned(qkv[1, 8:12], gains[1]), rtol=1e-5)
    np.testing.assert_array_equal(store.layers[0].values[page, 0, slot], qkv[1, 12:])
    expected = [0.5 * value for head in (qkv[1, :4], qkv[1, 4:8]) for value in turned(head, gains[0])]
    np.testing.assert_allclose(q[1], expected, rtol=1e-5)


def test_gated_gelu_is_the_tanh_form() -> None:
    gate, up = np.linspace(-4, 4, 33), np.linspace(1, 2, 33)
    expected = [
        0.5 * g * (1 + math.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3))) * u
        for g, u in zip(gate, up, strict=True)
    ]
    got = TorchOps([]).gated_gelu(torch.tensor(np.concatenate([gate, up]), dtype=torch.float32)[None])
    np.testing.assert_allclose(got[0].numpy(), expected, atol=1e-6)


# ---- Storage ----


def stored_rows(kv_type: KVType, k: Float32, v: Float32) -> tuple[KVStore, list[tuple[int, int]], TorchKV]:
    """``k`` and ``v`` [T, G, E] written to slots in no order."""
    store = small_store(kv_type, k.shape[2], kv_heads=k.shape[1])
    kv = kv_of(store)
    slots = np.random.default_rng(1).permutation(6 * PAGE)[: len(k)]
    kv.write(torch.from_numpy(slots), torch.from_numpy(k), torch.from_numpy(v))
    return store, [divmod(int(slot), PAGE) for slot in slots], kv


@pytest.mark.parametrize("kv_type", ["f32", "f16", "bf16", "int8"])
def test_the_stores_own_arrays_hold_what_is_read_back(kv_type: KVType) -> None:
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, 50, 2, 40), np.float32)
    store, places, kv = stored_rows(kv_type, k, v)
    keys, values = kv.read(torch.arange(6))
    layer = store.layers[0]
    for row, (page, slot) in enumerate(places):
        for got, given, array, scales in (
            (
                keys,
                k,
                layer.keys[page, :, :, slot],
                None if layer.key_scales is None else layer.key_scales[page, :, :, slot],
            ),
            (
                values,
                v,
                layer.values[page, :, slot],
                None if layer.value_scales is None else layer.value_scales[page, :, slot],
            ),
        ):
            back = got[:, page * PAGE + slot].numpy()
            if kv_type == "bf16":
                expected = (array.astype(np.uint32) << 16).view(np.float32)
            elif scales is not None:
                expected = array * np.repeat(scales, INT8_BLOCK, axis=-1)[:, : array.shape[-1]]
            else:
                expected = array.astype(np.float32)
            np.testing.assert_array_equal(back, expected)
            step = {"f32": 0.0, "f16": 2.0**-11, "bf16": 2.0**-8, "int8": 0.5 / 127}[kv_type]
            largest = np.abs(given[row]).max() if kv_type == "int8" else np.abs(given[row])
            assert (np.abs(back - given[row]) <= step * largest * 1.001).all()


def test_rounding_is_to_nearest_even() -> None:
    ties = np.array([[[1 + 2.0**-8, 1 + 3 * 2.0**-8]]], np.float32)
    store, [(page, slot)], _ = stored_rows("bf16", ties, ties)
    assert store.layers[0].keys[page, 0, :, slot].tolist() == [0x3F80, 0x3F82]
    ties = np.array([[[127.0, 0.5, 1.5, -2.5]]], np.float32)
    store, [(page, slot)], _ = stored_rows("int8", ties, ties)
    assert store.layers[0].values[page, 0, slot].tolist() == [127, 0, 2, -2]
    assert store.layers[0].value_scales is not None
    assert store.layers[0].value_scales[page, 0, slot].tolist() == [1.0]


def test_blocks_of_zeros_and_of_not_a_numbers_in_int8() -> None:
    x = np.zeros((3, 1, 64), np.float32)
    x[1, 0, 40] = np.nan
    x[2, 0, 3] = np.inf
    _, places, kv = stored_rows("int8", x, x)
    keys, values = kv.read(torch.arange(6))
    for got in (keys, values):
        zeros, nan, infinite = (got[0, page * PAGE + slot].numpy() for page, slot in places)
        assert (zeros == 0).all()
        assert (nan[:32] == 0).all()
        assert np.isnan(nan[32:]).all()
        assert not np.isfinite(infinite[:32]).any()


def test_another_device_has_tensors_of_its_own() -> None:
    store = small_store("bf16", 40)
    layer = store.layers[0]
    kv = TorchKV.of(layer.keys, layer.values, None, None, INT8_BLOCK, "meta")
    assert (kv.keys.device.type, kv.keys.dtype, kv.keys.shape) == ("meta", torch.bfloat16, layer.keys.shape)
    assert kv.values.shape == layer.values.shape


@pytest.mark.parametrize("what", ["key", "value"])
def test_float16_takes_its_largest_value_and_no_more(what: str) -> None:
    fine = np.full((1, 1, 4), -65504, np.float32)
    stored_rows("f16", fine, fine)
    beyond = np.nextafter(fine, np.float32(-np.inf))
    with pytest.raises(NumericError, match=f"a {what} is beyond float16's 65504"):
        stored_rows("f16", beyond if what == "key" else fine, beyond if what == "value" else fine)
    not_numbers = np.full((1, 1, 4), np.nan, np.float32)
    stored_rows("f16", not_numbers, not_numbers)


# ---- The model ----


def test_rows_without_logits_leave_before_the_last_feed_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """PF-01: the head must not see every row of a prompt and drop most of its work."""
    model = tiny_model()
    seen: list[tuple[int, int]] = []
    linear = TorchOps.linear

    def spy(self: TorchOps, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        seen.append((len(weights[0]), len(x)))
        return linear(self, x, *weights)

    monkeypatch.setattr(TorchOps, "linear", spy)
    steps = StepMaker(model.store.layout, model.store.pages)
    model.forward(steps.step((steps.sequence(), range(20))))
    query, output, gate, down, head = CONFIG.query_size, CONFIG.hidden, CONFIG.ffn, CONFIG.hidden, CONFIG.vocab
    first = [(query, 20), (output, 20), (gate, 20), (down, 20)]
    assert seen == [*first, (query, 20), (output, 1), (gate, 1), (down, 1), (head, 1)]


def test_forward_is_the_head_of_hidden() -> None:
    model = tiny_model()
    steps = StepMaker(model.store.layout, model.store.pages)
    step = steps.step((steps.sequence(), range(20)), logits="all")
    hidden = model.hidden(step)
    assert hidden.shape == (20, CONFIG.hidden)
    np.testing.assert_array_equal(model.head(hidden), model.forward(step))


def test_the_number_of_threads_is_the_models_own() -> None:
    before = torch.get_num_threads()
    inside = []
    ops = TorchOps([], threads=3)
    with ops.running():
        inside.append(torch.get_num_threads())
    assert inside == [3]
    assert torch.get_num_threads() == before


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(UsageError, match="device 'tpu9'"):
        tiny_model(device="tpu9")


def test_without_pytorch_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cabochon.ops.torch", "cabochon.ops.torch_kv"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "cabochon\[torch\]"'):
        tiny_model()


def test_nothing_imports_pytorch_before_a_model_is_built() -> None:
    code = "import sys, cabochon.model.torch_model, cabochon.testing.steps; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

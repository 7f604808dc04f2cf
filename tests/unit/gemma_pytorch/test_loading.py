"""Checkpoints: all that is needed, nothing that is not, whatever form they have."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.gemma_pytorch.conftest import CONFIG, Build
from torch import Tensor

from cabochon.compat.gemma_pytorch.from_gguf import get_config_for_gguf, state_dict_from_gguf
from cabochon.compat.gemma_pytorch.loading import INDEX
from cabochon.compat.gemma_pytorch.model import GemmaForCausalLM
from cabochon.errors import CheckpointError, TensorError, UnsupportedError, UsageError
from cabochon.testing.tiny import tiny_config, write_tiny_gguf

QKV = "model.layers.1.self_attn.qkv_proj.weight"
ROPE = {"local_freqs_cis": torch.zeros(7, 3, dtype=torch.complex64), "global_freqs_cis": torch.zeros(1)}

State = dict[str, Tensor]


@pytest.fixture(scope="module")
def weights(path: Path) -> State:
    return state_dict_from_gguf(path)


@pytest.fixture
def empty(path: Path) -> GemmaForCausalLM:
    """A model without weights."""
    config = get_config_for_gguf(path, "float32")
    config.tokenizer = None
    model = GemmaForCausalLM(config)
    for weight in model.parameters():
        weight.fill_(torch.nan)
    return model


def saved(path: Path, state: Mapping[str, Tensor]) -> Path:
    torch.save({"model_state_dict": dict(state)}, path)
    return path


def assert_equal(model: GemmaForCausalLM, weights: State) -> None:
    state = model.state_dict()
    assert state.keys() == weights.keys()
    assert all(torch.equal(state[name], weights[name].to(state[name].dtype)) for name in state)


# ---- Forms ----


def test_one_file(empty: GemmaForCausalLM, weights: State, tmp_path: Path) -> None:
    empty.load_weights(saved(tmp_path / "model.ckpt", weights | ROPE))
    assert_equal(empty, weights)


def test_a_directory_of_shards(empty: GemmaForCausalLM, weights: State, tmp_path: Path) -> None:
    names = list(weights | ROPE)
    shards = {"a.bin": names[::2], "b.bin": names[1::2]}
    for file, part in shards.items():
        torch.save({name: (weights | ROPE)[name] for name in part}, tmp_path / file)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {n: file for file, part in shards.items() for n in part}}))
    empty.load_weights(str(tmp_path))
    assert_equal(empty, weights)


def test_a_gguf_file(empty: GemmaForCausalLM, weights: State, path: Path) -> None:
    empty.load_weights(path)
    assert_equal(empty, weights)


def test_a_state_dict(empty: GemmaForCausalLM, weights: State) -> None:
    empty.load_state_dict(weights | ROPE)
    assert_equal(empty, weights)


def test_what_was_saved_is_loaded_again(build: Build, empty: GemmaForCausalLM, tmp_path: Path) -> None:
    model = build()
    empty.load_weights(saved(tmp_path / "model.ckpt", model.state_dict()))
    assert_equal(empty, model.state_dict())


def test_weights_take_the_type_of_the_model(path: Path, weights: State, tmp_path: Path) -> None:
    config = get_config_for_gguf(path, "bfloat16")
    model = GemmaForCausalLM(config)
    model.load_weights(saved(tmp_path / "model.ckpt", weights))
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert_equal(model, weights)


def test_a_model_made_without_memory(path: Path, weights: State) -> None:
    config = get_config_for_gguf(path, "float32")
    with torch.device("meta"):
        model = GemmaForCausalLM(config)
    model.load_state_dict(weights, assign=True)
    assert_equal(model, weights)
    assert isinstance(model.generate("a", "cpu", output_len=2, temperature=0), str)


def with_images(weights: State) -> State:
    """The checkpoint of a larger model."""
    extra = {
        "siglip_vision_model.final_norm.weight": torch.zeros(3),
        "mm_soft_embedding_norm.weight": torch.zeros(3),
        "mm_input_projection.weight": torch.zeros(3, 3),
    }
    rest = {name: tensor for name, tensor in weights.items() if name != "embedder.weight"}
    return {"text_token_embedder.weight": weights["embedder.weight"], **rest, **extra}


def test_the_text_part_of_a_model_that_sees_images(empty: GemmaForCausalLM, weights: State, tmp_path: Path) -> None:
    empty.load_weights(saved(tmp_path / "model.ckpt", with_images(weights)))
    assert_equal(empty, weights)
    alone = weights | {"mm_input_projection.weight": torch.zeros(3, 3)}
    with pytest.raises(TensorError, match=r"^tensor mm_input_projection.weight is left over"):
        empty.load_state_dict(alone)


# ---- int8 ----


def in_int8(weights: State) -> tuple[State, State]:
    """Weights in int8 with a scale for each row, and what they mean."""
    stored, meant = dict(weights), dict(weights)
    for name, tensor in weights.items():
        if tensor.ndim == 2:
            scales = (tensor.abs().amax(dim=1) / 127).bfloat16()  # [rows]
            stored[name] = (tensor / scales[:, None]).round().clamp(-128, 127).to(torch.int8)
            stored[name.removesuffix("weight") + "weight_scaler"] = scales
            meant[name] = stored[name].float() * scales.float()[:, None]
    return stored, meant


@pytest.mark.parametrize("quant", [True, False])
def test_int8_becomes_the_type_of_the_model(path: Path, weights: State, tmp_path: Path, quant: bool) -> None:
    stored, meant = in_int8(weights)
    config = get_config_for_gguf(path, "float32")
    config.quant = quant
    model = GemmaForCausalLM(config)
    model.load_weights(saved(tmp_path / "model.ckpt", stored))
    assert_equal(model, meant)
    assert all((model.state_dict()[name] - weights[name]).abs().max() < 0.05 for name in weights)


def test_int8_of_a_model_that_sees_images(empty: GemmaForCausalLM, weights: State) -> None:
    stored, meant = in_int8(weights)
    stored["text_token_embedder.weight"] = stored.pop("embedder.weight")
    stored["text_token_embedder.weight_scaler"] = stored.pop("embedder.weight_scaler")
    empty.load_state_dict(stored)
    assert_equal(empty, meant)


def test_quant_is_a_demand(path: Path, weights: State) -> None:
    config = get_config_for_gguf(path, "float32")
    config.quant = True
    with pytest.raises(TensorError, match=r"^tensor embedder.weight is torch.float32, not int8 as config.quant says"):
        GemmaForCausalLM(config).load_state_dict(weights)


# ---- Faults ----


def changed(name: str, value: Tensor | None) -> Callable[[State], State]:
    def change(weights: State) -> State:
        rest = {key: tensor for key, tensor in weights.items() if key != name}
        return rest if value is None else {**rest, name: value}

    return change


SHAPE = (CONFIG.query_size + 2 * CONFIG.kv_size, CONFIG.hidden)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(QKV, None), f"tensor {QKV} is missing"),
        (changed(QKV, torch.zeros(3, 4)), rf"tensor {QKV} has shape \(3, 4\), not \({SHAPE[0]}, {SHAPE[1]}\)"),
        (changed("lm_head.weight", torch.zeros(3)), r"tensor lm_head.weight is left over \(1 in all\)"),
        (changed(QKV, torch.zeros(SHAPE, dtype=torch.int64)), f"tensor {QKV} is torch.int64, which is no type"),
        (
            changed(QKV, torch.zeros(SHAPE, dtype=torch.int8)),
            rf"tensor {QKV} is int8 and needs a weight_scaler of shape \({SHAPE[0]},\)",
        ),
        (changed(QKV + "_scaler", torch.zeros(SHAPE[0])), f"tensor {QKV} has scales but is torch.float32"),
        (
            lambda weights: {f"model.{name}": tensor for name, tensor in weights.items()},
            "tensor embedder.weight is missing; there is a model.embedder.weight",
        ),
        (lambda weights: {}, "tensor embedder.weight is missing$"),
    ],
)
def test_a_tensor_that_is_not_right_is_named(
    empty: GemmaForCausalLM, weights: State, tmp_path: Path, change: Callable[[State], State], message: str
) -> None:
    with pytest.raises(TensorError, match=f"^{message}"):
        empty.load_state_dict(change(weights))
    file = saved(tmp_path / "model.ckpt", change(weights))
    with pytest.raises(TensorError, match=f"^{file}: {message}"):
        empty.load_weights(file)


def test_without_strictness_it_is_refused(empty: GemmaForCausalLM, weights: State) -> None:
    with pytest.raises(UsageError, match=r"^load_state_dict: strict=False"):
        empty.load_state_dict(weights, strict=False)


class Evil:
    """What unpickling must not make."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("unpickled",))


def index(content: str) -> Callable[[Path], Path]:
    def write(place: Path) -> Path:
        (place / INDEX).write_text(content)
        return place

    return write


def file(content: object) -> Callable[[Path], Path]:
    def write(place: Path) -> Path:
        if isinstance(content, bytes):
            (place / "model.ckpt").write_bytes(content)
        else:
            torch.save(content, place / "model.ckpt")
        return place / "model.ckpt"

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda place: place / "nothing.ckpt", r"nothing\.ckpt: cannot be read"),
        (lambda place: place, rf"{INDEX}: cannot be read"),
        (file(b"what is this"), "model.ckpt: not a checkpoint that PyTorch can map"),
        (file(b""), "model.ckpt: not a checkpoint that PyTorch can map"),
        (file({"model_state_dict": Evil()}), "model.ckpt: holds more than tensors, or is damaged"),
        (file({"weights": {}}), "model.ckpt: holds no 'model_state_dict'"),
        (file([1, 2]), "model.ckpt: holds no 'model_state_dict'"),
        (file({"model_state_dict": {"a": 3}}), "model.ckpt: not a state dict"),
        (index("{"), f"{INDEX}: not JSON with a weight_map"),
        (index("[]"), f"{INDEX}: not JSON with a weight_map"),
        (index('{"weight_map": ["a"]}'), f"{INDEX}: weight_map must name a file for each tensor"),
        (index('{"weight_map": {"a": 1}}'), f"{INDEX}: weight_map must name a file for each tensor"),
        (index('{"weight_map": {"a": "../a.bin"}}'), f"{INDEX}: '../a.bin' is not the name of a file beside it"),
        (index('{"weight_map": {"a": "a.bin"}}'), r"a\.bin: cannot be read"),
    ],
)
def test_what_is_no_checkpoint_is_refused_in_one_line(
    empty: GemmaForCausalLM,
    tmp_path: Path,
    write: Callable[[Path], Path],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        empty.load_weights(write(tmp_path))
    assert "\n" not in str(caught.value)
    assert "unpickled" not in capsys.readouterr().out


# ---- GGUF ----


def test_the_config_of_a_gguf_file(path: Path) -> None:
    config = get_config_for_gguf(path)
    assert (config.dtype, config.tokenizer) == ("bfloat16", str(path))
    assert config.query_pre_attn_scalar == pytest.approx(10)
    assert config.rope_scaling_factor == 8


def test_a_head_of_its_own_is_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "untied.gguf", tiny_config(layers=1, tied_head=False))
    for read in (get_config_for_gguf, state_dict_from_gguf):
        with pytest.raises(UnsupportedError, match="has a head of its own"):
            read(path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"nonsense")
    with pytest.raises(UsageError, match=r"a.gguf: not a GGUF file"):
        get_config_for_gguf(tmp_path / "a.gguf")

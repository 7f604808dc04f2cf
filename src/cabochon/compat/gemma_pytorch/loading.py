"""gemma_pytorch's checkpoints, read strictly: every tensor, in its shape, and none left over."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from cabochon.errors import CheckpointError, TensorError, shown

INDEX = "pytorch_model.bin.index.json"

_SCALES = "weight_scaler"
_ROPE_TABLES = frozenset({"freqs_cis", "local_freqs_cis", "global_freqs_cis"})
"""Tables that can be computed, and are: of any shape, they are not looked at."""

_TEXT_EMBEDDING = "text_token_embedder."
"""What the embedding is called in a checkpoint that has an image part, too."""

_IMAGE_PART = ("siglip_vision_model.", "mm_soft_embedding_norm.", "mm_input_projection.")


def read_checkpoint(path: str | Path) -> dict[str, Tensor]:
    """The state dict of a ``.ckpt`` file, or of a directory with ``pytorch_model.bin.index.json``; mapped, not read.

    Nothing but tensors and plain values is unpickled. Raises ``CheckpointError`` if it is neither.
    """
    path = Path(path)
    if path.is_dir():
        return _shards(path)
    content = _unpickled(path)
    if not isinstance(content, dict) or "model_state_dict" not in content:
        raise CheckpointError(f"{path}: holds no 'model_state_dict'; not a checkpoint of gemma_pytorch")
    return _tensors(path, content["model_state_dict"])


def fitted(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor], *, quantized: bool = False) -> dict[str, Tensor]:
    """The tensors of ``given`` that ``wanted`` names, int8 ones multiplied by their scales.

    Tables of rotations are dropped, and so is the image part where there is one. With ``quantized`` every matrix must
    be int8. Raises ``TensorError`` naming the first tensor that is missing, of another shape, or left over.
    """
    rest = _text_part(given)
    found = {}
    for name, target in wanted.items():
        tensor = rest.pop(name, None)
        if tensor is None:
            others = f"; there is a {next(iter(rest))}" if rest else ""
            raise TensorError(f"tensor {name} is missing{others}")
        if tensor.shape != target.shape:
            raise TensorError(f"tensor {name} has shape {tuple(tensor.shape)}, not {tuple(target.shape)}")
        scales = rest.pop(name.removesuffix("weight") + _SCALES, None)
        if tensor.dtype == torch.int8:
            tensor = _dequantized(name, tensor, scales, target.dtype)
        elif scales is not None:
            raise TensorError(f"tensor {name} has scales but is {tensor.dtype}, not int8")
        elif quantized and tensor.ndim == 2:
            raise TensorError(f"tensor {name} is {tensor.dtype}, not int8 as config.quant says")
        elif not tensor.is_floating_point():
            raise TensorError(f"tensor {name} is {tensor.dtype}, which is no type of weights")
        found[name] = tensor
    if rest:
        raise TensorError(f"tensor {next(iter(rest))} is left over ({len(rest)} in all); is it another model?")
    return found


def _text_part(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    rest = {name: tensor for name, tensor in given.items() if name not in _ROPE_TABLES}
    if any(name.startswith(_TEXT_EMBEDDING) for name in rest):
        rest = {name: tensor for name, tensor in rest.items() if not name.startswith(_IMAGE_PART)}
        rest = {name.replace(_TEXT_EMBEDDING, "embedder."): tensor for name, tensor in rest.items()}
    return rest


def _dequantized(name: str, tensor: Tensor, scales: Tensor | None, dtype: torch.dtype) -> Tensor:
    """``tensor`` [rows, cols] times ``scales`` [rows]: exact in float32 for bfloat16 scales, then rounded once."""
    if scales is None or scales.shape != tensor.shape[:1] or not scales.is_floating_point():
        raise TensorError(f"tensor {name} is int8 and needs a {_SCALES} of shape {tuple(tensor.shape[:1])}")
    return (tensor.float() * scales.float()[:, None]).to(dtype)


def _shards(directory: Path) -> dict[str, Tensor]:
    index = directory / INDEX
    try:
        files = json.loads(index.read_text("utf-8"))["weight_map"]
    except OSError as error:
        raise CheckpointError(f"{index}: cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError):
        raise CheckpointError(f"{index}: not JSON with a weight_map; the checkpoint is damaged") from None
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise CheckpointError(f"{index}: weight_map must name a file for each tensor")
    state: dict[str, Tensor] = {}
    for file in sorted(set(files.values())):
        if Path(file).name != file:
            raise CheckpointError(f"{index}: {shown(file)} is not the name of a file beside it")
        state |= _tensors(directory / file, _unpickled(directory / file))
    return state


def _unpickled(path: Path) -> object:
    try:
        content: object = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from None
    except pickle.UnpicklingError:
        raise CheckpointError(f"{path}: holds more than tensors, or is damaged; it was not loaded") from None
    except (RuntimeError, ValueError, EOFError, KeyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"{path}: not a checkpoint that PyTorch can map ({reason})") from None
    return content


def _tensors(path: Path, state: object) -> dict[str, Tensor]:
    if isinstance(state, dict) and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items()):
        return state
    raise CheckpointError(f"{path}: not a state dict, which maps names to tensors")

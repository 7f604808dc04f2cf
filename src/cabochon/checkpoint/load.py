"""From a path or a name to a ``Checkpoint``, strictly: every tensor the model needs, of its shape, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from cabochon.checkpoint.demo import Progress
from cabochon.checkpoint.dequantize import dequantize
from cabochon.checkpoint.gguf import GGUFFile, read_gguf
from cabochon.checkpoint.gguf_config import config_from_gguf
from cabochon.checkpoint.gguf_format import MetadataValue, printable
from cabochon.checkpoint.mapped import MappedFile
from cabochon.checkpoint.names import gguf_name
from cabochon.checkpoint.source import find_model
from cabochon.errors import TensorError, UnsupportedError
from cabochon.model.config import GemmaConfig
from cabochon.model.tensors import TensorSpec, tensor_specs
from cabochon.types import RawTensor, WeightType

_TOKENIZER_PREFIX = "tokenizer."
_SAMPLING_PREFIX = "general.sampling."
_ROPE_FACTORS = "rope_freqs.weight"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model as its file holds it, checked whole."""

    config: GemmaConfig
    tensors: Mapping[str, RawTensor]
    """By our names, exactly those of ``tensor_specs(config)``. Norms are F32 and hold the plain gain."""
    tokenizer: Mapping[str, MetadataValue]
    """The file's ``tokenizer.*`` metadata, under its own keys."""
    sampling: Mapping[str, MetadataValue]
    """The file's ``general.sampling.*`` metadata, under its own keys: how its author would have tokens chosen."""
    source: Path
    """The file."""
    name: str
    """What the model calls itself, or the file's name."""
    mapped: MappedFile = field(repr=False, compare=False)
    """What holds the tensors' bytes."""


def load_checkpoint(model: str | Path, *, progress: Progress | None = None) -> Checkpoint:
    """Opens ``model``: a GGUF file, a directory with one, or ``demo`` for the packaged Gemma 3 270M.

    ``progress`` is told (bytes done, bytes in all) while the demo is assembled, the first time.

    Raises ``CheckpointError`` if there is no sound model, ``TensorError`` naming a tensor that is missing, left over,
    misshapen or of the wrong type, ``UnsupportedError`` for a model of another kind, and for the demo
    ``MissingDependencyError`` if its package is not installed and ``RunError`` if its file cannot be written.
    """
    return checkpoint_from_gguf(read_gguf(find_model(model, progress=progress)))


def checkpoint_from_gguf(file: GGUFFile) -> Checkpoint:
    """The model in ``file``; raises as ``load_checkpoint`` does."""
    config = config_from_gguf(file)
    tensors = {}
    for spec in tensor_specs(config):
        tensors[spec.name] = replace(_checked(file, spec), name=spec.name)
    _refuse_left_over(file, {gguf_name(name) for name in tensors})
    name = file.metadata.get("general.name")
    return Checkpoint(
        config=config,
        tensors=MappingProxyType(tensors),
        tokenizer=_beginning_with(_TOKENIZER_PREFIX, file.metadata),
        sampling=_beginning_with(_SAMPLING_PREFIX, file.metadata),
        source=file.path,
        name=name if isinstance(name, str) and name else file.path.stem,
        mapped=file.mapped,
    )


def _beginning_with(prefix: str, metadata: Mapping[str, MetadataValue]) -> Mapping[str, MetadataValue]:
    return MappingProxyType({key: value for key, value in metadata.items() if key.startswith(prefix)})


def _checked(file: GGUFFile, spec: TensorSpec) -> RawTensor:
    name = gguf_name(spec.name)
    tensor = file.tensors.get(name)
    if tensor is None:
        raise TensorError(f"{file.path}: tensor {name} is missing")
    if tensor.shape != spec.shape:
        raise TensorError(f"{file.path}: tensor {name} has shape {tensor.shape}; the metadata asks for {spec.shape}")
    # GGUF stores Gemma 3 gains with the one already added, always as F32.
    if spec.kind == "norm" and tensor.type != WeightType.F32:
        raise TensorError(f"{file.path}: tensor {name} has type {tensor.type.name}; a norm's gain must be F32")
    return tensor


def _refuse_left_over(file: GGUFFile, used: set[str]) -> None:
    for name, tensor in file.tensors.items():
        if name in used:
            continue
        if name != _ROPE_FACTORS:
            raise TensorError(f"{file.path}: tensor {printable(name)} is not part of a {_architecture(file)} model")
        # Some converters write divisors of the rotary frequencies; all ones, they change nothing.
        if (dequantize(tensor) != 1).any():
            raise UnsupportedError(f"{file.path}: tensor {name} rescales rotary frequencies, which is not supported")


def _architecture(file: GGUFFile) -> str:
    return str(file.metadata["general.architecture"])

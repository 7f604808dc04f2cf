"""``GemmaConfig`` from the metadata of a GGUF file.

What GGUF leaves out is the family's and is written here: the order of sliding and global layers, the local rope base,
the query scale. A key that would change the arithmetic and is not understood is refused, and a required one that is
missing is named; only values that are the same in every released model of the family have a default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from cabochon.checkpoint.gguf import GGUFFile
from cabochon.checkpoint.gguf_format import MetadataValue, printable
from cabochon.checkpoint.names import gguf_name
from cabochon.checkpoint.strings import StringArray
from cabochon.errors import CheckpointError, TensorError, UnsupportedError
from cabochon.model.config import MAX_LAYERS, GemmaConfig
from cabochon.ops.protocol import Rope

ARCHITECTURES = ("gemma3",)
"""Those that can be run, by GGUF's names."""

_PATTERN = 6
_LOCAL_THETA = 1e4
_GLOBAL_THETA = 1e6
_RMS_EPS = 1e-6
_BOS, _EOS = 2, 1
_LAYERS_OF_27B = 62
_LONGEST_UNSCALED = 32768
_CONTROL = 3

_ARITHMETIC_KEYS = frozenset(
    {
        "attention.causal",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.key_length_swa",
        "attention.layer_norm_rms_epsilon",
        "attention.scale",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "attention.value_length",
        "attention.value_length_swa",
        "rope.dimension_count",
        "rope.dimension_count_swa",
        "rope.freq_base",
        "rope.freq_base_swa",
        "rope.scaling.attn_factor",
        "rope.scaling.factor",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "rope.scaling.type",
    }
)
"""Keys under ``attention.`` and ``rope.`` that are read here, or are known to change nothing."""


def config_from_gguf(file: GGUFFile) -> GemmaConfig:
    """The config that ``file`` describes; the vocabulary is as large as the embedding has rows.

    Raises ``UnsupportedError`` for another architecture or a feature that is not implemented, ``CheckpointError``
    naming the key that is missing, of the wrong type or not plausible.
    """
    keys = _Keys(file)
    architecture = keys.architecture()
    keys.refuse_unknown_arithmetic()
    layers = keys.size("block_count")
    if layers > MAX_LAYERS:
        raise keys.error("block_count", f"is {layers}; more than {MAX_LAYERS} is not plausible")
    hidden = keys.size("embedding_length")
    heads = keys.size("attention.head_count")
    head_dim = _head_dim(keys)
    slides = _sliding_layers(keys, layers)
    window = keys.size("attention.sliding_window") if any(slides) else None
    global_rope, local_rope = _ropes(keys)
    vocab = _vocabulary(file)
    return GemmaConfig(
        architecture=architecture,
        layers=layers,
        hidden=hidden,
        ffn=keys.size("feed_forward_length"),
        heads=heads,
        kv_heads=keys.size("attention.head_count_kv"),
        head_dim=head_dim,
        vocab=vocab,
        context_length=keys.size("context_length"),
        rms_eps=keys.real("attention.layer_norm_rms_epsilon", _RMS_EPS),
        query_scale=keys.real("attention.scale", _query_scale(layers, hidden, heads, head_dim)),
        embedding_scale=math.sqrt(hidden),
        layer_windows=tuple(window if sliding else None for sliding in slides),
        layer_ropes=tuple(local_rope if sliding else global_rope for sliding in slides),
        qk_norm=True,
        post_norms=True,
        tied_head=gguf_name("head") not in file.tensors,
        attn_softcap=keys.optional_real("attn_logit_softcapping"),
        final_softcap=keys.optional_real("final_logit_softcapping"),
        bos_id=keys.token_id("bos", _BOS),
        eos_ids=_end_ids(keys, vocab),
    )


class _Keys:
    """Typed access to a file's metadata; keys are given without the architecture before them."""

    def __init__(self, file: GGUFFile) -> None:
        self._file = file
        self._metadata: Mapping[str, MetadataValue] = file.metadata
        self._prefix = ""

    def architecture(self) -> str:
        """The model's architecture, from here on the prefix of keys."""
        kind = self._metadata.get("general.type", "model")
        if kind != "model":
            raise UnsupportedError(f"{self._file.path}: holds a {printable(str(kind))}, not a model")
        if self._metadata.get("split.count", 1) not in (0, 1):
            raise UnsupportedError(f"{self._file.path}: one part of a split model; join the parts with gguf-split")
        name = self._metadata.get("general.architecture")
        if not isinstance(name, str):
            raise CheckpointError(f"{self._file.path}: metadata general.architecture is missing")
        if name not in ARCHITECTURES:
            shown, known = printable(name), ", ".join(ARCHITECTURES)
            raise UnsupportedError(f"{self._file.path}: architecture {shown} is not supported (supported: {known})")
        self._prefix = f"{name}."
        return name

    def refuse_unknown_arithmetic(self) -> None:
        """Nothing that bears on attention or rotation may be ignored."""
        for key in self._metadata:
            name = key.removeprefix(self._prefix)
            if name != key and name.startswith(("attention.", "rope.")) and name not in _ARITHMETIC_KEYS:
                raise UnsupportedError(f"{self._file.path}: metadata {printable(key)} is not supported")
        if self._metadata.get(f"{self._prefix}attention.causal", True) is not True:
            raise UnsupportedError(f"{self._file.path}: attention is not causal; only text generation is supported")

    def error(self, key: str, fault: str) -> CheckpointError:
        """An error about one key."""
        return CheckpointError(f"{self._file.path}: metadata {self._full(key)} {fault}")

    def unsupported(self, key: str, fault: str) -> UnsupportedError:
        """An error about one key whose value is sound but not implemented."""
        return UnsupportedError(f"{self.error(key, fault)}, which is not supported")

    def _full(self, key: str) -> str:
        return key if key.startswith("tokenizer.") else self._prefix + key

    def raw(self, key: str) -> MetadataValue | None:
        """The value as read, None if there is none."""
        return self._metadata.get(self._full(key))

    def size(self, key: str, default: int | None = None) -> int:
        """A positive integer; a value per layer is accepted if all are equal."""
        value = self.raw(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.error(key, "is missing")
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
            if (value != value[0]).any():
                raise self.unsupported(key, "differs between layers")
            value = int(value[0])
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(key, f"is {printable(str(value))}; it must be a positive integer")
        return value

    def optional_real(self, key: str) -> float | None:
        """A positive number, None if there is none."""
        value = self.raw(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
            raise self.error(key, f"is {printable(str(value))}; it must be a positive number")
        return float(value)

    def real(self, key: str, default: float) -> float:
        """A positive number."""
        value = self.optional_real(key)
        return default if value is None else value

    def token_id(self, name: str, default: int | None) -> int | None:
        """The id of a special token."""
        key = f"tokenizer.ggml.{name}_token_id"
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(key, f"is {printable(str(value))}; it must be a token id")
        return value


def _head_dim(keys: _Keys) -> int:
    head_dim = keys.size("attention.key_length")
    same = ("attention.value_length", "attention.key_length_swa", "attention.value_length_swa")
    for key in (*same, "rope.dimension_count", "rope.dimension_count_swa"):
        other = keys.size(key, head_dim)
        if other != head_dim:
            raise keys.unsupported(key, f"is {other}, not the key length of {head_dim}")
    return head_dim


def _query_scale(layers: int, hidden: int, heads: int, head_dim: int) -> float:
    """The 27B model alone scales by hidden / heads; it is known by its number of layers, as in llama.cpp."""
    return float((hidden / heads if layers == _LAYERS_OF_27B else head_dim) ** -0.5)


def _sliding_layers(keys: _Keys, layers: int) -> list[bool]:
    """Which layers slide. A period n makes every n-th one global; a list of booleans says it layer by layer."""
    key = "attention.sliding_window_pattern"
    pattern = keys.raw(key)
    if isinstance(pattern, np.ndarray) and pattern.dtype == np.bool_:
        if len(pattern) != layers:
            raise keys.error(key, f"has {len(pattern)} entries for {layers} layers")
        return [bool(slides) for slides in pattern]
    period = keys.size(key, _PATTERN)
    return [(layer + 1) % period != 0 for layer in range(layers)]


def _ropes(keys: _Keys) -> tuple[Rope, Rope]:
    """Rotation of global layers and of sliding ones; only the former are scaled."""
    kind = keys.raw("rope.scaling.type")
    factor = 1.0
    if kind == "linear":
        if keys.raw("rope.scaling.factor") is None:
            raise keys.error("rope.scaling.factor", "is missing")
        factor = keys.real("rope.scaling.factor", 1.0)
    elif kind is None:
        # Every longer Gemma 3 is scaled; without the key the file does not say by how much.
        if keys.raw("rope.scaling.factor") is not None or keys.size("context_length") > _LONGEST_UNSCALED:
            raise keys.error("rope.scaling.type", "is missing")
    elif kind != "none":
        raise keys.unsupported("rope.scaling.type", f"is {printable(str(kind))}")
    if keys.real("rope.scaling.attn_factor", 1.0) != 1.0:
        raise keys.unsupported("rope.scaling.attn_factor", "is not 1")
    global_rope = Rope(keys.real("rope.freq_base", _GLOBAL_THETA), factor)
    return global_rope, Rope(keys.real("rope.freq_base_swa", _LOCAL_THETA))


def _vocabulary(file: GGUFFile) -> int:
    name = gguf_name("embedding")
    embedding = file.tensors.get(name)
    if embedding is None:
        raise TensorError(f"{file.path}: tensor {name} is missing")
    if len(embedding.shape) != 2:
        raise TensorError(f"{file.path}: tensor {name} has {len(embedding.shape)} dimensions, not 2")
    rows = embedding.shape[0]
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, StringArray) and len(tokens) > rows:
        raise TensorError(f"{file.path}: tensor {name} has {rows} rows for a vocabulary of {len(tokens)} tokens")
    return rows


def _end_ids(keys: _Keys, vocab: int) -> tuple[int, ...]:
    """The file's ends of text and of turn, and ``<eos>`` itself: files for chat often name only the end of turn."""
    ids = {keys.token_id("eos", None), keys.token_id("eot", None)}
    tokens, types = keys.raw("tokenizer.ggml.tokens"), keys.raw("tokenizer.ggml.token_type")
    if isinstance(tokens, StringArray) and "<eos>" in tokens:
        eos = tokens.index("<eos>")
        if not isinstance(types, np.ndarray) or len(types) <= eos or types[eos] == _CONTROL:
            ids.add(eos)
    elif vocab > _EOS:
        ids.add(_EOS)
    return tuple(sorted(token for token in ids if token is not None))

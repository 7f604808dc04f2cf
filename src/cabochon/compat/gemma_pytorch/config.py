"""``GemmaConfig``: what tells one model from another, under gemma_pytorch's names, and the models it knows.

Unlike ``model/config.py`` it can be changed after it is made, as programs do (``config.tokenizer = path``), so it is
checked when a model is built from it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypedDict

import torch

from cabochon.errors import UsageError, shown
from cabochon.sampling.params import whole_number

_DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "float16": torch.float16,
        "bfloat16": torch.bfloat16,
        "float32": torch.float32,
        "float": torch.float32,
    }
)
_TOKENIZER = "tokenizer/gemma3_cleaned_262144_v2.spiece.model"
_SIZES = (
    "vocab_size",
    "max_position_embeddings",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "intermediate_size",
    "head_dim",
)
_OF_EVERY_GEMMA_3 = ("use_pre_ffw_norm", "use_post_ffw_norm", "use_qk_norm")


class AttentionType(enum.Enum):
    """Which earlier positions a layer sees: all of them, or those in its window."""

    GLOBAL = 1
    LOCAL_SLIDING = 2


class Architecture(enum.Enum):
    """The generation. ``GEMMA_3`` is the one that runs."""

    GEMMA_1 = 1
    GEMMA_2 = 2
    GEMMA_3 = 3


def _one_global_in_six() -> Sequence[AttentionType]:
    return (*[AttentionType.LOCAL_SLIDING] * 5, AttentionType.GLOBAL)


def _wave_lengths() -> dict[AttentionType, float]:
    return {AttentionType.LOCAL_SLIDING: 10_000, AttentionType.GLOBAL: 1_000_000}


@dataclass(kw_only=True)
class GemmaConfig:
    """One model; what has a default here is alike in every Gemma 3."""

    architecture: Architecture = Architecture.GEMMA_3
    vocab_size: int = 262_144
    """V, rows of the embedding."""
    max_position_embeddings: int
    """The most positions that a prompt and its continuation may have together."""
    num_hidden_layers: int
    num_attention_heads: int
    """H, query heads."""
    num_key_value_heads: int
    """G, key/value heads."""
    hidden_size: int
    """D."""
    intermediate_size: int
    """F, width of gate and of up."""
    head_dim: int
    """E."""
    rms_norm_eps: float = 1e-6
    dtype: str = "bfloat16"
    """Of weights, activations and the KV cache: ``bfloat16``, ``float16``, ``float32`` or ``float``."""
    quant: bool = False
    """Demand a checkpoint of int8 weights. Without it they are taken as well; they become ``dtype`` on loading."""
    tokenizer: str | None = _TOKENIZER
    """A SentencePiece model, a GGUF file, or ``demo``; None for a model that only its ``forward`` is called of."""
    attn_types: Sequence[AttentionType] = field(default_factory=_one_global_in_six)
    """Repeated over the layers."""
    sliding_window_size: int | None
    """Positions that a sliding layer sees, the query's own included."""
    final_logit_softcapping: float | None = None
    attn_logit_softcapping: float | None = None
    query_pre_attn_scalar: float | None = None
    """Queries are divided by its square root; None for ``head_dim``."""
    use_pre_ffw_norm: bool = True
    use_post_ffw_norm: bool = True
    use_qk_norm: bool = True
    rope_wave_length: Mapping[AttentionType, float] = field(default_factory=_wave_lengths)
    vision_config: object | None = None
    """Must be None: the text part is what runs."""
    rope_scaling_factor: float | None = None
    """What angles of global layers are divided by; None for 1."""

    def get_dtype(self) -> torch.dtype:
        """PyTorch's name of ``dtype``; raises ``UsageError`` for one that is not known."""
        if self.dtype not in _DTYPES:
            raise UsageError(f"config.dtype must be one of {', '.join(_DTYPES)}, not {shown(self.dtype)}")
        return _DTYPES[self.dtype]

    def layer_types(self) -> tuple[AttentionType, ...]:
        """``attn_types`` of every layer."""
        return tuple(self.attn_types[layer % len(self.attn_types)] for layer in range(self.num_hidden_layers))

    def check(self) -> None:
        """Raises ``UsageError`` naming the first field that cannot be, or is not supported."""
        if self.architecture != Architecture.GEMMA_3:
            raise UsageError(f"config.architecture: only GEMMA_3 runs here yet, not {shown(self.architecture)}")
        self.get_dtype()
        for name in _SIZES:
            whole_number(f"config.{name}", getattr(self, name), at_least=1)
        if self.num_attention_heads % self.num_key_value_heads:
            raise UsageError("config.num_attention_heads is not a multiple of config.num_key_value_heads")
        if self.head_dim % 2:
            raise UsageError(f"config.head_dim is {self.head_dim}; rotary positions need an even number")
        if not self.attn_types or not all(isinstance(kind, AttentionType) for kind in self.attn_types):
            raise UsageError("config.attn_types must be a list of AttentionType")
        for kind in set(self.attn_types):
            if kind not in self.rope_wave_length:
                raise UsageError(f"config.rope_wave_length has no {kind}, which config.attn_types names")
        if AttentionType.LOCAL_SLIDING in self.attn_types:
            whole_number("config.sliding_window_size", self.sliding_window_size, at_least=1)
        for name in _OF_EVERY_GEMMA_3:
            if not getattr(self, name):
                raise UsageError(f"config.{name} must be True: every Gemma 3 has these norms")
        if self.vision_config is not None:
            raise UsageError("config.vision_config: images are not supported here; None runs the text part")


class _Sizes(TypedDict):
    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    sliding_window_size: int
    query_pre_attn_scalar: float
    max_position_embeddings: int
    rope_scaling_factor: float | None


def _sizes(
    layers: int, hidden: int, ffn: int, heads: tuple[int, int, int], window: int, scalar: float, context: int
) -> _Sizes:
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": heads[2],
        "sliding_window_size": window,
        "query_pre_attn_scalar": scalar,
        "max_position_embeddings": context,
        # Models made for more than 32,768 positions were trained with global angles eight times smaller.
        "rope_scaling_factor": 8 if context > 32_768 else None,
    }


_GEMMA_3: Mapping[str, _Sizes] = MappingProxyType(
    {
        "270m": _sizes(18, 640, 2048, (4, 1, 256), window=512, scalar=256, context=32_768),
        "1b": _sizes(26, 1152, 6912, (4, 1, 256), window=512, scalar=256, context=32_768),
        "4b": _sizes(34, 2560, 10_240, (8, 4, 256), window=1024, scalar=256, context=131_072),
        "12b": _sizes(48, 3840, 15_360, (16, 8, 256), window=1024, scalar=256, context=131_072),
        "27b_v3": _sizes(62, 5376, 21_504, (32, 16, 128), window=1024, scalar=168, context=131_072),
    }
)
_EARLIER = MappingProxyType({"2b": 1, "7b": 1, "2b-v2": 2, "9b": 2, "27b": 2})


def get_model_config(variant: str, dtype: str = "bfloat16") -> GemmaConfig:
    """The config of ``variant``: 270m, 1b, 4b, 12b or 27b_v3, with or without ``-pt`` or ``-it`` behind it.

    4b, 12b and 27b_v3 are the text parts of models that also see images. Raises ``UsageError`` for a name that is not
    known, for Gemma 1 and 2, and for an unknown ``dtype``.
    """
    name = str(variant).removesuffix("-it").removesuffix("-pt")
    if name in _EARLIER:
        raise UsageError(
            f"variant {variant} is a Gemma {_EARLIER[name]}: it comes when that family does; "
            f"what runs is {', '.join(_GEMMA_3)}"
        )
    if name not in _GEMMA_3:
        raise UsageError(f"variant must be one of {', '.join(_GEMMA_3)}, not {shown(variant)}")
    config = GemmaConfig(dtype=dtype, **_GEMMA_3[name])
    config.check()
    return config

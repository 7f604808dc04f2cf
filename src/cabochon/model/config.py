"""``GemmaConfig``: everything that tells one Gemma model from another, as plain numbers.

One description serves all generations; a reader (``checkpoint/gguf_config.py``) fills it in, the model reads it, and
neither looks at a file's keys again. Fields that differ from layer to layer are tuples with one entry per layer.
Symbols follow ``docs/notation.md``: L layers, D hidden, F ffn, H query heads, G key/value heads, E head_dim,
V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cabochon.errors import CheckpointError
from cabochon.ops.protocol import Rope

MAX_LAYERS = 1024
"""More layers than this is taken for a damaged file."""

SMALLEST = 1e-30
"""No epsilon, scale or cap may be smaller: it would not survive in binary32."""

MAX_DIMENSION = 1 << 24
"""No single dimension (hidden, ffn, vocabulary, heads x head_dim) may be larger."""


@dataclass(frozen=True, slots=True)
class GemmaConfig:
    """One model. Checked when built: a value that cannot be right raises ``CheckpointError`` naming its field."""

    architecture: str
    """The family, by GGUF's name: ``gemma3``."""
    layers: int
    """L."""
    hidden: int
    """D, width of the residual stream."""
    ffn: int
    """F, width of each of gate and up."""
    heads: int
    """H, query heads."""
    kv_heads: int
    """G, key/value heads; key/value head j serves query heads j*H/G ... (j+1)*H/G - 1."""
    head_dim: int
    """E, even. H*E need not be D."""
    vocab: int
    """V, rows of the embedding. The tokenizer may know fewer ids, never more."""
    context_length: int
    """Positions the model was made for."""
    rms_eps: float
    """Added to the mean square in every norm."""
    query_scale: float
    """What queries are multiplied by before the dot product with keys (``query_pre_attn_scalar ** -0.5``)."""
    embedding_scale: float
    """What embeddings are multiplied by on entry, sqrt(D); the head uses them unscaled."""
    layer_windows: tuple[int | None, ...]
    """Per layer: how many keys a query sees, itself included; None for all (a global layer)."""
    layer_ropes: tuple[Rope, ...]
    """Per layer."""
    qk_norm: bool
    """Queries and keys are normed per head before rotation (Gemma 3 on)."""
    post_norms: bool
    """Attention and feed-forward outputs are normed before they are added to the residual (Gemma 2 on)."""
    tied_head: bool
    """The head is the embedding; otherwise the checkpoint brings a head of its own."""
    attn_softcap: float | None = None
    """Scores become ``cap * tanh(score / cap)``; None for no cap."""
    final_softcap: float | None = None
    """The same for logits."""
    bos_id: int | None = None
    """Put before every text; None if the checkpoint names none."""
    eos_ids: tuple[int, ...] = ()
    """Ids that end a generation, ascending; may be empty."""

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "context_length"):
            value = getattr(self, name)
            if not 0 < value <= MAX_DIMENSION:
                raise CheckpointError(f"config: {name} is {value}; it must be between 1 and {MAX_DIMENSION}")
        if self.layers > MAX_LAYERS:
            raise CheckpointError(f"config: layers is {self.layers}; more than {MAX_LAYERS} is not plausible")
        if self.heads * self.head_dim > MAX_DIMENSION:
            raise CheckpointError(f"config: heads x head_dim is {self.heads * self.head_dim}, more than is plausible")
        if self.heads % self.kv_heads:
            raise CheckpointError(f"config: heads ({self.heads}) is not a multiple of kv_heads ({self.kv_heads})")
        if self.head_dim % 2:
            raise CheckpointError(f"config: head_dim is {self.head_dim}; rotary positions need an even number")
        for name in ("rms_eps", "query_scale", "embedding_scale"):
            _check_positive(name, getattr(self, name))
        for name in ("attn_softcap", "final_softcap"):
            cap = getattr(self, name)
            if cap is not None:
                _check_positive(name, cap)
        self._check_layers()
        for name, ids in (("bos_id", () if self.bos_id is None else (self.bos_id,)), ("eos_ids", self.eos_ids)):
            for token in ids:
                if not 0 <= token < self.vocab:
                    raise CheckpointError(f"config: {name} has {token}, outside the vocabulary of {self.vocab}")

    def _check_layers(self) -> None:
        for name in ("layer_windows", "layer_ropes"):
            length = len(getattr(self, name))
            if length != self.layers:
                raise CheckpointError(f"config: {name} has {length} entries for {self.layers} layers")
        for window in self.layer_windows:
            if window is not None and not 0 < window <= MAX_DIMENSION:
                raise CheckpointError(f"config: window is {window}; it must be between 1 and {MAX_DIMENSION}")
        for rope in self.layer_ropes:
            for name, value, least, most in (("theta", rope.theta, 1.0, 1e12), ("factor", rope.factor, 1e-3, 1e6)):
                if not least <= value <= most:
                    raise CheckpointError(f"config: rope {name} is {value}; it must be between {least:g} and {most:g}")

    @property
    def window(self) -> int | None:
        """The window of the sliding layers, the widest if they differ; None if no layer slides."""
        return max((window for window in self.layer_windows if window is not None), default=None)

    @property
    def query_size(self) -> int:
        """H * E, rows of the query projection."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """G * E, rows of the key projection and of the value projection."""
        return self.kv_heads * self.head_dim


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= SMALLEST):
        raise CheckpointError(f"config: {name} is {value}; it must be a positive number of at least {SMALLEST:g}")

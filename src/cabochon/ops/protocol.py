"""The operations a Gemma model is written in.

``model/gemma.py`` calls these and nothing else. Two classes implement them: ``ops.torch`` runs each at once on tensors;
``ops.native`` records them into a program that the native executor runs, one call a step. Shapes use the legend of
``docs/notation.md``; the exact arithmetic of each is in ``docs/arithmetic.md``.

``X`` is what flows between operations (a tensor, or the name of a buffer); ``W`` is a loaded weight; ``S`` is the
step (its ids, positions, slots and key ranges, never looked into by the model).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

X = TypeVar("X")
W = TypeVar("W", contravariant=True)
S = TypeVar("S", contravariant=True)


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotation of one layer's queries and keys: ``inv_freq[i] = theta ** (-2i / head_dim) / factor``."""

    theta: float
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Heads of one layer and where its keys and values live."""

    layer: int
    """Which layer's arrays of the KV store."""
    group: int
    """Which page group: row of ``StepInput.slots``, ``first_key``, ``last_key``, and page table."""
    heads: int
    """H, query heads."""
    kv_heads: int
    """G, key/value heads; head h reads key/value head ``h // (H // G)``."""
    head_dim: int
    """E."""


class Ops(Protocol[X, W, S]):
    """One step's arithmetic. Every method returns a new value and changes none of its arguments (stores excepted)."""

    def embed(self, step: S, table: W, scale: float) -> X:
        """Rows of ``table`` [V, D] at the step's ids, times ``scale``: [T, D]."""
        ...

    def rms_norm(self, x: X, gain: W, eps: float) -> X:
        """``x / sqrt(mean(x^2) + eps) * gain`` over the last axis: [T, D]."""
        ...

    def add_norm(self, h: X, x: X, gain: W, eps: float) -> X:
        """``h + rms_norm(x, gain, eps)``: a block's normalised output joins the residual stream, [T, D]."""
        ...

    def add(self, h: X, x: X) -> X:
        """``h + x``: [T, D]."""
        ...

    def linear(self, x: X, *weights: W) -> X:
        """``x`` [T, K] times each weight [N_i, K], side by side: [T, N_1 + N_2 + ...]."""
        ...

    def norm_rope_store(
        self,
        step: S,
        qkv: X,
        shape: AttentionShape,
        rope: Rope,
        gains: tuple[W, W] | None,
        eps: float,
        query_scale: float,
    ) -> X:
        """Queries ready for attention; keys and values written to their slots.

        ``qkv`` is [T, (H + 2G) * E]. Queries and keys are normalised per head with ``gains`` (query gain, key gain)
        unless None, rotated by the row's position; queries are multiplied by ``query_scale``. Keys and values are
        rounded to the cache's type as they are stored. Returns q [T, H * E].
        """
        ...

    def attend(self, step: S, q: X, shape: AttentionShape, softcap: float | None) -> X:
        """Softmax attention of each row over stored keys ``first_key..last_key`` of its sequence: [T, H * E]."""
        ...

    def gated_gelu(self, gate_up: X) -> X:
        """``gelu(gate) * up`` of ``gate_up`` [T, 2F], gate first: [T, F]."""
        ...

    def keep_logit_rows(self, step: S, x: X) -> X:
        """The rows whose logits are wanted: [R, ...]. From here on the step has R rows."""
        ...

    def softcap(self, x: X, cap: float) -> X:
        """``cap * tanh(x / cap)``."""
        ...

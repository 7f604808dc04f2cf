"""The operations on PyTorch tensors, each run at once in float32: the readable reference for every other backend.

Needs the ``torch`` extra: importing this module imports PyTorch. What each operation computes is in ``ops/protocol.py``
and ``docs/arithmetic.md``; here sums are in PyTorch's order, so results agree to rounding and not to the bit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cabochon.errors import UsageError
from cabochon.ops.protocol import AttentionShape, Rope
from cabochon.ops.rope import inverse_frequencies
from cabochon.ops.torch_kv import TorchKV
from cabochon.types import PAGE, Float32, Int32, StepInput


@dataclass(frozen=True, slots=True)
class TorchStep:
    """``StepInput`` as tensors on the device; shapes are the same."""

    ids: Tensor
    positions: Tensor
    sequences: Tensor
    slots: Tensor
    first_key: Tensor
    last_key: Tensor
    page_tables: tuple[Tensor, ...]
    logit_rows: Tensor

    def rows_of(self, x: Tensor) -> Tensor:
        """Which rows of the step the rows of ``x`` are: all T, or the R whose logits are wanted."""
        rows = torch.arange(len(self.ids), device=self.ids.device)  # [T]
        return rows if len(x) == len(rows) else self.logit_rows


class TorchOps:
    """``Ops`` over tensors: values and weights are float32 tensors, the step is a ``TorchStep``."""

    def __init__(
        self,
        kv: Sequence[TorchKV],
        device: str = "cpu",
        threads: int | None = None,
        keep_queries: Collection[int] = (),
    ) -> None:
        """``kv`` has one entry per layer. ``threads`` is for the CPU; None leaves PyTorch's own number.

        Of the layers ``keep_queries`` there are ``queries`` after each step.
        """
        self._keep_queries = frozenset(keep_queries)
        self.queries: dict[int, Tensor] = {}
        """By layer: [R, H * E] of the rows whose logits were wanted, as they met the keys."""
        self._kv = tuple(kv)
        self._device = device
        self._threads = threads
        self._frequencies: dict[tuple[Rope, int], Tensor] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around every step: nothing is recorded for gradients, and the number of threads is ours until the end."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads or before)
        try:
            with torch.inference_mode():
                yield
        finally:
            torch.set_num_threads(before)

    def step(self, step: StepInput) -> TorchStep:
        """The step's integers on the device."""
        return TorchStep(
            ids=self._integers(step.ids),
            positions=self._integers(step.positions),
            sequences=self._integers(step.sequences),
            slots=self._integers(step.slots),
            first_key=self._integers(step.first_key),
            last_key=self._integers(step.last_key),
            page_tables=tuple(self._integers(table) for table in step.page_tables),
            logit_rows=self._integers(step.logit_rows),
        )

    def tensor(self, array: Float32) -> Tensor:
        """A float32 array on the device; on the CPU the same memory, unless it is read-only."""
        return torch.from_numpy(array if array.flags.writeable else array.copy()).to(self._device)

    def array(self, x: Tensor) -> Float32:
        """A result as a NumPy array."""
        result: Float32 = x.cpu().numpy()
        return result

    def embed(self, step: TorchStep, table: Tensor, scale: float) -> Tensor:
        """Rows of ``table`` [V, D] at the step's ids, times ``scale``: [T, D]."""
        return table[step.ids] * scale

    @staticmethod
    def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
        """``x / sqrt(mean(x^2) + eps) * gain`` over the last axis, whatever comes before it."""
        mean_square = x.square().mean(dim=-1, keepdim=True)  # [..., 1]
        return x * torch.rsqrt(mean_square + eps) * gain

    def add_norm(self, h: Tensor, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        """``h + rms_norm(x, gain, eps)``: [T, D]."""
        return h + self.rms_norm(x, gain, eps)

    def add(self, h: Tensor, x: Tensor) -> Tensor:
        """``h + x``: [T, D]."""
        return h + x

    def linear(self, x: Tensor, *weights: Tensor) -> Tensor:
        """``x`` [T, K] times each weight [N_i, K], side by side: [T, N_1 + N_2 + ...]."""
        return torch.cat([x @ weight.T for weight in weights], dim=-1)

    def norm_rope_store(
        self,
        step: TorchStep,
        qkv: Tensor,
        shape: AttentionShape,
        rope: Rope,
        gains: tuple[Tensor, Tensor] | None,
        eps: float,
        query_scale: float,
    ) -> Tensor:
        """Queries ready for attention, [T, H * E], from ``qkv`` [T, (H + 2G) * E]; keys and values are stored.

        Raises ``NumericError`` if a key or value does not fit the cache's type.
        """
        H, G, E = shape.heads, shape.kv_heads, shape.head_dim
        heads = qkv.view(-1, H + 2 * G, E)  # [T, H+2G, E]
        q, k, v = heads[:, :H], heads[:, H : H + G], heads[:, H + G :]  # [T, H, E], [T, G, E], [T, G, E]
        if gains is not None:
            q, k = self.rms_norm(q, gains[0], eps), self.rms_norm(k, gains[1], eps)
        angles = step.positions[:, None].float() * self._inverse_frequencies(rope, E)  # [T, E/2]
        q, k = rotate(q, angles), rotate(k, angles)  # [T, H, E], [T, G, E]
        self._kv[shape.layer].write(step.slots[shape.group], k, v)
        return (q * query_scale).flatten(1)  # [T, H * E]

    def attend(self, step: TorchStep, q: Tensor, shape: AttentionShape, softcap: float | None) -> Tensor:
        """Softmax attention of each row over stored keys ``first_key..last_key`` of its sequence: [T, H * E]."""
        rows = step.rows_of(q)  # [T]; [R] where only rows with logits are left
        first, last = step.first_key[shape.group, rows], step.last_key[shape.group, rows]  # [T], [T]
        sequences = step.sequences[rows]  # [T]
        if shape.layer in self._keep_queries:
            self.queries[shape.layer] = q if len(q) == len(step.logit_rows) else q[step.logit_rows]
        G, E = shape.kv_heads, shape.head_dim
        q = q.view(len(q), G, shape.heads // G, E)  # [T, G, H/G, E]: query head h reads key/value head h // (H/G)
        mixed = torch.empty_like(q)  # [T, G, H/G, E]
        for sequence in torch.unique(sequences).tolist():
            own = sequences == sequence  # [T]
            table = step.page_tables[shape.group][sequence]  # [pages]
            mixed[own] = self._attend_one(q[own], first[own], last[own], table, self._kv[shape.layer], softcap)
        return mixed.flatten(1)  # [T, H * E]

    def _attend_one(
        self, q: Tensor, first: Tensor, last: Tensor, table: Tensor, kv: TorchKV, softcap: float | None
    ) -> Tensor:
        """Attention of the rows of one sequence, n of them: [n, G, H/G, E] from queries of that shape."""
        start, stop = int(first.min()) // PAGE, int(last.max()) // PAGE + 1
        # A gap between the ranges of two rows may hold pages let go (-1): whatever is read there is not seen.
        keys, values = kv.read(table[start:stop].clamp(min=0))  # [G, K, E] each; K = PAGE * (stop - start)
        key = torch.arange(start * PAGE, stop * PAGE, device=table.device)  # [K]
        seen = (key >= first[:, None]) & (key <= last[:, None])  # [n, K]
        # Memory that no row sees may hold anything, NaN included, and 0 * NaN is NaN: it is emptied first.
        stored = seen.any(dim=0)[:, None]  # [K, 1]
        keys, values = torch.where(stored, keys, 0), torch.where(stored, values, 0)
        scores = torch.einsum("ngje,gke->ngjk", q, keys)  # [n, G, H/G, K]
        if softcap is not None:
            scores = self.softcap(scores, softcap)
        scores = scores.masked_fill(~seen[:, None, None], -torch.inf)
        return torch.einsum("ngjk,gke->ngje", scores.softmax(dim=-1), values)

    @staticmethod
    def gated_gelu(gate_up: Tensor) -> Tensor:
        """``gelu(gate) * up`` of ``gate_up`` [T, 2F], gate first: [T, F]."""
        gate, up = gate_up.chunk(2, dim=-1)  # [T, F], [T, F]
        return functional.gelu(gate, approximate="tanh") * up

    def keep_logit_rows(self, step: TorchStep, x: Tensor) -> Tensor:
        """The rows whose logits are wanted: [R, ...]."""
        return x[step.logit_rows]

    @staticmethod
    def softcap(x: Tensor, cap: float) -> Tensor:
        """``cap * tanh(x / cap)``."""
        return cap * torch.tanh(x / cap)

    def _integers(self, array: Int32) -> Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self._device)

    def _inverse_frequencies(self, rope: Rope, head_dim: int) -> Tensor:
        if (rope, head_dim) not in self._frequencies:
            self._frequencies[rope, head_dim] = self.tensor(inverse_frequencies(rope, head_dim))
        return self._frequencies[rope, head_dim]


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Turns each pair (i, i + E/2) of ``x`` [..., T, heads, E] by ``angles`` [T, E/2]."""
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]  # [T, 1, E/2]
    a, b = x.chunk(2, dim=-1)  # [..., T, heads, E/2] each
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def check_device(device: str) -> None:
    """Raises ``UsageError`` if PyTorch does not know ``device`` or has none."""
    try:
        torch.empty(1, device=device)
    # AssertionError: PyTorch's own, for a device it was not built for.
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"device {device!r}: PyTorch cannot use it ({str(error).splitlines()[0]})") from error

"""One layer's stored keys and values as PyTorch tensors: rounding on the way in, float32 on the way out.

Imported by the PyTorch backend only, since it needs the ``torch`` extra.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from cabochon.errors import NumericError
from cabochon.types import PAGE, Float32


@dataclass(frozen=True, slots=True)
class TorchKV:
    """One layer's tensors, of any stored type. Keys are ``[pages, G, E, PAGE]``, values ``[pages, G, PAGE, E]``."""

    keys: Tensor
    values: Tensor
    key_scales: Tensor | None
    """[pages, G, ceil(E / block), PAGE]; int8 only."""
    value_scales: Tensor | None
    """[pages, G, PAGE, ceil(E / block)]; int8 only."""
    block: int
    """Neighbours along E that share one scale in an int8 cache."""

    @classmethod
    def of(
        cls,
        keys: NDArray[Any],
        values: NDArray[Any],
        key_scales: Float32 | None,
        value_scales: Float32 | None,
        block: int,
        device: str,
    ) -> TorchKV:
        """A KV store's arrays of one layer: on the CPU the same memory, elsewhere new memory of the same shapes.

        ``uint16`` arrays hold the bits of bfloat16.
        """
        return cls(
            keys=_tensor(keys, device),
            values=_tensor(values, device),
            key_scales=None if key_scales is None else _tensor(key_scales, device),
            value_scales=None if value_scales is None else _tensor(value_scales, device),
            block=block,
        )

    def write(self, slots: Tensor, k: Tensor, v: Tensor) -> None:
        """Rounds ``k`` and ``v`` [T, G, E] once and puts them at ``slots`` [T].

        Raises ``NumericError`` if a finite value is beyond float16 in a float16 cache.
        """
        page, slot = slots // PAGE, slots % PAGE  # [T], [T]
        if self.key_scales is None or self.value_scales is None:
            self.keys[page, :, :, slot] = _rounded(k, self.keys.dtype, "key")
            self.values[page, :, slot] = _rounded(v, self.values.dtype, "value")
            return
        self.keys[page, :, :, slot], self.key_scales[page, :, :, slot] = _int8(k, self.block)
        self.values[page, :, slot], self.value_scales[page, :, slot] = _int8(v, self.block)

    def read(self, pages: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of whole pages [n], in their order, as float32: [G, n * PAGE, E] each."""
        keys, values = self.keys[pages].float(), self.values[pages].float()  # [n, G, E, PAGE], [n, G, PAGE, E]
        if self.key_scales is not None and self.value_scales is not None:
            dim = keys.shape[2]
            keys = keys * self.key_scales[pages].repeat_interleave(self.block, dim=2)[:, :, :dim]
            values = values * self.value_scales[pages].repeat_interleave(self.block, dim=3)[..., :dim]
        return keys.permute(1, 0, 3, 2).flatten(1, 2), values.transpose(0, 1).flatten(1, 2)


def _rounded(x: Tensor, dtype: torch.dtype, what: str) -> Tensor:
    if dtype == torch.float16:
        limit = torch.finfo(dtype).max
        size = x.abs()
        if bool(((size > limit) & size.isfinite()).any()):
            raise NumericError(
                f"a {what} is beyond float16's {limit:g} and cannot be cached; use kv_type bf16 or f32 (--kv-type bf16)"
            )
    return x.to(dtype)


def _int8(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """``x`` [T, G, E] as int8 and the scales of its blocks, [T, G, ceil(E / block)]; not-a-numbers go to the scale."""
    dim = x.shape[-1]
    blocks = functional.pad(x, (0, -dim % block)).view(*x.shape[:2], -1, block)  # [T, G, blocks, block]
    largest = blocks.abs().amax(dim=-1, keepdim=True)  # [T, G, blocks, 1]
    # A block of zeros gives 0 * inf here; it and blocks that hold no number become 0.
    q = (blocks * (127 / largest)).nan_to_num(0).round().clamp(-127, 127).to(torch.int8)
    return q.flatten(2)[..., :dim], (largest / 127).squeeze(-1)


def _tensor(array: NDArray[Any], device: str) -> Tensor:
    shared = torch.from_numpy(array)
    if array.dtype == np.uint16:
        shared = shared.view(torch.bfloat16)
    return shared if torch.device(device).type == "cpu" else torch.empty_like(shared, device=device)

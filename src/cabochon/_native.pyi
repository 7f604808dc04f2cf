"""Types of the native core (``native/binding.cpp``).

Arrays are taken as they are: one of another type or order raises ``TypeError``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_F32 = NDArray[np.float32]
_I32 = NDArray[np.int32]

def version() -> str:
    """The version this module was built as."""

def exp_f32(x: _F32) -> _F32:
    """``exp`` of each value [n] (docs/arithmetic.md section 2)."""

def log_sum_exp(row: _F32) -> float:
    """Logarithm of the sum of exponentials of a row [V] (section 7). Raises ``ValueError`` if it is empty."""

def top_k(row: _F32, k: int) -> tuple[_I32, _F32]:
    """Ids [k] and values [k] of the largest of a row [V], by (value descending, id ascending).

    NaN counts as minus infinity. Raises ``ValueError`` unless 1 <= k <= V.
    """

def philox_uniform(seed: int, position: int, choice: int) -> float:
    """A number in (0, 1), exact in binary64 (section 8). ``seed`` has 64 bits, the others 32; none is negative."""

class check:  # noqa: N801 (a module within the module)
    """Single kernels by instruction set, for tests: ``isa`` is one of ``instruction_sets`` or ``reference``.

    Arguments named ``out`` (and ``cosine``, ``sine``, ``q``) are written to.
    """

    @staticmethod
    def instruction_sets() -> list[str]:
        """What this build has and this CPU runs."""

    @staticmethod
    def rms_norm(isa: str, x: _F32, gain: _F32, eps: float, out: _F32) -> None: ...
    @staticmethod
    def add_norm(isa: str, h: _F32, x: _F32, gain: _F32, eps: float, out: _F32) -> None: ...
    @staticmethod
    def add(isa: str, a: _F32, b: _F32, out: _F32) -> None: ...
    @staticmethod
    def gated_gelu(isa: str, gate: _F32, up: _F32, out: _F32) -> None: ...
    @staticmethod
    def softcap(isa: str, x: _F32, cap: float, out: _F32) -> None: ...
    @staticmethod
    def exp(isa: str, x: _F32, out: _F32) -> None: ...
    @staticmethod
    def angles(isa: str, position: int, inv_freq: _F32, cosine: _F32, sine: _F32) -> None: ...
    @staticmethod
    def log_sum_exp(isa: str, x: _F32) -> float: ...
    @staticmethod
    def top_k(isa: str, x: _F32, k: int) -> tuple[_I32, _F32]: ...

    class Layer:
        """Arrays of one layer's keys and values."""

    @staticmethod
    def layer(
        kv_type: str, keys: NDArray[Any], values: NDArray[Any], key_scales: _F32 | None, value_scales: _F32 | None
    ) -> check.Layer: ...
    @staticmethod
    def norm_rope_store(
        isa: str,
        qkv: _F32,
        heads: int,
        query_gain: _F32 | None,
        key_gain: _F32 | None,
        eps: float,
        query_scale: float,
        cosine: _F32,
        sine: _F32,
        layer: check.Layer,
        slot: int,
        q: _F32,
    ) -> bool: ...
    @staticmethod
    def attend(
        isa: str,
        layer: check.Layer,
        kv_head: int,
        pages: _I32,
        q: _F32,
        first_key: _I32,
        last_key: _I32,
        cap: float,
        out: _F32,
    ) -> None:
        """Attention of q [rows, heads, E] as one tile."""

    @staticmethod
    def pool_visits(threads: int, phases: int, items: int, chunk: int) -> NDArray[np.int64]:
        """How often each item was visited in as many phases; -1 where phases or threads got in each other's way."""

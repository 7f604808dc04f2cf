"""Types of the native core (``native/binding.cpp``).

Arrays are taken as they are: one of another type or order raises ``TypeError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_F32 = NDArray[np.float32]
_I32 = NDArray[np.int32]
_U8 = NDArray[np.uint8]

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

def string_ends(bytes: _U8, count: int) -> tuple[NDArray[np.int64], int]:
    """Where each of ``count`` strings in ``bytes`` ends, [count], and for how many of them that is known.

    Before each string its length stands in 8 bytes, little endian. The first one that reaches beyond ``bytes`` or is
    not UTF-8 ends the search. Raises ``ValueError`` if the lengths alone do not fit.
    """

def instruction_sets() -> list[str]:
    """Names of the instruction sets this build has and this CPU runs, best first."""

def packed_bytes(format: int, rows: int, cols: int) -> int:
    """Bytes of a packed matrix. Raises ``ValueError`` if its columns are not whole blocks of its type."""

class Machine:
    """One instruction set and a pool of threads."""

    def __init__(self, isa: str, threads: int) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    def pack(self, weight: Weight, file: NDArray[np.uint8], first_group: int, last_group: int) -> None:
        """Repacks groups of 16 rows, ``first_group <= g < last_group``, from their bytes in the file."""

class WeightMemory:
    """Room for packed matrices, one after another."""

    def __init__(self, bytes: int) -> None: ...

class Weight:
    """A packed matrix, zero until it is packed."""

    def __init__(self, memory: WeightMemory, format: int, rows: int, cols: int) -> None: ...
    @property
    def groups(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...

class Program:
    """Instructions over buffers: see ``native/program/program.h``. Errors of building are ``ValueError``."""

    def __init__(
        self,
        machine: Machine,
        max_rows: int,
        max_head_rows: int,
        columns: int,
        head_columns: int,
        two_terms: bool,
    ) -> None: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def counters(self) -> dict[str, int]: ...
    def value(self, width: int, place: int, rows: int) -> int: ...
    def weight(self, weight: Weight) -> int: ...
    def gain(self, values: _F32) -> int: ...
    def rope(self, inv_freq: _F32) -> int: ...
    def layer(
        self,
        group: int,
        kv_type: str,
        keys: NDArray[Any],
        values: NDArray[Any],
        key_scales: _F32 | None,
        value_scales: _F32 | None,
    ) -> int: ...
    def finish(self, hidden: int, head_in: int, logits: int) -> None: ...
    def embed(self, out: int, table: int, scale: float, /) -> None: ...
    def rms_norm(self, out: int, x: int, gain: int, eps: float, /) -> None: ...
    def add_norm(self, out: int, h: int, x: int, gain: int, eps: float, /) -> None: ...
    def add(self, out: int, a: int, b: int, /) -> None: ...
    def linear(self, out: int, x: int, weights: list[int], /) -> None: ...
    def norm_rope_store(
        self,
        out: int,
        qkv: int,
        layer: int,
        rope: int,
        heads: int,
        query_gain: int,
        key_gain: int,
        eps: float,
        query_scale: float,
        /,
    ) -> None: ...
    def attend(self, out: int, q: int, layer: int, heads: int, softcap: float, /) -> None: ...
    def gated_gelu(self, out: int, x: int, /) -> None: ...
    def keep_rows(self, out: int, x: int, /) -> None: ...
    def softcap(self, out: int, x: int, cap: float, /) -> None: ...
    def run(
        self,
        ids: _I32,
        positions: _I32,
        sequences: _I32,
        slots: _I32,
        first_key: _I32,
        last_key: _I32,
        page_tables: Sequence[_I32],
        logit_rows: _I32,
        best_rows: _I32,
        with_head: bool,
    ) -> int:
        """Runs one step; returns the first layer whose keys or values did not fit the cache's type, or -1.

        Raises ``ValueError`` if the step is not sound, ``RuntimeError`` if another thread is running one.
        """

    def run_head(self, hidden: _F32) -> None:
        """Runs the head over hidden states [r, D]; raises as ``run`` does."""

    def hidden(self) -> _F32:
        """Hidden states [R, D] of the last step, in the program's own memory."""

    def kept(self, value: int) -> _F32:
        """Kept rows of a value that still holds them after ``run``; ``ValueError`` if there is none of this number."""

    def bests(self) -> list[int]:
        """Of the last step's ``best_rows``: the id of the largest logit, the first of equal ones; -1 if one is not
        finite."""
    def peaks(self, rows: int) -> _F32 | None:
        """[rows, ceil(V / 16)] the largest of each 16 neighbouring logits, NaN if any is not finite. None if capped."""

    def logits(self, rows: int) -> _F32:
        """The first ``rows`` logits [rows, V] of the last run of the head, in the program's own memory."""

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
    def attend_rows(
        isa: str,
        threads: int,
        partial_floats: int,
        layer: check.Layer,
        q: _F32,
        sequence_of: _I32,
        first_key: _I32,
        last_key: _I32,
        tables: _I32,
        cap: float,
        out: _F32,
    ) -> None:
        """Attention of q [rows, heads, E] of several sequences, spread over threads."""

    @staticmethod
    def pool_visits(threads: int, phases: int, items: int, chunk: int) -> NDArray[np.int64]:
        """How often each item was visited in as many phases; -1 where phases or threads got in each other's way."""

    @staticmethod
    def linear(isa: str, format: int, rows: int, file: _U8, x: _F32, two_terms: bool) -> _F32:
        """Product [T, rows] of x [T, cols] and a matrix [rows, cols] as a file holds it; ``format``: GGUF's number."""

    @staticmethod
    def rough(isa: str, format: int, rows: int, file: _U8, x: _F32, two_terms: bool) -> tuple[_F32, _F32]:
        """What no product of 16 outputs with a row is above [T, rows / 16], and the norms of their blocks
        [rows / 16, cols / 32]; T at most 16."""

    @staticmethod
    def quantize(isa: str, x: _F32, two_terms: bool) -> tuple[_F32, _I32]:
        """Scales [n / 32] and half block sums [n / 16] of a row of activations [n]."""

    @staticmethod
    def dequantize(isa: str, format: int, rows: int, cols: int, file: _U8, scale: float) -> _F32:
        """Every weight [rows, cols] times ``scale``."""

    @staticmethod
    def outputs_per_second(
        isa: str, format: int, rows: int, cols: int, tokens: int, two_terms: bool, budget: float
    ) -> float:
        """Speed of one thread's product of ``tokens`` rows with such a matrix, measured for ``budget`` seconds."""

    @staticmethod
    def dots_per_second(isa: str, two_terms: bool, bits: int, budget: float) -> float:
        """Operations per second, two for each weight, of one thread's integer dot products alone: a ceiling."""
    @staticmethod
    def bytes_read_per_second(bytes: int, budget: float) -> float:
        """Speed at which one thread reads that much memory end to end."""

"""Values that cross the seams between rooms: frozen data, no behaviour beyond derived sizes.

Shapes use the legend of ``docs/notation.md``: T rows in the step, S sequences, R rows whose logits are
wanted, B rows of which the best id is, P page groups, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

PAGE = 32
"""Positions held by one page."""

SEGMENT = 256
"""Keys are attended to in segments cut at absolute multiples of this many positions."""

KVType = Literal["f16", "bf16", "f32", "int8"]
"""How keys and values are stored."""

Activations = Literal["int8x2", "int8"]
"""How activations enter a quantised linear: two int8 terms per value (16 bits) or one."""

BackendName = Literal["native", "torch"]

FilterOrder = Literal["cabochon", "gemma_pytorch"]
"""Which of top-k and top-p comes first."""

FinishReason = Literal["stop", "length", "loop", "cancelled", "error"]

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]
Bytes = NDArray[np.uint8]


class WeightType(IntEnum):
    """Storage types of weights; the numbers are GGUF's."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    IQ4_NL = 20
    IQ4_XS = 23
    BF16 = 30

    @property
    def block_values(self) -> int:
        """Values in one block of the file format."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of the file format."""
        return _BLOCKS[self][1]


_BLOCKS: dict[WeightType, tuple[int, int]] = {
    WeightType.F32: (1, 4),
    WeightType.F16: (1, 2),
    WeightType.Q4_0: (32, 18),
    WeightType.Q4_1: (32, 20),
    WeightType.Q5_0: (32, 22),
    WeightType.Q5_1: (32, 24),
    WeightType.Q8_0: (32, 34),
    WeightType.Q2_K: (256, 84),
    WeightType.Q3_K: (256, 110),
    WeightType.Q4_K: (256, 144),
    WeightType.Q5_K: (256, 176),
    WeightType.Q6_K: (256, 210),
    WeightType.IQ4_NL: (32, 18),
    WeightType.IQ4_XS: (256, 136),
    WeightType.BF16: (1, 2),
}


@dataclass(frozen=True, slots=True)
class RawTensor:
    """One tensor as its file holds it: name, type, row-major shape, and its bytes (not copied, not decoded).

    ``shape`` is in the order of numpy and PyTorch: a matrix is ``(rows, cols)`` = (outputs, inputs), and each
    row is a whole number of blocks.
    """

    name: str
    type: WeightType
    shape: tuple[int, ...]
    data: Bytes

    @property
    def values(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class StepInput:
    """One step of the model: T rows of S sequences, integers only.

    Three things that other programs let coincide are apart here: a row's *position* (the RoPE angle and nothing
    else), the *slots* its keys and values are written to, and the range of *keys* it sees. Keys are numbered by
    their place in the sequence; key ``i`` lies in page ``page_tables[g][s, i // PAGE]`` at slot ``i % PAGE``.

    Rows of one sequence are adjacent and in order; no two rows write to one slot of a group. Every key in
    ``[first_key, last_key]`` of a row is stored already or written by this step.
    """

    ids: Int32
    """[T] token ids."""
    positions: Int32
    """[T] place in the text."""
    sequences: Int32
    """[T] which of the S sequences the row belongs to, ascending."""
    slots: Int32
    """[P, T] where K and V are written: page id * PAGE + slot in the page."""
    first_key: Int32
    """[P, T] first key seen, inclusive."""
    last_key: Int32
    """[P, T] last key seen, inclusive."""
    page_tables: tuple[Int32, ...]
    """P arrays [S, pages]: the page id that holds keys PAGE*i ... PAGE*i+PAGE-1, or -1 where none is held."""
    logit_rows: Int32
    """[R] rows whose logits are wanted, ascending."""
    best_rows: Int32 = field(default_factory=lambda: np.empty(0, np.int32))
    """[B] rows of which only the id with the largest logit is wanted, ascending; none of them is a logit row."""

    @property
    def rows(self) -> int:
        """T."""
        return len(self.ids)

    @property
    def kept_rows(self) -> Int32:
        """[R + B] rows that the head needs: those of the logits, then the others."""
        return np.concatenate((self.logit_rows, self.best_rows))


LOGITS_A_PEAK = 16
"""Neighbouring logits that ``LogitRow.peaks`` has one value for."""


@dataclass(frozen=True, slots=True)
class LogitRow:
    """The logits after one row of a step."""

    values: Float32
    """[V]"""
    peaks: Float32 | None = None
    """[ceil(V / 16)] the largest of each 16 neighbours, NaN if any of them is not finite; None if nobody has looked."""


NO_BEST = -1
"""In place of the best id where a logit is not finite."""


@dataclass(frozen=True, slots=True)
class BestId:
    """What is told of a row of a step's ``best_rows``."""

    token_id: int
    """The id with the largest logit, the first of equal ones; or ``NO_BEST``."""

    @classmethod
    def of(cls, logits: Float32) -> BestId:
        """From all logits [V] of the row."""
        return cls(int(logits.argmax()) if np.isfinite(logits).all() else NO_BEST)


@dataclass(frozen=True, slots=True)
class Logits:
    """What the head gives for a step. Arrays may be the model's own buffers: valid until its next call."""

    values: Float32
    """[R, V] of the ``logit_rows``."""
    peaks: Float32 | None = None
    """[R, ceil(V / 16)] as in ``LogitRow``."""
    bests: tuple[BestId, ...] = ()
    """[B] of the ``best_rows``."""

    def rows(self) -> Iterator[LogitRow]:
        """Of the ``logit_rows``, in order."""
        peaks = self.peaks
        for row, values in enumerate(self.values):
            yield LogitRow(values, None if peaks is None else peaks[row])


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is chosen. What each does, and in which order, is in ``docs/sampling.md``."""

    temperature: float = 1.0
    """0 is greedy."""
    top_k: int = 64
    """0 keeps all."""
    top_p: float = 0.95
    """In (0, 1]; 1 keeps all."""
    min_p: float = 0.0
    """In [0, 1); candidates below this share of the best one's probability are removed."""
    seed: int = 0
    """Key of the random numbers, with the choice and the position: the same seed gives the same text."""
    choice: int = 0
    """Which of several continuations with one seed this is."""
    typical_p: float = 1.0
    """In (0, 1]; the most typical candidates that hold this share are kept; 1 keeps all."""
    repetition_penalty: float = 1.0
    """Logits of ids in prompt and reply are divided by it if positive, else multiplied; 1 changes nothing."""
    presence_penalty: float = 0.0
    """Taken from the logits of ids in the reply."""
    frequency_penalty: float = 0.0
    """Taken from the logits of ids in the reply, once for each time an id stands there."""
    penalty_last_n: int = 0
    """The three penalties see so many of the last tokens of the text; 0 for all."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(id, what is added to its logit), ascending."""
    dry_multiplier: float = 0.0
    """Penalty for the id that would make a repeated sequence one longer than is allowed; 0 is off."""
    dry_base: float = 1.75
    """Factor of that penalty for each further token of the sequence."""
    dry_allowed_length: int = 2
    """The sequence's tokens before the penalised one, from which on it is penalised."""
    dry_penalty_last_n: int = 0
    """Sequences are looked for in so many of the last tokens of the text; 0 for all."""
    dry_sequence_breakers: frozenset[int] = frozenset()
    """Ids that no repeated sequence goes across."""
    xtc_probability: float = 0.0
    """How often the most probable candidates are removed; 0 is off."""
    xtc_threshold: float = 0.1
    """Of the candidates with at least this share, all but the least probable are removed."""
    min_tokens: int = 0
    """No stop id is chosen before the reply has so many tokens."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Sequences of ids; the id that would complete one is not chosen."""
    order: FilterOrder = "cabochon"
    """Top-k before top-p, or as in gemma_pytorch after it."""


@dataclass(frozen=True, slots=True)
class TokenOut:
    """One chosen token.

    Log-probabilities are of the model's own distribution (after the final soft cap, before temperature and
    filters); None unless asked for.
    """

    token_id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    """The most probable (id, log-probability) pairs, best first; empty unless asked for."""

"""The operations as a recorder: a model that is run once on it leaves a program for the native executor.

Values are numbered as they come up and know only their width and which rows they have. When all is recorded,
``program`` lays them into memory, so that those that never live at once share a place, and writes the instructions
down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from numpy.typing import NDArray

from cabochon import _native
from cabochon.errors import UnsupportedError
from cabochon.ops.arena import Lifetime, place_values
from cabochon.ops.protocol import AttentionShape, Rope
from cabochon.ops.rope import inverse_frequencies
from cabochon.types import Float32, KVType


class Rows(IntEnum):
    """Which rows a value has; the numbers are the native core's."""

    STEP = 0
    """All T rows of the step."""
    KEPT = 1
    """The R rows whose logits are wanted."""
    HEAD = 2
    """The rows the head is run on."""


@dataclass(frozen=True, slots=True)
class Value:
    """What flows between operations: ``width`` floats for each of its rows."""

    number: int
    width: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class NativeWeight:
    """A matrix [N, K] or a gain [N] that the program holds."""

    number: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KVArrays:
    """Where one layer's keys and values are stored: the arrays of ``kvcache/store.py``, and their page group."""

    group: int
    kv_type: KVType
    keys: NDArray[Any]
    values: NDArray[Any]
    key_scales: Float32 | None
    value_scales: Float32 | None


@dataclass(frozen=True, slots=True)
class _Recorded:
    out: Value
    inputs: tuple[Value, ...]
    in_place: bool
    """An input that is not needed any more may give its memory to ``out``."""
    write: Callable[[_native.Program, dict[Value, int]], None]


class NativeOps:
    """``Ops`` that records. Weights come first (``matrix``, ``gain``); the step is not looked at and may be None."""

    def __init__(self, keep_queries: Collection[int] = ()) -> None:
        """Of the layers ``keep_queries`` the program still has the kept rows' queries after a step."""
        self._keep_queries = frozenset(keep_queries)
        self._queries: dict[int, Value] = {}
        self.query_values: dict[int, int] = {}
        """By layer: the program's number of what holds its queries, once there is a program."""
        self._matrices: list[_native.Weight] = []
        self._gains: list[Float32] = []
        self._ropes: dict[tuple[Rope, int], int] = {}
        self._values: list[Value] = []
        self._recorded: list[_Recorded] = []

    def matrix(self, weight: _native.Weight) -> NativeWeight:
        """A packed matrix for ``embed`` and ``linear``."""
        self._matrices.append(weight)
        return NativeWeight(len(self._matrices) - 1, (weight.rows, weight.cols))

    def gain(self, values: Float32) -> NativeWeight:
        """A gain [N] for the norms."""
        self._gains.append(values)
        return NativeWeight(len(self._gains) - 1, values.shape)

    def head_input(self, width: int) -> Value:
        """The hidden states [r, D] that the head begins with; what is made of them is the head's part."""
        return self._value(width, Rows.HEAD)

    def embed(self, step: None, table: NativeWeight, scale: float) -> Value:
        """Rows of ``table`` [V, D] at the step's ids, times ``scale``: [T, D]."""
        out = self._value(table.shape[1], Rows.STEP)
        return self._record(out, (), lambda program, at: program.embed(at[out], table.number, scale))

    def rms_norm(self, x: Value, gain: NativeWeight, eps: float) -> Value:
        """``x / sqrt(mean(x^2) + eps) * gain``: [T, D]."""
        out = self._like(x)
        return self._record(
            out, (x,), lambda program, at: program.rms_norm(at[out], at[x], gain.number, eps), in_place=True
        )

    def add_norm(self, h: Value, x: Value, gain: NativeWeight, eps: float) -> Value:
        """``h + rms_norm(x, gain, eps)``: [T, D]."""
        out = self._like(h)
        return self._record(
            out, (h, x), lambda program, at: program.add_norm(at[out], at[h], at[x], gain.number, eps), in_place=True
        )

    def add(self, h: Value, x: Value) -> Value:
        """``h + x``: [T, D]."""
        out = self._like(h)
        return self._record(out, (h, x), lambda program, at: program.add(at[out], at[h], at[x]), in_place=True)

    def linear(self, x: Value, *weights: NativeWeight) -> Value:
        """``x`` [T, K] times each weight [N_i, K], side by side: [T, N_1 + N_2 + ...]."""
        out = self._value(sum(weight.shape[0] for weight in weights), x.rows)
        numbers = [weight.number for weight in weights]
        return self._record(out, (x,), lambda program, at: program.linear(at[out], at[x], numbers))

    def norm_rope_store(
        self,
        step: None,
        qkv: Value,
        shape: AttentionShape,
        rope: Rope,
        gains: tuple[NativeWeight, NativeWeight] | None,
        eps: float,
        query_scale: float,
    ) -> Value:
        """Queries ready for attention, [T, H * E], from ``qkv`` [T, (H + 2G) * E]; keys and values are stored."""
        out = self._value(shape.heads * shape.head_dim, qkv.rows)
        turn = self._ropes.setdefault((rope, shape.head_dim), len(self._ropes))
        query_gain, key_gain = (gains[0].number, gains[1].number) if gains else (-1, -1)
        return self._record(
            out,
            (qkv,),
            lambda program, at: program.norm_rope_store(
                at[out], at[qkv], shape.layer, turn, shape.heads, query_gain, key_gain, eps, query_scale
            ),
        )

    def attend(self, step: None, q: Value, shape: AttentionShape, softcap: float | None) -> Value:
        """Softmax attention of each row over the keys it sees: [T, H * E]."""
        if shape.layer in self._keep_queries:
            self._queries[shape.layer] = q if q.rows is Rows.KEPT else self.keep_logit_rows(step, q)
        out = self._like(q)
        return self._record(
            out, (q,), lambda program, at: program.attend(at[out], at[q], shape.layer, shape.heads, softcap or 0.0)
        )

    def gated_gelu(self, gate_up: Value) -> Value:
        """``gelu(gate) * up`` of ``gate_up`` [T, 2F], gate first: [T, F]."""
        out = self._value(gate_up.width // 2, gate_up.rows)
        return self._record(out, (gate_up,), lambda program, at: program.gated_gelu(at[out], at[gate_up]))

    def keep_logit_rows(self, step: None, x: Value) -> Value:
        """The rows that the head needs: [R + B, ...]."""
        out = self._value(x.width, Rows.KEPT)
        return self._record(out, (x,), lambda program, at: program.keep_rows(at[out], at[x]))

    def softcap(self, x: Value, cap: float) -> Value:
        """``cap * tanh(x / cap)``."""
        out = self._like(x)
        return self._record(out, (x,), lambda program, at: program.softcap(at[out], at[x], cap), in_place=True)

    def program(
        self,
        machine: _native.Machine,
        layers: Sequence[KVArrays],
        *,
        hidden: Value,
        head_input: Value,
        logits: Value,
        max_rows: int,
        max_head_rows: int,
        two_terms: bool,
    ) -> _native.Program:
        """What was recorded, ready to run.

        ``hidden`` is the last value of the body (its kept rows), ``logits`` the last of the head. ``max_rows`` is the
        most rows of a step, ``max_head_rows`` of a run of the head; memory for both is reserved now. With ``two_terms``
        activations are int8x2, otherwise int8.

        Raises ``UnsupportedError`` if the parts do not fit each other (a size that the kernels do not do, say).
        """
        body, columns = self._places((Rows.STEP, Rows.KEPT), {hidden, *self._queries.values()})
        head, head_columns = self._places((Rows.HEAD,), {head_input, logits})
        try:
            program = _native.Program(machine, max_rows, max_head_rows, columns, head_columns, two_terms)
            for weight in self._matrices:
                program.weight(weight)
            for gain in self._gains:
                program.gain(gain)
            for rope, head_dim in self._ropes:
                program.rope(inverse_frequencies(rope, head_dim))
            for kv in layers:
                program.layer(kv.group, kv.kv_type, kv.keys, kv.values, kv.key_scales, kv.value_scales)
            at = {value: program.value(value.width, place, value.rows) for value, place in (body | head).items()}
            for instruction in self._recorded:
                instruction.write(program, at)
            program.finish(at[hidden], at[head_input], at[logits])
            self.query_values = {layer: at[value] for layer, value in self._queries.items()}
        except ValueError as error:
            raise UnsupportedError(f"the native backend cannot run this model ({error})") from None
        return program

    def _value(self, width: int, rows: Rows) -> Value:
        self._values.append(Value(len(self._values), width, rows))
        return self._values[-1]

    def _like(self, x: Value) -> Value:
        return self._value(x.width, x.rows)

    def _record(
        self,
        out: Value,
        inputs: tuple[Value, ...],
        write: Callable[[_native.Program, dict[Value, int]], None],
        *,
        in_place: bool = False,
    ) -> Value:
        self._recorded.append(_Recorded(out, inputs, in_place, write))
        return out

    def _places(self, kinds: tuple[Rows, ...], needed_after: set[Value]) -> tuple[dict[Value, int], int]:
        """The column of each value with such rows, and the number of columns in all."""
        values = [value for value in self._values if value.rows in kinds]
        end = len(self._recorded)
        first = dict.fromkeys(values, 0)
        last = {value: end if value in needed_after else 0 for value in values}
        for moment, instruction in enumerate(self._recorded):
            if instruction.out in first:
                first[instruction.out] = moment
            for value in instruction.inputs:
                if value in last:
                    last[value] = max(last[value], moment)
        # A value made in place of another is the same memory living on.
        home = {value: value for value in values}
        for moment, instruction in enumerate(self._recorded):
            if instruction.in_place and instruction.out in home:
                dying = [value for value in instruction.inputs if last[value] == moment]
                if dying:
                    home[instruction.out] = home[dying[0]]
        ends = dict.fromkeys(sorted(set(home.values()), key=lambda value: value.number), 0)
        for value, owner in home.items():
            ends[owner] = max(ends[owner], last[value])
        lives = [Lifetime(owner.width, first[owner], end) for owner, end in ends.items()]
        places, columns = place_values(lives)
        at = dict(zip(ends, places, strict=True))
        return {value: at[home[value]] for value in values}, columns

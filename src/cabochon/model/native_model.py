"""``NativeModel``: Gemma as a program of the native core, one call a step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np

from cabochon import _native
from cabochon.errors import NumericError, RunError, TensorError, UsageError
from cabochon.kvcache.store import KVStore
from cabochon.model import gemma
from cabochon.model.config import GemmaConfig
from cabochon.model.tensors import tensor_specs
from cabochon.model.weights import gather_weights
from cabochon.ops.machine import open_machine
from cabochon.ops.native import KVArrays, NativeOps, NativeWeight
from cabochon.types import Activations, BestId, Float32, Logits, RawTensor, StepInput

_PACKED_AT_ONCE = 8 << 20
"""Bytes of a tensor that are repacked before their source is let go."""


class NativeModel:
    """A ``Model`` on the native core. Build it with ``build_native_model``.

    Its results do not depend on threads, instruction set, chunks or company (``docs/arithmetic.md``). One step at a
    time: a call while another thread's is running raises ``RunError``.
    """

    def __init__(
        self,
        config: GemmaConfig,
        store: KVStore,
        program: _native.Program,
        *,
        max_head_rows: int,
        query_values: Mapping[int, int],
    ) -> None:
        self.config = config
        self.store = store
        self._program = program
        self._max_head_rows = max_head_rows
        self._query_values = query_values

    @property
    def isa(self) -> str:
        """The instruction set it runs on."""
        return self._program.machine.isa

    @property
    def threads(self) -> int:
        """Threads that work on a step, the caller's included."""
        return self._program.machine.threads

    @property
    def counters(self) -> Mapping[str, int]:
        """What has been done since the model was built: exact numbers, whatever the scheduling.

        ``runs`` (steps), ``rows`` (over all steps), ``pairs`` (of a query, one head of one row, and a key it sees, over
        all layers), ``kv_bytes_read`` (keys and values that rows see, each row for itself), ``kv_bytes_written``.
        """
        return self._program.counters

    def forward(self, step: StepInput) -> Float32:
        """The values [R, V] of ``run``."""
        return self.run(step).values

    def run(self, step: StepInput) -> Logits:
        """Runs one step and returns the logits of its ``logit_rows``, usually in the model's own buffers, and the best
        ids of its ``best_rows``, for which most logits are not even computed (``docs/arithmetic.md`` section 9).

        Raises ``NumericError`` if a key or value does not fit the cache type, ``UsageError`` if the step is not sound,
        ``RunError`` if another thread is running one.
        """
        rows = len(step.logit_rows)
        if rows <= self._max_head_rows:
            self._run(step, with_head=True)
            return Logits(self._program.logits(rows), self._program.peaks(rows), self._bests())
        self._run(step, with_head=False)
        hidden, bests = self._program.hidden()[:rows], self._bests()
        logits = np.empty((rows, self.config.vocab), np.float32)
        for first in range(0, rows, self._max_head_rows):
            part = hidden[first : first + self._max_head_rows]
            logits[first : first + len(part)] = self.head(part)
        return Logits(logits, bests=bests)

    def hidden(self, step: StepInput) -> Float32:
        """Runs one step without the head and returns normalised hidden states [R, D] (a new array).

        Raises as ``forward`` does.
        """
        self._run(step, with_head=False)
        return self._program.hidden().copy()

    def head(self, hidden: Float32) -> Float32:
        """Logits [r, V] of hidden states [r, D], for as many rows as the model was built for in its own buffer."""
        if len(hidden) > self._max_head_rows:
            parts = range(0, len(hidden), self._max_head_rows)
            return np.concatenate([self.head(hidden[i : i + self._max_head_rows]).copy() for i in parts])
        try:
            self._program.run_head(np.ascontiguousarray(hidden, np.float32))
        except ValueError as error:
            raise UsageError(f"head: {error}") from None
        except RuntimeError as error:
            raise RunError(f"head: {error}") from None
        return self._program.logits(len(hidden))

    def queries(self, layer: int) -> Float32:
        """Queries [R + B, H * E] of the last step's kept rows in a layer, normed, turned and scaled (a new array).

        Raises ``UsageError`` if the model was not built to keep them.
        """
        if layer not in self._query_values:
            raise UsageError(f"queries of layer {layer} are not kept; load the model with keep_queries")
        return self._program.kept(self._query_values[layer]).copy()

    def _bests(self) -> tuple[BestId, ...]:
        return tuple(BestId(token_id) for token_id in self._program.bests())

    def _run(self, step: StepInput, *, with_head: bool) -> None:
        try:
            failed = self._program.run(
                step.ids,
                step.positions,
                step.sequences,
                step.slots,
                step.first_key,
                step.last_key,
                step.page_tables,
                step.logit_rows,
                step.best_rows,
                with_head,
            )
        except TypeError:
            raise UsageError("step: its arrays must be contiguous int32 of the shapes of StepInput") from None
        except ValueError as error:
            raise UsageError(f"step: {error}") from None
        except RuntimeError as error:
            raise RunError(f"step: {error}") from None
        if failed >= 0:
            raise NumericError(
                f"layer {failed}: a key or value is too large for a float16 cache; "
                "keep them in another type (--kv-type bf16 or f32)"
            )


def build_native_model(
    config: GemmaConfig,
    tensors: Mapping[str, RawTensor],
    store: KVStore,
    *,
    threads: int | None = None,
    activations: Activations = "int8x2",
    isa: str | None = None,
    max_rows: int = 512,
    max_logit_rows: int = 8,
    keep_queries: Collection[int] = (),
    release: Callable[[RawTensor], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> NativeModel:
    """A model that reads and writes ``store``, its weights repacked from ``tensors`` (by our names).

    ``threads`` and ``isa`` as in ``ops/machine.py``. ``max_rows`` is the most rows of a step and ``max_logit_rows`` of
    one run of the head: memory for both is reserved now. Of the layers ``keep_queries`` there are ``queries`` after
    each step. ``release`` is told of each part of a tensor that has been copied, so that its source can leave memory;
    ``progress`` of (bytes done, bytes in all).

    Raises:
        UsageError: threads, instruction set or sizes cannot be.
        TensorError: a tensor's type does not fit its shape.
        RunError: there is not enough memory.
    """
    if max_rows < 1 or max_logit_rows < 1:
        raise UsageError("max_rows and max_logit_rows must be at least 1")
    machine = open_machine(threads, isa)
    ops = NativeOps(keep_queries)
    try:
        handles = _load_weights(config, tensors, machine, ops, release, progress)
        weights = gather_weights(config, handles.__getitem__)
        hidden = gemma.hidden_states(ops, config, store.layout, weights, None)
        head_input = ops.head_input(config.hidden)
        program = ops.program(
            machine,
            _kv_arrays(store),
            hidden=hidden,
            head_input=head_input,
            logits=gemma.logits(ops, config, weights, head_input),
            max_rows=max_rows,
            max_head_rows=max_logit_rows,
            two_terms=activations == "int8x2",
        )
    except MemoryError:
        size = sum(tensor.data.nbytes for tensor in tensors.values())
        raise RunError(f"no memory for {size / 2**20:,.0f} MiB of weights and {max_rows} rows of activations") from None
    return NativeModel(config, store, program, max_head_rows=max_logit_rows, query_values=ops.query_values)


def _load_weights(
    config: GemmaConfig,
    tensors: Mapping[str, RawTensor],
    machine: _native.Machine,
    ops: NativeOps,
    release: Callable[[RawTensor], None] | None,
    progress: Callable[[int, int], None] | None,
) -> dict[str, NativeWeight]:
    """Every tensor of the model, repacked or copied, known to ``ops``."""
    names = [spec.name for spec in tensor_specs(config)]
    matrices = [tensors[name] for name in names if len(tensors[name].shape) == 2]
    memory = _native.WeightMemory(sum(_packed_bytes(tensor) for tensor in matrices))
    total, done = sum(tensors[name].data.nbytes for name in names), 0
    handles = {}
    for name in names:
        tensor = tensors[name]
        if len(tensor.shape) == 1:
            handles[name] = ops.gain(tensor.data.view(np.float32).copy())
            done += tensor.data.nbytes
            if progress is not None:
                progress(done, total)
            continue
        weight = _native.Weight(memory, int(tensor.type), *tensor.shape)
        group_bytes = tensor.data.nbytes // tensor.shape[0] * 16
        step = max(1, _PACKED_AT_ONCE // group_bytes)
        for first in range(0, weight.groups, step):
            last = min(first + step, weight.groups)
            part = tensor.data[first * group_bytes : last * group_bytes]
            machine.pack(weight, part, first, last)
            if release is not None:
                release(replace(tensor, data=part))
            done += part.nbytes
            if progress is not None:
                progress(done, total)
        handles[name] = ops.matrix(weight)
    return handles


def _packed_bytes(tensor: RawTensor) -> int:
    try:
        return _native.packed_bytes(int(tensor.type), *tensor.shape)
    except ValueError as error:
        raise TensorError(f"tensor {tensor.name}: {error}") from None


def _kv_arrays(store: KVStore) -> list[KVArrays]:
    groups = store.layout.group_of
    return [
        KVArrays(group, store.kv_type, kv.keys, kv.values, kv.key_scales, kv.value_scales)
        for group, kv in zip(groups, store.layers, strict=True)
    ]

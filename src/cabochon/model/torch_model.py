"""``TorchModel``: Gemma run eagerly by PyTorch in float32 on dequantised weights.

The reference that the native backend is compared with, and the way to a GPU. PyTorch is imported when a model is built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cabochon.errors import MissingDependencyError, UsageError
from cabochon.kvcache.store import INT8_BLOCK, KVStore
from cabochon.model import gemma
from cabochon.model.config import GemmaConfig
from cabochon.model.weights import gather_weights
from cabochon.types import BestId, Float32, Logits, StepInput

if TYPE_CHECKING:
    from torch import Tensor

    from cabochon.ops.torch import TorchOps


class TorchModel:
    """A ``Model`` whose every operation is a PyTorch call. Build it with ``build_torch_model``."""

    def __init__(self, config: GemmaConfig, store: KVStore, ops: TorchOps, weights: gemma.GemmaWeights[Tensor]) -> None:
        self.config = config
        self.store = store
        self._ops = ops
        self._weights = weights

    def run(self, step: StepInput) -> Logits:
        """Runs one step and returns the logits of its ``logit_rows`` and the best ids of its ``best_rows``.

        Raises as ``forward`` does.
        """
        kept = np.sort(step.kept_rows)
        of_kept = self.forward(replace(step, logit_rows=kept, best_rows=kept[:0]))
        of_best = of_kept[np.searchsorted(kept, step.best_rows)]
        return Logits(of_kept[np.searchsorted(kept, step.logit_rows)], bests=tuple(map(BestId.of, of_best)))

    def forward(self, step: StepInput) -> Float32:
        """Runs one step and returns logits [R, V] (a new array).

        Raises ``NumericError`` if a key or value does not fit the cache's type, ``UsageError`` if two rows write to one
        slot.
        """
        return self.head(self.hidden(step))

    def hidden(self, step: StepInput) -> Float32:
        """Runs one step without the head and returns normalised hidden states [R, D] (a new array).

        Raises as ``forward`` does.
        """
        _check_slots(step)
        with self._ops.running():
            on_device = self._ops.step(step)
            states = gemma.hidden_states(self._ops, self.config, self.store.layout, self._weights, on_device)
            return self._ops.array(states)

    def queries(self, layer: int) -> Float32:
        """Queries [R, H * E] of the last step's kept rows in a layer, normed, turned and scaled (a new array).

        Raises ``UsageError`` if the model was not built to keep them.
        """
        if layer not in self._ops.queries:
            raise UsageError(f"queries of layer {layer} are not kept; load the model with keep_queries")
        return self._ops.array(self._ops.queries[layer])

    def head(self, hidden: Float32) -> Float32:
        """Logits [r, V] of hidden states [r, D] (a new array)."""
        with self._ops.running():
            logits = gemma.logits(self._ops, self.config, self._weights, self._ops.tensor(hidden))
            return self._ops.array(logits)


def _check_slots(step: StepInput) -> None:
    for slots in step.slots:
        _, first = np.unique(slots, return_index=True)
        if len(first) < len(slots):
            row = min(set(range(len(slots))).difference(first.tolist()))
            raise UsageError(f"step: the slot of row {row} is {slots[row]}: another row's as well")


def build_torch_model(
    config: GemmaConfig,
    weight: Callable[[str], Float32],
    store: KVStore,
    *,
    device: str = "cpu",
    threads: int | None = None,
    keep_queries: Collection[int] = (),
) -> TorchModel:
    """A model on ``device``, with every weight in float32.

    ``weight`` gives a tensor by our name (``model/tensors.py``), dequantised; it is called once for each. On the CPU
    the model reads and writes ``store`` itself; on another device its keys and values live there and ``store`` only
    tells their shapes. ``threads`` is for the CPU; None leaves PyTorch's own number. Of the layers ``keep_queries``
    there are ``queries`` after each step.

    Raises:
        MissingDependencyError: PyTorch is not installed.
        UsageError: PyTorch cannot use ``device``.
    """
    try:
        from cabochon.ops.torch import TorchOps, check_device
        from cabochon.ops.torch_kv import TorchKV
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependencyError('the torch backend needs PyTorch: pip install "cabochon[torch]"') from error

    check_device(device)
    kv = [
        TorchKV.of(layer.keys, layer.values, layer.key_scales, layer.value_scales, INT8_BLOCK, device)
        for layer in store.layers
    ]
    ops = TorchOps(kv, device, threads, keep_queries)
    return TorchModel(config, store, ops, gather_weights(config, lambda name: ops.tensor(weight(name))))

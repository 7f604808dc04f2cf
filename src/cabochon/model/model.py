"""What an engine needs from a model, whichever backend runs it."""

from __future__ import annotations

from typing import Protocol

from cabochon.kvcache.store import KVStore
from cabochon.model.config import GemmaConfig
from cabochon.types import Float32, Logits, StepInput


class Model(Protocol):
    """A loaded model bound to a KV store. One step at a time; not for use by several threads at once."""

    config: GemmaConfig
    store: KVStore

    def run(self, step: StepInput) -> Logits:
        """Runs one step and returns the logits of its ``logit_rows`` and the best ids of its ``best_rows``.

        Raises:
            NumericError: a key or value does not fit the cache's type; the message names the remedy.
        """
        ...

    def forward(self, step: StepInput) -> Float32:
        """The values [R, V] of ``run``."""
        ...

    def hidden(self, step: StepInput) -> Float32:
        """Runs one step without the head and returns normalised hidden states [R, D] (a new array)."""
        ...

    def queries(self, layer: int) -> Float32:
        """Queries [R + B, H * E] of the last step's kept rows in a layer, as they met the keys (a new array).

        Raises ``UsageError`` if the model was not loaded to keep them.
        """
        ...

    def head(self, hidden: Float32) -> Float32:
        """Logits [r, V] of hidden states [r, D]: ``forward`` is ``head(hidden(step))``, bit for bit."""
        ...

"""A model without weights whose logits tell exactly which keys a row saw.

It writes each row's id and position to the row's slots in the KV store, reads what the row may see back through the
page tables, and makes logits of a hash of it. A wrong slot, page, range or position, or a page let go too early,
changes everything that follows; ``expected_logits`` says what is right from the ids alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cabochon.errors import UsageError
from cabochon.kvcache.groups import KVGroup
from cabochon.kvcache.pages import plan_pages
from cabochon.kvcache.store import KVStore
from cabochon.model.config import GemmaConfig
from cabochon.model.layout import kv_layout
from cabochon.testing.steps import poison
from cabochon.testing.tiny import tiny_config
from cabochon.types import PAGE, BestId, Float32, Logits, StepInput

_WORDS = 4
"""A hash of 64 bits goes through hidden states as four floats of 16 bits."""

_SCRIPTED = 100.0


class FakeModel:
    """Stands in for a loaded model where no arithmetic is needed; see the module."""

    def __init__(
        self,
        config: GemmaConfig | None = None,
        *,
        context: int = 256,
        chunk: int = 32,
        pages: Sequence[int] | None = None,
        script: Mapping[int, int] | None = None,
    ) -> None:
        """A store of ``pages`` in each group, or for one sequence of ``context`` keys in steps of up to ``chunk`` rows.

        ``script`` names tokens by their position in the text: each is by far the most probable there.
        """
        self.config = config or tiny_config(layers=3, pattern=3, window=20)
        layout = kv_layout(self.config)
        self.store = KVStore(layout, pages or plan_pages(layout.groups, context, chunk), "f32")
        poison(self.store)
        self.script = dict(script or {})
        self.steps: list[StepInput] = []
        """Every step run."""

    @property
    def rows_run(self) -> int:
        """Rows of all steps."""
        return sum(step.rows for step in self.steps)

    def run(self, step: StepInput) -> Logits:
        """The logits and the best ids of a step."""
        values, rows = self.forward(step), len(step.logit_rows)
        return Logits(values[:rows], bests=tuple(map(BestId.of, values[rows:])))

    def forward(self, step: StepInput) -> Float32:
        """Logits [R + B, V]."""
        return self.head(self.hidden(step))

    def hidden(self, step: StepInput) -> Float32:
        """Hidden states [R + B, D]: in each a hash of what the row saw, and the position after it."""
        self.steps.append(step)
        groups = self.store.layout.groups
        for index, group in enumerate(groups):
            keys = self.store.layers[group.layers[0]].keys
            pages, slots = step.slots[index] // PAGE, step.slots[index] % PAGE
            keys[pages, 0, 0, slots] = step.ids
            keys[pages, 0, 1, slots] = step.positions
        hidden = np.zeros((len(step.kept_rows), self.config.hidden), np.float32)
        for out, row in zip(hidden, step.kept_rows, strict=True):
            seen = [self._seen(step, index, row) for index in range(len(groups))]
            out[:_WORDS] = _words(_digest(seen))
            out[_WORDS] = step.positions[row] + 1
        return hidden

    def queries(self, layer: int) -> Float32:
        """There are none."""
        raise UsageError(f"queries of layer {layer} are not kept: this model has none")

    def head(self, hidden: Float32) -> Float32:
        """Logits [r, V] of hidden states [r, D]."""
        rows = [_logits(_number(state[:_WORDS]), self.config.vocab) for state in hidden]
        for row, state in zip(rows, hidden, strict=True):
            _favour(row, self.script.get(int(state[_WORDS])))
        return np.array(rows, np.float32).reshape(len(hidden), self.config.vocab)

    def expected_logits(self, ids: Sequence[int]) -> Float32:
        """Logits [V] after ``ids``, found without pages or steps."""
        positions = np.arange(len(ids))
        text = np.stack([np.array(ids), positions], axis=1).astype(np.float32)
        seen = [text[_first_key(group, len(ids) - 1) :] for group in self.store.layout.groups]
        row = _logits(_digest(seen), self.config.vocab)
        _favour(row, self.script.get(len(ids)))
        return row

    def _seen(self, step: StepInput, group: int, row: int) -> Float32:
        """[keys, 2] ids and positions that a row sees in one group."""
        keys = np.arange(step.first_key[group, row], step.last_key[group, row] + 1)
        pages = step.page_tables[group][step.sequences[row], keys // PAGE]
        if (pages < 0).any():
            raise AssertionError(f"row {row} sees keys of group {group} in pages that are not held")
        layer = self.store.layout.groups[group].layers[0]
        return self.store.layers[layer].keys[pages, 0, :2, keys % PAGE]


def _first_key(group: KVGroup, position: int) -> int:
    return 0 if group.window is None else max(position - group.window + 1, 0)


def _digest(groups: Sequence[Float32]) -> int:
    value = len(groups)
    for seen in groups:
        for number in (len(seen), *seen.reshape(-1).tolist()):
            if number != number:
                raise AssertionError("a key that was never written is seen")
            value = (value * 0x9E3779B97F4A7C15 + int(number) + 1) % 2**64
    return value


def _logits(digest: int, vocab: int) -> Float32:
    """[V] scattered over -8 ... 8 by the finaliser of SplitMix64."""
    z: NDArray[np.uint64] = np.arange(vocab, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95) + np.uint64(digest)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return ((z >> np.uint64(44)).astype(np.float32) / np.float32(1 << 16) - np.float32(8)).astype(np.float32)


def _favour(row: Float32, token_id: int | None) -> None:
    if token_id is not None:
        row[token_id] = _SCRIPTED


def _words(digest: int) -> list[int]:
    return [digest >> 16 * i & 0xFFFF for i in range(_WORDS)]


def _number(words: Float32) -> int:
    return sum(int(word) << 16 * i for i, word in enumerate(words))

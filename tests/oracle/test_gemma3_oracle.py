"""Gemma 3 equals ``transformers`` on tiny random models that went through a file and the real loader.

Gains are random and scores large, sizes differ from one another, texts are three windows long and more, and logits are
compared at every position: fluent text, or the last position only, would hide most faults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from cabochon.model.config import GemmaConfig
from cabochon.model.model import Model
from cabochon.ops.protocol import Rope
from cabochon.testing.steps import StepMaker, run_chunks
from cabochon.testing.tiny import tiny_config
from cabochon.types import Float32, Int32

TOLERANCE = {"torch": 1e-4, "native": 2e-4}
"""Largest difference of a logit, as a share of the logits' root mean square."""

SMALL: dict[str, Any] = {"hidden": 32, "head_dim": 16, "ffn": 56, "vocab": 345, "query_scale": 10**-0.5}

Case = tuple[GemmaConfig, int, dict[str, float]]
"""Config, length of the text, scales of ``tiny_weights``."""

CASES: dict[str, Case] = {
    "window of 8, layers not a multiple of the pattern": (tiny_config(window=8), 60, {}),
    "window across pages": (tiny_config(layers=4, pattern=3, window=40), 130, {}),
    "one key/value head": (tiny_config(**SMALL, window=8, kv_heads=1), 40, {}),
    "a head for every query": (tiny_config(**SMALL, layers=3, pattern=2, window=8, kv_heads=4), 30, {}),
    "window of 1": (tiny_config(**SMALL, layers=3, pattern=3, window=1), 12, {}),
    "global layers only": (tiny_config(**SMALL, layers=3, window=None), 40, {}),
    "sliding layers only": (tiny_config(**SMALL, layers=3, pattern=9, window=8), 40, {}),
    "no scaling of the global rope": (tiny_config(**SMALL, window=8, global_rope=Rope(1e6)), 40, {}),
    "a long text on scaled global layers": (tiny_config(**SMALL, layers=3, pattern=2, window=8), 300, {}),
    "a head of its own": (tiny_config(**SMALL, layers=2, pattern=2, window=8, tied_head=False), 30, {}),
    "capped logits": (tiny_config(**SMALL, layers=2, window=8, final_softcap=30.0), 30, {"logit_scale": 30.0}),
    "an epsilon that shows": (tiny_config(**SMALL, layers=2, pattern=2, window=8, rms_eps=0.125), 30, {}),
    "scores near 200": (tiny_config(**SMALL, layers=2, pattern=2, window=8), 30, {"score_scale": 50.0}),
}


@dataclass(frozen=True)
class Prepared:
    """A case with the answers of the oracle, which both backends share."""

    config: GemmaConfig
    weights: dict[str, Float32]
    ids: Int32
    expected: Float32


@pytest.fixture(scope="module", params=CASES)
def case(
    request: pytest.FixtureRequest,
    oracle: Callable[..., Float32],
    random_weights: Callable[..., dict[str, Float32]],
) -> Prepared:
    config, length, scales = CASES[request.param]
    weights = random_weights(config, seed=length, **scales)
    ids = np.random.default_rng(length).integers(0, config.vocab, length, dtype=np.int32)
    return Prepared(config, weights, ids, oracle(config, weights, ids))


def test_one_pass_chunks_and_single_steps_equal_the_oracle(
    backend: str, case: Prepared, load: Callable[..., Model]
) -> None:
    length = len(case.ids)
    unit = float(np.sqrt(np.mean(case.expected**2)))
    model = load(case.config, case.weights, tokens=length)
    steps = StepMaker(model.store.layout, model.store.pages)
    for chunks in ((), schedule(case.config, length)):
        text = steps.sequence()
        got = run_chunks(model, steps, text, case.ids, chunks)
        steps.end(text)
        assert np.abs(got - case.expected).max() <= TOLERANCE[backend] * unit, chunks


def schedule(config: GemmaConfig, length: int) -> list[int]:
    """Chunks that end one short of the window, at it and one beyond it, single steps, then chunks of two windows."""
    window = config.window or 8
    start = [max(window - 1, 1), *[1] * 8]
    return [*start, *[2 * window + 3] * ((length - sum(start)) // (2 * window + 3) - 1), *[1] * 3]

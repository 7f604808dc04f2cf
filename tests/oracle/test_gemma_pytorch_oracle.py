"""``compat.gemma_pytorch`` beside our backends and ``transformers`` on one file, and beside recorded real texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cabochon.compat.gemma_pytorch.config import get_model_config
from cabochon.compat.gemma_pytorch.from_gguf import get_config_for_gguf
from cabochon.compat.gemma_pytorch.model import GemmaForCausalLM, visible
from cabochon.model.config import GemmaConfig
from cabochon.model.model import Model
from cabochon.testing.steps import StepMaker, run_chunks
from cabochon.testing.tiny import tiny_config
from cabochon.types import Float32, Int32

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "gemma3-270m-greedy.json"
MARGIN = 0.02
"""A smaller lead of the best token over the next is within what rounding may change."""

WINDOW = 8
LENGTH = 40

SMALL: dict[str, Any] = {"layers": 4, "pattern": 3, "hidden": 32, "head_dim": 16, "ffn": 56, "query_scale": 10**-0.5}

CASES: dict[str, tuple[GemmaConfig, dict[str, float]]] = {
    "as it is": (tiny_config(**SMALL, window=WINDOW), {}),
    "one key/value head": (tiny_config(**SMALL, window=WINDOW, kv_heads=1), {}),
    "capped logits": (tiny_config(**SMALL, window=WINDOW, final_softcap=30.0), {"logit_scale": 30.0}),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[GemmaConfig, dict[str, float]]:
    return CASES[request.param]


def cached_logits(model: GemmaForCausalLM, ids: Int32, prefill: int) -> Float32:
    """Logits of the last of ``prefill`` ids and of every later one, each put in by itself: [n, V]."""
    caches = model.empty_caches(1, len(ids))
    rows = []
    for start, end in [(0, prefill), *((at, at + 1) for at in range(prefill, len(ids)))]:
        positions = torch.arange(start, end)
        _, logits = model(
            torch.from_numpy(ids[start:end].astype(np.int64))[None],
            positions,
            None,
            caches,
            visible(positions, len(ids)),
            torch.tensor([end - start - 1]),
            None,
            None,
            None,
            visible(positions, len(ids), model.config.sliding_window_size),
        )
        rows.append(logits[0].numpy())
    return np.stack(rows)


def test_logits_are_those_of_the_backends_and_of_transformers(
    case: tuple[GemmaConfig, dict[str, float]],
    load: Callable[..., Model],
    oracle: Callable[..., Float32],
    random_weights: Callable[..., dict[str, Float32]],
    tmp_path: Path,
) -> None:
    config, scales = case
    weights = random_weights(config, seed=5, **scales)
    ids = np.random.default_rng(3).integers(0, config.vocab, LENGTH, dtype=np.int32)
    backend = load(config, weights, tokens=LENGTH)
    compat = GemmaForCausalLM(get_config_for_gguf(tmp_path / "tiny.gguf", "float32"))
    compat.load_weights(tmp_path / "tiny.gguf")

    steps = StepMaker(backend.store.layout, backend.store.pages)
    ours = run_chunks(backend, steps, steps.sequence(), ids, [])
    theirs = oracle(config, weights, ids)
    unit = float(np.sqrt(np.mean(theirs**2)))
    for prefill in (1, 5, WINDOW + 1, LENGTH):
        got = cached_logits(compat, ids, prefill)
        assert np.abs(got - ours[prefill - 1 :]).max() <= 2e-4 * unit
        assert np.abs(got - theirs[prefill - 1 :]).max() <= 1e-4 * unit


@pytest.fixture(scope="module")
def real(real_model_path: Path) -> GemmaForCausalLM:
    """Gemma 3 270M in float32 by its variant's config, not by what its file says."""
    config = get_model_config("270m", "float32")
    config.tokenizer = str(real_model_path)
    model = GemmaForCausalLM(config)
    model.load_weights(real_model_path)
    return model.eval()


@pytest.mark.real_model
def test_the_known_config_is_that_of_the_file(real_model_path: Path) -> None:
    known, told = get_model_config("270m"), get_config_for_gguf(real_model_path)
    assert known.layer_types() == told.layer_types()
    told.attn_types, told.tokenizer = known.attn_types, known.tokenizer
    assert told.rms_norm_eps == pytest.approx(known.rms_norm_eps, rel=1e-7)
    told.rms_norm_eps = known.rms_norm_eps
    assert known == told


@pytest.mark.real_model
def test_recorded_texts_of_the_real_model_in_one_batch(real: GemmaForCausalLM) -> None:
    """16 prompts of 5 to 18 tokens; each text up to where two tokens are too close to tell."""
    golden = json.loads(GOLDEN.read_text("utf-8"))
    torch.set_num_threads(1)
    answers = real.generate([case["prompt"] for case in golden], "cpu", output_len=40, temperature=None)
    assert real.tokenizer is not None
    compared = 0
    for case, answer in zip(golden, answers, strict=True):
        assert real.tokenizer.encode(case["prompt"]) == case["prompt_ids"]
        close = [step["margin"] < MARGIN for step in case["greedy"]]
        sure = close.index(True) if True in close else len(close)
        # A character of several bytes may be cut in two there.
        expected = real.tokenizer.decode([step["id"] for step in case["greedy"][:sure]]).rstrip("\ufffd")
        assert answer.startswith(expected), case["prompt"]
        compared += sure
    assert compared >= 460


@pytest.mark.real_model
def test_the_examples_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "compat.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "compat.md", "exec"), names)
    shown = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert capsys.readouterr().out == "".join(shown)

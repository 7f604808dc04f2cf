"""Attention weights of a trace: of both backends alike, each over the keys its row sees, and of the right row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cabochon
from cabochon.errors import UsageError
from cabochon.testing.tiny import tiny_config, tiny_weights, write_tiny_gguf
from cabochon.trace.record import record
from cabochon.trace.trace import AttentionRow, Trace

WINDOW = 20
PROMPTS = ([2, *range(30, 75)], [2, 9, 10])


@pytest.fixture(scope="module", params=[None, 8.0], ids=["plain", "capped"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config(layers=4, pattern=3, window=WINDOW, attn_softcap=request.param)
    return write_tiny_gguf(tmp_path_factory.mktemp("look") / "tiny.gguf", config, tiny_weights(config))


def recorded(path: Path, backend: str, prompts: Any = PROMPTS, **options: Any) -> Trace:
    loading = {"keep_queries": "all", "kv_type": "f32", "chunk": 17, "max_running": 2, "threads": 1, **options}
    # Any of its options.
    with cabochon.load(path, backend=backend, context=96, prefix_cache=False, **loading) as session:  # type: ignore[arg-type]
        return record(session, prompts, attention="all", max_tokens=8, temperature=0, ignore_eos=True)


def rows_of(trace: Trace, sequence: int) -> list[AttentionRow]:
    shares = (share for step in trace.steps for share in step.shares if share.sequence == sequence)
    return [row for share in shares for row in share.attention]


def test_both_backends_look_alike_at_the_keys_of_the_window(path: Path) -> None:
    native, torch = recorded(path, "native"), recorded(path, "torch")
    assert [end.token_ids for end in native.end.sequences] == [end.token_ids for end in torch.end.sequences]
    for sequence, prompt in enumerate(PROMPTS):
        ours = rows_of(native, sequence)
        assert [(row.layer, row.position) for row in ours] == [
            (layer, position) for position in range(len(prompt) - 1, len(prompt) + 7) for layer in range(4)
        ]
        for row, other in zip(ours, rows_of(torch, sequence), strict=True):
            window = None if row.layer == 2 else WINDOW
            first = 0 if window is None else max(row.position - window + 1, 0)
            weights = np.array(row.weights)
            assert (row.first_key, weights.shape) == (first, (4, row.position - first + 1))
            assert weights.sum(axis=1) == pytest.approx(1, abs=1e-4)
            np.testing.assert_allclose(weights, other.weights, atol=2e-4)
        # Weights that are all alike would agree everywhere and say nothing.
        assert max(max(head) - min(head) for row in ours[4:8] for head in row.weights) > 0.05


def test_company_changes_no_weight(path: Path) -> None:
    together = recorded(path, "native")
    for sequence, prompt in enumerate(PROMPTS):
        assert rows_of(recorded(path, "native", [prompt], chunk=64), 0) == rows_of(together, sequence)


def test_queries_must_be_kept(path: Path) -> None:
    for backend in ("native", "torch"):
        with cabochon.load(path, backend=backend, context=96, keep_queries=[1]) as session:
            trace = record(session, [[2, 9]], attention=[1], max_tokens=2)
            assert {row.layer for row in rows_of(trace, 0)} == {1}
            with pytest.raises(UsageError, match="queries of layer 2 are not kept; load the model with keep_queries"):
                record(session, [[2, 9]], attention=[2])
    with pytest.raises(UsageError, match="keep_queries: layer must be a whole number, from 0 to 3, not 4"):
        cabochon.load(path, context=96, keep_queries=[4])


def test_keeping_queries_changes_no_bit(path: Path) -> None:
    plain = cabochon.load(path, context=96).generate(PROMPTS[0], max_tokens=20, seed=2, logprobs=3, ignore_eos=True)
    kept = cabochon.load(path, context=96, keep_queries="all")
    again = kept.generate(PROMPTS[0], max_tokens=20, seed=2, logprobs=3, ignore_eos=True)
    assert (again.token_ids, again.logprobs, again.top) == (plain.token_ids, plain.logprobs, plain.top)

"""The independent implementation (``transformers``), and models of either backend built by the real loader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cabochon.checkpoint.dequantize import dequantize
from cabochon.checkpoint.load import load_checkpoint
from cabochon.kvcache.store import KVStore
from cabochon.model.config import GemmaConfig
from cabochon.model.model import Model
from cabochon.model.native_model import build_native_model
from cabochon.model.tensors import tensor_specs
from cabochon.model.torch_model import build_torch_model
from cabochon.testing.steps import tiny_store
from cabochon.testing.tiny import tiny_weights, write_tiny_gguf
from cabochon.types import Float32, Int32, KVType

Load = Callable[..., Model]
"""``load(config, weights, tokens, kv_type="f32", metadata={})``: a model read from a GGUF file written for it."""

ROWS = 1100
"""The most rows of one step in these tests."""

Oracle = Callable[..., Float32]
"""``oracle(config, weights, ids)``: logits of every position, [len(ids), V]."""


@pytest.fixture(params=["torch", "native"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def load(backend: str, tmp_path: Path) -> Load:
    def load(
        config: GemmaConfig,
        weights: Mapping[str, Float32],
        tokens: int,
        *,
        kv_type: KVType = "f32",
        store: Callable[[GemmaConfig], KVStore] | None = None,
        logit_rows: int = ROWS,
        metadata: Mapping[str, Any] | None = None,
    ) -> Model:
        path = write_tiny_gguf(tmp_path / "tiny.gguf", config, weights, metadata=metadata)
        checkpoint = load_checkpoint(path)
        if not metadata:
            assert checkpoint.config == config
        pages = store(checkpoint.config) if store else tiny_store(checkpoint.config, tokens, kv_type)
        if backend == "torch":
            return build_torch_model(
                checkpoint.config, lambda name: dequantize(checkpoint.tensors[name]), pages, threads=1
            )
        return build_native_model(
            checkpoint.config, checkpoint.tensors, pages, threads=1, max_rows=ROWS, max_logit_rows=logit_rows
        )

    return load


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    return oracle_logits


def exact_weights(config: GemmaConfig, seed: int = 0, **scales: float) -> dict[str, Float32]:
    """``tiny_weights`` whose gains survive the oracle's habit of storing them less one."""
    weights = tiny_weights(config, seed, **scales)
    for spec in tensor_specs(config):
        if spec.kind == "norm":
            weights[spec.name] = (weights[spec.name] - np.float32(1)) + np.float32(1)
    return weights


@pytest.fixture(scope="session")
def random_weights() -> Callable[..., dict[str, Float32]]:
    return exact_weights


def oracle_logits(config: GemmaConfig, weights: Mapping[str, Float32], ids: Int32, **settings: Any) -> Float32:
    """Logits of every position by ``Gemma3ForCausalLM`` in float32; ``settings`` replace those of its config."""
    # Seconds to import, and the tokenizer's tests do without. Models this small are slower on several threads.
    from cabochon.trace.reference import Reference

    return Reference(config, weights.__getitem__, threads=1, **settings).logits(ids)

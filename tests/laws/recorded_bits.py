"""Runs of tiny models whose every bit is on record; ``python -m tests.laws.recorded_bits`` records them anew.

The weights come from a hash and the files' blocks from operations that IEEE 754 defines, so that they, too, are the
same on every machine and with every version of NumPy.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cabochon.model.config import GemmaConfig
from cabochon.model.native_model import build_native_model
from cabochon.model.tensors import tensor_specs
from cabochon.session import load
from cabochon.testing.steps import StepMaker, run_chunks, tiny_store
from cabochon.testing.tiny import MIXED_TYPES, tiny_config, tiny_config_k, tiny_tensors, write_tiny_gguf
from cabochon.types import Activations, Float32, KVType, RawTensor, WeightType

RECORD = Path(__file__).parents[1] / "data" / "recorded_bits.json"

LENGTH = 280
"""Two segments of attention."""

CHUNKS = (200, 1, 7)


@dataclass(frozen=True)
class Case:
    config: GemmaConfig
    types: Mapping[str, WeightType] = field(default_factory=dict)
    kv_type: KVType = "f16"
    activations: Activations = "int8x2"


K_QUANTS = tiny_config_k(ffn=256, tied_head=False)
SMALL: dict[str, Any] = {"layers": 3, "pattern": 2, "hidden": 64, "ffn": 96, "vocab": 131}

CASES = {
    "F32": Case(tiny_config(**SMALL), kv_type="f32"),
    "F16 and BF16": Case(
        tiny_config(**SMALL, attn_softcap=20.0, final_softcap=15.0),
        {"embedding": WeightType.F16, "query": WeightType.BF16, "gate": WeightType.F16, "down": WeightType.BF16},
        kv_type="bf16",
    ),
    "Q8_0 and Q5_0": Case(
        tiny_config(**SMALL), {"embedding": WeightType.Q8_0, "query": WeightType.Q5_0, "down": WeightType.Q8_0}
    ),
    "other blocks of 32": Case(
        tiny_config(**SMALL, tied_head=False),
        {
            "embedding": WeightType.Q4_0,
            "query": WeightType.Q4_1,
            "key": WeightType.Q5_1,
            "gate": WeightType.IQ4_NL,
            "down": WeightType.Q5_1,
            "head": WeightType.IQ4_NL,
        },
        kv_type="int8",
    ),
    "other blocks of 256": Case(
        K_QUANTS,
        {
            "embedding": WeightType.Q5_K,
            "query": WeightType.Q2_K,
            "key": WeightType.Q3_K,
            "gate": WeightType.IQ4_XS,
            "up": WeightType.Q2_K,
            "down": WeightType.Q3_K,
            "head": WeightType.IQ4_XS,
        },
    ),
    "Q4_K_M": Case(K_QUANTS, {**MIXED_TYPES, "head": WeightType.Q8_0}),
    "Q4_K_M, int8": Case(K_QUANTS, {**MIXED_TYPES, "head": WeightType.Q8_0}, kv_type="int8", activations="int8"),
}


def weights(config: GemmaConfig) -> dict[str, Float32]:
    """Weights of about the sizes of ``tiny_weights``: 16-bit fractions times powers of two."""
    made = {}
    for spec in tensor_specs(config):
        noise = hashlib.shake_256(spec.name.encode()).digest(2 * math.prod(spec.shape))
        values = np.frombuffer(noise, "<i2").astype(np.float32).reshape(spec.shape) / np.float32(2**15)
        if spec.kind == "norm":
            values = np.float32(1.25) + values
        elif spec.role in ("embedding", "head"):
            values = values * np.float32(0.5)
        else:
            values = values * np.float32(2.0 ** -round(math.log2(spec.shape[-1]) / 2 - 1))
        made[spec.name] = values
    return made


def tensors(case: Case) -> dict[str, RawTensor]:
    return tiny_tensors(case.config, weights(case.config), case.types)


def digest(*arrays: NDArray[Any]) -> str:
    """Of the bytes, as a little-endian machine has them."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return sha.hexdigest()


def weight_digest(case: Case) -> str:
    return digest(*(tensor.data for tensor in tensors(case).values()))


def logits(case: Case, isa: str, threads: int = 1) -> Float32:
    """Of every position of one text, [LENGTH, V]."""
    store = tiny_store(case.config, LENGTH + 32, case.kv_type)
    of = build_native_model(
        case.config, tensors(case), store, threads=threads, activations=case.activations, isa=isa, max_rows=LENGTH
    )
    steps = StepMaker(store.layout, store.pages)
    ids = [2 + (37 * i * i + i) % (case.config.vocab - 2) for i in range(LENGTH)]
    return run_chunks(of, steps, steps.sequence(), ids, CHUNKS)


def sampled(folder: Path, threads: int = 1) -> tuple[list[int], str]:
    """A text drawn by the instruction set in force, from a model in a file: ids, and the log-probabilities' digest."""
    case = CASES["Q4_K_M"]
    path = write_tiny_gguf(folder / "recorded.gguf", case.config, weights(case.config), types=case.types)
    with load(path, threads=threads, context=128) as session:
        made = session.generate([2, 30, 40, 50], max_tokens=40, seed=11, logprobs=0, ignore_eos=True)
    return list(made.token_ids), digest(np.array(made.logprobs, np.float64))


def record(folder: Path) -> dict[str, Any]:
    ids, logprobs = sampled(folder)
    models = {
        name: {"weights": weight_digest(case), "logits": digest(logits(case, "portable"))}
        for name, case in CASES.items()
    }
    return {"models": models, "sampled": {"ids": " ".join(map(str, ids)), "logprobs": logprobs}}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        RECORD.write_text(json.dumps(record(Path(place)), indent=1) + "\n")

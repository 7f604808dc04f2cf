"""Every weight type on random models of the shape of Gemma 3 270M: the native backend beside float32 arithmetic.

    python benchmarks/random_types.py [--types Q4_0,Q2_K] [--tokens 400] [--threads N]

For each type a file is written and 400 random tokens are scored by the native backend with its default activations and
by the torch backend in float32, keys and values in float32; then by the native backend with all its defaults. The
vocabulary has 32,768 tokens, an eighth of the real one, to be quick.

Where rows are not whole blocks of a type, they have the type that llama.cpp's quantiser takes instead; so that types
with blocks of 256 are seen in every matrix too, the head included, they have a second model with a width of 768.

The random models are made to be as sensitive to rounding as the real one: float16 keys and values change a
log-probability by about 0.0007. With the real file's gains on queries and keys and after each block, random matrices
would make a chaos in which any rounding grows to several nats. What enters the matrices has the real size and outliers,
and the distributions have an entropy of some four nats.

Prints a line per model, |difference of log-probability| in nats. Exits with 1 if a mean is beyond the bound.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import cabochon
from cabochon.model.config import GemmaConfig
from cabochon.model.tensors import TensorSpec, tensor_specs
from cabochon.ops.protocol import Rope
from cabochon.testing.tiny import tiny_config, write_tiny_gguf
from cabochon.testing.vocabulary import BOS
from cabochon.types import BackendName, Float32, KVType, WeightType

BOUND = 0.002
"""Largest mean |difference of log-probability|, in nats: law 8."""

REAL_WIDTH, WIDE = 640, 768
VOCAB = 32768

INSTEAD = {
    WeightType.Q2_K: WeightType.IQ4_NL,
    WeightType.Q3_K: WeightType.IQ4_NL,
    WeightType.Q4_K: WeightType.Q5_0,
    WeightType.Q5_K: WeightType.Q5_1,
    WeightType.Q6_K: WeightType.Q8_0,
    WeightType.IQ4_XS: WeightType.IQ4_NL,
}
"""What a matrix has whose rows are not whole blocks of 256."""

GAINS = {
    "attention_norm": 27.0,
    "ffn_norm": 11.0,
    "query_norm": 1.0,
    "key_norm": 1.0,
    "attention_post_norm": 0.2,
    "ffn_post_norm": 0.2,
    "final_norm": 4.0,
}
"""Root mean square of each norm's gains. The first two are the real file's; the last is about that of the logits."""

SPREAD = 0.8
"""Of the logarithm of gains: the largest are some ten times the median."""


def config(width: int) -> GemmaConfig:
    """Gemma 3 270M, but for the vocabulary and the given width of the residual stream."""
    return tiny_config(
        layers=18,
        hidden=width,
        ffn=2048,
        heads=4,
        kv_heads=1,
        head_dim=256,
        query_scale=256**-0.5,
        window=512,
        global_rope=Rope(1e6),
        vocab=VOCAB,
    )


def random_weights(model: GemmaConfig, seed: int) -> dict[str, Float32]:
    """Rows of about unit size, and gains of many sizes around those of ``GAINS``."""
    rng = np.random.default_rng(seed)
    weights = {}
    for spec in tensor_specs(model):
        if spec.kind == "norm":
            gains = rng.lognormal(0, SPREAD, spec.shape)
            gains *= GAINS[spec.role] / np.sqrt(np.square(gains).mean())
            if spec.role == "final_norm":
                # All of one sign, they would make every token its own most probable successor: the head is tied.
                gains *= rng.choice([-1, 1], spec.shape)
            weights[spec.name] = gains.astype(np.float32)
        else:
            weights[spec.name] = rng.standard_normal(spec.shape, np.float32)
            weights[spec.name] /= np.float32(math.sqrt(spec.shape[-1]))
    return weights


def matrices(model: GemmaConfig) -> list[TensorSpec]:
    """All that is stored in the type in question, or in the one instead."""
    return [spec for spec in tensor_specs(model) if spec.kind != "norm"]


def fitting(kind: WeightType, cols: int) -> WeightType:
    """``kind``, or what is taken instead for rows of ``cols``."""
    return INSTEAD[kind] if cols % kind.block_values else kind


def share(model: GemmaConfig, kind: WeightType) -> float:
    """How many of the values in matrices are stored as ``kind`` itself."""
    sizes = [(math.prod(spec.shape), fitting(kind, spec.shape[-1]) is kind) for spec in matrices(model)]
    return sum(size for size, fits in sizes if fits) / sum(size for size, _ in sizes)


@dataclass(frozen=True)
class Agreement:
    """Of one backend's log-probabilities with another's, of the same tokens."""

    mean: float
    p99: float
    most: float
    top_1: float
    """Share of positions with the same most probable token."""

    @classmethod
    def of(cls, ours: cabochon.Score, reference: cabochon.Score) -> Agreement:
        """How far ``ours`` is from ``reference``."""
        difference = np.abs(_logprobs(ours) - _logprobs(reference))
        same = _most_probable(ours) == _most_probable(reference)
        p99, most = float(np.quantile(difference, 0.99)), float(difference.max())
        return cls(float(difference.mean()), p99, most, float(same.mean()))

    @property
    def ok(self) -> bool:
        """Whether law 8 holds."""
        return self.mean <= BOUND

    def __str__(self) -> str:
        return f"{self.mean:8.6f} {self.p99:8.5f} {self.most:8.5f} {self.top_1:8.2%}"


def _logprobs(score: cabochon.Score) -> NDArray[np.float64]:
    return np.array(score.logprobs[1:], np.float64)


def _most_probable(score: cabochon.Score) -> NDArray[np.int64]:
    return np.array([best[0][0] for best in (score.top or ())[1:] if best is not None])


def measure(
    model: GemmaConfig, weights: Mapping[str, Float32], kind: WeightType, ids: Sequence[int], threads: int | None
) -> tuple[Agreement, Agreement]:
    """Agreement with the torch backend on float32 keys and values: with the same ones, and with all defaults."""

    def score(backend: BackendName, kv_type: KVType) -> cabochon.Score:
        with cabochon.load(path, backend=backend, kv_type=kv_type, threads=threads, context=len(ids)) as session:
            return session.score(ids, top_logprobs=1)

    types = {spec.role: fitting(kind, spec.shape[-1]) for spec in matrices(model)}
    with tempfile.TemporaryDirectory() as folder:
        path = write_tiny_gguf(Path(folder) / "model.gguf", model, weights, types=types)
        reference = score("torch", "f32")
        return Agreement.of(score("native", "f32"), reference), Agreement.of(score("native", "f16"), reference)


def main() -> int:
    """Measures and prints; returns the exit code."""
    parser = argparse.ArgumentParser(description="Every weight type on random models of real shape.")
    parser.add_argument("--types", default=",".join(kind.name for kind in WeightType), help="separated by commas")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    unknown = set(options.types.split(",")) - set(WeightType.__members__)
    if unknown:
        parser.error(f"no such type: {', '.join(sorted(unknown))}")
    kinds = [WeightType[name] for name in options.types.split(",")]
    rng = np.random.default_rng(options.seed)
    ids = [BOS, *rng.integers(VOCAB, size=options.tokens - 1).tolist()]
    print(f"18 layers, vocabulary {VOCAB:,}, {len(ids)} tokens; bound of the mean {BOUND}")
    columns = f"{'mean':>8} {'99 %':>8} {'largest':>8} {'top 1':>8}"
    print(f"{'':22} {'keys and values f32':^35}   {'defaults (f16)':^35}")
    print(f"{'type':6} {'width':>5} {'share':>9} {columns}   {columns}")
    fine = True
    for width in (REAL_WIDTH, WIDE):
        model = config(width)
        weights = random_weights(model, options.seed)
        for kind in kinds:
            if width == WIDE and REAL_WIDTH % kind.block_values == 0:
                continue
            same_kv, defaults = measure(model, weights, kind, ids, options.threads)
            ok = same_kv.ok and defaults.ok
            fine = fine and ok
            verdict = "OK" if ok else "NOT OK"
            print(f"{kind.name:6} {width:5} {share(model, kind):9.0%} {same_kv}   {defaults}   {verdict}", flush=True)
    return 0 if fine else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except cabochon.CabochonError as error:
        sys.exit(f"error: {error}")

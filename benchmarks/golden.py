"""Agreement of the real Gemma 3 270M with figures recorded from an independent implementation.

    python benchmarks/golden.py [--backend native|torch] [--activations int8x2|int8] [--kv-type TYPE] [--save FILE]

The recorded figures (``tests/data/gemma3-270m-*``) are those of ``transformers`` 5.24 in float32 on the dequantised
weights of the same file: log-probabilities of the first 2,000 tokens of a long text (the GPL, nearly four windows), and
16 greedy continuations. The text is scored through the cache in chunks; the continuations are generated freely and
compared up to the first step whose lead over the runner-up is below 0.02, after which another token is no fault.

Prints one line per figure, with its bound where it has one. Exits with 1 if a bound is not kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cabochon
from cabochon.types import KVType

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
MARGIN = 0.02

MEAN_BOUNDS = {("native", "int8x2"): 0.002, ("native", "int8"): 0.055, ("torch", "int8x2"): 0.0005}
"""Largest mean |difference of log-probability|, in nats."""

TOP_1_BOUND = 0.998
"""Smallest share of positions with the same most probable token; int8 activations have no bound."""

KV_TYPES: dict[str, KVType] = {"native": "f16", "torch": "f32"}
"""What keys and values are stored as: the torch backend is measured as the reference, with nothing rounded."""


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the figure keeps its bound; one that is not a number does not."""
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )

    def __str__(self) -> str:
        line = f"{self.name:<48} {self.value:>10.6g}"
        if self.at_most is None and self.at_least is None:
            return line
        bound = f"<= {self.at_most:g}" if self.at_most is not None else f">= {self.at_least:g}"
        return f"{line}   {bound:<10} {'OK' if self.ok else 'NOT OK'}"


def text_figures(session: cabochon.Session, backend: str, activations: str, tokens: int) -> Iterator[Figure]:
    """Teacher-forced over the first ``tokens`` tokens of the text."""
    with np.load(DATA / "gemma3-270m-gpl3-2000.npz") as golden:
        ids, expected, expected_top = golden["ids"], golden["token_logprob"], golden["top_id"]
    tokens = min(tokens, len(ids))
    score = session.score(ids[:tokens].tolist(), top_logprobs=1)
    assert score.top is not None
    got = np.array(score.logprobs[1:], dtype=np.float64)
    top = np.array([best[0][0] for best in score.top[1:] if best is not None])
    difference = np.abs(got - expected[: tokens - 1])
    what = "|difference of log-probability|"
    yield Figure(f"mean {what}, {tokens:,} tokens", difference.mean(), at_most=MEAN_BOUNDS[backend, activations])
    yield Figure(f"99th percentile {what}", float(np.quantile(difference, 0.99)))
    yield Figure(f"largest {what}", difference.max())
    agreement = float((top == expected_top[: tokens - 1]).mean())
    yield Figure("same most probable token", agreement, at_least=None if activations == "int8" else TOP_1_BOUND)


def greedy_figures(session: cabochon.Session, activations: str, prompts: int, steps: int) -> Iterator[Figure]:
    """Free-running greedy continuations of the first ``prompts`` prompts."""
    golden: list[dict[str, Any]] = json.loads((DATA / "gemma3-270m-greedy.json").read_text())[:prompts]
    agreeing = compared = 0
    for case in golden:
        expected = case["greedy"][:steps]
        certain = next((i for i, step in enumerate(expected) if step["margin"] < MARGIN), len(expected))
        got = session.generate(case["prompt_ids"], max_tokens=steps, temperature=0, ignore_eos=True)
        same = list(got.token_ids[:certain]) == [step["id"] for step in expected[:certain]]
        agreeing += same
        compared += certain
        if not same:
            step = next(i for i in range(certain) if got.token_ids[i] != expected[i]["id"])
            what = f"step {step} gives {got.token_ids[step]}, not {expected[step]['id']}"
            print(f"{case['prompt']!r}: {what} (lead {expected[step]['margin']})")
    name = f"greedy texts that agree, of {len(golden)} ({compared} steps)"
    yield Figure(name, agreeing, at_least=None if activations == "int8" else len(golden))


def main() -> int:
    """Measures and prints; returns the exit code."""
    parser = argparse.ArgumentParser(description="Agreement of the real model with recorded figures.")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--backend", choices=("native", "torch"), default="native")
    parser.add_argument("--activations", choices=("int8x2", "int8"), default="int8x2")
    parser.add_argument("--kv-type", choices=("f16", "bf16", "f32", "int8"), help="default: f16, torch f32")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--tokens", type=int, default=2000, help="of the text")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--steps", type=int, default=40, help="of each continuation")
    parser.add_argument("--save", type=Path, help="also write the figures here, as JSON")
    options = parser.parse_args()
    kv_type = options.kv_type or KV_TYPES[options.backend]
    activations = options.activations if options.backend == "native" else "float32"
    print(f"backend {options.backend}, activations {activations}, keys and values {kv_type}")
    with cabochon.load(
        options.model,
        backend=options.backend,
        activations=options.activations,
        kv_type=kv_type,
        threads=options.threads,
        context=2048,
    ) as session:
        figures = [
            *text_figures(session, options.backend, options.activations, options.tokens),
            *greedy_figures(session, options.activations, options.prompts, options.steps),
        ]
    for figure in figures:
        print(figure)
    if options.save:
        options.save.write_text(
            json.dumps({figure.name: round(float(figure.value), 7) for figure in figures}, indent=1) + "\n"
        )
    return 0 if all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except cabochon.CabochonError as error:
        sys.exit(f"error: {error}")

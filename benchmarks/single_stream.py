"""What serving many costs a single stream, and what guesses from the text's own words cost or bring it.

    python benchmarks/single_stream.py [--tokens 192] [--rounds 9] [--threads 2] [--save FILE]

One process holds the model once for each way of running it; each round runs the same text in each of them, in turns and
in changing order, and takes decode tokens per second. Printed are medians, and the median of the ratios to the plain
engine taken round by round. The texts are:

- new: sampled at temperature 1 from random ids, so that hardly anything repeats, and what does misleads;
- repeating: a list that the model goes on with, over and over.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import cabochon

WAYS: dict[str, dict[str, Any]] = {
    "plain": {"max_running": 1, "prefix_cache": False},
    "for 16 streams": {"max_running": 16, "prefix_cache": True},
    "guessing": {"max_running": 1, "prefix_cache": False, "speculate": 7},
}
LEAST = 0.97
"""Of the plain engine's speed, where nothing repeats."""

PROMPT = 64
REPEATED = "red, green, blue, red, green, blue, red, green, blue, red, green, blue,"

Options = dict[str, Any]


def new_text(turn: int, session: cabochon.Session) -> tuple[list[int], Options]:
    """Random ids, and sampling that seldom repeats itself."""
    draw = Random(turn)
    return [2, *(draw.randrange(1000, 200_000) for _ in range(PROMPT - 1))], {"temperature": 1.0, "seed": turn}


def repeating_text(turn: int, session: cabochon.Session) -> tuple[list[int], Options]:
    """A text whose next tokens stood in it before."""
    return session.tokenize(f"{turn}: {REPEATED}"), {"temperature": 0.0}


TEXTS: dict[str, Callable[[int, cabochon.Session], tuple[list[int], Options]]] = {
    "new": new_text,
    "repeating": repeating_text,
}


def main() -> int:
    """Runs the comparison and prints it; 0 if nothing is slower than it may be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    sessions = {
        name: cabochon.load(options.model, threads=options.threads, context=512, **way) for name, way in WAYS.items()
    }
    report: dict[str, Any] = {}
    for text, make in TEXTS.items():
        rates: dict[str, list[float]] = {name: [] for name in WAYS}
        for turn in range(options.rounds + 1):
            outcomes = set()
            for name in sorted(WAYS, key=lambda name: Random(f"{turn} {name}").random()):
                prompt, how = make(turn, sessions[name])
                result = sessions[name].generate(prompt, max_tokens=options.tokens, ignore_eos=True, **how)
                outcomes.add(result.token_ids)
                if turn:  # the first round warms up
                    rates[name].append(result.timings.decode_tokens_per_s or 0.0)
            if len(outcomes) != 1:
                raise SystemExit(f"{text}: the ways of running it give different texts")
        report[text] = {}
        for name, values in rates.items():
            ratios = [one / plain for one, plain in zip(values, rates["plain"], strict=True)]
            report[text][name] = {
                "tokens_per_s": round(statistics.median(values), 1),
                "ratio": round(statistics.median(ratios), 3),
            }
            print(
                f"{text} text, {name}: {report[text][name]['tokens_per_s']} tokens/s, {report[text][name]['ratio']:.3f}"
                f" of plain ({min(ratios):.2f} to {max(ratios):.2f}); the same text"
            )
    if options.save:
        options.save.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(entry["ratio"] >= LEAST for entry in report["new"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())

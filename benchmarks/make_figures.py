"""Writes the README's table of figures from the measurements kept in ``benchmarks/results``.

    python benchmarks/make_figures.py [--check]

Nothing is measured here: ``compare.py``, ``cold_start.py``, ``golden.py``, ``streams.py``, ``single_stream.py`` and
``reuse.py`` wrote the results, with ``--save``.
``--check`` only tells whether the README has the table that the results give (a test runs it).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
START, END = "<!-- figures: benchmarks/make_figures.py -->\n", "<!-- end of figures -->"
MEAN = "mean |difference of log-probability|, 2,000 tokens"
SAME = "same most probable token"

_REUSE = (
    ("the next turn of a conversation", "next turn"),
    ("the same from a file, in a new process", "from disk"),
    ("a question after a known system prompt, 50 conversations later", "shared beginning"),
)


def figures() -> str:
    """The table, as Markdown."""
    speed, int8, cold = _result("compare"), _result("compare-int8"), _result("cold-start")["first_token_s"]
    golden, golden_int8, torch = _result("golden"), _result("golden-int8"), _result("golden-torch")
    streams, single, reuse = _result("streams"), _result("single-stream"), _result("reuse")
    rows = [
        ("decode, one stream", "decode", speed),
        ("prefill of 512 tokens", "prefill", speed),
        ("prefill of 512 tokens, `--activations int8`", "prefill", int8),
    ]
    lines = [
        f"Gemma 3 270M, the same Q4_K_M file, {speed['threads']} threads of {speed['cpu']}, measured in turn in one run"
        " (`make bench-compare`); tokens per second unless said otherwise:",
        "",
        "| | Cabochon | llama.cpp | ratio |",
        "|---|---|---|---|",
        *(
            f"| {name} | {result[key]['cabochon']:.0f} | {result[key]['llama.cpp']:.0f} | {result[key]['ratio']:.2f} |"
            for name, key, result in rows
        ),
        "| first token from a cold start, seconds (less is better) |"
        f" {cold['cabochon']:.2f} | {cold['llama.cpp']:.2f} | {cold['ratio']:.2f} |",
        f"| {streams['streams']} streams together, in all (`make bench-engine`) |"
        f" {streams['cabochon']:.0f} | {streams['llama.cpp']:.0f} | {streams['ratio']:.2f} |",
        "",
        "What is stored is not run again, and the bits are those of running it (`make bench-engine`):",
        "",
        "| | tokens | run | first token sooner than without reuse |",
        "|---|---|---|---|",
        *(
            f"| {words} | {reuse[key]['prompt']:,} | {reuse[key]['run']} | {reuse[key]['first_token_ratio']:.0f}x |"
            for words, key in _REUSE
        ),
        "",
        f"`--speculate` where a text repeats itself: {single['repeating']['guessing']['ratio']:.1f}x the tokens per"
        f" second; where hardly anything repeats: {single['new']['guessing']['ratio']:.2f}x. One stream in an engine"
        f" made for 16: {single['new']['for 16 streams']['ratio']:.2f}x.",
        "",
        "Against float32 arithmetic on the same weights, an independent implementation, 2,000 tokens (`make golden`):",
        "",
        "| | mean difference of log-probability | same most probable token |",
        "|---|---|---|",
        f"| Cabochon | {golden[MEAN]:.5f} | {golden[SAME]:.2%} |",
        f"| Cabochon, `--activations int8` | {golden_int8[MEAN]:.5f} | {golden_int8[SAME]:.2%} |",
        f"| Cabochon, torch backend | {torch[MEAN]:.6f} | {torch[SAME]:.2%} |",
        "| llama.cpp | 0.0747 | 95.65% |",
        "",
    ]
    return "\n".join(lines)


def with_figures(readme: str) -> str:
    """The README with the table in its place."""
    before, start, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    return before + start + figures() + end + after


def main() -> int:
    """Writes or checks; 0 if the README is up to date."""
    path = ROOT / "README.md"
    old = path.read_text()
    new = with_figures(old)
    if "--check" in sys.argv[1:]:
        return 0 if old == new else 1
    path.write_text(new)
    return 0


def _result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


if __name__ == "__main__":
    sys.exit(main())

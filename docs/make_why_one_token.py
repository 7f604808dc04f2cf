"""Fills the outputs and numbers of ``docs/why-one-token.md`` and its Chinese twin.

    python docs/make_why_one_token.py

Both pages are texts with holes. After ``<!-- output: NAME -->`` stands what a command printed, and between
``<!-- NAME -->`` and ``<!-- / -->`` a number. Commands are those that the page prints; their outputs are the same on
every machine, since the bits are. The counts of 700 tokens, which take minutes, come from a file that
``make verify-against`` wrote, and seconds from the log's entry of a run with nothing beside it.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "docs" / "why-one-token.md", ROOT / "docs" / "why-one-token.zh.md")
RESULTS = ROOT / "benchmarks" / "results" / "verify-against.json"
LOG = ROOT / "benchmarks" / "LOG.md"

TRACE = 'trace "The capital of France is" --max-tokens 5 --seed 1'
WINDOW = "trace --file LICENSE --max-tokens 3 --temperature 0"
BATCH = 'trace "The capital of France is" "Once upon a time" "Water" --temperature 0 --max-tokens 2'
AGAINST = 'verify "The capital of France is" --max-tokens 24 --seed 1 --against all'
P32 = (
    'verify "The old lighthouse keeper climbed the stairs every evening, lit the great lamp, and wrote down in his book'
    ' which ships had passed that day and where they were"'
    " --max-tokens 64 --ignore-eos --temperature 0 --against no-cache"
)

LONG_LINE = 150
"""Longer lines of an output are cut, and end in an ellipsis."""


@cache
def printed(command: str) -> str:
    """What ``cabochon COMMAND`` prints."""
    line = [sys.executable, "-m", "cabochon.cli.main", *shlex.split(command)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@cache
def traced(command: str) -> tuple[str, list[Any]]:
    """What ``cabochon COMMAND`` prints, and the lines of the trace that the same run saves."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.jsonl"
        return printed(f"{command} --save {shlex.quote(str(file))}"), [
            json.loads(line) for line in file.read_text("utf-8").splitlines()
        ]


def logged() -> dict[str, str]:
    """Date and seconds of ``make verify-against`` on a quiet machine, as the log has them."""
    entry = re.search(
        r"## (?P<date>\S+): the cached loop beside other ways.*?"
        r"\| cached \|[^\n]*\| (?P<long>[\d.]+) \|\n\| no cache \|[^\n]*\| (?P<long_again>[\d.]+) \|\n.*?"
        r"With 64 tokens: [^\n]* pairs, (?P<short>[\d.]+) and (?P<short_again>[\d.]+) s\.",
        LOG.read_text("utf-8"),
        re.DOTALL,
    )
    if entry is None:
        raise ValueError(f"{LOG}: no entry of make verify-against")
    return entry.groupdict()


def outputs() -> dict[str, str]:
    """What stands after each ``output`` mark."""
    step = printed(f"{TRACE} --step 1")
    return {
        "trace": traced(TRACE)[0],
        # How long it took depends on the machine.
        "step": re.sub(r" in [\d.]+ ms", "", step.partition("  choice")[0]),
        "shapes": _shapes(traced(TRACE)[1]),
        "against": _without_seconds(printed(AGAINST)),
        "window": traced(WINDOW)[0].partition("Text:")[0],
        "batch": printed(BATCH).partition("Text 0:")[0],
    }


def values() -> dict[str, str]:
    """What stands between each other pair of marks."""
    short = json.loads(printed(f"{AGAINST} --json"))
    p32 = json.loads(printed(f"{P32} --json"))
    saved = json.loads(RESULTS.read_text())
    p700 = saved["texts"]["700"]
    seconds = logged()
    trace, window = traced(TRACE)[1], traced(WINDOW)[1]
    by_name = {variant["name"]: variant for variant in short["variants"]}
    groups = trace[0]["model"]["groups"]
    last = window[-2]["shares"][0]
    return {
        "trace.prompt": str(len(trace[0]["prompts"][0]["ids"])),
        "trace.seen": str(trace[2]["shares"][0]["last_key"][0][0][0]),
        "short.ratio": f"{_tokens(by_name['concat']) / _tokens(short['cached']):.1f}",
        "short.wrong_layer": str(by_name["wrong-position"]["difference"]["layer"]),
        "short.empty_off": f"{by_name['empty-cache']['max_abs_difference']:.3g}",
        "p32.cached": f"{_tokens(p32['cached']):,}",
        "p32.again": f"{_tokens(p32['variants'][0]):,}",
        "p32.ratio": f"{_tokens(p32['variants'][0]) / _tokens(p32['cached']):.0f}",
        "p32.pairs_cached": f"{p32['cached']['cost']['pairs']:,}",
        "p32.pairs_again": f"{p32['variants'][0]['cost']['pairs']:,}",
        "p32.seconds": seconds["short"],
        "p32.seconds_again": seconds["short_again"],
        "p32.seconds_ratio": f"{float(seconds['short_again']) / float(seconds['short']):.0f}",
        "p700.cached": f"{_tokens(p700['cached']):,}",
        "p700.again": f"{_tokens(p700['variants'][0]):,}",
        "p700.seconds": seconds["long"],
        "p700.seconds_again": seconds["long_again"],
        "p700.date": seconds["date"],
        "bytes.position": f"{sum(len(group['layers']) * group['position_bytes'] for group in groups) / 1024:.1f} KiB",
        "window.position": str(last["positions"][0][0]),
        "window.size": str(next(group["window"] for group in groups if group["window"])),
    }


def filled(text: str, blocks: Mapping[str, str], numbers: Mapping[str, str]) -> str:
    """A page with its holes filled. Raises ``KeyError`` for a hole without a name here."""

    def block(match: re.Match[str]) -> str:
        lines = (line.rstrip() for line in blocks[match[1]].rstrip("\n").splitlines())
        shown = "\n".join(line if len(line) <= LONG_LINE else line[: LONG_LINE - 2] + " …" for line in lines)
        return f"<!-- output: {match[1]} -->\n```text\n{shown}\n```"

    def number(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->{numbers[match[1]]}<!-- / -->"

    text = re.sub(r"<!-- output: (\w+) -->\n```text\n.*?```", block, text, flags=re.DOTALL)
    return re.sub(r"<!-- ([\w.]+) -->[^<]*<!-- / -->", number, text)


def main() -> None:
    """Fills both pages."""
    blocks, numbers = outputs(), values()
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8"), blocks, numbers), "utf-8")


def _tokens(variant: Any) -> int:
    count: int = variant["cost"]["tokens"]
    return count


def _shapes(trace: list[Any]) -> str:
    """Shapes in prefill and in the step after it, from the trace's model and what its rows read."""
    model, group = trace[0]["model"], trace[0]["model"]["groups"][0]
    heads, kv_heads, size = model["heads"], group["kv_heads"], group["head_dim"]
    prompt = len(trace[0]["prompts"][0]["ids"])
    calls = [(prompt, prompt), (1, trace[2]["shares"][0]["last_key"][0][0][0] + 1)]  # rows, keys seen by the last
    table = [("", "shape", "prefill", "step 1")]
    for name, shape, of in (
        ("ids", "[B, L]", lambda rows, keys: [1, rows]),
        ("positions", "[L]", lambda rows, keys: [rows]),
        ("mask rows", "[1, 1, L, S]", lambda rows, keys: [1, 1, rows, keys]),
        ("queries", "[B, L, H, E]", lambda rows, keys: [1, rows, heads, size]),
        ("new keys; new values", "[B, L, G, E]", lambda rows, keys: [1, rows, kv_heads, size]),
        ("all keys; all values", "[B, S, G, E]", lambda rows, keys: [1, keys, kv_heads, size]),
        ("scores", "[B, H, L, S]", lambda rows, keys: [1, heads, rows, keys]),
        ("logits wanted", "[B, V]", lambda rows, keys: [1, model["vocab"]]),
    ):
        table.append((name, shape, *(str(of(rows, keys)) for rows, keys in calls)))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in table)


def _without_seconds(table: str) -> str:
    """The last column of the table, which ends where a line is empty, depends on the machine."""
    head, gap, rest = table.partition("\n\n")
    width = len(head.splitlines()[0]) - len("seconds")
    return "\n".join(line[:width].rstrip() for line in head.splitlines()) + gap + rest


if __name__ == "__main__":
    main()

"""Fills the outputs and numbers of ``docs/why-one-token.md`` and its Chinese twin.

    python docs/make_why_one_token.py

Both pages are texts with holes. After ``<!-- output: NAME -->`` stands what a command printed, and between
``<!-- NAME -->`` and ``<!-- / -->`` a number. Commands are those that the page prints; their outputs are the same on
every machine, since the bits are. Only the figures of 700 tokens, which take minutes, come from a file that
``make verify-against`` wrote.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "docs" / "why-one-token.md", ROOT / "docs" / "why-one-token.zh.md")
RESULTS = ROOT / "benchmarks" / "results" / "verify-against.json"

TRACE = 'trace "The capital of France is" --max-tokens 5 --seed 1'
WINDOW = "trace --file LICENSE --max-tokens 3 --temperature 0"
BATCH = 'trace "The capital of France is" "Once upon a time" "Water" --temperature 0 --max-tokens 2'
AGAINST = 'verify "The capital of France is" --max-tokens 24 --seed 1 --against all'
IDS = ",".join(str(i) for i in (2, *range(1000, 1217, 7)))
P32 = f"verify --ids {IDS} --max-tokens 64 --ignore-eos --temperature 0 --against no-cache --json"

LONG_LINE = 150
"""Longer lines of an output are cut, and end in an ellipsis."""


@cache
def printed(command: str) -> str:
    """What ``cabochon COMMAND`` prints."""
    line = [sys.executable, "-m", "cabochon.cli.main", *shlex.split(command)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def outputs() -> dict[str, str]:
    """What stands after each ``output`` mark."""
    step = printed(f"{TRACE} --step 1")
    return {
        "trace": printed(TRACE),
        # How long it took depends on the machine.
        "step": re.sub(r" in [\d.]+ ms", "", step.partition("  choice")[0]),
        "against": _without_seconds(printed(AGAINST)),
        "window": printed(WINDOW).partition("Text:")[0],
        "batch": printed(BATCH).partition("Text 0:")[0],
    }


def values() -> dict[str, str]:
    """What stands between each other pair of marks."""
    short = json.loads(printed(f"{AGAINST} --json"))
    p32 = json.loads(printed(P32))
    saved = json.loads(RESULTS.read_text())
    p700 = saved["texts"]["700"]
    trace = [json.loads(line) for line in printed(f"{TRACE} --json").splitlines()]
    window = [json.loads(line) for line in printed(f"{WINDOW} --json").splitlines()]
    by_name = {variant["name"]: variant for variant in short["variants"]}
    groups = trace[0]["model"]["groups"]
    last = window[-2]["shares"][0]
    return {
        "trace.prompt": str(len(trace[0]["prompts"][0]["ids"])),
        "trace.seen": str(trace[2]["shares"][0]["last_key"][0][0][0]),
        "short.ratio": f"{_tokens(by_name['concat']) / _tokens(short['cached']):.1f}",
        "short.again": f"{_tokens(by_name['concat']):,}",
        "short.wrong_layer": str(by_name["wrong-position"]["difference"]["layer"]),
        "short.empty_off": f"{by_name['empty-cache']['max_abs_difference']:.3g}",
        "p32.cached": f"{_tokens(p32['cached']):,}",
        "p32.again": f"{_tokens(p32['variants'][0]):,}",
        "p32.ratio": f"{_tokens(p32['variants'][0]) / _tokens(p32['cached']):.0f}",
        "p32.pairs_cached": f"{p32['cached']['cost']['pairs']:,}",
        "p32.pairs_again": f"{p32['variants'][0]['cost']['pairs']:,}",
        "p700.cached": f"{_tokens(p700['cached']):,}",
        "p700.again": f"{_tokens(p700['variants'][0]):,}",
        "p700.seconds": f"{p700['cached']['seconds']:.1f}",
        "p700.seconds_again": f"{p700['variants'][0]['seconds']:.0f}",
        "p700.date": saved["date"],
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
    count: int = variant["cost"]["tokens_run"]
    return count


def _without_seconds(table: str) -> str:
    """The last column of the table, which ends where a line is empty, depends on the machine."""
    head, gap, rest = table.partition("\n\n")
    width = len(head.splitlines()[0]) - len("seconds")
    return "\n".join(line[:width].rstrip() for line in head.splitlines()) + gap + rest


if __name__ == "__main__":
    main()

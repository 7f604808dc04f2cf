"""The cached loop beside other ways to make its steps, on the real model: equals equal, controls broken, costs counted.

    python benchmarks/verify_against.py [--model demo] [--quick] [--save FILE]

Runs ``cabochon verify --against all`` twice: with 32 prompt ids and 64 tokens, and with a text of 700 tokens, beyond
the window of 512 (``--quick`` leaves that out; it takes a quarter of an hour). Wanted are the verdicts and first layers
that the laws demand, tokens run as the formulas say, and totals that equal the native core's own counters.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

PROMPT_IDS = 32
SHORT, LONG = 64, 700 - PROMPT_IDS
FIRST_LAYER = {"wrong-position": 0, "empty-cache": 1, "no-mask": 1, "stale-slot": 0, "window-off-by-one": 1}


def run(model: str, tokens: int) -> Any:
    """The JSON object of one command."""
    ids = ",".join(str(i) for i in (2, *range(1000, 1000 + 7 * (PROMPT_IDS - 1), 7)))
    options = ["--against", "all", "--max-tokens", str(tokens), "--ignore-eos", "--temperature", "0", "--json"]
    command = [sys.executable, "-m", "cabochon.cli.main", "verify", "--ids", ids, "--context", "768", "--model", model]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout)


def faults(report: Any, tokens: int) -> list[str]:
    """What is not as it must be."""
    found = [] if report["as_expected"] else ["not all came out as they must"]
    cached, again = PROMPT_IDS + tokens - 1, tokens * PROMPT_IDS + tokens * (tokens - 1) // 2
    for variant in (report["cached"], *report["variants"]):
        name = variant["name"]
        rows = again if name in ("no-cache", "concat") else cached
        if variant["cost"]["tokens"] != rows:
            found.append(f"{name}: {variant['cost']['tokens']} tokens run, not {rows}")
        if variant["cost"] != variant["counted"]:
            found.append(f"{name}: the native core counted {variant['counted']}")
        if variant["verdict"] == "broken" and variant["difference"]["layer"] != FIRST_LAYER[name]:
            found.append(f"{name}: first in layer {variant['difference']['layer']}, not {FIRST_LAYER[name]}")
    return found


def main() -> None:
    """Runs both and prints what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    wrong, reports = [], {}
    for tokens in (SHORT,) if options.quick else (SHORT, LONG):
        report = run(options.model, tokens)
        print(f"{PROMPT_IDS} prompt ids, {tokens} tokens:")
        for variant in (report["cached"], *report["variants"]):
            cost, difference = variant["cost"], variant["difference"]
            where = "" if difference is None else f", first in layer {difference['layer']} ({difference['what']})"
            print(
                f"  {variant['name']:18} {variant['verdict']}{where}; {cost['tokens']:,} tokens run,"
                f" {cost['pairs']:,} pairs, {variant['seconds']:.1f} s",
                flush=True,
            )
        wrong += faults(report, tokens)
        reports[str(PROMPT_IDS + tokens)] = {key: value for key, value in report.items() if key != "token_ids"}
    if wrong:
        raise SystemExit("NOT as it must be: " + "; ".join(wrong))
    if options.save is not None:
        options.save.write_text(json.dumps({"date": date.today().isoformat(), "texts": reports}, indent=2) + "\n")
    print("All as it must be; tokens run, pairs and bytes are those that the native core counted.")


if __name__ == "__main__":
    main()

"""The laws on the real model: cached = recomputed, and the same bits whatever the threads, chunks and instruction set.

    python benchmarks/verify_real.py [--quick] [--model demo] [--isa NAME ...]

For every instruction set of this machine, numbers of threads and sizes of chunks, it runs

    cabochon verify    --max-tokens 700 --ignore-eos                   and wants every logit equal, difference 0
    cabochon generate  --max-tokens 700 --ignore-eos --logprobs 0      and wants the same tokens and log-probabilities

The text goes well beyond the window of 512, but for instruction sets that only emulate others, which run a short one.
Each run is a process of its own. ``--quick`` runs 40 tokens, to try it out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PROMPT = """\
The lighthouse stands at the end of a long spit of sand, where two currents meet. It was built in 1859, of
grey stone that came by ship from the north, and for more than a hundred years a keeper lived in it with his
family. The lamp burned oil at first, then gas, then electricity; in fog a bell was rung by hand, once every
ten seconds, sometimes through the whole night. "Nobody who heard it forgot it," wrote the last keeper's
daughter in her memoirs (3rd edition, p. 47). Today the light is switched by a computer 200 kilometres away,
and the rooms below it are a museum. Visitors climb 213 steps to the gallery.
"""
TOKENS, QUICK_TOKENS = 700, 40
SHORT_PROMPT = "The capital of France is"
SHORT_TOKENS = 16


@dataclass(frozen=True)
class Setting:
    isa: str
    threads: int
    chunk: int
    prompt: str
    tokens: int

    def run(self, command: str, arguments: Sequence[str]) -> Any:
        """The JSON object that ``cabochon COMMAND`` prints under this setting."""
        options = [f"--threads={self.threads}", f"--chunk={self.chunk}", f"--max-tokens={self.tokens}", "--json"]
        line = [sys.executable, "-m", "cabochon.cli.main", command, self.prompt, "--ignore-eos", *options, *arguments]
        done = subprocess.run(
            line, env={**os.environ, "CABOCHON_ISA": self.isa}, capture_output=True, text=True, check=False
        )
        if not done.stdout:
            raise SystemExit(f"{' '.join(line)} (CABOCHON_ISA={self.isa}): {done.stderr.strip()}")
        return json.loads(done.stdout)


def settings(isas: Sequence[str], tokens: int) -> list[Setting]:
    """What is run: chunks of many sizes on the first (best) instruction set, one on each of the others."""
    best = isas[0]
    table = [Setting(best, *cut, PROMPT, tokens) for cut in ((1, 512), (2, 512), (2, 1), (1, 5), (2, 33))]
    table.append(Setting(best, 2, 512, SHORT_PROMPT, SHORT_TOKENS))
    for isa in isas[1:]:
        text = (SHORT_PROMPT, SHORT_TOKENS) if isa.endswith("-emulated") else (PROMPT, tokens)
        table.append(Setting(isa, 2, 3, *text))
    return table


def available(asked: Sequence[str]) -> list[str]:
    """The instruction sets to run, best first."""
    from cabochon.ops.machine import available_instruction_sets

    found = list(available_instruction_sets())
    unknown = set(asked) - set(found)
    if unknown:
        raise SystemExit(f"not on this machine: {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    return [isa for isa in found if not asked or isa in asked]


def main() -> int:
    """Runs all settings and prints a table; 0 if every law held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_TOKENS} tokens instead of {TOKENS}")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--isa", action="append", default=[], help="only this instruction set; may be given again")
    options = parser.parse_args()
    shared = [f"--model={options.model}", "--temperature=0"]

    held = True
    first: dict[str, Any] = {}
    print(f"{'isa':16} {'threads':>7} {'chunk':>5} {'tokens':>6}  cached = recomputed    same as first  seconds")
    for setting in settings(available(options.isa), QUICK_TOKENS if options.quick else TOKENS):
        start = time.monotonic()
        verified = setting.run("verify", shared)
        generated = setting.run("generate", [*shared, "--logprobs=0"])
        found = {key: generated[key] for key in ("token_ids", "logprobs")}
        same = found == first.setdefault(setting.prompt, found)
        complete = verified["steps"] == len(found["token_ids"]) == setting.tokens
        equal = verified["equal"] and verified["max_abs_difference"] == 0
        held = held and equal and same and complete
        verdict = f"{'yes' if equal else 'NO'}, {verified['steps']} steps, {verified['max_abs_difference']:g}"
        print(
            f"{setting.isa:16} {setting.threads:7} {setting.chunk:5} {setting.tokens:6}  {verdict:22} "
            f"{'yes' if same else 'NO':13} {time.monotonic() - start:8.1f}",
            flush=True,
        )
    print("every law held" if held else "A LAW WAS BROKEN")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

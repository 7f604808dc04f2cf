"""First token from a cold start beside llama.cpp: a new process each time, in turn in one run.

    python benchmarks/cold_start.py [--threads 2] [--rounds 9] [--save FILE]

Measured is the time from starting a process to its first token: the interpreter, imports, opening the model, the
prompt, one token. The file is in the system's page cache for both. llama.cpp runs without its warm-up and with it;
the faster of the two is compared. Printed are medians, the median of the ratios taken round by round, and where our
own time goes: the same steps one after the other, in a process of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PROMPT = "The capital of France is"

# What a child runs, as a user would write it; it says FIRST as soon as it has a token.
OURS = """
import cabochon
session = cabochon.load({model!r}, threads={threads}, context=1024)
print("FIRST", session.generate({prompt!r}, max_tokens=1, temperature=0).text, flush=True)
"""
LLAMA_CPP = """
from xllamacpp import CommonParams, Server
params = CommonParams()
params.model.path = {path!r}
params.n_ctx, params.n_parallel = 1024, 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = {threads}
params.warmup = {warmup}
server = Server(params)
answer = server.handle_completions({{"prompt": {prompt!r}, "n_predict": 1, "temperature": 0, "top_k": 1}})
print("FIRST", flush=True)
"""

# The parts of ours. Clocks of the system, so that the parent's belongs to the same time.
PARTS = """
import time
marks = [("interpreter", time.monotonic())]
def mark(name):
    marks.append((name, time.monotonic()))
import numpy
mark("import numpy")
import sentencepiece
mark("import sentencepiece")
from cabochon.checkpoint.load import load_checkpoint
from cabochon.kvcache.pages import plan_pages
from cabochon.kvcache.store import KVStore
from cabochon.model.layout import kv_layout
from cabochon.model.native_model import build_native_model
from cabochon.session.loading import CHUNK, LOGIT_ROWS, Session, Tokenizer
mark("import cabochon")
checkpoint = load_checkpoint({model!r})
mark("open the file")
tokenizer = Tokenizer.from_gguf(checkpoint.tokenizer)
mark("tokenizer")
layout = kv_layout(checkpoint.config)
store = KVStore(layout, plan_pages(layout.groups, 1024, CHUNK), "f16")
packed = []
model = build_native_model(
    checkpoint.config, checkpoint.tensors, store, threads={threads}, max_rows=CHUNK, max_logit_rows=LOGIT_ROWS,
    release=checkpoint.mapped.release, progress=lambda done, total: packed.append(time.monotonic()))
marks.append(("pack weights", packed[-1]))
mark("program")
session = Session(model, tokenizer, context=1024, chunk=CHUNK)
session.generate({prompt!r}, max_tokens=1, temperature=0)
mark("prompt and token")
print("FIRST", *(f"{{name}}={{at}}" for name, at in marks), sep="\\t", flush=True)
"""


def run(code: str) -> tuple[float, str]:
    """Starts a process with ``code``: the seconds until it says FIRST, and that line. Then it is ended."""
    # Compiled modules are kept, as they are for users.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    start = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("FIRST"):
                seconds = time.monotonic() - start
                process.kill()
                return seconds, line
    raise SystemExit(f"a process ended without a token:\n{code}")


def parts_of(code: str) -> dict[str, float]:
    """Seconds of each part that a run of ``PARTS`` tells."""
    start = time.monotonic()
    marks = [field.partition("=") for field in run(code)[1].strip().split("\t")[1:]]
    ends = [start, *(float(at) for _, _, at in marks)]
    return {name: end - begin for (name, _, _), begin, end in zip(marks, ends, ends[1:], strict=False)}


def main() -> None:
    """Runs the comparison and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--save", type=Path, help="also write the figures here, as JSON")
    options = parser.parse_args()

    from cabochon.checkpoint.source import find_model

    path = find_model(options.model)
    values = {"model": options.model, "path": str(path), "threads": options.threads, "prompt": PROMPT}
    code = {
        "cabochon": OURS.format(**values),
        "without warm-up": LLAMA_CPP.format(**values, warmup=False),
        "with warm-up": LLAMA_CPP.format(**values, warmup=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in code}
    parts: list[dict[str, float]] = []
    for turn in range(options.rounds + 1):
        _read(path)
        for name in code if turn % 2 else reversed(code):
            taken, _ = run(code[name])
            if turn:  # the first round warms up
                seconds[name].append(taken)
        parts.append(parts_of(PARTS.format(**values)))

    peer = min(("without warm-up", "with warm-up"), key=lambda name: statistics.median(seconds[name]))
    ratios = [ours / theirs for ours, theirs in zip(seconds["cabochon"], seconds[peer], strict=True)]
    report = {
        "cabochon": round(statistics.median(seconds["cabochon"]), 3),
        "llama.cpp": round(statistics.median(seconds[peer]), 3),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
    }
    table = {name: round(statistics.median(part[name] for part in parts[1:]), 3) for name in parts[0]}
    _print(options, report, peer, table)
    if options.save:
        kept = {"threads": options.threads, "rounds": options.rounds, "llama.cpp": peer}
        options.save.write_text(json.dumps({**kept, "first_token_s": report, "parts_s": table}, indent=1) + "\n")


def _read(path: Path) -> None:
    """The whole file, so that the system has it in memory."""
    with path.open("rb") as file:
        while file.read(1 << 20):
            pass


def _print(options: argparse.Namespace, report: dict[str, float], peer: str, parts: dict[str, float]) -> None:
    print(
        f"first token from a cold start, {options.threads} threads, medians of {options.rounds} interleaved rounds:\n"
        f"  cabochon {report['cabochon']:.3f} s   llama.cpp ({peer}) {report['llama.cpp']:.3f} s   "
        f"ratio {report['ratio']:.2f} ({report['ratio_min']:.2f} to {report['ratio_max']:.2f})"
    )
    print("  parts of ours, one after the other: " + _listed(list(parts.items())))


def _listed(parts: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {seconds:.3f}" for name, seconds in parts)


if __name__ == "__main__":
    main()

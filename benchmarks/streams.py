"""Many streams at once beside llama.cpp's server: the same file, the same threads, measured in turn in one run.

    python benchmarks/streams.py [--streams 16] [--tokens 96] [--rounds 5] [--threads 2] [--save FILE]

Each engine lives in a process of its own and waits while the other is measured. A round gives both the same prompts of
16 random ids, new in every round, and takes the time until all streams have their tokens. Printed are the medians of
all tokens by that time, and the median of the ratios taken round by round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

PROMPT_ROWS = 16
ENGINES = ("cabochon", "llama.cpp")

Measure = Callable[[list[list[int]]], float]


def _cabochon(options: argparse.Namespace) -> Measure:
    import cabochon

    session = cabochon.load(options.model, threads=options.threads, context=512, max_running=options.streams)

    def measure(prompts: list[list[int]]) -> float:
        start = time.perf_counter()
        results = session.generate_all(prompts, max_tokens=options.tokens, temperature=0, ignore_eos=True)
        return sum(len(result.token_ids) for result in results) / (time.perf_counter() - start)

    return measure


def _llama_cpp(options: argparse.Namespace) -> Measure:
    from xllamacpp import CommonParams, Server

    from cabochon.checkpoint.source import find_model

    params = CommonParams()
    params.model.path = str(find_model(options.model))
    params.n_parallel = options.streams
    params.n_ctx = options.streams * 512
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.warmup = True
    server = Server(params)
    threads = ThreadPoolExecutor(options.streams)

    def one(prompt: list[int]) -> int:
        body = {"prompt": prompt, "n_predict": options.tokens, "temperature": 0, "top_k": 1}
        answer = server.handle_completions({**body, "ignore_eos": True, "cache_prompt": False})
        answer = json.loads(answer) if isinstance(answer, str) else answer
        return int(answer["timings"]["predicted_n"])

    def measure(prompts: list[list[int]]) -> float:
        start = time.perf_counter()
        tokens = sum(threads.map(one, prompts))
        return tokens / (time.perf_counter() - start)

    return measure


def serve(options: argparse.Namespace) -> None:
    """Answers measuring requests, a JSON line of prompts each, on standard input."""
    measure = _cabochon(options) if options.serve == "cabochon" else _llama_cpp(options)
    print("RESULT 0", flush=True)
    for line in sys.stdin:
        print(f"RESULT {measure(json.loads(line))}", flush=True)


def start(name: str) -> subprocess.Popen[str]:
    """A measuring process, ready."""
    command = [sys.executable, __file__, *sys.argv[1:], "--serve", name]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    answer(process)
    return process


def answer(process: subprocess.Popen[str]) -> float:
    """The next figure of a measuring process."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("RESULT "):
            return float(line.split()[1])
    raise SystemExit("a measuring process ended without a figure")


def main() -> None:
    """Runs the comparison and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return
    engines = {name: start(name) for name in ENGINES}
    rates: dict[str, list[float]] = {name: [] for name in ENGINES}
    draw = Random(20)
    for turn in range(options.rounds + 1):
        prompts = [
            [2, *(draw.randrange(1000, 200_000) for _ in range(PROMPT_ROWS - 1))] for _ in range(options.streams)
        ]
        for name in ENGINES if turn % 2 else ENGINES[::-1]:
            process = engines[name]
            assert process.stdin is not None
            process.stdin.write(json.dumps(prompts) + "\n")
            process.stdin.flush()
            rate = answer(process)
            if turn:  # the first round warms up
                rates[name].append(rate)
    for process in engines.values():
        process.kill()
    ratios = [ours / peer for ours, peer in zip(*rates.values(), strict=True)]
    medians = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    report = {**medians, "ratio": round(statistics.median(ratios), 2), "streams": options.streams}
    print(
        f"{options.streams} streams of {options.tokens} tokens, {options.threads} threads, tokens/s in all: "
        + ", ".join(f"{name} {rate:.0f}" for name, rate in medians.items())
        + f"; ratio {report['ratio']:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )
    if options.save:
        options.save.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

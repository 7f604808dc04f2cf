"""Speed beside llama.cpp: the same file, the same threads, measured in turn in one run.

    python benchmarks/compare.py [--threads 2] [--rounds 7] [--activations int8x2] [--save FILE]

Each engine lives in a process of its own and waits while the other is measured; a round measures every figure of both,
one after the other, so a machine whose speed drifts does so for both. Printed are medians, and the median of the
ratios taken round by round. Prompts are random ids, new in every round, so nothing is served from a prefix cache. After
the last round each process tells the most memory it ever held; ours should stay below the weights, the reserved keys
and values, and 150 MB.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PREFILL_ROWS = 512
DECODE_TOKENS = 96
PROMPT_ROWS = 16
OVERHEAD_BYTES = 150e6
ENGINES = ("cabochon", "llama.cpp")
FIGURES = ("decode", "prefill")


@dataclass
class Engine:
    """A measuring process: one JSON line in (ids, tokens), one out (tokens per second)."""

    name: str
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, name: str, options: argparse.Namespace) -> Engine:
        command = [sys.executable, __file__, "--serve", name, "--threads", str(options.threads)]
        command += ["--activations", options.activations, "--model", options.model]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
        )
        engine = cls(name, process)
        engine._read()
        return engine

    def measure(self, figure: str, ids: list[int]) -> float:
        """Tokens per second of prefilling ``ids``, or of decoding after them."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"figure": figure, "ids": ids}) + "\n")
        self.process.stdin.flush()
        return float(self._read())

    def _read(self) -> float:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("RESULT "):
                return float(line.split()[1])
        raise SystemExit(f"{self.name}: the measuring process ended without a figure")


def serve(options: argparse.Namespace) -> None:
    """Answers measuring requests on standard input with one engine."""
    measure = _cabochon(options) if options.serve == "cabochon" else _llama_cpp(options)
    print("RESULT 0", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["figure"] == "memory":
            rate = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        else:
            rate = measure(request["figure"], request["ids"])
        print(f"RESULT {rate}", flush=True)


Measure = Callable[[str, list[int]], float]


def _cabochon(options: argparse.Namespace) -> Measure:
    import cabochon
    from cabochon.checkpoint.load import load_checkpoint

    session = cabochon.load(options.model, threads=options.threads, activations=options.activations, context=1024)

    def measure(figure: str, ids: list[int]) -> float:
        if figure == "memory bound":
            weights = sum(tensor.data.nbytes for tensor in load_checkpoint(options.model).tensors.values())
            return weights + session.model.store.nbytes + OVERHEAD_BYTES
        tokens = DECODE_TOKENS if figure == "decode" else 1
        timings = session.generate(ids, max_tokens=tokens, temperature=0, ignore_eos=True).timings
        return (timings.decode_tokens_per_s if figure == "decode" else timings.prefill_tokens_per_s) or 0.0

    return measure


def _llama_cpp(options: argparse.Namespace) -> Measure:
    from xllamacpp import CommonParams, Server

    params = CommonParams()
    params.model.path = options.path
    params.n_ctx, params.n_parallel = 1024, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.warmup = True
    server = Server(params)

    def measure(figure: str, ids: list[int]) -> float:
        tokens = DECODE_TOKENS if figure == "decode" else 1
        body = {
            "prompt": ids,
            "n_predict": tokens,
            "temperature": 0,
            "top_k": 1,
            "ignore_eos": True,
            "cache_prompt": False,
        }
        answer = server.handle_completions(body)
        answer = json.loads(answer) if isinstance(answer, str) else answer
        return float(answer["timings"]["predicted_per_second" if figure == "decode" else "prompt_per_second"])

    return measure


def main() -> None:
    """Runs the comparison and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--activations", default="int8x2")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--save", type=Path, help="also write the figures here, as JSON")
    parser.add_argument("--serve", choices=ENGINES, help=argparse.SUPPRESS)
    options = parser.parse_args()

    from cabochon.checkpoint.source import find_model

    options.path = str(find_model(options.model))
    if options.serve:
        serve(options)
        return

    engines = [Engine.start(name, options) for name in ENGINES]
    draw = random.Random(20)
    rates: dict[str, dict[str, list[float]]] = {f: {e: [] for e in ENGINES} for f in FIGURES}
    for turn in range(options.rounds + 1):
        for figure in FIGURES:
            rows = PROMPT_ROWS if figure == "decode" else PREFILL_ROWS
            ids = [2] + [draw.randrange(1000, 200_000) for _ in range(rows - 1)]
            for engine in engines if turn % 2 else engines[::-1]:
                rate = engine.measure(figure, ids)
                if turn:  # the first round warms up
                    rates[figure][engine.name].append(rate)
    memory = {engine.name: engine.measure("memory", []) for engine in engines}
    bound = engines[0].measure("memory bound", [])
    for engine in engines:
        engine.process.kill()

    report: dict[str, dict[str, float]] = {}
    for figure in FIGURES:
        ours, peer = (rates[figure][name] for name in ENGINES)
        ratios = [a / b for a, b in zip(ours, peer, strict=True)]
        report[figure] = {
            "cabochon": round(statistics.median(ours), 1),
            "llama.cpp": round(statistics.median(peer), 1),
            "ratio": round(statistics.median(ratios), 3),
            "ratio_min": round(min(ratios), 3),
            "ratio_max": round(max(ratios), 3),
        }
    print(f"{options.threads} threads, {options.activations}, medians of {options.rounds} interleaved rounds, tokens/s")
    for figure, row in report.items():
        label = f"{figure} {PREFILL_ROWS}" if figure == "prefill" else f"{figure}, 1 stream"
        print(
            f"  {label:18} cabochon {row['cabochon']:8.1f}   llama.cpp {row['llama.cpp']:8.1f}   "
            f"ratio {row['ratio']:.2f} ({row['ratio_min']:.2f} to {row['ratio_max']:.2f})"
        )
    print("  peak memory: " + ", ".join(f"{name} {used / 1e6:.0f} MB" for name, used in memory.items()), end="; ")
    print(f"weights, reserved keys and values and {OVERHEAD_BYTES / 1e6:.0f} MB are {bound / 1e6:.0f} MB")
    if options.save:
        table = {"threads": options.threads, "activations": options.activations, "cpu": _cpu(), **report}
        table["peak_memory_mb"] = {name: round(used / 1e6) for name, used in memory.items()}
        table["memory_bound_mb"] = round(bound / 1e6)
        options.save.write_text(json.dumps(table, indent=1) + "\n")


def _cpu() -> str:
    """What the system calls this processor, with the instruction set that is used."""
    from cabochon.ops.machine import available_instruction_sets

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'unknown'} ({available_instruction_sets()[0]})"


if __name__ == "__main__":
    main()

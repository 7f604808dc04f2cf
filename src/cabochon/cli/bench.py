"""``cabochon bench``: how fast a model runs on this machine."""

from __future__ import annotations

import platform
import random
import resource
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import click

from cabochon.checkpoint.load import load_checkpoint
from cabochon.cli import stdio
from cabochon.cli.help import Command
from cabochon.cli.loading import load_session
from cabochon.cli.options import COUNT, ModelOptions, as_json, model_options
from cabochon.errors import UsageError
from cabochon.ops.cpus import default_threads
from cabochon.ops.machine import open_machine
from cabochon.session import Session

SIZES = (64, 512, 2048)
"""Prompts measured unless told otherwise: those of them that fit the context."""

DECODE_PROMPT = 16
"""Tokens before the decoded ones."""


def _sizes(value: str) -> tuple[int, ...]:
    return tuple(COUNT(part) for part in value.split(","))


@click.command(
    "bench",
    cls=Command,
    epilog="""\b
Examples:
  cabochon bench
  cabochon bench --threads 1 --activations int8
  cabochon bench --prefill 512,4000 --rounds 9 --json""",
)
@click.option(
    "--prefill",
    type=_sizes,
    metavar="N,...",
    help=f"Lengths of prompts to measure. Default: those of {', '.join(map(str, SIZES))} that fit the context.",
)
@click.option("--decode", type=COUNT, default=128, show_default=True, metavar="N", help="Tokens to decode in a round.")
@click.option("--rounds", type=COUNT, default=5, show_default=True, metavar="N", help="The median of so many is shown.")
@as_json
@model_options
def command(prefill: tuple[int, ...] | None, decode: int, rounds: int, as_json: bool, model: ModelOptions) -> None:
    """Measure decoding and prefill, with random prompts.

    Decoding is one token after the other, after a short prompt; its GB/s are the weights read for each. A round
    measures everything in turn, and one round before them warms up.
    """
    # Fixed here, so that what is shown is what was used.
    threads = model.threads or default_threads()
    session = load_session(replace(model, threads=threads))
    sizes = _fitting(session, prefill)
    if DECODE_PROMPT + decode >= session.context:
        raise UsageError(f"--decode {decode}: with a prompt of {DECODE_PROMPT} more than the context {session.context}")
    rates = measure(session, sizes, decode, rounds)
    report: dict[str, Any] = {
        "model": session.name,
        "decode": {
            "tokens_per_s": rates["decode"],
            "gb_per_s": rates["decode"] * _bytes_per_token(model) / 1e9,
        },
        "prefill": {str(size): rates[str(size)] for size in sizes},
        "threads": threads,
        "isa": None if model.backend == "torch" else open_machine(threads=1).isa,
        "load_s": session.load_s,
        "peak_memory_bytes": peak_memory(),
    }
    if as_json:
        stdio.write_json(report)
    else:
        stdio.write(_readable(report))


def measure(session: Session, sizes: Sequence[int], decode: int, rounds: int) -> dict[str, float]:
    """Medians of tokens per second: of each size of prompt, and of ``decode``."""
    seen: dict[str, list[float]] = {name: [] for name in (*map(str, sizes), "decode")}
    for turn in range(rounds + 1):
        prompts = random.Random(turn)
        for name, rates in seen.items():
            decoding = name == "decode"
            length = DECODE_PROMPT if decoding else int(name)
            ids = [prompts.randrange(session.limits.vocab) for _ in range(length)]
            timings = session.generate(
                ids, max_tokens=decode + 1 if decoding else 1, temperature=0, ignore_eos=True
            ).timings
            rate = timings.decode_tokens_per_s if decoding else timings.prefill_tokens_per_s
            if turn and rate is not None:
                rates.append(rate)
    return {name: median(rates) for name, rates in seen.items()}


def peak_memory() -> int:
    """The most memory that this process has had at a time, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else 1024 * peak  # Linux counts in KiB


def _fitting(session: Session, asked: tuple[int, ...] | None) -> tuple[int, ...]:
    longest = session.context - 1
    for size in asked or ():
        if size > longest:
            raise UsageError(f"--prefill {size}: a context of {session.context} takes prompts of at most {longest}")
    return asked or tuple(size for size in SIZES if size <= longest) or (longest,)


def _bytes_per_token(model: ModelOptions) -> int:
    """Bytes of weights that decoding one token reads: all but an embedding of which it takes one row."""
    checkpoint = load_checkpoint(model.model)
    read = [tensor for name, tensor in checkpoint.tensors.items() if name != "embedding" or checkpoint.config.tied_head]
    if model.backend == "torch":
        return sum(4 * tensor.values for tensor in read)
    return sum(tensor.data.nbytes for tensor in read)


def _readable(report: dict[str, Any]) -> str:
    decode = report["decode"]
    rows = [
        ("model", report["model"]),
        ("decode", f"{decode['tokens_per_s']:,.1f} tokens/s, {decode['gb_per_s']:.1f} GB/s"),
        *((f"prefill {size}", f"{rate:,.1f} tokens/s") for size, rate in report["prefill"].items()),
        ("threads", str(report["threads"])),
        ("instruction set", report["isa"] or "-"),
        ("loaded", f"in {report['load_s']:.2f} s"),
        ("peak memory", f"{report['peak_memory_bytes'] / 2**20:,.0f} MiB"),
    ]
    return stdio.table(rows, left=(0, 1))

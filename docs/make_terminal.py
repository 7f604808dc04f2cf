"""Draws ``docs/terminal.svg``: a terminal in which the demo has just run.

    python docs/make_terminal.py

What it shows was printed by the command it names, run here and now.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COMMAND = ["generate", "The capital of France is", "--seed", "1"]
WIDTH = 96


def main() -> None:
    """Runs the demo and draws what a terminal showed."""
    line = [sys.executable, "-m", "cabochon.cli.main", *COMMAND]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    console = Console(record=True, width=WIDTH, file=sys.stderr, force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), "make demo"))
    console.print(Text('.venv/bin/cabochon generate "The capital of France is" --seed 1', style="dim"))
    console.print(Text(done.stdout.rstrip("\n")))
    console.print(Text(done.stderr.rstrip("\n"), style="cyan"))
    console.save_svg(str(Path(__file__).with_name("terminal.svg")), title="Cabochon")


if __name__ == "__main__":
    main()

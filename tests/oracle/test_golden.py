"""The real Gemma 3 270M beside recorded figures: the beginning of what ``benchmarks/golden.py`` measures in full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "golden.py"


@pytest.mark.real_model
@pytest.mark.parametrize(
    ("backend", "size"),
    [
        ("native", ["--tokens=300", "--prompts=4", "--steps=12"]),
        ("torch", ["--tokens=100", "--prompts=1", "--steps=8"]),
    ],
)
def test_the_beginning_agrees_with_recorded_figures(backend: str, size: list[str], real_model_path: Path) -> None:
    # One thread: tests run side by side, and a thread that waits for a busy core holds up its whole step.
    options = [f"--backend={backend}", f"--model={real_model_path}", "--threads=1", *size]
    command = [sys.executable, str(SCRIPT), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" OK\n") == 3, done.stdout

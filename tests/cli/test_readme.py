"""The README keeps its word: its commands and Python run, its table is what was measured, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Code blocks of the README in one language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


COMMANDS = [line.partition("  #")[0].strip() for block in blocks("sh") for line in block.splitlines() if line.strip()]
OURS = [line for line in COMMANDS if line.startswith("cabochon ")]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_the_readme_has_commands_and_opens_with_two() -> None:
    assert COMMANDS[:2] == ["make demo", "make test"]
    assert OURS
    assert len(blocks("python")) == 1
    assert set(COMMANDS[2:]) == set(OURS), "a command that no test runs"


def test_the_makefile_has_the_targets_that_the_readme_names() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", README)) | {line.split()[1] for line in COMMANDS[:2]}
    assert named <= targets


@pytest.mark.real_model
@pytest.mark.parametrize("line", OURS)
def test_command(line: str, tmp_path: Path, real_model_path: Path) -> None:
    assert real_model_path.exists()
    (tmp_path / "letter.txt").write_text("Dear reader,\n\nthe harvest was")
    done = run("-m", "cabochon.cli.main", *shlex.split(line)[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.real_model
def test_python(tmp_path: Path, real_model_path: Path) -> None:
    assert real_model_path.exists()
    done = run("-c", blocks("python")[0], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3


def test_the_figures_are_those_measured() -> None:
    done = run(str(ROOT / "benchmarks" / "make_figures.py"), "--check", cwd=ROOT)
    assert done.returncode == 0, done.stderr or "run benchmarks/make_figures.py"


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_link(target: str) -> None:
    assert target.startswith("https://") or (ROOT / target).exists()

"""The frame around all commands: errors to one line and an exit code, streams, imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cabochon import __version__
from cabochon.cli import inspect as inspect_command
from cabochon.cli import stdio
from cabochon.cli.main import COMMANDS, cli
from cabochon.errors import CheckpointError, ContextLengthError, MissingDependencyError, NumericError, UsageError

from .conftest import Run, process


def test_version(run: Run) -> None:
    assert run("--version").out == f"cabochon {__version__}\n"


def test_help_of_every_command_has_examples_of_itself(run: Run) -> None:
    listing = run("--help").out
    for name, help_line in COMMANDS.items():
        assert f"{name} " in listing
        assert help_line in listing
        page = run(name, "-h")
        assert (page.code, page.err) == (0, "")
        assert page.out == run(name, "--help").out
        assert f"cabochon {name}" in page.out.partition("Examples:")[2]


def test_every_command_is_of_its_name() -> None:
    context = cli.make_context("cabochon", [], resilient_parsing=True)
    assert cli.list_commands(context) == list(COMMANDS)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name


@pytest.mark.parametrize(
    "arguments", [["nonsense"], [], ["--nonsense"], ["inspect", "--nonsense"], ["inspect", "extra"]]
)
def test_usage_errors_are_one_line_that_points_to_help(run: Run, arguments: list[str]) -> None:
    line = run(*arguments).error_line(2)
    assert "--help)" in line
    assert len(line) < 150
    assert all(word in line for word in arguments if word not in COMMANDS)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("no good"), 2, "no good"),
        (ContextLengthError("too long"), 2, "too long"),
        (CheckpointError("a bad\nfile"), 1, "a bad file"),
        (MissingDependencyError("x"), 1, "x"),
        (NumericError("x"), 1, "x"),
        (KeyboardInterrupt(), 1, "cancelled"),
        (MemoryError(), 1, "not enough memory"),
        (ZeroDivisionError("oh\nno"), 1, "unexpected ZeroDivisionError: oh no (a defect: please report it"),
        (OSError(5, "Input/output error"), 1, "unexpected OSError"),
    ],
)
def test_errors_become_one_line_and_a_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.delenv("CABOCHON_DEBUG", raising=False)
    monkeypatch.setattr(inspect_command, "load_checkpoint", fail)
    assert run("inspect").error_line(code).startswith(f"error: {message}")
    monkeypatch.setenv("CABOCHON_DEBUG", "1")
    debugged = run("inspect")
    assert debugged.code == code
    assert "Traceback" in debugged.err
    assert debugged.err.splitlines()[-1].startswith(f"error: {message}")


def test_signal_handlers_are_put_back(run: Run) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run("--version")
    assert signal.getsignal(signal.SIGTERM) is before


def test_version_and_usage_errors_need_no_array_and_no_terminal_library() -> None:
    code = (
        "import sys; from cabochon.cli.main import main; main(['--version']); main(['nonsense']); main(['--help']);"
        "print([m for m in ('numpy', 'rich', 'torch', 'sentencepiece', 'cabochon.session') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_went_away_is_no_error(tiny: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with process("inspect", "--model", tiny, stdout=theirs) as child:
        os.close(theirs)
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, b"")


@pytest.mark.parametrize("command", ["inspect", "generate"])
def test_a_full_disk_is_named(tiny: Path, command: str) -> None:
    """A long output does not fit into Python's buffer, a short one does."""
    arguments = [command, *(["a", "--max-tokens", "1"] if command == "generate" else [])]
    with open("/dev/full", "wb") as full, process(*arguments, "--model", tiny, stdout=full) as child:
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (1, b"error: cannot write to standard output: No space left on device\n")


HELP = [["--help"], ["--version"], ["generate", "--help"], ["doctor", "-h"]]


@pytest.mark.parametrize("arguments", HELP)
def test_help_is_output_like_any_other(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full, process(*arguments, stdout=full) as child:
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (1, b"error: cannot write to standard output: No space left on device\n")
    ours, theirs = os.pipe()
    os.close(ours)
    with process(*arguments, stdout=theirs) as child:
        os.close(theirs)
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, b"")
    with process(*arguments, preexec_fn=lambda: os.close(1)) as child:
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (1, b"error: standard output is closed\n")


@pytest.mark.parametrize(("stream", "code", "line"), [(1, 1, b"error: standard output is closed\n"), (2, 0, b"")])
def test_closed_streams(tiny: Path, stream: int, code: int, line: bytes) -> None:
    with process("inspect", "--model", tiny, preexec_fn=lambda: os.close(stream)) as child:
        out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (code, line)
    assert bool(out) == (stream == 2)


def test_an_error_with_nowhere_to_go_still_has_its_code() -> None:
    with process("inspect", "--model", "/none", preexec_fn=lambda: os.close(2)) as child:
        assert child.communicate(timeout=60) == (b"", b"")
    assert child.returncode == 1


def test_a_terminal_is_sent_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with open(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        stdio.write("a\x1b[2J\x9b\tb\x00é")
    assert os.read(ours, 100).decode() == "a�[2J�\tb�é"
    os.close(ours)


def test_files_get_every_byte(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    stdio.write("a\x1b\r\n\x00é😀")
    assert capfd.readouterr().out == "a\x1b\r\n\x00é😀"


def test_tables_are_aligned() -> None:
    assert stdio.table([("name", "size"), ("x", "1,000"), ("long name", "5")]) == (
        "name        size\nx          1,000\nlong name      5\n"
    )

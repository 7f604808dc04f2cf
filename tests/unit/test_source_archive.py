"""The source archive: all that a wheel is built from, and nothing that lies about in a folder of development."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))"


def test_it_holds_the_sources_and_nothing_else(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    with tarfile.open(tmp_path / done.stdout.splitlines()[-1]) as archive:
        held = {"/".join(Path(member.name).parts[1:]) for member in archive if member.isfile()}
    code = {
        str(path.relative_to(ROOT))
        for folder in ("src", "native")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".pyi", ".typed", ".cpp", ".h", ".inl", ".html", ".css", ".js")
    }
    assert len(code) > 100
    documents = {"CHANGELOG.md", "CMakeLists.txt", "LICENSE", "NOTICE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert held == code | documents

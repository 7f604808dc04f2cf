"""No code built for one instruction set can be linked into another's path.

Functions that several object files define alike (inline functions, templates) are merged by the linker, which keeps
any one of them. Were one built with AVX-512 kept, the portable path would crash on a CPU without it. So an object file
of an instruction set may share names only inside the namespace of that set.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OBJECTS = sorted((ROOT / "build").glob("*/CMakeFiles/_native.dir/native/**/isa_*.o"))


def test_the_build_left_its_objects() -> None:
    assert OBJECTS


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.stem)
def test_shared_names_stay_in_the_namespace_of_their_set(path: Path) -> None:
    nm = shutil.which("nm")
    assert nm is not None
    listing = subprocess.run([nm, "-C", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    isa = path.name.split(".")[0].removeprefix("isa_")
    shared = [line.split(maxsplit=2)[2] for line in listing.splitlines() if line.split()[1] == "W"]
    assert [name for name in shared if f"cabochon::{isa}::" not in name] == []

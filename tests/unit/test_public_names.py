from __future__ import annotations

import subprocess
import sys

import pytest

import cabochon


def test_importing_is_light() -> None:
    """``import cabochon`` reads a few small files; arrays, the native core and PyTorch wait until they are needed."""
    code = (
        "import sys, cabochon\n"
        "heavy = {'numpy', 'torch', 'transformers', 'sentencepiece', 'cabochon._native', 'cabochon.session'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_session_needs_no_torch() -> None:
    code = "import sys, cabochon; cabochon.load; cabochon.verify; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", cabochon.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(cabochon, name) is not None
    assert name in dir(cabochon)


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cabochon.nothing  # noqa: B018 (looking it up is the test)

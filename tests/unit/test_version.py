"""One version: the package's, the metadata's and the native module's."""

from __future__ import annotations

from importlib import metadata

import cabochon
from cabochon import _native


def test_all_versions_are_one() -> None:
    assert metadata.version("cabochon") == cabochon.__version__
    assert _native.version() == cabochon.__version__

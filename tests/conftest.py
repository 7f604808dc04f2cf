"""Fixtures that tests of several rooms share."""

from __future__ import annotations

from pathlib import Path

import pytest

from cabochon.checkpoint.demo import demo_model


@pytest.fixture(scope="session")
def real_model_path() -> Path:
    """Gemma 3 270M's file. The dev extra installs the package it is made from, so no test is skipped for want of it."""
    return demo_model()

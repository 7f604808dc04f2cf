"""Law 2: a request gives what it gives alone, whatever runs beside it; law 7: nothing is lost on the way."""

from __future__ import annotations

import os

import pytest
from tests.laws.company import run_case

CASES = int(os.environ.get("CABOCHON_LAW_CASES", "2000"))
"""Cases in all; ``make laws`` runs more."""

ENOUGH = 2000
"""With so many, each block meets everything."""

BLOCKS = 10


@pytest.mark.parametrize("block", range(BLOCKS))
def test_company_changes_nothing(block: int) -> None:
    happened = run_case(block)
    for seed in range(block + BLOCKS, CASES, BLOCKS):
        happened.update(run_case(seed))
    # What the law is about did happen, where there are cases enough.
    for event in ("hits", "pauses", "evictions", "loops"):
        assert happened[event] or CASES < ENOUGH, event

"""The same bits on every machine: logits and sampled texts are those on record, made on some other machine.

A change of the arithmetic changes them, and is written down in docs/arithmetic.md; nothing else may. Where the weights
differ, it is the test's own models that have changed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.laws import recorded_bits

from cabochon.ops.machine import ISA_VARIABLE, available_instruction_sets

RECORD = json.loads(recorded_bits.RECORD.read_text())


@pytest.mark.parametrize("name", recorded_bits.CASES)
def test_weights_are_those_on_record(name: str) -> None:
    assert recorded_bits.weight_digest(recorded_bits.CASES[name]) == RECORD["models"][name]["weights"]


@pytest.mark.parametrize("isa", available_instruction_sets())
@pytest.mark.parametrize("name", recorded_bits.CASES)
def test_logits_are_those_on_record(name: str, isa: str) -> None:
    logits = recorded_bits.logits(recorded_bits.CASES[name], isa, threads=2)
    assert np.isfinite(logits).all()
    assert logits.std() > 0.5
    assert recorded_bits.digest(logits) == RECORD["models"][name]["logits"]


@pytest.mark.parametrize("isa", available_instruction_sets())
def test_a_sampled_text_is_that_on_record(isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ISA_VARIABLE, isa)
    ids, logprobs = recorded_bits.sampled(tmp_path, threads=2)
    assert len(set(ids)) > 20, "the text is too dull to show anything"
    assert " ".join(map(str, ids)) == RECORD["sampled"]["ids"]
    assert logprobs == RECORD["sampled"]["logprobs"]

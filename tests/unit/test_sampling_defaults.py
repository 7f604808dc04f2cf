"""What a file asks for is the default, what it leaves out is Gemma's, what a request says goes before both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import cabochon
from cabochon.checkpoint.load import load_checkpoint
from cabochon.checkpoint.strings import StringArray
from cabochon.checkpoint.write import WritableValue
from cabochon.errors import CheckpointError, UnsupportedError
from cabochon.sampling.defaults import sampling_from_gguf
from cabochon.testing.tiny import tiny_config, write_tiny_gguf
from cabochon.types import SamplingParams

KEYS = gguf.Keys.General
GEMMA = SamplingParams(temperature=1.0, top_k=64, top_p=0.95, min_p=0.0)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, GEMMA),
        ({"general.name": "Tiny", "general.sampling": 3}, GEMMA),
        ({KEYS.SAMPLING_TEMP: 0.0}, replace(GEMMA, temperature=0.0)),
        ({KEYS.SAMPLING_TEMP: 2, KEYS.SAMPLING_TOP_K: 0}, replace(GEMMA, temperature=2.0, top_k=0)),
        (
            {KEYS.SAMPLING_TEMP: 0.5, KEYS.SAMPLING_TOP_K: 40, KEYS.SAMPLING_TOP_P: 1.0, KEYS.SAMPLING_MIN_P: 0.25},
            SamplingParams(temperature=0.5, top_k=40, top_p=1.0, min_p=0.25),
        ),
        ({KEYS.SAMPLING_PENALTY_REPEAT: 1.0, KEYS.SAMPLING_PENALTY_LAST_N: 64}, GEMMA),
        ({KEYS.SAMPLING_PENALTY_REPEAT: 1.5}, replace(GEMMA, repetition_penalty=1.5, penalty_last_n=64)),
        ({KEYS.SAMPLING_PENALTY_LAST_N: -1, KEYS.SAMPLING_PENALTY_REPEAT: 1.5}, replace(GEMMA, repetition_penalty=1.5)),
        ({KEYS.SAMPLING_PENALTY_LAST_N: 0, KEYS.SAMPLING_PENALTY_REPEAT: 1.5}, GEMMA),
        (
            {KEYS.SAMPLING_PENALTY_REPEAT: 1.5, KEYS.SAMPLING_PENALTY_LAST_N: 9},
            replace(GEMMA, repetition_penalty=1.5, penalty_last_n=9),
        ),
        ({KEYS.SAMPLING_XTC_PROBABILITY: 0.0, KEYS.SAMPLING_XTC_THRESHOLD: 0.1}, GEMMA),
        (
            {KEYS.SAMPLING_XTC_PROBABILITY: 0.5, KEYS.SAMPLING_XTC_THRESHOLD: 0.25},
            replace(GEMMA, xtc_probability=0.5, xtc_threshold=0.25),
        ),
        ({KEYS.SAMPLING_MIROSTAT: 0, KEYS.SAMPLING_MIROSTAT_TAU: 5.0, KEYS.SAMPLING_MIROSTAT_ETA: 0.1}, GEMMA),
    ],
)
def test_what_a_file_asks_for(metadata: dict[str, object], expected: SamplingParams) -> None:
    assert sampling_from_gguf(metadata) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((KEYS.SAMPLING_TEMP, bad) for bad in (-1.0, float("nan"), float("inf"), "hot", True, np.ones(2))),
        *((KEYS.SAMPLING_TOP_K, bad) for bad in (-1, 1.5, "64", False, StringArray.of(["64"]))),
        *((KEYS.SAMPLING_TOP_P, bad) for bad in (0.0, 1.5, float("nan"), "x\ny" * 999)),
        *((KEYS.SAMPLING_MIN_P, bad) for bad in (1.0, -0.5, ())),
        *((KEYS.SAMPLING_PENALTY_REPEAT, bad) for bad in (0.0, -1.0, "1", np.ones(1))),
        *((KEYS.SAMPLING_PENALTY_LAST_N, bad) for bad in (-2, 1.5, "64")),
        *((KEYS.SAMPLING_XTC_PROBABILITY, bad) for bad in (1.5, -0.5, None)),
        (KEYS.SAMPLING_XTC_THRESHOLD, 2.0),
    ],
)
def test_what_cannot_be_is_an_error_that_names_the_key(key: str, value: Any) -> None:
    with pytest.raises(CheckpointError, match=key.replace(".", r"\.")) as raised:
        sampling_from_gguf({key: value})
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (KEYS.SAMPLING_MIROSTAT, 2),
        (KEYS.SAMPLING_SEQUENCE, "kpt"),
        ("general.sampling.dry", 1),
    ],
)
def test_what_is_not_implemented_is_refused_by_its_key(key: str, value: Any) -> None:
    with pytest.raises(UnsupportedError, match=key.replace(".", r"\.")):
        sampling_from_gguf({key: value})


def test_a_loaded_models_defaults_are_its_files(tmp_path: Path) -> None:
    asked: dict[str, WritableValue] = {KEYS.SAMPLING_TEMP: 0.5, KEYS.SAMPLING_TOP_K: np.int32(7)}
    path = write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config(context_length=64), metadata=asked)
    assert dict(load_checkpoint(path).sampling) == asked
    with cabochon.load(path, threads=1) as session:
        assert session.defaults == replace(GEMMA, temperature=0.5, top_k=7)
        assert session.request("a", top_k=9, seed=0).params == replace(GEMMA, temperature=0.5, top_k=9)
    bad = write_tiny_gguf(tmp_path / "bad.gguf", tiny_config(context_length=64), metadata={KEYS.SAMPLING_TOP_P: 3.0})
    with pytest.raises(CheckpointError, match=r"general\.sampling\.top_p"):
        cabochon.load(bad, threads=1)

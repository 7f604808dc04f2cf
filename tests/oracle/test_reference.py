"""``verify --reference``: what agrees is said to agree, and what does not shows, with the first step."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cabochon
from cabochon.checkpoint.dequantize import dequantize
from cabochon.checkpoint.load import load_checkpoint
from cabochon.cli.main import main
from cabochon.errors import MissingDependencyError, UnsupportedError, UsageError
from cabochon.model.config import GemmaConfig
from cabochon.ops.protocol import Rope
from cabochon.testing.tiny import tiny_config, tiny_weights, write_tiny_gguf
from cabochon.trace.record import record
from cabochon.trace.reference import Agreement, Reference, agreement, settings_of

PROMPT = [2, *range(30, 60)]
SMALL: dict[str, Any] = {"layers": 4, "pattern": 3, "window": 20, "query_scale": 16**-0.5}


def gguf(folder: Path, **config: Any) -> Path:
    made = tiny_config(**{**SMALL, **config})
    return write_tiny_gguf(folder / "tiny.gguf", made, tiny_weights(made))


def held(
    path: Path,
    settings: dict[str, Any] | None = None,
    *,
    temperature: float = 0.0,
    logit_bias: dict[int, float] | None = None,
    **options: Any,
) -> Agreement:
    checkpoint = load_checkpoint(path)
    reference = Reference(
        checkpoint.config, lambda name: dequantize(checkpoint.tensors[name]), threads=1, **(settings or {})
    )
    with cabochon.load(path, context=96, threads=1, kv_type="f32", **options) as session:
        return agreement(
            session,
            reference,
            PROMPT,
            max_tokens=40,
            temperature=temperature,
            logit_bias=logit_bias,
            seed=2,
            ignore_eos=True,
        )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("config", [{}, {"tied_head": False}, {"final_softcap": 8.0}, {"window": None}])
def test_what_agrees_is_said_to(tmp_path: Path, config: dict[str, Any], temperature: float) -> None:
    found = held(gguf(tmp_path, **config), temperature=temperature, chunk=7)
    assert (found.verdict, found.steps, found.explained) == ("agrees", 40, True)
    assert found.mean_logprob_difference < 1e-3
    assert found.same_text == (found.first_step is None) == (found.margin is None)


@pytest.mark.parametrize(
    "settings",
    [
        {"layer_types": ["full_attention"] * 4},
        {"sliding_window": 19},
        {"rms_norm_eps": 0.5},
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e5},
            }
        },
    ],
)
def test_what_is_another_model_differs(tmp_path: Path, settings: dict[str, Any]) -> None:
    found = held(gguf(tmp_path), settings)
    assert found.verdict == "differs"
    assert found.mean_logprob_difference > 2e-3
    assert found.same_text or not found.explained


def test_the_torch_backend_is_held_against_it_as_well(tmp_path: Path) -> None:
    assert held(gguf(tmp_path), backend="torch").verdict == "agrees"


def test_a_token_that_rounding_cannot_change_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log-probabilities of the chosen tokens agree, and yet another is the best one by far."""
    follow = Reference.go_on

    def other(self: Reference, ids: list[int]) -> Any:
        logits = follow(self, ids).copy()
        best, worst = int(logits.argmax()), int(logits.argmin())
        logits[worst] = np.nextafter(logits[best], np.float32(np.inf))
        return logits

    path = gguf(tmp_path)
    monkeypatch.setattr("cabochon.trace.reference.MEAN", 10.0)
    assert held(path).verdict == "agrees"
    monkeypatch.setattr(Reference, "go_on", other)
    found = held(path)
    assert (found.verdict, found.same_text, found.first_step, found.explained) == ("differs", False, 0, False)


def test_a_token_that_rounding_can_change_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best two change places by a hair, after a bias that makes them equal."""
    follow = Reference.go_on

    def swapped(self: Reference, ids: list[int]) -> Any:
        logits = follow(self, ids).copy()
        logits[7] += np.float32(1e-3)
        return logits

    path = gguf(tmp_path)
    monkeypatch.setattr(Reference, "go_on", swapped)
    found = held(path, logit_bias={7: 100.0, 9: 100.0})
    assert found.explained
    assert found.verdict == "agrees"


def test_what_it_cannot_express_is_refused() -> None:
    two = (Rope(1e4), Rope(2e4), Rope(1e6), Rope(1e4))
    with pytest.raises(UnsupportedError, match="one rope"):
        settings_of(tiny_config(**SMALL, layer_ropes=two))
    other: GemmaConfig = tiny_config(**SMALL, architecture="gemma9")
    with pytest.raises(UnsupportedError, match="gemma9"):
        settings_of(other)


def test_without_transformers_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = gguf(tmp_path), builtins.__import__

    def absent(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "transformers":
            raise ModuleNotFoundError("No module named 'transformers'", name=name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingDependencyError, match=r'pip install "cabochon\[reference\]"'):
        held(path)


def test_a_busy_session_is_refused(tmp_path: Path) -> None:
    path = gguf(tmp_path)
    checkpoint = load_checkpoint(path)
    reference = Reference(checkpoint.config, lambda name: dequantize(checkpoint.tensors[name]), threads=1)
    with cabochon.load(path, context=96) as session:
        stream = session.stream(PROMPT)
        next(stream)
        with pytest.raises(UsageError, match="unfinished"):
            agreement(session, reference, PROMPT)


def test_the_command_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = gguf(tmp_path)
    ask = ["verify", "--ids", "2,30,31", "--max-tokens", "12", "--ignore-eos", "--model", str(path), "--context", "96"]
    assert main([*ask, "--reference", "transformers"]) == 0
    assert capfd.readouterr().out.startswith("Agrees: 12 tokens; ")
    assert main([*ask, "--reference", "transformers", "--json"]) == 0
    assert '"verdict": "agrees"' in capfd.readouterr().out
    assert main([*ask, "--reference", "transformers", "--against", "all"]) == 2
    assert main([*ask, "--reference", "other"]) == 2


@pytest.mark.real_model
def test_the_real_model_agrees(real_model_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ask = [
        "verify",
        "The capital of France is",
        "--max-tokens",
        "6",
        "--seed",
        "1",
        "--context",
        "64",
        "--threads",
        "1",
    ]
    assert main([*ask, "--model", str(real_model_path), "--reference", "transformers"]) == 0
    assert capfd.readouterr().out.startswith("Agrees: 6 tokens; the reference's logits give the same text.")


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_attention_in_a_trace_is_the_references(tmp_path: Path, kv_heads: int) -> None:
    path = gguf(tmp_path, kv_heads=kv_heads)
    checkpoint = load_checkpoint(path)
    reference = Reference(checkpoint.config, lambda name: dequantize(checkpoint.tensors[name]), threads=1)
    with cabochon.load(path, context=96, threads=1, kv_type="f32", keep_queries="all") as session:
        trace = record(session, [PROMPT], attention="all", max_tokens=20, seed=2, ignore_eos=True)
    ids = np.array([*PROMPT, *trace.end.sequences[0].token_ids], np.int64)
    with torch.inference_mode():
        theirs = reference._model(torch.from_numpy(ids)[None], output_attentions=True).attentions
    rows = [row for step in trace.steps for row in step.shares[0].attention]
    assert len(rows) == 20 * checkpoint.config.layers
    for row in rows:
        seen = slice(row.first_key, row.position + 1)
        np.testing.assert_allclose(row.weights, theirs[row.layer][0, :, row.position, seen], atol=1e-4)

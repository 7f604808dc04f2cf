"""Conversations of real sessions: saved here, gone on with in another process, to the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cabochon
from cabochon.checkpoint.fingerprint import fingerprint
from cabochon.checkpoint.load import load_checkpoint
from cabochon.errors import CheckpointError, ConversationError, UsageError
from cabochon.ops.protocol import Rope
from cabochon.session import Session
from cabochon.testing.tiny import tiny_config, tiny_weights, write_tiny_gguf
from cabochon.types import PAGE, Float32, WeightType

CONFIG = tiny_config(layers=3, pattern=3, window=20, context_length=512)
PROMPT = tuple(6 + (i * i + 31 * i) % 300 for i in range(150))
MORE = (9, 8, 7)

IN_ANOTHER_PROCESS = """
import json, sys, cabochon
model, talk, more, options = json.loads(sys.argv[1])
with cabochon.load(model, **options) as session:
    ids = session.load_conversation(talk)
    result = session.generate([*ids, *more], max_tokens=20, temperature=0, ignore_eos=True, logprobs=2)
    print(json.dumps([ids, result.token_ids, result.logprobs, result.top, result.reused_tokens]))
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", CONFIG)


def generate(session: Session, ids: tuple[int, ...], tokens: int = 20) -> cabochon.Generation:
    return session.generate(ids, max_tokens=tokens, temperature=0, ignore_eos=True, logprobs=2)


def saved(path: Path, model: Path, **options: Any) -> tuple[int, ...]:
    with cabochon.load(model, **options) as session:
        ids = (*PROMPT, *generate(session, PROMPT).token_ids)
        kept = session.save_conversation(path, ids)
        assert (kept.tokens, kept.stored_tokens) == (len(ids), (len(ids) - 1) // PAGE * PAGE)
    return ids


@pytest.mark.parametrize(
    "options",
    [
        {"kv_type": "f16"},
        {"kv_type": "bf16", "activations": "int8"},
        {"kv_type": "f32"},
        {"kv_type": "int8"},
        {"backend": "torch", "threads": 1},
    ],
    ids=str,
)
def test_the_next_turn_in_another_process(tmp_path: Path, tiny: Path, options: dict[str, Any]) -> None:
    ids = saved(tmp_path / "talk", tiny, **options)
    arguments = json.dumps([str(tiny), str(tmp_path / "talk"), MORE, {**options, "chunk": 7}])
    run = [sys.executable, "-c", IN_ANOTHER_PROCESS, arguments]
    out = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    with cabochon.load(tiny, prefix_cache=False, **options) as session:
        fresh = generate(session, (*ids, *MORE))
    assert (tuple(out[0]), out[4]) == (ids, (len(ids) - 1) // PAGE * PAGE)
    if options.get("backend") == "torch":  # equal to within rounding, as without files
        assert np.allclose(out[2], np.array(fresh.logprobs), atol=1e-3)
        return
    assert tuple(out[1]) == fresh.token_ids
    assert tuple(out[2]) == fresh.logprobs
    assert out[3] == json.loads(json.dumps(fresh.top))


def test_where_it_was_saved_tells_nothing_of_how_many_threads_or_rows_ran(tmp_path: Path, tiny: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    saved(one, tiny, threads=1, chunk=5, context=300)
    saved(two, tiny, threads=2, max_running=3, speculate=4)
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_type": "f32"}, "kv_type is 'f16', here it is 'f32'"),
        ({"activations": "int8"}, "arithmetic is 'native int8x2', here it is 'native int8'"),
        ({"backend": "torch"}, "here it is 'torch'"),
        ({"context": 100}, r"--context 171 or more"),
        ({"prefix_cache": False}, "prefix_cache=True"),
    ],
    ids=str,
)
def test_a_session_that_cannot_use_it(tmp_path: Path, tiny: Path, options: dict[str, Any], message: str) -> None:
    saved(tmp_path / "talk", tiny)
    error = UsageError if "prefix_cache" in options else ConversationError
    with cabochon.load(tiny, **options) as session, pytest.raises(error, match=message):
        session.load_conversation(tmp_path / "talk")


def test_another_model(tmp_path: Path, tiny: Path) -> None:
    """One weight is a little different, far from the first layer's keys."""
    saved(tmp_path / "talk", tiny)
    weights = tiny_weights(CONFIG)
    weights["final_norm"][3] *= 1.001
    other = write_tiny_gguf(tmp_path / "other.gguf", CONFIG, weights)
    with cabochon.load(other) as session, pytest.raises(ConversationError, match="another model"):
        session.load_conversation(tmp_path / "talk")


def test_a_closed_session_and_wrong_ids(tmp_path: Path, tiny: Path) -> None:
    session = cabochon.load(tiny)
    for ids in ("text", b"ids", 5, None, [], [1.5], [-1], [10**6], ["1"]):
        with pytest.raises(UsageError):
            session.save_conversation(tmp_path / "talk", ids)  # type: ignore[arg-type]  # wrong on purpose
    session.close()
    for act in (lambda: session.save_conversation(tmp_path / "talk", [1]), lambda: session.load_conversation("talk")):
        with pytest.raises(UsageError, match="closed"):
            act()
    assert not list(tmp_path.iterdir())


# ---- What a model is told by ----


def test_the_fingerprint_tells_every_tensor_and_number(tmp_path: Path) -> None:
    weights = tiny_weights(CONFIG)

    def of(
        config: Any = CONFIG, types: WeightType = WeightType.F32, changed: Mapping[str, Float32] | None = None
    ) -> str:
        write_tiny_gguf(tmp_path / "model.gguf", config, {**weights, **(changed or {})}, types=types)
        return fingerprint(load_checkpoint(tmp_path / "model.gguf"))

    prints = [of(), of(types=WeightType.F16), of(types=WeightType.BF16)]
    for name, values in weights.items():
        other = values.copy()
        other.flat[-1] = np.nextafter(other.flat[-1], np.float32(9))
        prints.append(of(changed={name: other}))
    prints.append(of(changed={"layers.0.up": weights["layers.0.gate"], "layers.0.gate": weights["layers.0.up"]}))
    ropes = (*CONFIG.layer_ropes[:2], Rope(1e6, 4.0))
    for changes in (
        {"layer_windows": (21, 21, None)},
        {"layer_ropes": ropes},
        {"query_scale": 0.25},
        {"rms_eps": float(np.float32(1e-5))},
    ):
        prints.append(of(replace(CONFIG, **changes)))
    assert len(set(prints)) == len(prints)
    assert of(replace(CONFIG, context_length=600, eos_ids=())) == prints[0]


def test_the_fingerprint_is_of_the_weights_that_were_loaded(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", CONFIG)
    right = fingerprint(load_checkpoint(path))
    checkpoint = load_checkpoint(path)
    write_tiny_gguf(tmp_path / "new.gguf", CONFIG, tiny_weights(CONFIG, seed=1))
    os.replace(tmp_path / "new.gguf", path)  # another file in its place
    assert fingerprint(checkpoint) == right
    path.unlink()
    assert fingerprint(checkpoint) == right
    path = write_tiny_gguf(tmp_path / "tiny.gguf", CONFIG)
    with cabochon.load(path) as session:
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x7f")
        os.utime(path, ns=(time.time_ns(), time.time_ns() + 10**9))
        with pytest.raises(CheckpointError, match="written to since it was loaded; load the model again"):
            session.save_conversation(tmp_path / "talk", PROMPT)
        with path.open("r+b") as file:
            file.truncate(1000)
        with pytest.raises(CheckpointError, match="written to since it was loaded"):
            session.load_conversation(tmp_path / "talk")

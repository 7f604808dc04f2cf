from __future__ import annotations

from pathlib import Path

import pytest

from cabochon.kvcache.groups import KVGroup
from cabochon.kvcache.pages import PagePool, PageTable
from cabochon.kvcache.store import page_bytes
from cabochon.model.tensors import tensor_specs
from cabochon.testing.tiny import MIXED_TYPES, tiny_config, tiny_config_k, write_tiny_gguf
from cabochon.types import PAGE

from .conftest import Run


def test_json_names_every_tensor_once_with_its_bytes(run: Run, tmp_path: Path) -> None:
    config = tiny_config_k()
    path = write_tiny_gguf(tmp_path / "mixed.gguf", config, types=MIXED_TYPES)
    report = run("inspect", "--model", path, "--json").json
    specs = {spec.name: spec for spec in tensor_specs(config)}
    assert [tensor["name"] for tensor in report["tensors"]] == list(specs)
    for tensor in report["tensors"]:
        spec = specs[tensor["name"]]
        kind = "F32" if spec.kind == "norm" else MIXED_TYPES[spec.role].name
        assert (tensor["shape"], tensor["type"]) == (list(spec.shape), kind)
    assert report["bytes"] == sum(tensor["bytes"] for tensor in report["tensors"])
    assert report["bytes"] < path.stat().st_size
    for key in ("tensors", "bytes", "parameters"):
        total = len(report["tensors"]) if key == "tensors" else report[key]
        assert sum(kind[key] for kind in report["types"].values()) == total
    assert report["types"]["Q6_K"]["bytes"] * 256 == report["types"]["Q6_K"]["parameters"] * 210
    assert report["config"]["layer_windows"] == list(config.layer_windows)
    assert report["path"] == str(path)
    assert report["sampling"] == {
        "temperature": 1.0, "top_k": 64, "top_p": 0.95, "min_p": 0.0,
        "repetition_penalty": 1.0, "penalty_last_n": 0, "xtc_probability": 0.0, "xtc_threshold": 0.1,
    }  # fmt: skip


def test_people_see_the_same(run: Run, tiny: Path) -> None:
    report = run("inspect", "--model", tiny, "--json").json
    shown = run("inspect", "--model", tiny)
    assert shown.code == 0
    assert shown.err == ""
    for tensor in report["tensors"]:
        assert f"{tensor['name']} " in shown.out
        assert f"{tensor['bytes']:,}\n" in shown.out
    assert f"{report['parameters']:,}" in shown.out
    assert "temperature 1, top-k 64, top-p 0.95, min-p 0\n" in shown.out
    assert all(len(line) <= 100 for line in shown.out.splitlines() if not line.startswith("file"))


def test_what_a_file_asks_of_sampling_is_shown(run: Run, tmp_path: Path) -> None:
    asked = {"general.sampling.penalty_repeat": 1.5, "general.sampling.temp": 0.5}
    path = write_tiny_gguf(tmp_path / "m.gguf", metadata=asked)
    shown = run("inspect", "--model", path)
    line = "temperature 0.5, top-k 64, top-p 0.95, min-p 0, penalty-last-n 64, repetition-penalty 1.5\n"
    assert line in shown.out


@pytest.mark.parametrize(
    ("window", "kv_type"), [(1, "f16"), (20, "bf16"), (32, "f32"), (33, "int8"), (64, "f16"), (None, "int8")]
)
def test_kv_memory_is_what_page_tables_come_to_hold(run: Run, tmp_path: Path, window: int | None, kv_type: str) -> None:
    config = tiny_config(layers=3, pattern=3, window=window, context_length=1500)
    path = write_tiny_gguf(tmp_path / "m.gguf", config)
    kv = run("inspect", "--model", path, "--json", "--kv-type", kv_type).json["kv"]
    held = {1000: 0, 1500: 0}
    for group in kv["groups"]:
        assert (group["kv_heads"], group["head_dim"]) == (2, 32)
        layers = tuple(range(group["layers"]))
        # One of the types by its name.
        page = page_bytes(KVGroup(group["window"], 2, 32, layers), kv_type)  # type: ignore[arg-type]
        assert group["bytes_per_1000_tokens"] == page * 1000 // PAGE
        table = PageTable(PagePool(100), group["window"], 1500)
        most = 0
        for end in range(1, 1501):
            table.grow(end)
            most = max(most, len(table.held))
            if end in held:
                held[end] += (most if group["window"] else len(table.held)) * page
            table.let_go_behind(end)
        if group["window"] is not None:
            assert group["max_bytes"] == most * page
        else:
            assert group["max_bytes"] is None
    assert kv["bytes_at"] == {str(n): size for n, size in held.items()}
    assert sum(group["layers"] for group in kv["groups"]) == 3


def test_a_file_name_that_is_not_utf8_is_shown_escaped(run: Run, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "a\udcff.gguf"
    path.symlink_to(tiny)
    assert run("inspect", "--model", path, "--json").json["path"] == str(path)
    assert "a\\udcff.gguf\n" in run("inspect", "--model", path).out
    path.unlink()
    assert "a\\udcff.gguf" in run("inspect", "--model", path).error_line(1)

"""Which instruction set and how many threads the native backend takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cabochon.errors import UsageError
from cabochon.ops.cpus import cpu_quota, default_threads, physical_cores
from cabochon.ops.machine import ISA_VARIABLE, available_instruction_sets, open_machine


def test_the_best_set_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ISA_VARIABLE, raising=False)
    available = available_instruction_sets()
    assert "portable" in available
    assert open_machine(1).isa == available[0]
    assert available.index("portable") == len([name for name in available if name in ("avx512", "avxvnni", "avx2")])


def test_the_variable_names_a_set_and_the_argument_goes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ISA_VARIABLE, "portable")
    assert open_machine(1).isa == "portable"
    assert open_machine(1, available_instruction_sets()[0]).isa == available_instruction_sets()[0]
    monkeypatch.setenv(ISA_VARIABLE, "")
    assert open_machine(1).isa == available_instruction_sets()[0]


def test_an_unknown_set_is_refused_with_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ISA_VARIABLE, "mmx")
    with pytest.raises(UsageError, match=r"^CABOCHON_ISA 'mmx' cannot be used here; available: .*portable"):
        open_machine(1)
    with pytest.raises(UsageError, match=r"^instruction set 'sse9' cannot"):
        open_machine(1, "sse9")


def test_threads() -> None:
    assert open_machine(3).threads == 3
    assert open_machine().threads == default_threads()
    assert 1 <= default_threads() <= (os.cpu_count() or 1)
    for count in (0, -1, 10**6):
        with pytest.raises(UsageError, match=f"threads is {count}"):
            open_machine(count)


def test_two_hardware_threads_of_one_core_count_once(tmp_path: Path) -> None:
    for cpu, siblings in {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}.items():
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{siblings}\n")
    assert physical_cores({0, 1, 2, 3}, tmp_path) == 2
    assert physical_cores({0, 2}, tmp_path) == 1
    assert physical_cores({1, 2, 9}, tmp_path) == 3


@pytest.mark.parametrize(
    ("files", "cgroup", "quota"),
    [
        ({}, "/", None),
        ({"cpu.max": "max 100000"}, "/", None),
        ({"cpu.max": "250000 100000"}, "/", 2.5),
        ({"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, "/a/b", 2.0),
        ({"a/cpu.max": "400000 100000", "a/b/cpu.max": "50000 100000"}, "/a/b", 0.5),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, "/", 3.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "/", None),
        ({"cpu.max": "nonsense"}, "/", None),
        ({"cpu.max": "1000 0"}, "/", None),
    ],
)
def test_quotas_of_cgroups(tmp_path: Path, files: dict[str, str], cgroup: str, quota: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert cpu_quota(cgroup, tmp_path) == quota

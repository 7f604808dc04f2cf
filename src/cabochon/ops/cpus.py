"""How many threads are worth starting: physical cores that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

MAX_THREADS = 1024
"""The most that may be asked for; more would be a slip of the hand."""

_CPUS = Path("/sys/devices/system/cpu")
_CGROUPS = Path("/sys/fs/cgroup")


def default_threads() -> int:
    """Physical cores among the CPUs this process may run on, within its cgroup's quota of CPU time; at least 1."""
    quota = cpu_quota(_own_cgroup(), _CGROUPS)
    cores = physical_cores(usable_cpus(), _CPUS)
    return max(1, cores if quota is None else min(cores, int(quota)))


def usable_cpus() -> set[int]:
    """The CPUs this process may run on; all, where the system keeps no such list (macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def physical_cores(cpus: Iterable[int], root: Path) -> int:
    """Different cores among ``cpus``; those that the system tells nothing of count as cores of their own."""
    return len({_text(root / f"cpu{cpu}" / "topology" / "thread_siblings_list") or str(cpu) for cpu in cpus})


def cpu_quota(cgroup: str, root: Path) -> float | None:
    """CPUs' worth of time that the cgroup, or one it lies in, may use; None without a limit.

    Reads version 2 (``cpu.max``: quota and period) and version 1 (``cpu.cfs_quota_us``, ``cpu.cfs_period_us``).
    """
    limits = []
    for folder in (root / cgroup.strip("/"), *(root / cgroup.strip("/")).parents):
        quota, _, period = (_text(folder / "cpu.max") or "max").partition(" ")
        if quota != "max":
            limits.append(_ratio(quota, period))
        if folder == root:
            break
    limits.append(_ratio(_text(root / "cpu/cpu.cfs_quota_us"), _text(root / "cpu/cpu.cfs_period_us")))
    return min((limit for limit in limits if limit is not None), default=None)


def _own_cgroup() -> str:
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        if line.startswith("0::"):
            return line[3:]
    return "/"


def _ratio(quota: str, period: str) -> float | None:
    if not (quota.isdecimal() and period.isdecimal() and int(period)):
        return None
    return int(quota) / int(period)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

"""How many pages there are, and what cannot be."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cabochon.errors import UsageError
from cabochon.kvcache.groups import KVGroup, group_layers
from cabochon.kvcache.pages import pages_needed
from cabochon.kvcache.plan import MemoryPlan, plan_memory
from cabochon.kvcache.store import page_bytes

SLIDING = KVGroup(512, kv_heads=1, head_dim=256, layers=tuple(range(15)))
WIDE = KVGroup(None, kv_heads=1, head_dim=256, layers=(5, 11, 17))


def test_without_bytes_every_running_sequence_has_a_context() -> None:
    plan = plan_memory([SLIDING, WIDE], "f16", context=4096, chunk=512, running=3, checkpoints=2)
    assert plan.pages == (3 * 33 + 2 * 16, 3 * 128)
    assert plan.checkpoint_pages == 2 * 16
    assert plan.nbytes == sum(
        n * page_bytes(group, "f16") for n, group in zip(plan.pages, (SLIDING, WIDE), strict=True)
    )


@given(
    windows=st.lists(st.none() | st.integers(1, 100), min_size=1, max_size=6),
    context=st.integers(1, 500),
    chunk=st.integers(1, 100),
    running=st.integers(1, 5),
    checkpoints=st.integers(0, 4),
    extra=st.integers(-(10**6), 10**6),
)
def test_bytes_are_kept_and_enough(
    windows: list[int | None], context: int, chunk: int, running: int, checkpoints: int, extra: int
) -> None:
    groups = group_layers(windows, [1] * len(windows), [32] * len(windows)).groups
    options = {"context": context, "chunk": chunk, "running": running, "checkpoints": checkpoints}
    without = plan_memory(groups, "f16", **options)
    asked = max(without.nbytes + extra, 1)
    try:
        plan = plan_memory(groups, "f16", **options, kv_memory=asked)
    except UsageError as error:
        match = re.search(r"together ([\d,]+) MiB", str(error))
        assert match is not None
        assert int(match[1].replace(",", "")) * 2**20 > asked - 2**20
        return
    assert plan.nbytes <= asked
    for pages, group in zip(plan.pages, groups, strict=True):
        assert pages >= pages_needed(group, context, chunk)
        if group.window is not None and None in windows:
            assert pages >= pages_needed(group, context, chunk, running)


def plan_in(mib: int) -> MemoryPlan:
    return plan_memory([SLIDING, WIDE], "f16", context=4096, chunk=512, running=4, checkpoints=4, kv_memory=mib * 2**20)


def test_what_is_left_goes_to_the_global_layers() -> None:
    small, large = plan_in(200), plan_in(400)
    assert small.pages[0] == large.pages[0] == 4 * 33 + 4 * 16
    assert large.pages[1] - small.pages[1] == pytest.approx(200 * 2**20 / page_bytes(WIDE, "f16"), abs=1)


def test_too_little_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(UsageError) as error:
        plan_in(90)
    assert str(error.value) == (
        "kv_memory of 90 MiB is too little: 15 layers with window 512: 196 pages of 480 KiB = 92 MiB (4 x 33 running"
        " + 64 kept); 3 global layers: 128 pages of 96 KiB = 12 MiB (128 a context); together 104 MiB. Ask for a"
        " smaller context, fewer running requests, or more memory"
    )

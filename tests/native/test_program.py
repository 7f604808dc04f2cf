"""The program and the model on it: bad steps are refused, nothing is read out of bounds, counters tell the truth."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from cabochon import _native
from cabochon.errors import NumericError, RunError, TensorError, UnsupportedError, UsageError
from cabochon.kvcache.store import KVStore
from cabochon.model.config import GemmaConfig
from cabochon.model.layout import kv_layout
from cabochon.model.native_model import NativeModel, build_native_model
from cabochon.ops.machine import available_instruction_sets
from cabochon.testing.steps import StepMaker, poison, tiny_store
from cabochon.testing.tiny import tiny_config, tiny_tensors, tiny_weights
from cabochon.types import PAGE, KVType, RawTensor, StepInput, WeightType

ISA = available_instruction_sets()[0]
SLIDING, GLOBAL = 0, 1


def config() -> GemmaConfig:
    return tiny_config(layers=3, pattern=2, hidden=64, ffn=96, vocab=131, window=40)


@cache
def model(kv_type: KVType = "f16", *, pages: int = 8) -> NativeModel:
    tensors = tiny_tensors(config(), tiny_weights(config()), WeightType.Q8_0)
    store = tiny_store(config(), pages * PAGE, kv_type)
    return build_native_model(config(), tensors, store, threads=2, isa=ISA, max_rows=64, max_logit_rows=4)


def step_of(of: NativeModel, rows: int = 5) -> StepInput:
    poison(of.store)
    steps = StepMaker(of.store.layout, of.store.pages)
    return steps.step((steps.sequence(), range(3, 3 + rows)))


def changed(step: StepInput, name: str, at: Any, value: int) -> StepInput:
    """The step with one integer changed; of a page table, that of the group ``at`` begins with."""
    if name == "page_tables":
        tables = [table.copy() for table in step.page_tables]
        tables[at[0]][at[1:]] = value
        return replace(step, page_tables=tuple(tables))
    array = getattr(step, name).copy()
    array[at] = value
    return replace(step, **{name: array})


@pytest.mark.parametrize("isa", available_instruction_sets())
@pytest.mark.parametrize("kind", [WeightType.F32, WeightType.Q8_0, WeightType.Q4_0])
@pytest.mark.parametrize("threads", [1, 2])
def test_peaks_are_those_of_each_sixteen_logits(isa: str, kind: WeightType, threads: int) -> None:
    of = build_native_model(
        config(), tiny_tensors(config(), tiny_weights(config()), kind), tiny_store(config(), 8 * PAGE, "f16"),
        threads=threads, isa=isa, max_rows=64, max_logit_rows=40,
    )  # fmt: skip
    random = np.random.default_rng(3)
    for rows in (1, 5, 40):
        hidden = random.standard_normal((rows, 64)).astype(np.float32)
        bad = random.random(rows) < 0.3
        hidden[bad, 7] = random.choice([np.nan, np.inf, -np.inf], int(bad.sum()))
        logits, peaks = of.head(hidden), of._program.peaks(rows)
        assert peaks is not None
        assert peaks.shape == (rows, 9), "131 logits"
        for first in range(0, 131, 16):
            part = logits[:, first : first + 16]
            want = np.where(np.isfinite(part).all(axis=1), part.max(axis=1), np.nan)
            np.testing.assert_array_equal(peaks[:, first // 16], want.astype(np.float32))


def test_capped_logits_have_no_peaks() -> None:
    capped = replace(config(), final_softcap=30.0)
    store = tiny_store(capped, 8 * PAGE, "f16")
    of = build_native_model(capped, tiny_tensors(capped, tiny_weights(capped), WeightType.Q8_0), store, isa=ISA)
    assert of.run(step_of(of)).peaks is None


INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1

BAD_INTEGERS = [
    *(("ids", 2, value) for value in (-1, 131, INT32_MIN, INT32_MAX)),
    *(("positions", 0, value) for value in (-1, INT32_MIN)),
    *(("sequences", 4, value) for value in (-1, 1, INT32_MAX)),
    *(("slots", (group, 3), value) for group in (0, 1) for value in (-1, 8 * PAGE, INT32_MAX)),
    *(("first_key", (group, 1), value) for group in (0, 1) for value in (-1, 2, INT32_MIN)),
    *(("last_key", (group, 4), value) for group in (0, 1) for value in (-1, PAGE, INT32_MAX)),
    *(("page_tables", (group, 0, 0), value) for group in (0, 1) for value in (-1, 8, INT32_MIN, INT32_MAX)),
    *(("logit_rows", 0, value) for value in (-1, 5, INT32_MAX)),
    *(("best_rows", 0, value) for value in (-1, 5, INT32_MAX)),
]


@pytest.mark.parametrize(("name", "at", "value"), BAD_INTEGERS)
def test_a_bad_integer_is_an_error_and_harms_nothing(name: str, at: Any, value: int) -> None:
    of = model()
    good = replace(step_of(of), best_rows=np.array([2], np.int32))
    want = of.forward(good).copy()
    with pytest.raises(UsageError, match=r"^step: "):
        of.forward(changed(good, name, at, value))
    np.testing.assert_array_equal(of.forward(good), want)


@pytest.mark.parametrize("group", [SLIDING, GLOBAL])
def test_no_two_rows_may_write_to_one_slot(group: int) -> None:
    of = model()
    poison(of.store)
    steps = StepMaker(of.store.layout, of.store.pages)
    good = steps.step(*((steps.sequence(), [3] * rows) for rows in (40, 1, 3)))
    for row, other in ((1, 0), (43, 0), (40, 39), (17, 41)):
        slot = good.slots[group, other]
        with pytest.raises(
            UsageError, match=rf"^step: the slot of row {max(row, other)} is {slot}: another row's as well"
        ):
            of.forward(changed(good, "slots", (group, row), slot))
    of.forward(good)


def test_arrays_of_other_shapes_and_types_are_errors() -> None:
    of = model()
    good = replace(step_of(of), best_rows=np.array([2], np.int32))
    for name in ("ids", "positions", "sequences", "slots", "first_key", "last_key", "logit_rows", "best_rows"):
        array = getattr(good, name)
        bad = [array.astype(np.int64), array.astype(np.float32), array[None], array.tolist()]
        if not name.endswith("_rows"):
            bad += [array[..., :-1], np.concatenate([array, array], axis=-1)[..., ::2], array.T.copy()[..., :1]]
        for other in bad:
            with pytest.raises(UsageError):
                of.forward(replace(good, **{name: other}))
    a, b = good.page_tables
    for tables in ((a,), (a, b, a), (a, b[0]), (a, b.astype(np.int64)), (a, np.concatenate([b, b])), (a, None), ()):
        with pytest.raises(UsageError):
            of.forward(replace(good, page_tables=tables))  # type: ignore[arg-type]  # wrong on purpose
    of.forward(good)


def test_steps_too_large_or_empty_are_errors() -> None:
    of = model()
    with pytest.raises(UsageError, match="a step of 65 rows; there is room for 1 to 64"):
        of.forward(step_of(of, 65))
    none = np.zeros(0, np.int32)
    two = np.zeros((2, 0), np.int32)
    table = np.zeros((1, 1), np.int32)
    with pytest.raises(UsageError, match="a step of 0 rows"):
        of.forward(StepInput(none, none, none, two, two, two, (table, table), none))
    with pytest.raises(UsageError, match="width"):
        of.head(np.zeros((2, 63), np.float32))
    with pytest.raises(UsageError):
        build_native_model(config(), {}, of.store, max_rows=0)


def test_a_page_needed_by_one_row_only_is_looked_at() -> None:
    """Rows of one sequence whose ranges are far apart: the page between them may be missing, those they see may not."""
    of = model()
    steps = StepMaker(of.store.layout, of.store.pages, let_go=False)
    poison(of.store)
    text = steps.sequence()
    of.forward(steps.step((text, [3] * 64)))
    of.forward(steps.step((text, [3] * 40)))
    step = steps.step((text, [4, 5, 6]))
    step.first_key[GLOBAL, :], step.last_key[GLOBAL, :] = [0, 70, 0], [31, 106, 31]
    step.page_tables[GLOBAL][0, 1] = -1
    assert np.isfinite(of.forward(step)).all()
    for page in (0, 2, 3):
        with pytest.raises(UsageError, match="needed by its keys"):
            of.forward(changed(step, "page_tables", (GLOBAL, 0, page), -1))
    step.first_key[GLOBAL, 2] = step.last_key[GLOBAL, 2] = 40
    with pytest.raises(UsageError, match="needed by its keys"):
        of.forward(step)


@pytest.mark.parametrize("kv_type", ["bf16", "f32", "int8"])
def test_overflow_of_a_float16_cache_names_layer_and_remedy(kv_type: KVType) -> None:
    weights = tiny_weights(config())
    weights["layers.1.value"] *= 1e5
    tensors = tiny_tensors(config(), weights)
    of = build_native_model(config(), tensors, tiny_store(config(), 64, "f16"), threads=2, max_rows=64)
    with pytest.raises(NumericError, match=r"^layer 1: .*float16.*--kv-type bf16"):
        of.forward(step_of(of))
    with pytest.raises(NumericError, match="layer 1"):
        of.hidden(step_of(of))
    wide = build_native_model(config(), tensors, tiny_store(config(), 64, kv_type), threads=2, max_rows=64)
    assert np.isfinite(wide.forward(step_of(wide))).all()


def test_counters_are_those_of_the_formulas() -> None:
    of = build_native_model(
        config(), tiny_tensors(config(), tiny_weights(config())), tiny_store(config(), 200, "int8"), threads=2
    )
    assert set(of.counters.values()) == {0}
    steps = StepMaker(of.store.layout, of.store.pages)
    text = steps.sequence()
    of.forward(steps.step((text, range(3, 63)), logits="all"))  # in the last layer only kept rows attend
    of.forward(steps.step((text, range(3, 53)), logits="all"))
    windows = [40, None, 40]
    seen = sum(min(position + 1, window or 1000) for window in windows for position in range(110))
    of_one_key = 2 * (2 * 32) * 1 + 2 * 2 * 4  # int8 keys and values of two heads of 32, and their scales
    assert of.counters == {
        "runs": 2,
        "rows": 110,
        "pairs": seen * 4,
        "kv_bytes_read": seen * of_one_key,
        "kv_bytes_written": 3 * 110 * of_one_key,
    }


def test_two_threads_cannot_step_one_model() -> None:
    of = model(pages=2)
    step = step_of(of, 60)
    failed: list[Exception] = []
    done = threading.Event()

    def busy() -> None:
        while not done.is_set():
            try:
                of.forward(step)
            except RunError as error:
                failed.append(error)

    others = [threading.Thread(target=busy) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for _ in range(2000):
            busy_now = len(failed)
            if busy_now:
                break
            try:
                of.forward(step)
            except RunError as error:
                failed.append(error)
    finally:
        done.set()
        for other in others:
            other.join()
    assert failed
    assert "in use by another thread" in str(failed[0])


@dataclass(frozen=True)
class CallersMode:
    """A way to compute that some other library of the process may have chosen."""

    word: int
    """Which 32 bits of the C library's fenv_t hold it."""
    bits: int


FENV_WORDS = 16
"""Room for a fenv_t."""

CALLERS_MODES: dict[str, CallersMode] = {
    "x86_64": {"upward": CallersMode(7, 0x4000), "subnormals flushed": CallersMode(7, 0x8040)},
    "aarch64": {"upward": CallersMode(0, 0x400000), "subnormals flushed": CallersMode(0, 0x1000000)},
}.get(platform.machine(), {})


@pytest.mark.parametrize("name", CALLERS_MODES)
def test_the_callers_way_to_compute_neither_matters_nor_changes(name: str) -> None:
    mode = CALLERS_MODES[name]
    libm = ctypes.CDLL("libm.so.6")
    usual, theirs, after = (np.zeros(FENV_WORDS, np.uint32) for _ in range(3))
    of = model()
    step = step_of(of)
    want = of.forward(step).copy()
    a, b = np.array([[1, 1e-10], [1e-40, 2e-40]], np.float32).T.copy()
    right, got_sums, their_sums = np.empty(2, np.float32), np.empty(2, np.float32), np.empty(2, np.float32)
    _native.check.add(ISA, a, b, right)
    assert libm.fegetenv(usual.ctypes) == 0
    theirs[:] = usual
    theirs[mode.word] |= mode.bits
    assert libm.fesetenv(theirs.ctypes) == 0
    try:
        got = of.forward(step)
        _native.check.add(ISA, a, b, got_sums)
        np.add(a, b, out=their_sums)
        libm.fegetenv(after.ctypes)
    finally:
        libm.fesetenv(usual.ctypes)
    assert after[mode.word] & mode.bits == mode.bits
    assert list(their_sums) != list(right), "the mode is not what it is taken for"
    assert list(got_sums) == list(right)
    np.testing.assert_array_equal(got, want)


def test_weights_leave_their_source_as_they_are_packed() -> None:
    tensors = tiny_tensors(config(), tiny_weights(config()), WeightType.Q5_0)
    released: dict[str, int] = {}
    told: list[tuple[int, int]] = []

    def release(part: RawTensor) -> None:
        released[part.name] = released.get(part.name, 0) + part.data.nbytes

    build_native_model(
        config(), tensors, tiny_store(config(), 64), release=release, progress=lambda *done: told.append(done)
    )
    matrices = {name: tensor.data.nbytes for name, tensor in tensors.items() if len(tensor.shape) == 2}
    assert released == matrices
    total = sum(tensor.data.nbytes for tensor in tensors.values())
    assert {of for _, of in told} == {total}
    assert sorted(told) == told


def test_a_type_that_does_not_fit_the_columns_names_the_tensor() -> None:
    tensors = dict(tiny_tensors(config(), tiny_weights(config())))
    tensors["layers.0.key"] = replace(tensors["layers.0.key"], type=WeightType.Q4_K)
    with pytest.raises(TensorError, match=r"layers\.0\.key"):
        build_native_model(config(), tensors, tiny_store(config(), 64))


def test_a_head_dim_beyond_the_kernels_is_refused() -> None:
    wide = tiny_config(layers=1, pattern=1, hidden=64, ffn=96, vocab=131, head_dim=514)
    with pytest.raises(UnsupportedError, match="head_dim"):
        build_native_model(wide, tiny_tensors(wide, tiny_weights(wide)), tiny_store(wide, 64))


def test_a_program_is_built_first_and_run_then() -> None:
    of = model()
    program = of._program
    builders: tuple[Callable[[], object], ...] = (
        lambda: program.add(0, 0, 0),
        lambda: program.gain(np.ones(4, np.float32)),
        lambda: program.rope(np.ones(8, np.float32)),
        lambda: program.value(32, 0, 0),
        lambda: program.finish(0, 0, 0),
    )
    for build in builders:
        with pytest.raises(ValueError, match="the program is finished"):
            build()
    unfinished = _native.Program(program.machine, 8, 1, 64, 64, True)
    uses: tuple[Callable[[], object], ...] = (lambda: unfinished.hidden(), lambda: unfinished.logits(0))
    for use in uses:
        with pytest.raises(ValueError, match="not finished"):
            use()


def test_views_of_results_keep_their_memory_alive() -> None:
    of = build_native_model(config(), tiny_tensors(config(), tiny_weights(config())), tiny_store(config(), 64))
    logits = of.forward(step_of(of))
    want = logits.copy()
    del of
    np.testing.assert_array_equal(logits, want)


def test_a_store_without_pages_stores_nothing() -> None:
    empty = KVStore(kv_layout(config()), [0, 0], "f16")
    of = build_native_model(config(), tiny_tensors(config(), tiny_weights(config())), empty)
    one = np.zeros(1, np.int32)
    each = np.zeros((2, 1), np.int32)
    table = np.zeros((1, 1), np.int32)
    with pytest.raises(UsageError, match="outside the KV store"):
        of.forward(StepInput(one + 3, one, one, each, each, each, (table, table), one))


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from cabochon.model.native_model import build_native_model
from cabochon.testing.steps import StepMaker, tiny_store
from cabochon.testing.tiny import tiny_config, tiny_tensors, tiny_weights
config = tiny_config(layers=2, pattern=2)
of = build_native_model(config, tiny_tensors(config, tiny_weights(config)), tiny_store(config, 64), threads=3)
steps = StepMaker(of.store.layout, of.store.pages)
step = steps.step((steps.sequence(), range(3, 40)))
want = of.forward(step).copy()
child = os.fork()
same = np.array_equal(of.forward(step), want)
del of
if child == 0:
    os._exit(0 if same else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not same)
"""


def test_a_forked_child_computes_alone_and_ends() -> None:
    assert subprocess.run([sys.executable, "-c", FORK], timeout=120, check=False).returncode == 0

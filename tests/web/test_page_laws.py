"""What the page works out from intervals, against the slow way: every cell of every step from the rows of that step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.web.conftest import Show

import cabochon
from cabochon.testing.tiny import tiny_config, tiny_weights, write_tiny_gguf
from cabochon.trace.record import record
from cabochon.trace.runs import values_of
from cabochon.trace.trace import Share, Step, Trace

NEVER, HELD, LET_GO, READ, WRITTEN = range(5)

CELLS = """(width) => cabochon.run.ways.map((way) =>
  way.tracks.map((_, s) =>
    way.steps.map((_, t) =>
      Array.from({ length: cabochon.run.layers }, (_, layer) =>
        Array.from({ length: width }, (_, p) => way.state(layer, p, t, s)).join("")))))"""
"""Of each way, sequence, step and layer, the states of all positions."""

INTERVALS = """(width) => cabochon.run.ways.map((way) =>
  way.tracks.map((_, s) =>
    way.steps.map((_, t) =>
      Array.from({ length: cabochon.run.layers }, (_, layer) => {
        const cells = new Array(width).fill(0);
        for (const [state, first, end] of way.intervals(layer, t, s)) cells.fill(state, first, end);
        return cells.join("");
      }))))"""
"""The same, as it is drawn."""

COSTS = """async () => {
  const { curves } = await import("cabochon/cost.js");
  const { own, other } = curves(cabochon.run.ways[0]);
  const ends = [own, other].map((sums) => sums[sums.length - 1]);
  return ends.map((c) => [c.tokens, c.pairs, c.bytes_read, c.bytes_written]);
}"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[int | None, Path]:
    """By window. The last layer slides in some and is global in others."""
    folder = tmp_path_factory.mktemp("laws")
    shapes = {4: (4, 3), 20: (3, 3), None: (2, 2)}
    return {
        window: write_tiny_gguf(folder / f"{window}.gguf", config, tiny_weights(config))
        for window, (layers, pattern) in shapes.items()
        for config in [tiny_config(layers=layers, pattern=pattern, window=window)]
    }


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=3),
    tokens=st.integers(1, 30),
    chunk=st.integers(4, 60),
    window=st.sampled_from([4, 20, None]),
    speculate=st.sampled_from([0, 3]),
    against=st.booleans(),
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_cell_is_as_the_rows_of_its_steps_say(
    show: Show,
    models: dict[int | None, Path],
    lengths: list[int],
    tokens: int,
    chunk: int,
    window: int | None,
    speculate: int,
    against: bool,
) -> None:
    # Of few different ids, so that guesses are made.
    prompts = [[2, *(260 + n % 3 for n in range(length - 1))] for length in lengths]
    room = {"whole_context": True} if against else {"chunk": chunk}
    with cabochon.load(models[window], context=96, max_running=3, threads=1, prefix_cache=False, **room) as session:
        trace = record(
            session,
            prompts,
            against=["all"] if against else (),
            speculate=speculate,
            max_tokens=tokens,
            seed=1,
            ignore_eos=True,
        )
    shown, width = show(("law", trace)), max(lengths) + tokens + speculate + 2
    cells, drawn = shown.evaluate(CELLS, width), shown.evaluate(INTERVALS, width)
    assert cells == drawn
    ways = (trace.steps, *(variant.steps for variant in trace.variants))
    assert cells == [list(_sequences(trace, steps, width, cached=steps is trace.steps)) for steps in ways]
    costs = (trace.end.cost, trace.end.recomputing)
    assert shown.evaluate(COSTS) == [[c.tokens, c.pairs, c.bytes_read, c.bytes_written] for c in costs]
    shown.page.close()


def _sequences(trace: Trace, steps: Sequence[Step], width: int, *, cached: bool) -> Iterator[list[list[str]]]:
    """Of each sequence, step and layer the states of all positions, one by one."""
    for number in range(len(trace.header.prompts) if cached else 1):
        stored, held_from = set[int](), tuple(0 for _ in trace.header.model.groups)
        pictures = list[list[str]]()
        for step in steps:
            written, share = set[int](), next((share for share in step.shares if share.sequence == number), None)
            if share is not None:
                written, held_from = set(_keys(share, cached=cached)), share.held_from
                stored |= written
            layers = []
            for layer in range(trace.header.model.layers):
                group = next(g for g, kind in enumerate(trace.header.model.groups) if layer in kind.layers)
                read = _read(trace, share, layer, group)
                cells = (_state(p, p in stored, p in written, p < held_from[group], p in read) for p in range(width))
                layers.append("".join(map(str, cells)))
            pictures.append(layers)
        yield pictures


def _keys(share: Share, *, cached: bool) -> Iterator[int]:
    """What the share's rows stored. Variants tell rows wrong positions, so there count back from the choice."""
    rows = len(share.ids)
    for row, position in enumerate(values_of(share.positions).tolist()):
        yield position if cached else share.choices[0].position - rows + row


def _read(trace: Trace, share: Share | None, layer: int, group: int) -> set[int]:
    """Keys that the share's rows saw in a layer; in the last one only those look whose logits are wanted."""
    if share is None:
        return set()
    rows = range(len(share.ids))
    if layer == trace.header.model.layers - 1:
        rows = rows[len(rows) - share.guesses - 1 :] if share.choices else rows[:0]
    first, last = values_of(share.first_key[group]), values_of(share.last_key[group])
    return {key for row in rows for key in range(int(first[row]), int(last[row]) + 1)}


def _state(position: int, stored: bool, written: bool, gone: bool, read: bool) -> int:
    if not stored:
        return NEVER
    if written:
        return WRITTEN
    if gone:
        return LET_GO
    return READ if read else HELD

"""The page in a real browser, opened from a file with the network blocked: what it shows is what was recorded."""

from __future__ import annotations

import re

import pytest
from tests.web.conftest import WINDOW, Show

from cabochon.trace.trace import Trace

BROKEN = ("wrong-position", "empty-cache", "no-mask", "stale-slot", "window-off-by-one")


def test_it_opens_from_a_file_with_the_network_blocked(show: Show, alone: Trace, together: Trace) -> None:
    shown = show(("alone", alone), ("together", together))
    for run in ("1", "0"):
        shown.find("#run").select_option(run)
        shown.press("End")
    assert shown.asked_for == [shown.page.url]
    assert shown.errors == []


def test_an_error_is_not_overlooked(show: Show, alone: Trace) -> None:
    """What the other tests rely on."""
    shown = show(("alone", alone))
    shown.evaluate("() => { setTimeout(() => { throw new Error('mine'); }); }")
    shown.evaluate("() => fetch('http://example.invalid/').catch(() => 0)")
    shown.evaluate("() => new Promise((done) => setTimeout(done, 1))")
    assert any("mine" in error for error in shown.errors)
    assert any("Content Security Policy" in error for error in shown.errors)
    shown.errors.clear()


def test_scrubbing_changes_memory_and_text(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    pictures, sentences, tables = set(), set(), set()
    for step in (0, 1, 20, 63):
        shown.go(step)
        assert shown.step == step
        pictures.add(shown.picture("#memory canvas"))
        sentences.add(shown.text("#sentence"))
        tables.add(shown.text("#choice"))
        lit = shown.find(".token[data-now=in]")
        assert lit.count() == (32 if step == 0 else 1)
        assert lit.last.get_attribute("data-position") == str(31 + step)
    assert len(pictures) == len(sentences) == len(tables) == 4


def test_past_the_window_sliding_layers_are_without_old_positions(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    shown.go(60)  # position 91
    words = [
        [cell.inner_text() for cell in row.locator("td").all()] for row in shown.find("#memory-told tbody tr").all()
    ]
    between = [[cell.replace("\N{EN DASH}", "-") for cell in row] for row in words]
    # Written now, read, held, let go; the group of sliding layers and the global ones.
    assert between == [["91", f"{92 - WINDOW}-90", "64-83", "0-63"], ["91", "0-90", "-", "-"]]
    states = shown.evaluate("() => [0, 70, 88, 91, 92].map((p) => [1, 2].map((layer) => cabochon.state(layer, p)))")
    never, held, gone, read, written = range(5)
    assert states == [[gone, read], [held, read], [read, read], [written, written], [never, never]]


def test_probabilities_of_the_kept_sum_to_one(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    shown.find("#choice button").last.click()  # all that are listed
    for step in range(0, 64, 7):
        shown.go(step)
        cells = shown.find(".candidates td.probability")
        kept = [float(text) for text in cells.all_inner_texts() if re.fullmatch(r"[0-9.]+", text)]
        assert len(kept) >= 2
        assert sum(kept) == pytest.approx(1, abs=len(kept) * 5e-5)


def test_the_drawn_number_stands_where_it_fell(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    for step in (0, 9, 30):
        shown.go(step)
        mark, chosen = (shown.find(f".sum {part}").bounding_box() for part in (".mark", ".part.chosen"))
        assert mark is not None
        assert chosen is not None
        middle = mark["x"] + mark["width"] / 2
        assert chosen["x"] - 2 <= middle <= chosen["x"] + chosen["width"] + 2


def test_greedy_is_said_so(show: Show, together: Trace) -> None:
    shown = show(("together", together))
    assert "Greedy" in shown.text("#choice")
    assert shown.find(".sum").count() == 0


def test_tabs_show_verdicts(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    tabs = shown.find("[role=tab]")
    assert tabs.count() == 1 + len(alone.variants)
    for variant in alone.variants:
        tab = shown.find(f"[role=tab][data-way='{variant.variant}']")
        assert variant.verdict in tab.inner_text()
        shown.way(variant.variant)
        assert tab.get_attribute("aria-selected") == "true"
        assert shown.find("[role=tab][aria-selected=true]").count() == 1
        assert variant.about[1:] in shown.text("#about")
        if variant.variant in BROKEN:
            assert variant.difference is not None
            assert f"layer {variant.difference.layer}" in tab.inner_text()
    # The whole text runs again in each step, so all of it is written.
    shown.way("no-cache")
    shown.go(10)
    assert shown.find(".token[data-now=in]").count() == 42
    shown.way("wrong-position")
    assert "position 0" in shown.text("#sentence")


def test_costs_are_in_words(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    shown.press("End")
    assert "95 tokens run" in shown.text("#cost-words")
    assert "4,064" in shown.text("#cost-words")
    # Both curves on one scale, from above in thousandths.
    heights = {
        kind: [
            float(point.split(",")[1])
            for point in (shown.find(f"polyline.{kind}").get_attribute("points") or "").split()
        ]
        for kind in ("own", "other")
    }
    assert [len(points) for points in heights.values()] == [64, 64]
    assert heights["other"][-1] == 0
    assert heights["own"][-1] == pytest.approx(1000 - 1000 * 95 / 4064, abs=0.1)
    picker = shown.find("#cost select")
    picker.select_option("pairs")
    assert f"{alone.end.cost.pairs:,}" in shown.text("#cost-words")
    assert f"{alone.end.recomputing.pairs:,}" in shown.text("#cost-words")
    picker.select_option("seconds")
    again = sum(step.seconds for step in alone.variants[0].steps)
    assert f"{again:.2f} s" in shown.text("#cost-words")


def test_seconds_that_were_not_measured_are_not_made_up(show: Show, together: Trace) -> None:
    shown = show(("together", together))
    shown.find("#cost select").select_option("seconds")
    assert "not timed" in shown.text("#cost-words")


def test_a_batch_shows_each_sequence(show: Show, together: Trace) -> None:
    shown = show(("together", together))
    shown.go(3)
    for sequence, position in enumerate((43, 5, 13)):
        shown.find(f".line[data-sequence='{sequence}'] .token").first.click()
        shown.go(3)
        assert f"position {position}" in shown.text("#sentence")
    assert shown.find("#lanes .lane").first.locator(".lane-row").count() == 3


def test_a_click_on_a_token_goes_to_its_step(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    shown.find(".token[data-position='50']").click()
    assert shown.step == 18  # chose the token at 32 + 18
    assert shown.find(".token[data-now=out]").get_attribute("data-position") == "50"


def test_the_exact_voice_names_shapes(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    shown.go(5)
    assert "[T=1]" not in shown.text("#sentence")
    shown.find("#voice").select_option("exact")
    assert "[T=1]" in shown.text("#sentence")
    assert "H=4" in shown.text("#sentence")

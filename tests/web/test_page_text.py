"""The text of the page: what is tinted, what stays in sight, and the tabs by what is asked of them."""

from __future__ import annotations

import pytest
from tests.web.conftest import Show

from cabochon.trace.trace import Trace

SEEN = """() => [...CSS.highlights.get("seen")].map((range) =>
  [...document.querySelectorAll(".token")].filter((token) => range.intersectsNode(token) && !range.collapsed)
    .map((token) => Number(token.dataset.position)))"""
"""Of each sequence, positions of the tokens that are tinted."""


def test_what_is_looked_back_at_is_tinted(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    for way, step, seen in (
        ("cached", 0, range(0)),
        ("cached", 1, range(32)),
        ("cached", 20, range(51)),
        ("no-cache", 20, range(0)),
        ("empty-cache", 20, range(0)),
    ):
        shown.way(way)
        shown.go(step)
        assert shown.evaluate(SEEN) == [list(seen)]


def test_only_sequences_of_the_step_are_tinted(show: Show, together: Trace) -> None:
    shown = show(("together", together))
    shown.go(3)
    expected = [list(range(share.positions[0][0])) for share in together.steps[3].shares]
    assert shown.evaluate(SEEN) == expected


@pytest.mark.parametrize("width", [1280, 390])
def test_what_goes_in_stays_in_sight(show: Show, alone: Trace, width: int) -> None:
    """Whole, with the number that stands above it."""
    shown = show(("alone", alone), width=width)
    for step in (1, 30, 63, 5):
        shown.go(step)
        line, token, number = (
            shown.find(selector).bounding_box() for selector in (".line", ".token[data-now=in]", ".at:not([hidden])")
        )
        assert line is not None
        assert token is not None
        assert number is not None
        assert line["y"] <= number["y"] < token["y"]
        assert token["y"] + token["height"] <= line["y"] + line["height"]


def test_tabs_stand_under_what_is_asked_of_them(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    groups = {
        group.locator("span").first.inner_text(): [
            tab.get_attribute("data-way") for tab in group.locator("button").all()
        ]
        for group in shown.find("#ways .law").all()
    }
    equal = [variant.variant for variant in alone.variants if variant.equal]
    others = [variant.variant for variant in alone.variants if not variant.equal]
    assert groups == {"recorded": ["cached"], "must be the same": equal, "must break": others}


def test_the_number_above_a_token_is_the_position_that_the_model_is_told(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    shown.go(7)
    numbers = shown.find(".at:not([hidden])")
    assert numbers.all_inner_texts() == ["38"]
    assert shown.find(".at.wrong:not([hidden])").count() == 0
    shown.way("wrong-position")
    assert numbers.all_inner_texts() == ["0"]
    assert shown.find(".at.wrong:not([hidden])").count() == 1
    shown.way("no-cache")
    assert numbers.all_inner_texts() == ["0", "38"]
    assert shown.find(".at.wrong:not([hidden])").count() == 0

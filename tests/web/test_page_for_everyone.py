"""The page by keyboard, for screen readers, on narrow screens and in both themes; and with texts that mean it harm."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.web.conftest import Show
from tests.web.shown import Shown

from cabochon.trace.trace import Trace

HOSTILE = '</script><img src=x onerror="window.hacked=1"><!--\'"&amp;\u202e\u0000'


def test_arrows_home_and_end_move_through_the_steps(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    shown.press("ArrowRight", "ArrowRight", "ArrowRight")
    assert shown.step == 3
    shown.press("ArrowLeft")
    assert shown.step == 2
    shown.press("End")
    assert shown.step == 63
    shown.press("ArrowRight")
    assert shown.step == 63
    shown.press("Home")
    assert shown.step == 0
    shown.press("ArrowLeft")
    assert shown.step == 0


def test_the_slider_takes_each_key_once(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    shown.find("#scrub").focus()
    shown.press("ArrowRight", "ArrowRight", "ArrowUp", "ArrowLeft")
    assert shown.step == 2
    shown.press("End")
    assert shown.step == 63
    shown.press("Home")
    assert shown.step == 0


def test_space_plays_and_pauses(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    shown.press("Space")
    assert shown.text("#play") == "Pause"
    # Any step after that: it goes on while it is looked for.
    shown.find("html:not([data-step='0']):not([data-step='1'])").wait_for()
    # What is read out waits for the end of playing.
    assert "The prompt goes in" in (shown.find("#live").text_content() or "")
    shown.press("Space")
    assert shown.text("#play") == "Play"
    assert f"position {31 + shown.step}" in (shown.find("#live").text_content() or "")


def test_tabs_are_one_stop_and_arrows_walk_them(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    shown.find("[role=tab][aria-selected=true]").focus()
    shown.press("ArrowRight")
    assert shown.evaluate("document.activeElement.dataset.way") == "no-cache"
    assert shown.find("[role=tab][aria-selected=true]").get_attribute("data-way") == "no-cache"
    shown.press("ArrowLeft", "ArrowLeft")
    assert shown.evaluate("document.activeElement.dataset.way") == "window-off-by-one"
    shown.press("Tab")
    assert shown.evaluate("document.activeElement.getAttribute('role')") != "tab"


def test_the_tab_key_comes_by_everything_in_reading_order(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone), ("again", alone))
    stops: list[str] = []
    for _ in range(120):
        shown.press("Tab")
        stop = shown.evaluate(
            """() => {
              const e = document.activeElement;
              if (e === document.body) return "";
              const part = e.closest("section, header, #ways");
              return `${part.id || part.className}: ${e.id || e.getAttribute("aria-label") || e.textContent}`;
            }"""
        )
        if not stop:
            break
        stops.append(stop)
    assert stops[:4] == ["top: run", "top: voice", "top: theme", "ways: cachedthe run"]
    parts = list(dict.fromkeys(stop.split(":")[0] for stop in stops))
    assert parts == [
        part
        for part in ("top", "ways", "text", "lanes", "memory", "choice", "cost", "words", "timeline")
        if part in parts
    ]
    assert {"text", "lanes", "memory", "choice", "cost", "timeline"} <= set(parts)
    assert {"timeline: play", "timeline: scrub", "timeline: one step back"} <= set(stops)


def test_everything_has_a_name(show: Show, alone: Trace, together: Trace) -> None:
    shown = show(("alone", alone), ("together", together))
    nodes = _accessible(shown)
    roles = [role for role, _, _ in nodes]
    assert [roles.count(role) for role in ("main", "banner", "tablist", "slider")] == [1, 1, 1, 1]
    regions = {name.lower() for role, name, _ in nodes if role == "region"}
    assert regions >= {"text", "memory", "choice", "cost", "timeline"}
    nameless = [(role, name) for role, name, focusable in nodes if focusable and not name.strip()]
    assert nameless == []
    assert [name for role, name, _ in nodes if role == "slider"] == ["step"]
    assert shown.find("#scrub").get_attribute("aria-valuetext") == "step 0 of 63"
    assert [name for role, name, _ in nodes if role in ("img", "image") and "memory" in name]
    shown.go(7)
    assert "position 38" in (shown.find("#live").text_content() or "")


def _accessible(shown: Shown) -> list[tuple[str, str, bool]]:
    """Role, name, and whether the keyboard comes there, of each thing that a screen reader is told of."""
    session = shown.page.context.new_cdp_session(shown.page)
    nodes: list[dict[str, Any]] = session.send("Accessibility.getFullAXTree")["nodes"]
    found = []
    for node in nodes:
        if node["ignored"] or node["role"]["value"] == "RootWebArea":
            continue
        focusable = any(p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", ()))
        found.append((node["role"]["value"], node.get("name", {}).get("value", ""), focusable))
    return found


def test_a_term_opens_its_meaning_by_keyboard(show: Show, alone: Trace) -> None:
    shown = show(("alone", alone))
    term = shown.find("#lanes .term").first
    term.focus()
    shown.press("Enter")
    note = shown.find("#note")
    assert note.is_visible()
    assert term.inner_text() in note.inner_text()
    shown.press("Escape")
    assert not note.is_visible()
    assert shown.evaluate("document.activeElement.className") == "term"
    term.click()
    assert note.is_visible()


@pytest.mark.parametrize("part", ["#lanes .term", "#choice button:last-child", "#memory-told .term", "#cost select"])
def test_who_moves_through_the_steps_stays_where_they_are(show: Show, alone: Trace, part: str) -> None:
    shown = show(("alone", alone))
    shown.press("ArrowRight")
    shown.find(part).first.focus()
    before = shown.evaluate("document.activeElement.textContent")
    shown.evaluate("document.dispatchEvent(new CustomEvent('go', { detail: { step: 2 } }))")
    assert shown.step == 2
    assert shown.evaluate("document.activeElement.textContent") == before


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_the_screen(show: Show, alone: Trace, together: Trace, width: int) -> None:
    shown = show(("alone", alone), ("together", together), width=width)
    shown.find("#voice").select_option("exact")
    for run in ("0", "1"):
        shown.find("#run").select_option(run)
        for key in ("Home", "ArrowRight", "End"):
            shown.press(key)
            assert shown.evaluate("document.documentElement.scrollWidth") <= width
            heights = "() => [...document.querySelectorAll('.candidates tbody tr')].map((row) => row.offsetHeight)"
            assert max(shown.evaluate(heights)) < 40, "a word is broken"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(show: Show, alone: Trace, scheme: str) -> None:
    """Contrast of at least 4.5 : 1, whatever the text stands on."""
    shown = show(("alone", alone), scheme=scheme)
    for way in ("cached", "wrong-position"):
        shown.way(way)
        shown.go(20)
        assert shown.evaluate(CONTRASTS) == []


def test_who_wants_no_motion_gets_none(show: Show, alone: Trace) -> None:
    every = "[...document.querySelectorAll('*')].map((e) => getComputedStyle(e))"
    moving = f"() => {every}.filter((s) => s.transitionDuration !== '0s' || s.animationName !== 'none').length"
    assert show(("alone", alone)).evaluate(moving) > 0
    assert show(("alone", alone), motion="reduce").evaluate(moving) == 0


def test_texts_are_never_read_as_html(show: Show, alone: Trace) -> None:
    pieces = {i: f"{HOSTILE}{i}" for i in alone.pieces}
    header = replace(alone.header, pieces=pieces, model=replace(alone.header.model, name=HOSTILE))
    hostile = replace(alone, header=header, steps=tuple(replace(step, pieces={}) for step in alone.steps))
    shown = show((HOSTILE, hostile), ("other", alone))
    for step in (0, 5, 63):
        shown.go(step)
        shown.find(".token[data-position='3']").hover()
    for way in ("no-cache", "wrong-position"):
        shown.way(way)
    shown.find("#voice").select_option("exact")
    assert shown.evaluate("window.hacked") is None
    assert shown.find("img").count() == 0
    assert "<img src=x onerror=" in shown.text(".token[data-position='3']").replace("\N{NO-BREAK SPACE}", " ")
    assert "<img src=x onerror=" in shown.text("#facts")


CONTRASTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = new Set();
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !e.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.add(`${e.tagName}.${e.className}: ${ratio.toFixed(2)}`);
  }
  return [...found];
}"""

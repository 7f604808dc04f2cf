"""Makes ``docs/trace.html``, the page of three recorded runs of the real model, and pictures of it.

    python docs/make_page.py                  # records the runs again (minutes), and takes the pictures
    python docs/make_page.py --as-recorded    # the runs that the page holds, shown by the modules as they are now

Pictures need Chromium (Debian's ``chromium``) and playwright.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec

import cabochon
from cabochon.trace.against import TEXTS
from cabochon.trace.demo import CONTEXT, demo_runs
from cabochon.trace.page import page
from cabochon.trace.trace import End, Header, Step, Trace, VariantRun

DOCS = Path(__file__).parent
PAGE = DOCS / "trace.html"

PICTURES = {
    # name: (width, height, scheme, run, way, step)
    "page-1280-light": (1280, 1480, "light", 0, "cached", 7),
    "page-1280-dark": (1280, 1480, "dark", 1, "cached", 46),
    "page-390-light": (390, 1480, "light", 2, "cached", 5),
    "page-390-dark": (390, 1480, "dark", 0, "wrong-position", 3),
}


class _Run(msgspec.Struct):
    """A run as the page holds it."""

    title: str
    header: Header
    steps: tuple[Step, ...]
    variants: tuple[VariantRun, ...]
    end: End


class _Runs(msgspec.Struct):
    runs: list[_Run]


def recorded() -> list[tuple[str, Trace]]:
    """The runs, recorded now."""
    with cabochon.load("demo", max_running=TEXTS, whole_context=True, context=CONTEXT) as session:
        return list(demo_runs(session))


def held(html: str) -> list[tuple[str, Trace]]:
    """The runs that a page holds."""
    found = re.search(r'id="runs">([^<]*)<', html)
    if found is None:
        raise SystemExit("the page holds no runs")
    runs = msgspec.json.decode(gzip.decompress(base64.b64decode(found[1])), type=_Runs).runs
    # The page names pieces for all parts together; they are the first line's as well.
    return [(run.title, Trace(run.header, run.steps, run.variants, run.end)) for run in runs]


def take_pictures() -> None:
    """Of the page as it stands in the folder, one after the other."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (width, height, scheme, run, way, step) in PICTURES.items():
            options: dict[str, Any] = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
            shown = browser.new_context(**options).new_page()
            shown.goto(PAGE.absolute().as_uri())
            shown.locator("html[data-step]").wait_for()
            shown.select_option("#run", index=run)
            if way != "cached":
                shown.click(f"[data-way={way}]")
            shown.evaluate("(step) => document.dispatchEvent(new CustomEvent('go', { detail: { step } }))", step)
            if width > 1000:  # as high as it is, so that the bar of steps covers nothing
                height = shown.evaluate("document.documentElement.scrollHeight")
                shown.set_viewport_size({"width": width, "height": height})
            # Whatever fades has faded.
            shown.wait_for_timeout(400)
            shown.screenshot(path=str(DOCS / f"{name}.png"))
        browser.close()


def main() -> None:
    """Makes the page and its pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--as-recorded", action="store_true", help="keep the runs that the page holds")
    options = parser.parse_args()
    runs = held(PAGE.read_text("utf-8")) if options.as_recorded else recorded()
    PAGE.write_text(page(runs), "utf-8")
    take_pictures()


if __name__ == "__main__":
    main()

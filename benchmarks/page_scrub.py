"""How long the page of a long trace takes to open, and to show another step.

    python -m benchmarks.page_scrub [--steps 2000] [--layers 62]

The trace is made up (``tests/web/synthetic.py``); the browser is Debian's Chromium without a GPU. Printed are the
file's size, the time from opening the file to the first step shown, and for steps all over the run, in random order:
the time of the page's own work, and the same with the layout that follows; last, the canvas by itself.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright
from tests.web.shown import ARGUMENTS, Shown
from tests.web.synthetic import long_trace

from cabochon.trace.page import page

SCRUB = """(times) => {
  const steps = cabochon.view.way.steps.length;
  let seed = 1;
  const measured = [];
  for (let i = 0; i < times; i++) {
    seed = (seed * 48271) % 2147483647;
    const start = performance.now();
    document.dispatchEvent(new CustomEvent("go", { detail: { step: seed % steps } }));
    const worked = performance.now();
    document.body.offsetHeight;
    measured.push([worked - start, performance.now() - start]);
  }
  return measured;
}"""


MEMORY = """async (times) => {
  const { mount } = await import("cabochon/memory.js");
  const body = document.querySelector("#memory .body");
  const { run, view } = cabochon;
  body.replaceChildren();
  const band = mount(body, run);
  const measured = [];
  for (let i = 0; i < times; i++) {
    const start = performance.now();
    band.show({ ...view, step: (i * 977) % view.way.steps.length });
    measured.push([performance.now() - start]);
  }
  return measured;
}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--layers", type=int, default=62)
    parser.add_argument("--times", type=int, default=500, help="steps shown")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no Chromium here (on Debian: apt-get install chromium)", file=sys.stderr)
        return 1
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "long.html"
        file.write_text(page([("long", long_trace(arguments.steps, arguments.layers))]), "utf-8")
        print(f"{arguments.steps} steps x {arguments.layers} layers: {file.stat().st_size / 1e6:.2f} MB")
        with playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS) as browser:
            start = time.perf_counter()
            shown = Shown(browser, file)
            print(f"opened in {time.perf_counter() - start:.2f} s")
            for name, width in (("1280 px", 1280), ("390 px", 390)):
                shown.page.set_viewport_size({"width": width, "height": 900})
                shown.evaluate(SCRUB, 20)  # the first ones are compiled while they run
                page_alone, with_layout = zip(*shown.evaluate(SCRUB, arguments.times), strict=True)
                report(f"{name}, a step", page_alone)
                report(f"{name}, a step and its layout", with_layout)
            report("drawing the memory alone", [value for (value,) in shown.evaluate(MEMORY, arguments.times)])
            shown.close()
    return 0


def report(what: str, values: Sequence[float]) -> None:
    """Prints milliseconds."""
    cuts = statistics.quantiles(values, n=100)
    print(f"{what}: " + ", ".join(f"{share} % under {cuts[share - 1]:.2f} ms" for share in (50, 95, 99)))


if __name__ == "__main__":
    sys.exit(main())

"""``docs/trace.html`` is made of the modules as they are, and its runs are sound."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from cabochon.trace.check import faults, replay
from cabochon.trace.page import page

DOCS = Path(__file__).parents[2] / "docs"


def loaded(path: Path) -> ModuleType:
    """A script as a module: its types are looked up by its name."""
    spec = spec_from_file_location("cabochon_docs_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_runs(html: str) -> str:
    """What is held is the same; how it is compressed is another library's matter."""
    return re.sub(r'(id="runs">)[^<]*', r"\1", html)


SCRIPT = loaded(DOCS / "make_page.py")
HTML = SCRIPT.PAGE.read_text("utf-8")


def test_the_page_is_made_of_the_modules_as_they_are() -> None:
    """If this fails, run: python docs/make_page.py --as-recorded."""
    assert without_runs(page(SCRIPT.held(HTML))) == without_runs(HTML)


def test_its_runs_are_sound_and_show_what_they_are_to_show() -> None:
    runs = SCRIPT.held(HTML)
    assert [title for title, _ in runs] == ["A short text", "Beyond the window", "Three unequal prompts"]
    for _, trace in runs:
        assert not list(faults(trace))
        assert replay(trace) == tuple(end.text for end in trace.end.sequences)
        assert trace.end.counted == trace.end.cost
        assert all(variant.as_expected for variant in trace.variants)
    short, beyond, together = (trace for _, trace in runs)
    assert [variant.verdict for variant in short.variants].count("identical bits") == 2
    assert "not reached" not in {variant.verdict for variant in beyond.variants}
    # Of layers with a window the first page has been let go, of the others none.
    held_from = beyond.steps[-1].shares[0].held_from
    windows = [group.window for group in beyond.header.model.groups]
    assert [first > 0 for first in held_from] == [window is not None for window in windows]
    assert len({len(prompt.ids) for prompt in together.header.prompts}) == 3


def test_every_picture_is_there() -> None:
    assert all((DOCS / f"{name}.png").exists() for name in SCRIPT.PICTURES)

"""``docs/why-one-token.md`` in both languages: every output and number is what its command gives."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = runpy.run_path(str(DOCS / "make_why_one_token.py"))
PAGES: tuple[Path, ...] = SCRIPT["PAGES"]


def marks(page: Path) -> list[str]:
    """Names of its outputs and numbers, in order."""
    return re.findall(r"<!-- (?:output: )?([\w.]+) -->", page.read_text("utf-8"))


def commands(page: Path) -> list[str]:
    return re.findall(r"```sh\ncabochon (.*?)\n```", page.read_text("utf-8"))


@pytest.mark.real_model
def test_outputs_and_numbers_are_what_the_commands_give(real_model_path: Path) -> None:
    """If this fails, run: python docs/make_why_one_token.py."""
    assert real_model_path.exists()
    outputs, values = SCRIPT["outputs"](), SCRIPT["values"]()
    for page in PAGES:
        text = page.read_text("utf-8")
        assert SCRIPT["filled"](text, outputs, values) == text
        assert set(marks(page)) == {*outputs, *values}


def test_both_languages_have_the_same_commands_outputs_and_numbers() -> None:
    english, chinese = PAGES
    assert commands(english) == commands(chinese)
    assert marks(english) == marks(chinese)
    assert english.read_text("utf-8").count("\n## ") == chinese.read_text("utf-8").count("\n## ")


def test_what_is_printed_beside_an_output_is_what_was_run() -> None:
    """The one command without an output is run by the tests of ``verify --reference``."""
    run = [SCRIPT[name] for name in ("TRACE", "AGAINST", "P32", "WINDOW", "BATCH")]
    shown = commands(PAGES[0])
    assert set(shown) - {*run, f"{SCRIPT['TRACE']} --step 1"} == {
        'verify "The capital of France is" --max-tokens 6 --seed 1 --reference transformers'
    }
    assert set(run) <= set(shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        assert (DOCS / target).exists(), target


def test_a_hole_without_a_name_is_an_error() -> None:
    filled: Any = SCRIPT["filled"]
    assert filled("<!-- a.b -->?<!-- / --> and <!-- a.b --><!-- / -->", {}, {"a.b": "1,234"}) == (
        "<!-- a.b -->1,234<!-- / --> and <!-- a.b -->1,234<!-- / -->"
    )
    with pytest.raises(KeyError):
        filled("<!-- a.c -->?<!-- / -->", {}, {})
    long = "x" * 200
    assert filled("<!-- output: a -->\n```text\nold\n```", {"a": f"b  \n{long}\n"}, {}) == (
        f"<!-- output: a -->\n```text\nb\n{'x' * 148} …\n```"
    )

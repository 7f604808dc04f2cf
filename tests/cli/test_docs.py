from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest
from tests.cli.conftest import Run

import cabochon

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = DOCS / "make_cli_help.py"


def test_the_page_is_what_the_commands_say() -> None:
    """If this fails, run: python docs/make_cli_help.py."""
    script = runpy.run_path(str(SCRIPT))
    assert script["PAGE"].read_text() == script["page"]()


def test_every_option_is_explained() -> None:
    reference = runpy.run_path(str(SCRIPT))["reference"]()
    rows = [line for line in reference.splitlines() if line.startswith("| `-")]
    assert len(rows) > 50
    assert not [row for row in rows if "None" in row or "UNSET" in row or "|  |" in row.removesuffix("|  |")]


def examples(*pages: str) -> list[str]:
    """The Python blocks of some pages of ``docs/``."""
    return [code for page in pages for code in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)]


def test_the_commands_about_traces_run_one_after_the_other(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```sh\n(.*?)```", (DOCS / "tracing.md").read_text(), re.DOTALL)
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert [line[:2] for line in lines] == [["cabochon", "trace"]] * len(lines)
    for line in lines:
        # The tiny model has fewer layers than those of the example.
        words = ["1,2" if word == "5,11" else word for word in line[1:]]
        model = () if "--load" in words else ("--model", tiny, "--context", "128")
        assert run(*words, *model).code == 0, line


@pytest.mark.parametrize("code", examples("together.md", "tracing.md"))
def test_the_examples_run(code: str, tiny: Path) -> None:
    with cabochon.load(tiny, max_running=2) as model:
        exec(compile(code, "example", "exec"), {"model": model})
        assert model.idle

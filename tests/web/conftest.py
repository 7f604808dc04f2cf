"""Runs recorded for the page, and a real Chromium to look at it with: Debian's, driven by playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from tests.web.shown import ARGUMENTS, Shown

import cabochon
from cabochon.testing.tiny import tiny_config, tiny_weights, write_tiny_gguf
from cabochon.trace.page import page
from cabochon.trace.record import record
from cabochon.trace.trace import Trace

WINDOW = 8

Show = Callable[..., Shown]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """As long as one file of tests: its event loop would be in the way of other tests in this process."""
    program = shutil.which("chromium")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("there is no Chromium; .ci/run installs it")
        pytest.skip("no Chromium here (on Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def show(chromium: Browser, tmp_path: Path) -> Iterator[Show]:
    """Opens a page that shows some runs. In the end there must have been no error and no request but for the file."""
    opened: list[Shown] = []

    def show(
        *runs: tuple[str, Trace],
        width: int = 1280,
        height: int = 900,
        scheme: str = "light",
        motion: str = "no-preference",
    ) -> Shown:
        file = tmp_path / f"{len(opened)}.html"
        file.write_text(page(runs), "utf-8")
        opened.append(Shown(chromium, file, width=width, height=height, scheme=scheme, motion=motion))
        return opened[-1]

    yield show
    for shown in opened:
        shown.close()


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cabochon.Session]:
    """Layers 0, 1 and 3 slide over 8 keys; layer 2 is global."""
    config = tiny_config(layers=4, pattern=3, window=WINDOW)
    file = write_tiny_gguf(tmp_path_factory.mktemp("web") / "tiny.gguf", config, tiny_weights(config))
    with cabochon.load(file, context=160, max_running=3, threads=1, prefix_cache=False, whole_context=True) as session:
        yield session


@pytest.fixture(scope="session")
def alone(session: cabochon.Session) -> Trace:
    """One text of 32 + 64 tokens, far beyond the window, and all other ways to make it."""
    prompt = [2, *range(260, 291)]
    return record(
        session, [prompt], against=["all"], max_tokens=64, temperature=12.0, top_k=30, seed=3, ignore_eos=True
    )


@pytest.fixture(scope="session")
def together(session: cabochon.Session) -> Trace:
    """Three prompts of unequal lengths."""
    prompts = [[2, *range(260, 300)], [2, 9, 14], [2, *range(280, 290)]]
    return record(session, prompts, max_tokens=12, temperature=0.0, ignore_eos=True)

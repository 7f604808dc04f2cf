"""A page opened in a browser, with what a test does to it and asks of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Route

ARGUMENTS = ["--disable-gpu", *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else [])]
"""Chromium has no sandbox for root."""


class Shown:
    """One page. Whatever it asks for but itself is refused and noted, as are its errors."""

    def __init__(
        self,
        browser: Browser,
        file: Path,
        *,
        width: int = 1280,
        height: int = 900,
        scheme: Any = "light",
        motion: Any = "no-preference",
    ) -> None:
        self.errors: list[str] = []
        self.asked_for: list[str] = []
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion=motion
        )
        context.route("**/*", self._route)
        self._file = file.as_uri()
        self.page: Page = context.new_page()
        self.page.set_default_timeout(30_000)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(self._file)
        # Waits for an attribute: the page's policy does not let playwright wait for an expression.
        self.page.locator("html[data-step]").wait_for()

    def close(self) -> None:
        """Raises ``AssertionError`` if anything went wrong while the page was open."""
        self.page.close()  # closing the context takes a second, and the browser does it in the end
        assert self.errors == []
        assert self.asked_for == [self._file]

    def _route(self, route: Route) -> None:
        self.asked_for.append(route.request.url)
        if route.request.url == self._file:
            route.continue_()
        else:
            route.abort()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    @property
    def step(self) -> int:
        return int(self.evaluate("document.documentElement.dataset.step"))

    def go(self, step: int) -> None:
        """Moves the slider."""
        self.page.locator("#scrub").fill(str(step))

    def way(self, name: str) -> None:
        """Opens a tab."""
        self.page.locator(f"[role=tab][data-way='{name}']").click()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def evaluate(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)

    def picture(self, selector: str) -> str:
        """What is drawn on a canvas."""
        return str(self.evaluate("s => document.querySelector(s).toDataURL()", selector))

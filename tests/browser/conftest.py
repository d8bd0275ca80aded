"""Headless Chromium, and pages in it.

The fixtures end with the package: while Playwright runs, no other test could call `asyncio.run`.
"""

import os
import shutil
from importlib.util import find_spec

import pytest


class View:
    """A page, what it asked of the network, and what it complained of."""

    def __init__(self, page, address):
        self.page, self.address = page, address
        self.asked, self.said = [], []
        self.listeners = {
            "request": lambda request: self.asked.append(request.url),
            "console": lambda message: self.said.append(message.text),
            "pageerror": lambda error: self.said.append(str(error)),
        }
        for event, listener in self.listeners.items():
            page.on(event, listener)
        self.open()

    def open(self, hash=""):
        """The page anew, at a step."""
        self.page.goto("about:blank")
        self.page.goto(self.address + hash)

    def close(self):
        self.page.goto("about:blank")
        for event, listener in self.listeners.items():
            self.page.remove_listener(event, listener)

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def find(self, selector, **options):
        return self.page.locator(selector, **options)

    def text(self, selector):
        return self.find(selector).first.inner_text()

    def evaluate(self, script):
        return self.page.evaluate(script)

    def wide(self):
        """How far the page is wider than its window."""
        return self.evaluate("document.documentElement.scrollWidth - innerWidth")


@pytest.fixture(scope="package")
def window():
    """Headless Chromium's window, which all tests share; without it tests are skipped, and where
    CI is set they fail.
    """
    missing = pytest.fail if os.environ.get("CI") else pytest.skip
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None or find_spec("playwright") is None:
        missing("there is no chromium, or no playwright")
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        context = browser.new_context()
        context.set_default_timeout(120_000)  # a slow machine may take its time
        yield context.new_page()
        browser.close()


@pytest.fixture
def open_page(window):
    """Opens an address, and ends by asking that the page neither complained nor asked for more."""
    views = []

    def open_(address, *, offline=True, width=1440, height=900, color_scheme="light"):
        window.context.set_offline(offline)
        window.set_viewport_size({"width": width, "height": height})
        window.emulate_media(color_scheme=color_scheme, reduced_motion="reduce")
        window.mouse.move(0, 0)
        views.append(View(window, address))
        return views[-1]

    yield open_
    for view in views:
        view.close()
        assert view.said == []
        assert [url for url in view.asked if not url.startswith((view.address, *INLINE))] == []


INLINE = ("about:", "data:", "blob:")

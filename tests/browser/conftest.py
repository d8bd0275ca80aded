"""Headless Chromium, and pages in it.

The fixture ends with the package: while Playwright runs, no other test could call `asyncio.run`.
"""

import os
import shutil
from importlib.util import find_spec

import pytest


class View:
    """A page, what it asked of the network, and what it complained of; `more` are attributes."""

    def __init__(self, page, address, **more):
        self.page, self.address = page, address
        self.asked, self.said = [], []
        self.__dict__.update(more)
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.goto(address)

    def open(self, hash=""):
        """The page anew, at a step."""
        self.page.goto("about:blank")
        self.page.goto(self.address + hash)

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def find(self, selector, **options):
        return self.page.locator(selector, **options)

    def text(self, selector):
        return self.find(selector).first.inner_text()

    def values(self, selector):
        """The numbers that elements stand for, in full."""
        found = [one.get_attribute("data-value") for one in self.find(selector).all()]
        return [float(value or "nan") for value in found]

    def evaluate(self, script, *given):
        return self.page.evaluate(script, *given)

    def wide(self):
        """How far the page is wider than its window."""
        return self.evaluate("document.documentElement.scrollWidth - innerWidth")


@pytest.fixture(scope="package")
def browser():
    """Headless Chromium; without it tests are skipped, and where CI is set they fail."""
    missing = pytest.fail if os.environ.get("CI") else pytest.skip
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None or find_spec("playwright") is None:
        missing("there is no chromium, or no playwright")
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens an address in a context of its own, and ends by asking that no page complained."""
    views = []

    def open_(address, *, offline=True, more=(), **options):
        usual = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"}
        context = browser.new_context(offline=offline, **(usual | options))
        views.append(View(context.new_page(), address, **dict(more)))
        return views[-1]

    yield open_
    for view in views:
        view.page.context.close()
    assert [view.said for view in views] == [[]] * len(views)

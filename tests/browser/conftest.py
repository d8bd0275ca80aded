"""Headless Chromium, and pages in it.

The fixtures end with the package: while Playwright runs, no other test could call `asyncio.run`.
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
        self.leave()
        self.page.goto(self.address + hash)

    def leave(self):
        self.page.goto("about:blank")

    def close(self):
        self.leave()
        for event, listener in self.listeners.items():
            self.page.remove_listener(event, listener)

    def step(self, hash):
        """To a step, by the address alone."""
        self.evaluate(GO, hash)

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def walk(self, keys, found):
        """What a script finds after each of many keys, as the page gets them from a keyboard."""
        return self.evaluate(f"(keys) => keys.map((key) => {{ {PRESS} return {found}; }})", keys)

    def find(self, selector, **options):
        return self.page.locator(selector, **options)

    def text(self, selector):
        return self.find(selector).first.inner_text()

    def values(self, selector):
        """The numbers that elements stand for, in full."""
        found = self.find(selector).evaluate_all("all => all.map((one) => one.dataset.value)")
        return [float(value or "nan") for value in found]

    def evaluate(self, script, *given):
        return self.page.evaluate(script, *given)

    def wide(self):
        """How far the page is wider than its window."""
        return self.evaluate("document.documentElement.scrollWidth - innerWidth")


GO = """(hash) => new Promise((done) => {
  if (location.hash === hash) return done();
  addEventListener("hashchange", () => done(), { once: true });
  location.hash = hash;
})"""
PRESS = """document.activeElement.dispatchEvent(
  new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));"""


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


@pytest.fixture(scope="package")
def window(browser):
    """The window that all tests share: a new one takes longer than most of them."""
    return new_page(browser)


def new_page(browser):
    """In a context of its own; a slow machine may take its time."""
    context = browser.new_context()
    context.set_default_timeout(120_000)
    return context.new_page()


@pytest.fixture
def open_page(browser, window):
    """Opens an address, and ends by asking that the page neither complained nor asked for more."""
    views = []

    def open_(address, *, offline=True, width=1440, height=900, clock=False, more=(), **media):
        assert not views, "one page for each test"
        page = new_page(browser) if clock else window
        page.context.set_offline(offline)
        page.set_viewport_size({"width": width, "height": height})
        usual = {"media": "null", "color_scheme": "light", "reduced_motion": "reduce"}
        page.emulate_media(**(usual | media))
        page.mouse.move(0, 0)
        if clock:  # which a window keeps from then on
            page.clock.install(time=0)
        views.append(View(page, address, **dict(more)))
        return views[0]

    yield open_
    for view in views:
        view.close()
        if view.page is not window:
            view.page.context.close()
        assert view.said == []
        assert [url for url in view.asked if not url.startswith((view.address, *INLINE))] == []


INLINE = ("about:", "data:", "blob:")

"""A page as tests look at it: in a browser, from a server, or as text."""

import json
import re
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit


def record_of(text):
    """What the script element of a page holds."""
    return json.loads(re.search(r'id="record">(.*?)</script>', text, re.S)[1])


def answer_of(address, method="GET", body=None, **headers):
    """Status and text of a server's answer."""
    with closing(HTTPConnection(urlsplit(address).netloc, timeout=5)) as line:
        line.request(method, urlsplit(address).path, body, headers)
        answer = line.getresponse()
        return answer.status, answer.read().decode()


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

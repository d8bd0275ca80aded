"""The server of pages: who may ask, and how much."""

import socket
import time
from contextlib import ExitStack
from http.client import HTTPException
from urllib.parse import urlsplit

import pytest

from minigrad.views.serving import MOST_WAITING, Served, _Answer
from tests.browsing import answer_of


@pytest.fixture
def address():
    asked = {
        "": ("GET", "text/plain", lambda _: b"yes"),
        "ask": ("POST", "text/plain", bytes.upper),
    }
    server = Served(asked)
    yield server.address
    server.close()
    server.wait()


JSON = {"Content-Type": "application/json"}
ASKED = {
    "the page": ("/{token}/", "GET", {}, 200),
    "a question": ("/{token}/ask", "POST", JSON, 200),
    "under another name": ("/{token}/", "GET", {"Host": "evil.example"}, 404),
    "a question under another name": ("/{token}/ask", "POST", JSON | {"Host": "evil.example"}, 404),
    "without a token": ("/", "GET", {}, 404),
    "with a guess": ("/guess/", "GET", {}, 404),
    "what is not there": ("/{token}/../../etc/passwd", "GET", {}, 404),
    "a question by another method": ("/{token}/ask", "GET", {}, 404),
    "a form": ("/{token}/ask", "POST", {}, 415),
    "too much": ("/{token}/ask", "POST", JSON | {"Content-Length": str(1 << 21)}, 413),
}


@pytest.mark.parametrize(("where", "method", "headers", "status"), ASKED.values(), ids=ASKED)
def test_who_knows_the_token_is_answered_and_nobody_else(address, where, method, headers, status):
    root, token, _ = address.rsplit("/", 2)
    body = b"yes" if method == "POST" else None
    found, text = answer_of(root + where.format(token=token), method, body, **headers)
    assert found == status
    assert status != 200 or text == {"GET": "yes", "POST": "YES"}[method]


def refused(address):
    try:
        return answer_of(address)[0] != 200
    except (HTTPException, OSError):
        return True


def test_no_more_than_so_many_wait_and_who_leaves_makes_room(address, monkeypatch):
    monkeypatch.setattr(_Answer, "timeout", None)  # on a slow machine their time would be over
    where = urlsplit(address)
    with ExitStack() as silent:
        for _ in range(MOST_WAITING):
            silent.enter_context(socket.create_connection((where.hostname, where.port)))
        assert any(refused(address) for _ in range(50))
    for _ in range(3000):
        if not refused(address):
            return
        time.sleep(0.02)
    raise AssertionError("nobody is answered any more")

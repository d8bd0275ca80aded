"""The server of pages: who may ask, and how much."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import pytest

from minigrad.views.serving import MOST_WAITING, Served


@pytest.fixture
def served() -> Iterator[Served]:
    server = Served({"": ("GET", "text/plain", lambda _: b"yes")})
    yield server
    server.close()
    server.wait()


def get(address: str, **headers: str) -> int:
    with closing(HTTPConnection(urlsplit(address).netloc, timeout=5)) as line:
        line.request("GET", urlsplit(address).path, headers=headers)
        return line.getresponse().status


def refused(address: str) -> bool:
    try:
        return get(address) != 200
    except (HTTPException, OSError):
        return True


def test_a_page_of_another_name_or_without_the_token_is_refused(served: Served) -> None:
    assert get(served.address) == 200
    assert get(served.address, Host="evil.example") == 404
    assert get(served.address.rsplit("/", 2)[0] + "/guess/") == 404


def test_no_more_than_so_many_wait_and_who_leaves_makes_room(served: Served) -> None:
    where = urlsplit(served.address)
    with ExitStack() as silent:
        for _ in range(MOST_WAITING):
            line = socket.create_connection((where.hostname or "", where.port or 0))
            silent.enter_context(line)
        assert any(refused(served.address) for _ in range(50))
    for _ in range(100):
        if not refused(served.address):
            return
        time.sleep(0.02)
    raise AssertionError("nobody is answered any more")

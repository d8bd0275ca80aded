"""The page of a run that still trains: a server on this machine alone, in a thread of its own.

Only who knows the address, with its token, gets an answer. A reader cannot slow the training: the
server answers one question at a time and rests after each, and writes news at most once a second.
Nor can it stop it: what fails in the thread stays there, and the thread ends with the process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from secrets import compare_digest, token_urlsafe
from socketserver import TCPServer
from threading import Thread
from typing import Any

from ...recording.flow import FlowRecord
from .page import flow_content, flow_html

__all__ = ["Live"]

REST, FRESH, PATIENCE = 0.05, 1.0, 2.0  # seconds: after an answer, of news, for a slow reader
LAST = 3.0  # seconds after the end in which readers, who ask each second, get the last state


class Live:
    """Serves a record until it is closed. Attributes: address: what to open in a browser."""

    def __init__(self, flow: FlowRecord) -> None:
        self.token = token_urlsafe(24)
        self._server = _Server(("127.0.0.1", 0), partial(_Answer, self))
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/{self.token}/"
        self.news = _Fresh(lambda: json.dumps(flow_content(flow, traces=False)).encode())
        self.page = _Fresh(lambda: flow_html(flow, live=f"{self.address}news").encode())
        Thread(target=self._serve, name="minigrad-live", daemon=True).start()
        print(f"mg.watch: the run is at {self.address}", flush=True)

    def _serve(self) -> None:
        with self._server:
            self._server.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        """The last state for a moment, then no more answers; who trains does not wait for it."""
        self.news.outdate()
        self.page.outdate()
        Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        time.sleep(LAST)
        self._server.shutdown()


class _Server(HTTPServer):
    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without looking up the machine's name

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who leaves, or asks nonsense, is none of the training's business."""


class _Fresh:
    """What a function gives, made anew when it is a second old and twenty times its own cost."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make, self._made, self._until = make, b"", 0.0

    def outdate(self) -> None:
        """Make it anew when it is asked for next."""
        self._until = 0.0

    def __call__(self) -> bytes:
        start = time.monotonic()
        if start >= self._until:
            self._made = self._make()
            end = time.monotonic()
            self._until = end + max(FRESH, 20 * (end - start))
        return self._made


class _Answer(BaseHTTPRequestHandler):
    """One question."""

    timeout = PATIENCE

    def __init__(self, live: Live, *of: Any) -> None:
        self.live = live
        super().__init__(*of)

    def do_GET(self) -> None:
        _, token, what, *_ = [*self.path.split("?")[0].split("/"), "", ""]
        time.sleep(REST)
        known = {"": (self.live.page, "text/html"), "news": (self.live.news, "application/json")}
        host = self.headers.get("Host", "").partition(":")[0]
        mine = compare_digest(token.encode(), self.live.token.encode()) and host == "127.0.0.1"
        if not mine or what not in known:
            self.send_error(404)
            return
        make, kind = known[what]
        body = make()
        self.send_response(200)
        for name, value in (
            ("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"), ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
        ):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing on the terminal of who trains."""

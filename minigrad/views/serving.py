"""A server on this machine alone, for pages that stay in touch with a program.

Only who knows the address, with its token, gets an answer: nothing else on this machine or in the
browser can guess it, and a page of another site that reaches 127.0.0.1 under a name of its own is
refused by that name. The number of requests that wait and the length of each are limited. An error
in one answer does not stop the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import compare_digest, token_urlsafe
from socket import socket
from socketserver import TCPServer
from threading import BoundedSemaphore, Event, Lock, Thread
from typing import Any, TypeAlias

__all__ = ["Route", "Served"]

READER_TIMEOUT = 2.0  # seconds that a slow reader may take
MOST_BYTES = 1 << 20  # of a request
MOST_WAITING = 16  # requests that wait for an answer

Route: TypeAlias = tuple[str, str, Callable[[bytes], bytes]]  # method, content type, answer
Request: TypeAlias = socket | tuple[bytes, socket]  # as socketserver types it


class Served:
    """Answers requests until it is closed.

    Args:
        routes: by the name that follows the token; "" is the page.
        rest: seconds of pause after each answer, so that readers do not slow down a training run;
            requests are then answered one at a time.
    Attributes: address: what to open in a browser.
    """

    def __init__(self, routes: dict[str, Route], rest: float = 0.0) -> None:
        self.routes = routes
        self.rest = rest
        self.token = token_urlsafe(24)
        self.turn = Lock()
        self.closed = Event()
        self._server = _Server(("127.0.0.1", 0), partial(_Answer, self))
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/{self.token}/"
        serve = partial(self._server.serve_forever, poll_interval=0.1)
        Thread(target=serve, name="minigrad-server", daemon=True).start()

    def wait(self) -> None:
        """Until it is closed, or interrupted."""
        while not self.closed.wait(1.0):
            pass

    def close(self, after: float = 0.0) -> None:
        """Stop answering after so many seconds, without waiting for that."""
        Thread(target=self._end, args=(after,), daemon=True).start()

    def _end(self, after: float) -> None:
        time.sleep(after)
        self._server.shutdown()
        self._server.server_close()
        self.closed.set()


class _Server(ThreadingHTTPServer):
    """A thread for each request, so that an idle connection of a browser blocks nobody."""

    request_queue_size = MOST_WAITING

    def __init__(self, address: tuple[str, int], answer: Callable[..., _Answer]) -> None:
        self.room = BoundedSemaphore(MOST_WAITING)
        super().__init__(address, answer)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's own looks up the machine's name

    def process_request(self, request: Request, client_address: object) -> None:
        if self.room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Request, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def handle_error(self, request: Request, client_address: object) -> None:
        """Ignore readers who disconnect or send nonsense."""


class _Answer(BaseHTTPRequestHandler):
    """Serves one HTTP request."""

    timeout = READER_TIMEOUT

    def __init__(self, served: Served, *request: Any) -> None:
        self.served = served
        super().__init__(*request)

    def do_GET(self) -> None:
        self._answer("GET", b"")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.send_error(413)
        elif self.headers.get("Content-Type") != "application/json":
            self.send_error(415)
        else:
            self._answer("POST", self.rfile.read(int(length)))

    def _answer(self, method: str, question: bytes) -> None:
        if self.served.closed.is_set():  # over a line that was open before
            return
        _, token, name, *_ = [*self.path.split("?")[0].split("/"), "", ""]
        host = self.headers.get("Host", "").partition(":")[0]
        mine = compare_digest(token.encode(), self.served.token.encode()) and host == "127.0.0.1"
        wanted, kind, answer = self.served.routes.get(name, ("", "", None))
        if not mine or wanted != method or answer is None:
            self.send_error(404)
            return
        with self.served.turn if self.served.rest else nullcontext():
            body = answer(question)
            time.sleep(self.served.rest)
        self.send_response(200)
        for header, value in (
            ("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"), ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
        ):  # fmt: skip
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing to the terminal."""

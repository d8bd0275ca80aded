"""A server on this machine alone, for a page that stays in touch with a program.

Only who knows the address, with its token, gets an answer: nothing else can guess it.
A page of another site that reaches 127.0.0.1 under a name of its own is refused by that name.
An error in one answer does not stop the server.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import compare_digest, token_urlsafe
from socketserver import TCPServer
from threading import Lock, Thread
from typing import Any

from ..views.page import frame, html_of
from .session import PlaySession

__all__ = ["PlayServer"]


class PlayServer:
    """Serves a session until it is closed. Attributes: address: what to open in a browser."""

    def __init__(self, session: PlaySession) -> None:
        self.session = session
        self.token = token_urlsafe(24)
        self.turn = Lock()
        self._server = _Server(("127.0.0.1", 0), partial(_Answer, self))
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/{self.token}/"
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until it is closed, or interrupted."""
        self._thread.join()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, name: str, body: bytes) -> tuple[str, str] | None:
        """Content type and text; None for what there is not."""
        with self.turn:  # one run at a time
            if (method, name) == ("GET", ""):
                shown = self.session.content()
                return "text/html", html_of(shown, live=True)
            if (method, name) == ("POST", "ask"):
                asked = json.loads(body)
                return "application/json", json.dumps(self.session.answer(asked), allow_nan=False)
        return None

    def _repr_html_(self) -> str:
        return frame(800, src=self.address)


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's own looks up the machine's name

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore readers who disconnect; an error of ours is printed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Answer(BaseHTTPRequestHandler):
    timeout = 5.0  # seconds that a slow reader may take

    def __init__(self, served: PlayServer, *request: Any) -> None:
        self.served = served
        super().__init__(*request)

    def do_GET(self) -> None:
        _, token, name, *_ = [*self.path.split("?")[0].split("/"), "", ""]
        host = self.headers.get("Host", "").partition(":")[0]
        mine = compare_digest(token.encode(), self.served.token.encode()) and host == "127.0.0.1"
        answer = None
        if mine:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = self.served.answer(self.command, name, body)
        if answer is None:
            self.send_error(404)
            return
        kind, text = answer
        data = text.encode()
        self.send_response(200)
        for header, value in (
            ("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(data))),
            ("Cache-Control", "no-store"), ("Referrer-Policy", "no-referrer"),
        ):  # fmt: skip
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing to the terminal."""

"""The page of a session, served on this machine alone, and the answers to its requests."""

from __future__ import annotations

import json
from html import escape
from threading import Lock
from typing import Any

from ..engine.errors import ArgumentError
from ..views.data import number
from ..views.page import assembled, embedded
from ..views.plain import one_line
from ..views.serving import Served
from .changes import arguments_of
from .run import alike, differences, moved
from .session import OPTIMIZERS, PlaySession
from .values import Argument

__all__ = ["PlayServer"]

# requests of a page, and the method of the session that serves each
ACTIONS = {
    "set": "set_entry",
    "setting": "set_argument",
    "argument": "set_keyword",
    "cut": "cut",
    "freeze": "freeze",
    "step": "step",
    "undo": "undo",
    "redo": "redo",
    "reset": "reset",
}
STYLE = "width:100%;height:760px;border:1px solid #8888;border-radius:8px"


class PlayServer:
    """Serves the page of a session until it is closed. Attributes: address, session."""

    def __init__(self, session: PlaySession) -> None:
        self.session = session
        self._turn = Lock()  # one change at a time
        self._show()
        _ = self.pictures.svgs  # raises here where there is no renderer
        routes = {
            "": ("GET", "text/html", lambda _: self._page()),
            "ask": ("POST", "application/json", self.answer),
            "pictures": ("GET", "application/json", lambda _: self._pictures()),
        }
        self.served = Served(routes)
        self.address = self.served.address

    def __repr__(self) -> str:
        return f"{self.session.source.title}, to be played with at {self.address}"

    def _repr_html_(self) -> str:
        """The page within a notebook's cell, where its browser runs on this machine."""
        title = escape(self.session.source.title)
        frame = f'<iframe title="{title}" src="{self.address}" style="{STYLE}"></iframe>'
        return f'<p><a href="{self.address}" target="_blank">{title}</a></p>{frame}'

    def wait(self) -> None:
        """Until it is closed, or interrupted: a script ends otherwise, and the server with it."""
        self.served.wait()

    def close(self) -> None:
        """No more answers."""
        self.served.close()

    def _show(self) -> None:
        """Take over the page of the session's run; its pictures are drawn when asked for."""
        content, self.pictures = self.session.shown
        self.content = content | {"play": self._state(len(content["pictures"]))}

    def _state(self, pictures: int) -> dict[str, Any]:
        """What the page shows of the session. Args: pictures: how many the page has."""
        s = self.session
        before, given = s.before or s.run, arguments_of(s.changes)
        return {
            "version": s.version,
            "changes": [one_line(change.said) for change in s.changes],
            "undo": len(s.past),
            "redo": len(s.undone),
            "loss": [number(before.loss), number(s.run.loss)],
            "alike": alike(before, s.run),
            "pictures": pictures,
            "moved": None if alike(before, s.run) else moved(before, s.run),
            "changed": differences(before, s.run),
            "varies": s.varies,
            "optimizer": s.optimizer,
            "optimizers": OPTIMIZERS,
            "arguments": [
                [name, _typed(given.get(name, default)), _kind(default)]
                for name, default in s.defaults.items()
            ],
        }

    def _page(self) -> bytes:
        return assembled(self.content, self.pictures.svgs).encode()

    def _pictures(self) -> bytes:
        version, pictures = self.content["play"]["version"], self.pictures
        return json.dumps({"version": version, "pictures": pictures.svgs}).encode()

    def answer(self, question: bytes) -> bytes:
        """A line of JSON: what was requested, or, after a change, the state of the session, and the
        content of the page on a second line. After an error, its text; then nothing has changed.
        """
        try:
            with self._turn:
                return "\n".join(map(embedded, self._do(json.loads(question)))).encode()
        except Exception as error:
            return json.dumps({"error": _why(error)}).encode()

    def _do(self, request: object) -> list[dict[str, Any]]:
        if not isinstance(request, dict):
            raise ArgumentError("a question is an object with `do`")
        session, do = self.session, request.pop("do", None)
        if request.pop("version", None) != session.version:
            raise ArgumentError("another page has changed this run: reload this one")
        if do == "look":
            return [session.look(**request)]
        if do == "python":
            return [{"python": session.python()}]
        if do not in ACTIONS:
            raise ArgumentError(f"there is no change named {do!r}; they are {', '.join(ACTIONS)}")
        getattr(session, ACTIONS[do])(**request)
        self._show()
        return [self.content["play"], self.content]


def _why(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    ours = type(error).__module__.startswith("minigrad")
    said = "; ".join(line.strip() for line in lines[:3])
    return one_line(said if ours else f"{type(error).__name__}: {said}", 400)


def _kind(default: Argument) -> str:
    if isinstance(default, bool):
        return "flag"
    return "number" if isinstance(default, int | float) else "text"


def _typed(value: Argument) -> float | str | None:
    if isinstance(value, float):
        return number(value)
    return " ".join(value) if isinstance(value, list | tuple) else value

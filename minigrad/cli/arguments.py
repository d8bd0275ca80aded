"""The command line: its options, and one clear line for what cannot be."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import NoReturn

from .. import __version__
from . import catalogue, check, explain
from .sources import DEFAULT_TEXT, MULTI_HEAD, SELF_ATTENTION

__all__ = ["parser"]

FIRST = "First: minigrad explain examples/pronoun.py:tired --out explained/"


class CommandParser(ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}; see {self.prog} --help\n")


def parser() -> ArgumentParser:
    """The parser of all commands."""
    about = f"A tiny autograd engine on NumPy that shows its work. {FIRST}"
    whole = CommandParser(prog="minigrad", description=about, allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"minigrad {__version__}")
    whole.set_defaults(run=lambda _: print(whole.format_help().rstrip()))
    commands = whole.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, run: object, summary: str, more: str = "") -> ArgumentParser:
        said = f"{summary[0].upper()}{summary[1:]}. {more}"
        made = commands.add_parser(name, help=summary, description=said, allow_abbrev=False)
        made.set_defaults(run=run)
        return made

    made = command(
        "explain",
        explain.run,
        "run a function that returns a loss, and show each step's gradient",
        "It prints what attention looked at and what was checked, and writes the graph as a "
        f"picture, a page to step through, the derivation and the record. {FIRST}",
    )
    _what(made)
    files = "folder for graph.svg, explain.html, derivation.md and trace.json (default: explained/)"
    made.add_argument("--out", default="explained", metavar="DIR", help=files)
    made.add_argument("--all", action="store_true", help="print every step, check and head too")
    made = command(
        "play",
        explain.play,
        "open the page of explain with numbers that can be changed",
        "It is served on this machine alone, and the function runs again at each change. Ctrl-C "
        "ends it.",
    )
    _what(made)
    made = command("ops", catalogue.run, "list the ops with their formulas")
    made.add_argument("names", nargs="*", metavar="NAME", help="only these")
    made = command("check", check.run, "check the gradients of every op and both layers",
        "The exit status is 1 if one disagrees.")  # fmt: skip
    made.add_argument(
        "--op",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="only these ops, no layers",
    )
    return whole


def _what(command: ArgumentParser) -> None:
    """Which function is run, and on what."""
    what = (
        "FILE.py:FUNCTION or package.module:function: your own, which returns a loss; its "
        "attribute `tokens` names what attention looks at; or a layer with untrained weights: "
        f"{MULTI_HEAD} (default) or {SELF_ATTENTION}"
    )
    masks = "of a layer: a token sees itself and those before it, and predicts the next"
    command.add_argument("what", nargs="?", default=MULTI_HEAD, metavar="WHAT", help=what)
    command.add_argument("--text", help=f"of a layer: its sentence (default: {DEFAULT_TEXT!r})")
    command.add_argument("--causal", action="store_true", help=masks)

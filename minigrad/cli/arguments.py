"""The command line: its commands and their options."""

from __future__ import annotations

from argparse import ArgumentParser

from .. import __version__
from . import catalogue, explain
from .sources import DEFAULT_TEXT, LAYER

__all__ = ["parser"]

DESCRIPTION = (
    "A tiny autograd engine on NumPy that shows its work. "
    "First: minigrad explain examples/pronoun.py:tired --out explained/"
)
WHAT = (
    "FILE.py:FUNCTION or package.module:function, which returns a loss; its attribute `tokens` "
    f"names the positions; or {LAYER}, the default, with untrained weights"
)
TEXT = f"of {LAYER}: its sentence (default: {DEFAULT_TEXT!r})"
OUT = "folder for graph.svg, explain.html, derivation.md and trace.json (default: explained/)"
COMMANDS = (
    (explain.run, "explain", "run a function that returns a loss, and show its gradients"),
    (explain.play, "play", "open the page of explain with numbers that can be changed"),
    (catalogue.ops, "ops", "list the ops with their formulas"),
    (
        catalogue.check,
        "check",
        "check the gradients of every op; exit status 1 if one is wrong",
    ),
)


def parser() -> ArgumentParser:
    """The parser of all commands."""
    whole = ArgumentParser(prog="minigrad", description=DESCRIPTION, allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"minigrad {__version__}")
    whole.set_defaults(run=lambda _: print(whole.format_help().rstrip()))
    commands = whole.add_subparsers(metavar="COMMAND")
    for run, name, summary in COMMANDS:
        command = commands.add_parser(
            name, help=summary, description=f"{summary.capitalize()}.", allow_abbrev=False
        )
        command.set_defaults(run=run)
        if name in ("ops", "check"):
            command.add_argument("names", nargs="*", metavar="NAME", help="only these")
            continue
        command.add_argument("what", nargs="?", default=LAYER, metavar="WHAT", help=WHAT)
        command.add_argument("--text", help=TEXT)
        if name == "explain":
            command.add_argument("--out", default="explained", metavar="DIR", help=OUT)
    return whole

"""The command line: its options, and one clear line for what cannot be."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from difflib import get_close_matches
from functools import partial
from typing import Any, NoReturn

from .. import __version__
from ..views.colors import THEMES
from . import catalogue, check, explain
from .output import show
from .sentence import DEFAULT_TEXT, MULTI_HEAD, SELF_ATTENTION

__all__ = ["parser"]

FIRST_COMMAND = "minigrad explain examples/pronoun.py:tired --out explained/"


class CommandParser(ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}; see {self.prog} --help\n")


def parser() -> ArgumentParser:
    """The parser of all commands."""
    about = f"A tiny autograd engine on NumPy that shows its work. First: {FIRST_COMMAND}"
    whole = CommandParser(prog="minigrad", description=about, allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"minigrad {__version__}")
    whole.set_defaults(run=lambda _: show(whole.format_help().rstrip()))
    commands = whole.add_subparsers(dest="command", metavar="COMMAND")
    for name, (run, add_options, summary, description) in COMMANDS.items():
        about = description or f"{summary.capitalize()}."
        command = commands.add_parser(name, help=summary, description=about, allow_abbrev=False)
        command.set_defaults(run=run)
        add_options(command)
    return whole


def _source_options(command: ArgumentParser) -> None:
    """Which function is run, and on what."""
    add = command.add_argument
    number: dict[str, Any] = {"type": _size, "metavar": "N"}
    what = (
        "FILE.py:FUNCTION or package.module:function: your own, which returns a "
        "loss; its attribute `tokens` names what attention looks at; or a layer with untrained "
        f"weights: {MULTI_HEAD} (default) or {SELF_ATTENTION}"
    )
    masks = "a token sees itself and those before it; it predicts the next"
    add("what", nargs="?", type=_what, metavar="WHAT", help=what)
    add("--text", help=f"the sentence, or - for standard input (default: {DEFAULT_TEXT!r})")
    heads = f"heads, {MULTI_HEAD} only; must divide --d-model (default: 4)"
    add("--heads", **number, help=heads)
    add("--d-model", **number, help="width of the embeddings (default: 32)")
    add("--d-k", **number, help=f"width of queries and keys, {SELF_ATTENTION} only (default: 8)")
    add("--d-v", **number, help=f"width of values, {SELF_ATTENTION} only (default: 8)")
    add("--causal", action="store_true", default=None, help=masks)
    bias = f"(default: in {SELF_ATTENTION} only)"
    add("--bias", action=BooleanOptionalAction, help=bias)
    add("--seed", type=_seed, metavar="N", help="draws the weights (default: 0)")
    add("--dtype", choices=["float32", "float64"], help="(default: float64)")


def _explain_options(command: ArgumentParser) -> None:
    _source_options(command)
    add = command.add_argument
    files = "folder for graph.svg, explain.html, derivation.md and trace.json"
    add("--out", default="explained", metavar="DIR", help=f"{files} (default: %(default)s/)")
    add("--json", action="store_true", help="print what trace.json holds, and nothing else")
    picture = "of the picture (default: %(default)s)"
    add("--theme", choices=list(THEMES), default="auto", help=picture)
    add("--depth", type=_size, metavar="N", help="draw boxes nested deeper than N as one node each")
    pasted = "write the page as <iframe> and as <script> too, for slides and web pages"
    add("--embed", action="store_true", help=pasted)
    everything = "show all steps and heads, however many"
    add("--all", action="store_true", help=everything)


def _ops_options(command: ArgumentParser) -> None:
    command.add_argument("names", nargs="*", metavar="NAME", help="only these")
    command.add_argument("--json", action="store_true", help="as JSON")


def _check_options(command: ArgumentParser) -> None:
    add = command.add_argument
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    add("--op", **several, metavar="NAME", help="only these ops, no layers")
    second = "2 checks gradients of gradients as well (default: %(default)s)"
    add("--order", type=int, choices=[1, 2], default=2, help=second)
    samples = "draws the samples (default: %(default)s)"
    add("--seed", type=_seed, default=0, metavar="N", help=samples)


def _what(text: str) -> str:
    known = [MULTI_HEAD, SELF_ATTENTION]
    if text == "attention":
        return SELF_ATTENTION
    if text in known or ":" in text:
        return text
    if text.endswith(".py"):
        raise ArgumentTypeError(f"which function of {text!r}? name it FILE.py:FUNCTION")
    near = get_close_matches(text.replace("_", "-"), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it is {', '.join(known)} or FILE.py:FUNCTION"
    raise ArgumentTypeError(f"nothing to explain is named {text!r}; {hint}")


def _integer(text: str, least: int) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise ArgumentTypeError(f"must be an integer of at least {least}, got {text!r}")
    return int(text)


_size = partial(_integer, least=1)
_seed = partial(_integer, least=0)


COMMANDS = {
    "explain": (
        explain.run,
        _explain_options,
        "show each step's gradient, of your own function or of an attention layer",
        "Run a function that returns a loss, forward and backward: your own, "
        "or that of an attention layer on a sentence. It shows what attention looked at, "
        "every gradient beside the formula derived by hand where there is one, the graph as a "
        f"picture, a page to step through, and the derivation written out. First: {FIRST_COMMAND}",
    ),
    "play": (
        explain.play,
        _source_options,
        "open the page of explain with numbers that can be changed",
        "Run what explain runs, and serve its page on this machine alone, alive: change an entry "
        "of a value, a temperature or the text, open and close entries of a mask, cut an edge, "
        "freeze a value, step the optimizer. The function runs again, and values, gradients, "
        "checks and attention are drawn anew, with what changed marked. Each can be undone, and "
        "copied as the Python that makes it. Ctrl-C ends it.",
    ),
    "ops": (catalogue.run, _ops_options, "list the ops with their formulas", ""),
    "check": (
        check.run,
        _check_options,
        "check the gradients of every op and both layers",
        "Hold each op's gradient against a numeric derivative and its formulas against its code, "
        "and each layer's gradient against formulas derived by hand. The exit status is 1 if one "
        "disagrees.",
    ),
}

"""The command line: its options, and one clear line for what cannot be."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

from ..engine.errors import ArgumentError
from ..views.colors import THEMES
from .load_function import Target
from .sentence import MULTI_HEAD, SELF_ATTENTION, Settings

__all__ = ["asked_for", "parser"]

SENTENCE = "The animal didn't cross the street because it was too tired"
DEFAULTS = {"text": SENTENCE, "d_model": 32, "causal": False, "seed": 0, "dtype": "float64"}
LAYERS: dict[str, dict[str, Any]] = {
    MULTI_HEAD: {"heads": 4, "bias": False},
    SELF_ATTENTION: {"d_k": 8, "d_v": 8, "bias": True},
}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    made = _Parser(
        prog="minigrad",
        description="A tiny autograd engine on NumPy that shows its work.",
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"minigrad {_version()}")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_explain(commands)
    _add_ops(commands)
    _add_check(commands)
    return made


def _add_explain(commands: Any) -> None:
    add = commands.add_parser(
        "explain",
        help="show each step's gradient, of an attention layer or of your own function",
        description="Take a sentence through an attention layer, or run your own function that "
        "returns a loss, forward and backward: every gradient beside the formula derived by hand "
        "where there is one, the attention weights, the graph as a picture, a page to step "
        "through, and the derivation written out.",
        allow_abbrev=False,
    ).add_argument
    n: dict[str, Any] = {"type": _size, "metavar": "N"}
    flag: dict[str, Any] = {"action": "store_true"}
    what = (
        f"{MULTI_HEAD} (default) or {SELF_ATTENTION}; or FILE.py:FUNCTION, or "
        "package.module:function: your own, without arguments, which returns a loss"
    )
    either = argparse.BooleanOptionalAction
    files = "folder for graph.svg, explain.html, derivation.md and trace.json"
    add("what", nargs="?", default=MULTI_HEAD, type=_what, metavar="WHAT", help=what)
    add("--text", help=f"the sentence, or - for standard input (default: {SENTENCE!r})")
    add("--heads", **n, help=f"heads, {MULTI_HEAD} only; must divide --d-model (default: 4)")
    add("--d-model", **n, help="width of the embeddings (default: 32)")
    add("--d-k", **n, help=f"width of queries and keys, {SELF_ATTENTION} only (default: 8)")
    add("--d-v", **n, help=f"width of values, {SELF_ATTENTION} only (default: 8)")
    add(
        "--causal",
        **flag,
        default=None,
        help="a token sees itself and those before it; it predicts the next",
    )
    add("--bias", action=either, help=f"(default: in {SELF_ATTENTION} only)")
    add("--seed", type=_seed, metavar="N", help="draws the weights (default: 0)")
    add("--dtype", choices=["float32", "float64"], help="(default: float64)")
    add("--out", default="explained", metavar="DIR", help=f"{files} (default: %(default)s/)")
    add("--json", **flag, help="print what trace.json holds, and nothing else")
    picture = "of the picture (default: %(default)s)"
    add("--theme", choices=list(THEMES), default="auto", help=picture)
    add("--depth", **n, help="draw boxes nested deeper than N as one node each")
    add("--all", **flag, help="show the weights of all tokens and heads, however many")


def _add_ops(commands: Any) -> None:
    text = "list the ops with their formulas"
    ops = commands.add_parser(
        "ops", help=text, description=f"{text.capitalize()}.", allow_abbrev=False
    )
    ops.add_argument("names", nargs="*", metavar="NAME", help="only these")
    form = ops.add_mutually_exclusive_group()
    form.add_argument("--tex", action="store_true", help="formulas in LaTeX")
    form.add_argument("--json", action="store_true", help="as JSON")


def _add_check(commands: Any) -> None:
    add = commands.add_parser(
        "check",
        help="check the gradients of every op and both layers",
        description="Hold each op's gradient against a numeric derivative, and each layer's "
        "against formulas derived by hand. The exit status is 1 if one disagrees.",
        allow_abbrev=False,
    ).add_argument
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    add("--op", **several, metavar="NAME", help="only these ops, no layers")
    second = "2 checks gradients of gradients as well (default: %(default)s)"
    add("--order", type=int, choices=[1, 2], default=2, help=second)
    samples = "draws the samples (default: %(default)s)"
    add("--seed", type=_seed, default=0, metavar="N", help=samples)


def asked_for(a: argparse.Namespace) -> Target | Settings:
    """What to explain: a function, or a sentence through a layer. Raises: ArgumentError."""
    options = DEFAULTS | LAYERS[MULTI_HEAD] | LAYERS[SELF_ATTENTION]
    given = {name: getattr(a, name) for name in options if getattr(a, name) is not None}
    target = Target(a.what) if ":" in a.what else None
    known = {} if target is not None else DEFAULTS | LAYERS[a.what]
    for name in given:
        if name not in known:
            why = {"heads": "it has one head"}.get(name, "its heads are d_model / heads wide")
            option = "--" + name.replace("_", "-")
            if target is not None:
                raise ArgumentError(f"{option} is for the two layers and does not go with {target}")
            raise ArgumentError(f"{option} does not go with {a.what}: {why}")
    return target or Settings(**{"layer": a.what} | known | given)


def _what(text: str) -> str:
    known = [MULTI_HEAD, SELF_ATTENTION]
    if text in known or ":" in text:
        return text
    if text.endswith(".py"):
        raise argparse.ArgumentTypeError(f"which function of {text!r}? name it FILE.py:FUNCTION")
    near = get_close_matches(text.replace("_", "-"), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it is {' or '.join(known)}"
    raise argparse.ArgumentTypeError(f"no layer is named {text!r}, {hint}")


def _size(text: str) -> int:
    return _integer(text, 1)


def _seed(text: str) -> int:
    return _integer(text, 0)


def _integer(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"must be an integer of at least {least}, got {text!r}")
    return number


def _version() -> str:
    try:
        return version("minigrad")
    except PackageNotFoundError:  # run from a folder, not installed
        return "(not installed)"

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

__all__ = ["parser", "settings_of", "target_of"]

SENTENCE = "The animal didn't cross the street because it was too tired"


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
    add("--causal", **flag, help="a token sees itself and those before it; it predicts the next")
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


def target_of(a: argparse.Namespace) -> Target | None:
    """The function to explain, or None if it is a layer. Raises: ArgumentError."""
    if ":" not in a.what:
        return None
    target = Target(a.what)
    for name in ("text", "heads", "d_model", "d_k", "d_v", "causal", "bias", "seed", "dtype"):
        value = getattr(a, name)
        if value is not (False if name == "causal" else None):
            option = "--" + name.replace("_", "-")
            raise ArgumentError(f"{option} is for the two layers and does not go with {target}")
    return target


def settings_of(a: argparse.Namespace, text: str | None) -> Settings:
    """What to explain, with what each layer has by default. Raises: ArgumentError."""
    many = a.what == MULTI_HEAD
    d_model = a.d_model or 32
    foreign = {"--d-k": a.d_k, "--d-v": a.d_v} if many else {"--heads": a.heads}
    for option, value in foreign.items():
        if value is not None:
            why = "its heads are d_model / heads wide" if many else "it has one head"
            raise ArgumentError(f"{option} does not go with {a.what}: {why}")
    heads = (a.heads or 4) if many else 1
    return Settings(
        layer=a.what,
        text=SENTENCE if text is None else text,
        d_model=d_model,
        heads=heads,
        d_k=d_model // heads if many else a.d_k or 8,
        d_v=d_model // heads if many else a.d_v or 8,
        causal=a.causal,
        bias=a.bias if a.bias is not None else not many,
        seed=a.seed or 0,
        dtype=a.dtype or "float64",
    )


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

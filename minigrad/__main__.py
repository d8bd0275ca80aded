"""The command `minigrad`: explain a sentence or a function, list the ops, check the gradients.

Exit status: 0 if all is well, 1 if a gradient is wrong, 2 for arguments that cannot be.
It is 141 if the reader of a pipe left. What the user's function raises is Python's to show.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from . import __version__
from .cli import UsageError, catalogue, explain
from .cli.sources import DEFAULT_TEXT, LAYER

__all__ = ["main"]

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
COMMANDS = {
    "explain": explain.run,
    "play": explain.play,
    "ops": catalogue.ops,
    "check": catalogue.check,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default the process's own; the exit status."""
    if hasattr(sys.stdout, "reconfigure"):  # what a terminal cannot show is spelled out
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        arguments = parser().parse_args(argv)
        return int(arguments.run(arguments) or 0)
    except UsageError as error:
        print(f"minigrad: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # Python complains of it at exit, unless what is left goes elsewhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130


def parser() -> ArgumentParser:
    """The parser of all commands; each says what its function's docstring says."""
    whole = ArgumentParser(prog="minigrad", description=DESCRIPTION, allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"minigrad {__version__}")
    whole.set_defaults(run=lambda _: print(whole.format_help().rstrip()))
    commands = whole.add_subparsers(metavar="COMMAND")
    for name, run in COMMANDS.items():
        doc = run.__doc__
        command = commands.add_parser(name, help=doc, description=doc, allow_abbrev=False)
        command.set_defaults(run=run)
        if name in ("ops", "check"):
            command.add_argument("names", nargs="*", metavar="NAME", help="only these")
            continue
        command.add_argument("what", nargs="?", default=LAYER, metavar="WHAT", help=WHAT)
        command.add_argument("--text", help=TEXT)
        if name == "explain":
            command.add_argument("--out", default="explained", metavar="DIR", help=OUT)
    return whole


if __name__ == "__main__":
    sys.exit(main())

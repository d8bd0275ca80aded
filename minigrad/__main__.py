"""The command `minigrad`: explain a sentence or a function, list the ops, check the gradients.

Exit status: 0 if all is well, 1 if a gradient or a cost is wrong or the user's function raised, 2
for arguments that cannot be, 141 if the reader of a pipe left.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from itertools import chain
from pathlib import Path
from typing import Any

from .cli.arguments import asked_for, parser
from .cli.ascii import readable
from .cli.catalogue import catalogue, entry, known_ops
from .cli.check_layers import check_layers
from .cli.check_ops import check_ops
from .cli.check_result import CheckResult, ResultLines
from .cli.explanation import FILES, Explanation
from .cli.load_function import Target
from .cli.output_files import staged
from .cli.sentence import Settings
from .cli.sentence_report import SentenceReport
from .cli.user_function import FunctionReport
from .engine.errors import ArgumentError, MinigradError
from .views.plain import one_line
from .views.terminal import finished, only_ascii, wide

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default the process's own; the exit status."""
    commands = {"explain": _explain, "ops": _ops, "check": _check}
    try:
        arguments = parser().parse_args(argv)
        return commands[arguments.command](arguments)
    except SystemExit as stop:  # argparse: --help, --version, or a wrong argument
        return stop.code if isinstance(stop.code, int) else 2
    except ArgumentError as error:
        return _complain(error, 2)
    except MinigradError as error:
        for note in getattr(error, "__notes__", ()):  # where in the user's own code
            print(note, file=sys.stderr)
        return _complain(error, 1)
    except MemoryError:
        return _complain("not enough memory for these sizes", 2)
    except BrokenPipeError:
        _silence()
        return 141
    except OSError as error:  # such as a full disk
        _silence()
        return _complain(error.strerror or error, 1)
    except KeyboardInterrupt:
        return 130


# ---------------------------------------------------------------- commands


def _explain(arguments: argparse.Namespace) -> int:
    if not arguments.out:
        raise ArgumentError("--out needs the name of a folder")
    if arguments.text == "-":
        arguments.text = sys.stdin.read()
    asked = asked_for(arguments)
    out = Path(arguments.out)
    with staged(out) as folder:
        explanation = _run(asked, arguments.json)
        undrawn = explanation.write(folder, arguments.theme, arguments.depth)
    if arguments.json:
        _print(explanation.record(), False)
        if undrawn:
            print(f"minigrad: {undrawn}", file=sys.stderr)
    else:
        ascii = only_ascii(None)
        written = [f"wrote {one_line(str(out / name))}: {what}" for name, what in FILES.items()]
        written[0] = undrawn or written[0]  # the picture
        _print(explanation.report(written, wide(None), ascii, arguments.all), ascii)
    return 0 if explanation.succeeded() and not undrawn else 1


def _run(asked: Target | Settings, quiet: bool) -> Explanation:
    """Run it; what a user's function prints itself stays out of the JSON."""
    if isinstance(asked, Settings):
        return SentenceReport(asked)
    with redirect_stdout(sys.stderr if quiet else sys.stdout):
        return FunctionReport(asked)


def _ops(arguments: argparse.Namespace) -> int:
    ops = known_ops(arguments.names)
    if arguments.json:
        _print(json.dumps([entry(op) for op in ops], indent=1), False)
    else:
        ascii = only_ascii(None)
        _print(catalogue(ops, wide(None), tex=arguments.tex, ascii=ascii), ascii)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    ops, ascii = known_ops(arguments.op), only_ascii(None)
    lines, done = ResultLines([op.name for op in ops], wide(None)), list[CheckResult]()
    layers = () if arguments.op else check_layers(arguments.seed)
    _print(lines.head(), ascii)
    for result in chain(check_ops(ops, arguments.order, arguments.seed), layers):
        _print(lines.row(result), ascii)
        done.append(result)
    for line in chain.from_iterable(map(lines.failures, done)):
        _print(line, ascii)
    _print(lines.verdict(done, len(done) - len(ops), arguments.order, arguments.seed), ascii)
    return 0 if all(result.ok for result in done) else 1


# ---------------------------------------------------------------- output


def _print(text: str, ascii: bool) -> None:
    """Print what the terminal's encoding can show, and escape the rest."""
    text = finished(readable(text) if ascii else text, ascii)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _complain(what: Any, status: int) -> int:
    first = (str(what).strip().splitlines() or [type(what).__name__])[0]
    print(f"minigrad: error: {one_line(first)}", file=sys.stderr)
    return status


def _silence() -> None:
    """No one reads on: drop what is buffered, so that Python does not complain at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return


if __name__ == "__main__":
    sys.exit(main())

"""The command `minigrad`: explain a sentence, list the ops, check the gradients.

Exit status: 0 if all is well, 1 if a gradient or a cost is wrong, 2 for arguments that cannot be,
141 if the reader of a pipe left.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from .cli.arguments import parser, settings_of
from .cli.ascii import readable
from .cli.catalogue import catalogue, entry, known_ops
from .cli.check_layers import layers_checked
from .cli.check_ops import ops_checked
from .cli.explain import record, report, succeeded
from .cli.files import staged
from .cli.outcome import Lines, Outcome
from .cli.sentence import run
from .errors import ArgumentError, MinigradError, MissingDependencyError
from .trace import Trace
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
    settings = settings_of(arguments, sys.stdin.read() if arguments.text == "-" else arguments.text)
    if not arguments.out:
        raise ArgumentError("--out needs the name of a folder")
    out = Path(arguments.out)
    with staged(out) as folder:
        lesson = run(settings)
        checks = lesson.trace.check()
        data = json.dumps(record(lesson), indent=1, allow_nan=False)
        (folder / "trace.json").write_text(data + "\n", encoding="ascii")
        undrawn = _draw(lesson.trace, folder / "graph.svg", arguments)
    files = [
        undrawn or f"wrote {out / 'graph.svg'}: the graph, forward and backward",
        f"wrote {out / 'trace.json'}: every step, size, check and weight",
    ]
    ascii = only_ascii(None)
    _print(report(lesson, checks, files, wide(None), ascii=ascii, everything=arguments.all), ascii)
    return 0 if succeeded(lesson, checks) and not undrawn else 1


def _draw(trace: Trace, path: Path, arguments: argparse.Namespace) -> str:
    """Draw the graph; says why if there is nothing to draw it with."""
    try:
        trace.draw(path, theme=arguments.theme, depth=arguments.depth)
    except MissingDependencyError as error:
        return f"graph.svg not drawn: {_first_line(error)}"
    return ""


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
    layers = () if arguments.op else layers_checked(arguments.seed)
    lines, done = Lines([op.name for op in ops], wide(None)), list[Outcome]()
    _print(lines.head(), ascii)
    for outcome in chain(ops_checked(ops, arguments.order, arguments.seed), layers):
        _print(lines.row(outcome), ascii)
        done.append(outcome)
    for outcome in done:
        for line in lines.failures(outcome):
            _print(line, ascii)
    _print(lines.verdict(done, len(done) - len(ops), arguments.order, arguments.seed), ascii)
    return 0 if all(outcome.ok for outcome in done) else 1


# ---------------------------------------------------------------- output


def _print(text: str, ascii: bool) -> None:
    """Print what the terminal's encoding can show, and escape the rest."""
    text = finished(readable(text) if ascii else text, ascii)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _complain(what: Any, status: int) -> int:
    print(f"minigrad: error: {_first_line(what)}", file=sys.stderr)
    return status


def _first_line(what: Any) -> str:
    return (str(what).strip().splitlines() or [type(what).__name__])[0]


def _silence() -> None:
    """No one reads on: drop what is buffered, so that Python does not complain at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return


if __name__ == "__main__":
    sys.exit(main())

"""Measure minigrad beside plain NumPy and other engines.

    python -m benchmarks                    everything, some ten minutes
    python -m benchmarks --quick            a few cases and rounds, a minute and a half
    python -m benchmarks table --markdown   the README's table

Sections:
  table      a training step of attention and of a small GPT, as ratios to hand-best, the best
             NumPy we could write by hand, in one interleaved run
  ops        single ops beside PyTorch's: wall and CPU time, and memory

Training steps of whole models are a program of their own, `python -m benchmarks.training`.

Every peer works in a process of its own, all idle but one. Its answers, output and every gradient,
are held against a float64 reference before it is timed: a wrong one is named and not timed. Figures
are medians over rounds with the peers in turn; a ratio is to hand-best in the same round. Before
each sample a process waits for an idle machine, up to --patience; a figure is marked ~ where other
load made half of its rounds a quarter slower.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from .cases import TABLE
from .contestants import everyone
from .machine import describe, machine
from .peers import Peer
from .remote import start
from .rounds import BASE, Settings
from .sections import SECTIONS, Options, say
from .single_ops import OPS

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    parsed = parser.parse_args(arguments)
    peers, cases = everyone(), [*TABLE, *OPS]
    for what, names, known in (
        ("section", parsed.sections, SECTIONS),
        ("case", parsed.cases, cases),
        ("peer", parsed.peers, peers),
    ):
        if unknown := [name for name in names if name not in known]:
            parser.error(f"no {what} {', '.join(unknown)}; there are {', '.join(known)}")
    options = Options(_settings(parsed), parsed.quick, parsed.cases)

    wanted = [peers[name] for name in peers if name in (BASE, *(parsed.peers or peers))]
    remotes, versions, missing = start(wanted)
    print(describe(machine()))
    print(_compared(versions, missing, peers))
    try:
        for name in parsed.sections or SECTIONS:
            report = SECTIONS[name](remotes, options)
            say()
            print("", report.markdown() if parsed.markdown else report.text(), sep="\n", flush=True)
    finally:
        for remote in remotes:
            remote.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("sections", nargs="*", metavar="SECTION", help="all, unless some are named")
    add("--quick", action="store_true", help="fewer cases, lengths and rounds")
    add("--cases", type=_names, default=(), help="of the sections table and ops")
    add("--peers", type=_names, default=(), help=f"hand-best, and which of {_LIST}")
    add("--dtype", choices=("float32", "float64"), default="float32")
    add("--rounds", type=_positive, help="9; 3 with --quick")
    add("--patience", type=float, help="seconds to wait for an idle machine: 10; 1 with --quick")
    add("--markdown", action="store_true", help="print tables as a README's")
    return parser


_LIST = ", ".join(name for name in everyone() if name != BASE)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(text)


def _settings(parsed: argparse.Namespace) -> Settings:
    usual = Settings(parsed.dtype, 3, 0.02, 1.0) if parsed.quick else Settings(parsed.dtype)
    chosen = {"rounds": parsed.rounds, "patience": parsed.patience}
    return replace(usual, **{name: x for name, x in chosen.items() if x is not None})


def _compared(versions: dict[str, str], missing: dict[str, str], peers: dict[str, Peer]) -> str:
    """Who takes part, with versions, and who is not here, with the reason."""
    others = dict.fromkeys(v for v in versions.values() if not v.startswith("NumPy"))
    absent = [f"{peers[name].title} ({why})" for name, why in missing.items()]
    return ", ".join(others) + (f"; not here: {', '.join(absent)}" if absent else "")


if __name__ == "__main__":
    raise SystemExit(main())

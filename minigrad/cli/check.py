"""`minigrad check`: every op, then both layers, one line each as it is done."""

from __future__ import annotations

import textwrap
from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import chain

from ..views.terminal import Paint, wide
from .check_ops import CheckResult, check_ops
from .declared import known_ops
from .output import show

__all__ = ["run"]

NAME, METHOD = "op or layer", 19
MOST_FAILURES = 3  # shown of one op


def run(arguments: Namespace) -> int:
    ops, done = known_ops(arguments.op), list[CheckResult]()
    layers = iter(()) if arguments.op else _layers(arguments.seed)
    lines = _Lines([op.name for op in ops], wide(None))
    show(lines.row(NAME, "method", "samples", "worst error", ""))
    for result in chain(check_ops(ops, arguments.order, arguments.seed), layers):
        done.append(result)
        mark = lines.paint("good", "✓") if result.ok else lines.paint("alarm", "✗")
        worst = f"{result.worst:.1e}"
        show(lines.row(result.name, result.method, str(result.samples), worst, mark))
    wrong = [result for result in done if not result.ok]
    for line in chain.from_iterable(map(lines.failures, wrong)):
        show(line)
    n = len(done) - len(ops)
    what = f"{len(ops)} op{'s' * (len(ops) != 1)}" + (f" and {n} layers" if n else "")
    if wrong:
        names = ", ".join(result.name for result in wrong)
        show(lines.painted("alarm", f"{len(wrong)} of {what} disagree: {names}"))
        return 1
    samples = sum(result.samples for result in done)
    orders = "first and second order" if arguments.order == 2 else "first order"
    agree = "agrees" if len(done) == 1 else "agree"
    said = f"{what} {agree} on {samples} samples, {orders}, seed {arguments.seed}"
    show(lines.painted("good", said))
    return 0


def _layers(seed: int) -> Iterator[CheckResult]:
    from .check_layers import check_layers

    return check_layers(seed)


class _Lines:
    """Lines for results as they come in, for a terminal so wide."""

    def __init__(self, names: Sequence[str], width: int) -> None:
        self.longest = max(len(name) for name in [*names, NAME])
        self.method = width >= self.longest + METHOD + 26
        self.width, self.paint = max(width, 20), Paint()

    def row(self, name: str, method: str, samples: str, worst: str, mark: str) -> str:
        how = f"{method:<{METHOD}}  " if self.method else ""
        return f"{name:<{self.longest}}  {how}{samples:>7}  {worst:>11}  {mark}"

    def failures(self, result: CheckResult) -> list[str]:
        """Where it disagrees: its first failures, and how many there are besides."""
        shown = result.failures[:MOST_FAILURES]
        lines = [self.painted("alarm", f"✗ {result.name}: {failure}") for failure in shown]
        more = len(result.failures) - len(shown)
        return lines + ([f"  {result.name}: {more} more of its samples disagree"] if more else [])

    def painted(self, kind: str, text: str) -> str:
        lines = textwrap.wrap(text, self.width, subsequent_indent="  ", break_on_hyphens=False)
        return "\n".join(self.paint(kind, line) for line in lines)

"""What a step of minigrad spends its time on.

Kernels and backward rules are timed one by one, as the engine's own listeners hear them, and the
lines of a compiled step as Python's tracing does; they are sorted by what they do. What remains of
an undisturbed step's time is Python: calls, recording, the traversal, sums on edges, guards. A
kernel's time is all of its call, so its own few lines of Python count as its work.
"""

from __future__ import annotations

import gc
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter, process_time
from typing import Any

from . import clock
from .cases import Case
from .lines import Lines, called
from .peers import Minigrad, Peer, Step, Unsupported

try:
    import resource
except ImportError:  # not a Unix
    resource = None  # type: ignore[assignment]

__all__ = ["KINDS", "OPTIMISER", "PYTHON", "Spent", "kind", "line_kind", "long_chain", "spend"]

SOFTMAX = ("softmax", "log_softmax", "logsumexp", "cross_entropy")
# by the file of minigrad/ops that an op is declared in
KINDS = {
    "products": ("linalg", "linear"),
    "softmax": (),
    "tiles": ("tiled",),
    "entry-wise": ("elementwise", "attention"),
    "sums": ("reduce", "neural"),
    "moves": ("shape", "select"),
    "others": (),
}
# a compiled step's lines, by the NumPy function they call; its softmax is written out in these
FUNCTIONS = {
    "products": ("dot", "einsum", "matmul"),
    "sums": ("cumsum", "mean", "reduce", "sum"),
    "moves": (
        *("concatenate", "copy", "copyto", "expand_dims", "pad", "reshape", "squeeze", "stack"),
        *("broadcast_to", "swapaxes", "take", "transpose"),
    ),
}
OPTIMISER = "optimiser"
PYTHON = "Python"


@dataclass(frozen=True)
class Spent:
    """Where a step's seconds go: `shares` adds up to 1."""

    seconds: float
    shares: dict[str, float]
    cores: float  # kept busy on average
    faults: float  # pages of memory that the kernel had to provide, a step
    quiet: bool


def kind(op: Any) -> str:
    """What an op does: one of KINDS."""
    if op.name in SOFTMAX:
        return "softmax"
    file = op.kernel.__module__.rpartition(".")[2]
    return next((name for name, files in KINDS.items() if file in files), "others")


def line_kind(line: str, ops: Mapping[str, Any]) -> str:
    """What a line of a compiled step does: one of KINDS, OPTIMISER, or PYTHON for plain Python.

    A line calls NumPy, or an op's kernel or rule by the op's name.

    >>> line_kind("np.dot(w, t_2, out=t)", {}), line_kind("np.exp(S, out=A)", {})
    ('products', 'entry-wise')
    >>> line_kind("x_T = x.swapaxes(-1, -2)", {}), line_kind("leaf_w.grad = d_w", {})
    ('moves', 'Python')
    """
    *owner, name = called(line).split(".")
    op = ops.get(re.sub(r"(_backward)?(_\d+)?$", "", name))
    if op is not None and not owner:
        return kind(op)
    if name == "step":
        return OPTIMISER
    numpys = next((what for what, names in FUNCTIONS.items() if name in names), None)
    return numpys or ("entry-wise" if owner[:1] == ["np"] else PYTHON)


def spend(peer: Peer, case: Case, dtype: str, seconds: float) -> Spent:
    """Take steps for so many seconds, by turns unheard and heard; medians of the undisturbed."""
    if not isinstance(peer, Minigrad):
        raise Unsupported("only minigrad tells what it does")
    step = peer.step(case, case.inputs(dtype))
    heard: dict[str, float] = defaultdict(float)
    if peer.optimiser is not None and not peer.compiled:
        peer.optimiser.step = _timed(peer.optimiser.step, heard)
    step(), step()
    if excuse := peer.excuse():
        raise Unsupported(excuse)
    start = perf_counter()
    step()
    steps = max(1, round(0.01 / (perf_counter() - start)))
    clock.wait_until_idle(start + seconds)
    taken = [_turn(peer, step, steps, heard)]
    while perf_counter() - start < seconds:
        taken.append(_turn(peer, step, steps, heard))
    quiet = [turn for turn in taken if turn.quiet]
    enough = 2 * len(quiet) >= len(taken)
    return _typical(quiet if enough else taken, enough)


@dataclass(frozen=True)
class _Turn:
    """So many steps unheard, and their time by kind when heard; all figures of one of them."""

    seconds: float
    cpu: float
    faults: float
    parts: dict[str, float]
    quiet: bool


def _turn(peer: Minigrad, step: Step, steps: int, heard: dict[str, float]) -> _Turn:
    before = clock.mark()
    pages, own, start = _faults(), process_time(), perf_counter()
    for _ in range(steps):
        step()
    taken = perf_counter() - start, process_time() - own, _faults() - pages
    heard.clear()
    for _ in range(steps):
        (_lines_heard if peer.compiled else _ops_heard)(peer, step, heard)
    parts = {name: seconds / steps for name, seconds in heard.items()}
    seconds, cpu, faults = (figure / steps for figure in taken)
    return _Turn(seconds, cpu, faults, parts, not clock.load_since(before).disturbed)


def _typical(turns: Sequence[_Turn], quiet: bool) -> Spent:
    seconds = statistics.median(turn.seconds for turn in turns)
    kinds = dict.fromkeys(name for turn in turns for name in turn.parts if name != PYTHON)
    took = {k: statistics.median(turn.parts.get(k, 0.0) for turn in turns) for k in kinds}
    most = max(seconds, sum(took.values()))  # heard steps may happen to be the slower ones
    shares = {name: part / most for name, part in took.items()}
    shares[PYTHON] = (most - sum(took.values())) / most
    cores = sum(turn.cpu for turn in turns) / sum(turn.seconds for turn in turns)
    return Spent(seconds, shares, cores, statistics.mean(turn.faults for turn in turns), quiet)


def _ops_heard(peer: Minigrad, step: Step, heard: dict[str, float]) -> None:
    """A step whose kernels and rules are heard one by one."""

    class Ear(peer.mg.Listener):  # type: ignore[misc, name-defined]
        def forward(self, op: Any, inputs: Any, settings: Any, output: Any, took: float) -> None:
            heard[kind(op)] += took

        def backward(self, node: Any, gradient: Any, contributions: Any, took: float) -> None:
            heard[kind(node.op)] += took

    with peer.mg.listen(Ear()):
        step()


def _lines_heard(peer: Minigrad, step: Step, heard: dict[str, float]) -> None:
    """A compiled step whose lines are timed one by one."""
    with Lines() as lines:
        step()
    source = peer.program.source.split("\n")
    for number, took in lines.seconds.items():
        heard[line_kind(source[number - 1], peer.mg.registry)] += took


def _timed(function: Callable[[], None], heard: dict[str, float]) -> Callable[[], None]:
    def run() -> None:
        start = perf_counter()
        function()
        heard[OPTIMISER] += perf_counter() - start

    return run


def long_chain(peer: Peer, nodes: int) -> dict[str, float]:
    """Seconds of so many additions of a number to a number, forward, backward, and to free them.

    Raises: ArithmeticError if the gradient is not 1.
    """
    if not isinstance(peer, Minigrad):
        raise Unsupported("only minigrad makes nodes")
    x = peer.mg.tensor(1.0, requires_grad=True)
    gc.collect()
    times = [perf_counter()]
    y = x
    for _ in range(nodes):
        y = y + 1e-9
    times.append(perf_counter())
    y.backward()
    times.append(perf_counter())
    del y
    times.append(perf_counter())
    if float(x.grad) != 1.0:
        raise ArithmeticError(f"a chain of {nodes} additions: the gradient is {x.grad}, not 1")
    taken = [later - earlier for earlier, later in pairwise(times)]
    return dict(zip(("forward", "backward", "to be freed"), taken, strict=True))


def _faults() -> int:
    """Pages the kernel has had to provide so far."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt

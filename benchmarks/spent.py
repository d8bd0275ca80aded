"""What a step of minigrad spends its time on, as the engine's own listeners hear it.

Kernels and rules are timed one by one and sorted by what they do; what remains of an undisturbed
step's time is the engine's and the layers' Python: calls, recording, the traversal, sums on edges.
A kernel's time is all of its call, so its own few lines of Python count as its work.
"""

from __future__ import annotations

import gc
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from .cases import Case
from .peers import Unsupported

try:
    import resource
except ImportError:  # not a Unix
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from .peers import Peer

__all__ = ["KINDS", "OPTIMISER", "REST", "Spent", "kind", "long_chain", "spend"]

SOFTMAX = ("softmax", "log_softmax", "logsumexp", "cross_entropy")
# by the file of minigrad/ops that an op is declared in
KINDS = {
    "products": ("linalg", "linear"),
    "softmax and losses": (),
    "attention in tiles": ("tiled",),
    "entry by entry": ("elementwise", "attention"),
    "sums and norms": ("reduce", "neural"),
    "moving and copying": ("shape", "select"),
    "other ops": (),
}
OPTIMISER = "the optimiser"
REST = "Python outside NumPy"


@dataclass(frozen=True)
class Spent:
    """Where a step's seconds go: `shares` adds up to 1."""

    seconds: float
    shares: dict[str, float]
    cores: float  # kept busy on average
    faults: float  # pages of memory that the kernel had to provide, a step


def kind(op: Any) -> str:
    """What an op does: one of KINDS."""
    if op.name in SOFTMAX:
        return "softmax and losses"
    file = op.kernel.__module__.rpartition(".")[2]
    return next((name for name, files in KINDS.items() if file in files), "other ops")


def spend(peer: Peer, case: Case, dtype: str, seconds: float) -> Spent:
    """Take steps for so many seconds, by turns unheard and heard; medians of both."""
    mg = getattr(peer, "mg", None)
    if mg is None or getattr(peer, "compiled", False):
        raise Unsupported("only the engine's own ops can be heard")
    heard: dict[str, float] = defaultdict(float)

    class Ear(mg.Listener):  # type: ignore[misc, name-defined]
        def forward(self, op: Any, inputs: Any, settings: Any, output: Any, took: float) -> None:
            heard[kind(op)] += took

        def backward(self, node: Any, gradient: Any, contributions: Any, took: float) -> None:
            heard[kind(node.op)] += took

    step = peer.step(case, case.inputs(dtype))
    optimiser = getattr(peer, "optimiser", None)
    if optimiser is not None:
        optimiser.step = _timed(optimiser.step, heard)
    step(), step()
    whole: list[float] = []
    parts: dict[str, list[float]] = defaultdict(list)
    cpu = faults = 0.0
    end = perf_counter() + seconds
    while not whole or perf_counter() < end:
        pages, own, start = _faults(), process_time(), perf_counter()
        step()
        whole.append(perf_counter() - start)
        cpu, faults = cpu + process_time() - own, faults + _faults() - pages
        heard.clear()
        with mg.listen(Ear()):
            step()
        for name in (*KINDS, OPTIMISER):
            parts[name].append(heard[name])
    typical = statistics.median(whole)
    took = {name: statistics.median(seconds) for name, seconds in parts.items()}
    most = max(typical, sum(took.values()))  # heard steps may happen to be the slower ones
    shares = {name: seconds / most for name, seconds in took.items() if seconds}
    shares[REST] = (most - sum(took.values())) / most
    return Spent(typical, shares, cpu / sum(whole), faults / len(whole))


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
    mg = getattr(peer, "mg", None)
    if mg is None:
        raise Unsupported("only an engine makes nodes")
    x = mg.tensor(1.0, requires_grad=True)
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

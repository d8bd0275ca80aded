"""By how much a number of a run changes with another run's values in it: estimated, and measured.

The estimate is gradient · (other value − value), one backward for all tensors: attribution patching
(Syed et al. 2023, arXiv:2310.10348), exact where the number is linear in the tensor. To measure,
the run is run again for each, with the other value in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.context import no_grad
from ..engine.errors import ArgumentError, ShapeError
from ..interventions import replace
from ..paths import matches, nearest
from .gradients import find_scalar, gradients_of
from .record import Entry

if TYPE_CHECKING:
    from .trace import Trace

__all__ = ["Patch", "Patched", "patch"]

SAME = 1e-4  # relative: how near a second run must come to the record's number


@dataclass(frozen=True)
class Patch:
    """By how much the number changes where another run's value is put in.

    Attributes: slot: which one along the axis, None for all of it.  effect: measured, or None.
    """

    path: str
    slot: int | None
    estimate: float
    effect: float | None


@dataclass(frozen=True)
class Patched:
    """Patches of one number of a run, in the order of the run.

    Attributes: output, value: the number.  other: what it was in the other run, None if unnamed.
    """

    output: str
    value: float
    other: float | None
    patches: list[Patch]

    @property
    def correlation(self) -> float | None:
        """Of estimates and effects; None where they were not measured, or do not vary."""
        pairs = [(p.estimate, p.effect) for p in self.patches if p.effect is not None]
        if len(pairs) < 2 or not np.ptp(pairs, axis=0).all():
            return None
        return float(np.corrcoef(np.transpose(pairs))[0, 1])

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        own = {name: getattr(self, name) for name in ("output", "value", "other", "correlation")}
        return own | {"patches": [vars(one) for one in self.patches]}


def patch(
    here: Trace, there: Trace, output: Any, paths: str, axis: int | None, run: Any
) -> dict[str, Any]:
    """What a Patched is made of; see `Trace.patching`."""
    entry, name, value, seed = find_scalar(here, output, "patching(output)")
    twins = {key: e for e, key in _keyed(there)}
    pairs = [(e, key, twins[key]) for e, key in _keyed(here) if key in twins]
    gradients = gradients_of(here, entry, seed)
    if run is not None:
        _check_same(name, value, float(run()))
    chosen = [pair for pair in pairs if matches(paths, pair[0].path) and pair[0].id in gradients]
    if not chosen:
        near = nearest(paths, (e.path for e, *_ in pairs))
        raise ArgumentError(f"patching(paths={paths!r}): no value of both runs has this path{near}")
    patches = []
    for e, key, twin in chosen:
        estimates = _estimates(e, twin, gradients[e.id], axis)
        for slot, estimate in enumerate(estimates):
            index = None if axis is None else (*[slice(None)] * (axis % len(e.shape)), slot)
            effect = None if run is None else _measured(run, key, twin.value, index) - value
            patches.append(Patch(e.path, None if axis is None else slot, float(estimate), effect))
    ends = [float(np.vdot(seed, twin.value)) for e, _, twin in pairs if e is entry]
    other = ends[0] if ends else None
    return {"output": name, "value": value, "other": other, "patches": patches}


def _keyed(trace: Trace) -> Iterator[tuple[Entry, tuple[str, int]]]:
    """What ops made and has a name, with what is the same in another run: path, and which of it."""
    seen: Counter[str] = Counter()
    for i in trace.forward_steps:
        entry = trace.entries[i]
        if entry.name and entry.dtype.startswith("float"):
            yield entry, (entry.path, seen[entry.path])
            seen[entry.path] += 1


def _estimates(entry: Entry, twin: Entry, gradient: Any, axis: int | None) -> Any:
    """gradient · difference, for each slot of an axis."""
    if twin.shape != entry.shape:
        raise ShapeError(
            f"patching: {entry.path} is {entry.shape} in this run and {twin.shape} in the other; "
            "give both runs inputs of one shape"
        )
    if axis is not None and not -len(entry.shape) <= axis < len(entry.shape):
        raise ShapeError(f"patching(axis={axis}): {entry.path} has shape {entry.shape}")
    with np.errstate(invalid="ignore"):  # what is masked is -inf in both
        product = np.where(gradient == 0, 0, gradient * (twin.value - entry.value))
    others = tuple(i for i in range(product.ndim) if axis is not None and i != axis % product.ndim)
    return product.sum(axis=others) if axis is not None else [product.sum()]


def _measured(run: Callable[[], Any], key: tuple[str, int], value: Any, index: Any) -> float:
    path, which = key
    put = value if index is None else value[index]
    with no_grad(), replace(f"/{path}", put, index=index, call=which):
        return float(run())


def _check_same(name: str, value: float, again: float) -> None:
    if not abs(again - value) <= SAME * max(abs(again), abs(value)):
        raise ArgumentError(
            f"patching(run): run() must give the number of this record again, "
            f"{name} = {value:.6g}, got {again:.6g}"
        )

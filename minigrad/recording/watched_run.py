"""What several rules read of a record: the loss, figures of the weights, what holds since when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import TypeVar

import numpy as np

from .flow import FlowRecord, FlowRow, Sample

__all__ = ["FAST", "STEPS", "STEPS_TO_LEARN", "WatchedRun", "lasting_from"]

T = TypeVar("T")

FAST = 0.1  # update to weight; 1e-3 is usual
STEPS = 20  # a loss of fewer steps says nothing
STEPS_TO_LEARN = 50  # in fewer steps a model may not have learned anything yet


class WatchedRun:
    """A record up to its first NaN, as the rules of a diagnosis read it."""

    def __init__(self, flow: FlowRecord) -> None:
        end = flow.events[0]["step"] if flow.events else flow.steps
        self.flow, self.samples = flow, [s for s in flow.samples if s.step <= end]
        self.weights = [row for row in flow.rows.values() if row.is_matrix]
        names = flow.log_names
        self.held_out = next((n for n in names if ("val" in n and "loss" in n) or n == "val"), None)
        losses = [n for n in names if "loss" in n and n != self.held_out]
        losses += [n for n in names if n != self.held_out and self._is_loss(n)]
        self.loss_name = losses[0] if losses else ""
        logged = [(step, x) for step, x in flow.logs(self.loss_name) if step < end]
        self.steps, self.loss = [s for s, _ in logged], np.array([x for _, x in logged], float)
        width = max(1, min(8, len(logged) // 5))
        self.known = len(logged) >= STEPS and bool(np.isfinite(self.loss).all())
        self.start = self.begun = self.end = 1.0
        if self.known:
            self.begun, self.end = (
                float(np.median(part)) for part in (self.loss[:width], self.loss[-width:])
            )
            self.start = min(self.begun, float(self.loss[0]))
        ratio = [self.middle(row, "ratio") for row in self.weights if self._began_nonzero(row)]
        angle = [self.middle(row, "cosine") for row in self.weights]
        self.ratio, self.cosine = _median(ratio, 1e-3), _median(angle)
        drifts = (flow.series(row.path, "drift") for row in self.weights)
        self.drifts = [found[-1][1] for found in drifts if found]
        self.drift = _median(self.drifts)

    @property
    def guess(self) -> float | None:
        """The loss of the best constant guess, if what was logged is what backward began from."""
        known = [s.guess for s in self.samples if s.guess is not None]
        logged = self.loss_name and self._is_loss(self.loss_name)
        return float(np.mean(known)) if known and logged else None

    def _is_loss(self, name: str) -> bool:
        """Whether what was logged under a name is what backward began from; an accuracy is not."""
        began = {s.step: s.loss for s in self.samples if s.loss is not None}
        pairs = [(x, began[step]) for step, x in self.flow.logs(name) if step in began]
        return bool(pairs) and all(abs(x - loss) <= 1e-3 * abs(loss) for x, loss in pairs)

    def unit(self, sample: Sample) -> float:
        """The scale of the loss up to a step, where that of a mean cross-entropy is 1."""
        units = (s.unit or 0.0 for s in self.samples if s.step <= sample.step)
        return max(1.0, max((x for x in units if np.isfinite(x)), default=0.0) / 2)

    def first_loss(self) -> float:
        """The size of the loss at first, as it was logged or as backward began from it."""
        began = [abs(s.loss) for s in self.samples[:1] if s.loss is not None]
        return max([abs(self.start), *(x for x in began if np.isfinite(x))]) or 1.0

    def learned(self, share: float) -> bool:
        """Whether the loss fell below this share of where it began, and of the best guess."""
        known = [x for x in (self.start, self.guess) if x is not None]
        return self.known and self.end < share * min(known)

    def typical(self, figure: str) -> float:
        """The median over weights of the medians of a figure; 0 where it is not known."""
        return _median(self.middle(row, figure) for row in self.weights)

    def at(self, sample: Sample, figure: str) -> float:
        """The median over weights of a figure of one sample; 0 where it is not known."""
        return _median(sample.rows.get(row.path, {}).get(figure) for row in self.weights)

    def middle(self, row: FlowRow, figure: str) -> float | None:
        found = [x for _, x in self.flow.series(row.path, figure)]
        return float(np.median(found)) if found else None

    def _began_nonzero(self, row: FlowRow) -> bool:
        """Weights that begin as zeros move by more than they are."""
        ratio = self.flow.series(row.path, "ratio")
        return bool(ratio) and ratio[0][1] > 0

    def pull(self, sample: Sample, row: FlowRow) -> float:
        """‖W‖ ‖∂L/∂W‖."""
        figures = sample.rows.get(row.path, {})
        return figures.get("value", 0.0) * figures.get("gradient", 0.0) * prod(row.shape)

    def lasting(self, holds: Callable[[Sample], T | None]) -> tuple[Sample, T] | None:
        """The sample where something began to last, and what it was there."""
        found = [holds(sample) for sample in self.samples]
        began = lasting_from(found)
        if began is None or (first := found[began]) is None:
            return None
        return self.samples[began], first


def lasting_from(found: Sequence[object]) -> int | None:
    """Where something began to hold three times in a row; of fewer, all times."""
    need = min(3, len(found))
    starts = range(len(found) - need + 1) if need else ()
    return next((i for i in starts if all(found[i : i + need])), None)


def _median(numbers: Iterable[float | None], otherwise: float = 0.0) -> float:
    """Of those that are known and finite."""
    known = [x for x in numbers if x is not None and np.isfinite(x)]
    return float(np.median(known)) if known else otherwise

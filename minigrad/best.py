"""Best: a copy of the best weights so far, by a number that is measured now and then."""

from __future__ import annotations

import os
from math import isnan
from typing import SupportsFloat

from .engine.errors import ArgumentError
from .engine.types import StateDict
from .saving import HasState, Part, PlainData, restore, save, state_of

__all__ = ["Best"]


class Best:
    """Keeps a copy of a model as it was when a number was best, and with `path` a file of it.

    Args:
        model: what has `state_dict`; copied together with its layers' generators.
        metric: the number's name, for the file's note and for errors.
        path: a file that `save` writes at each best, whole or not at all; `load` reads it.
        mode: whether less is better ("min") or more ("max").
        patience: after so many updates without a better number, `should_stop` is True.
        parts: what else to copy, by name, as `save` takes it: optimizer=, schedule=, rng=.
    Attributes:
        value, step: of the best so far; None before the first.
        waited: updates since then.
    Raises: ArgumentError for another mode, or a patience below 1.

    >>> import numpy as np
    >>> from layers import Linear
    >>> model = Linear(1, 1, rng=0)
    >>> best = Best(model, "val_loss", patience=2)
    >>> for step, loss in enumerate([0.9, 0.4, 0.5, float("nan"), 0.3]):
    ...     model.b = np.array([float(step)])
    ...     if not best.update(loss, step) and best.should_stop:
    ...         break
    >>> best.restore().value, best.step, model.b.item()
    (0.4, 1, 1.0)
    """

    def __init__(
        self,
        model: HasState,
        metric: str = "loss",
        path: str | os.PathLike[str] | None = None,
        *,
        mode: str = "min",
        patience: int | None = None,
        **parts: Part,
    ) -> None:
        if mode not in ("min", "max"):
            raise ArgumentError(f'Best: mode must be "min" or "max", got {mode!r}')
        if patience is not None and patience < 1:
            raise ArgumentError(f"Best: patience must be at least 1, got {patience}")
        self.parts: dict[str, Part] = {"model": model, **parts}
        self.metric = metric
        self.path = path
        self.mode, self.patience = mode, patience
        self.value: float | None = None
        self.step: PlainData = None
        self.waited = 0
        self._copies: dict[str, StateDict] = {}

    def update(self, value: SupportsFloat, step: PlainData = None) -> bool:
        """Whether this number is better than all before it; if so, all parts are copied.

        NaN never is.
        """
        found, sign = float(value), 1 if self.mode == "min" else -1
        if isnan(found) or (self.value is not None and sign * found >= sign * self.value):
            self.waited += 1
            return False
        self._copies = {name: state_of(part) for name, part in self.parts.items()}
        self.value = found
        self.step = step
        self.waited = 0
        if self.path is not None:
            save(self.path, step=step, note={self.metric: found}, keep=1, **self.parts)
        return True

    @property
    def should_stop(self) -> bool:
        """Whether there were `patience` updates in a row without a better number."""
        return self.patience is not None and self.waited >= self.patience

    def restore(self) -> Best:
        """Put every part back to the best. Returns this. Raises: ArgumentError if there is none."""
        if not self._copies:
            raise ArgumentError(f"Best.restore: no {self.metric} has been a number yet")
        for name, part in self.parts.items():
            restore(part, self._copies[name])
        return self

    def state_dict(self) -> StateDict:
        """What `save` keeps of a run that goes on later: best=best."""
        counts = {"value": self.value, "step": self.step, "waited": self.waited}
        return counts | {"copies": self._copies}

    def load_state_dict(self, state: StateDict) -> None:
        """Go on from what `state_dict` gave. Raises: ArgumentError for other parts."""
        if state["copies"] and set(state["copies"]) != set(self.parts):
            raise ArgumentError(
                f"Best: has {sorted(self.parts)}, the file {sorted(state['copies'])}"
            )
        self.value = state["value"]
        self.step = state["step"]
        self.waited = state["waited"]
        self._copies = dict(state["copies"])

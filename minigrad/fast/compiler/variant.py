"""Variant: one recorded run of a step, the program made of it, and when that fits."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np

from ...engine.tensor import Tensor
from .arguments import Arguments
from .dependencies import Dependencies
from .record import Recorder, form

__all__ = ["Variant", "small_bytes"]

SMALL_BYTES = 1 << 13


def small_bytes(array: Any) -> bytes | None:
    """What a small array holds; None for others."""
    if type(array) is not np.ndarray or array.nbytes > SMALL_BYTES or array.dtype.hasobject:
        return None
    return array.tobytes()


class Variant:
    """One recorded run.

    Attributes:
        run: the program, called with args and kwargs; None if the step runs eagerly.
        reason, remedy: why it does, and what to do about it.
        source: the program as text, or a comment that says why there is none.
        calls: how often it ran, when it was recorded included.
        lock: held while the program runs, whose buffers serve one call at a time.
    """

    def __init__(
        self, found: Dependencies, recorder: Recorder, arguments: Arguments, samples: list[Any]
    ) -> None:
        self.found, self.program, self.lock, self.calls = found, recorder.program, Lock(), 1
        self.run: Callable[..., Any] | None = None
        self.reason, self.remedy, self.source = recorder.reason, recorder.remedy, ""
        leaves, fresh = recorder.values.leaves, recorder.values.fresh
        self._fixed = [(x, x._data, x._needs) for key, x in leaves.items() if key not in fresh]
        position = {id(x): i for i, x in enumerate(arguments.arrays)}
        entries = [(leaves[key], entry) for key, entry in recorder.entry_grads.items()]
        self._fixed_grads = [(x, entry) for x, entry in entries if id(x) not in fresh]
        self._given_grads = [(position[id(x)], entry) for x, entry in entries if id(x) in fresh]
        self._known = self._known_among(arguments)
        held = enumerate(zip(arguments.arrays, samples, strict=False))
        self._unseen: dict[Any, bytes] = {i: kept for i, (_, kept) in held if kept is not None}
        self._captured = {f"captured {i}": x for i, x in enumerate(found.of(np.ndarray))}
        for name, array in self._captured.items():
            kept = small_bytes(array)
            if kept is not None:
                self._unseen[name] = kept

    def _known_among(self, arguments: Arguments) -> list[int]:
        """Which arguments the step also reaches by itself."""
        things = self.found.things
        return [id(x) if id(x) in things else 0 for x in arguments.arrays]

    def fits(self, arguments: Arguments) -> bool:
        """Whether this is the program for a call with arguments of the same key."""
        for leaf, data, needs in self._fixed:
            if leaf._data is not data or leaf._needs is not needs or leaf._hooks:
                return False
        for leaf, entry in self._fixed_grads:
            if leaf.grad is not entry and form(leaf.grad) != entry:
                return False
        given = arguments.arrays
        for i, entry in self._given_grads:
            if given[i].grad is not entry and form(given[i].grad) != entry:
                return False
        if given and self._known_among(arguments) != self._known:
            return False
        return self.found.fits()

    def sees_news(self, arguments: Arguments) -> bool:
        """Whether a small array holds other numbers for the first time: they may have been frozen
        where nobody saw it.
        """
        return any(self._current(key, arguments) != kept for key, kept in self._unseen.items())

    def note_news(self, arguments: Arguments) -> None:
        """A call with these arrays was audited."""
        changed = [k for k, kept in self._unseen.items() if self._current(k, arguments) != kept]
        for key in changed:
            del self._unseen[key]

    def _current(self, key: Any, arguments: Arguments) -> bytes:
        array = self._captured[key] if isinstance(key, str) else arguments.arrays[key]
        return array.tobytes()  # type: ignore[no-any-return]

    def tensors(self, arguments: Arguments) -> list[Tensor]:
        """Every Tensor that the step can reach, each once."""
        every = [*self.found.of(Tensor), *self.program_leaves(), *arguments.arrays]
        return list({id(x): x for x in every if isinstance(x, Tensor)}.values())

    def program_leaves(self) -> list[Tensor]:
        return [leaf for leaf, _, _ in self._fixed]

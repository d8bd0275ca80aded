"""Steps beside their compiled form: what the tests of compile share."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.fast.limits import LIMITS


def leaf(*shape: int, seed: int = 0, name: str = "w", dtype: Any = float) -> mg.Tensor:
    values = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return mg.tensor(values, requires_grad=True, name=name)


def data(i: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(100 + i).normal(size=shape)


def some_rows(i: int) -> Any:
    return (data(i, 4, 3),)


def world(
    step: Any, *leaves: mg.Tensor, given: Any = some_rows, before: Any = None, seen: Any = None
) -> SimpleNamespace:
    """A step, its arguments at call i, what is done before it, and what is compared after it."""

    def entries() -> Any:
        return [[w.numpy().copy(), 0 if w.grad is None else w.grad.copy()] for w in leaves]

    def clear(i: int) -> None:
        for w in leaves:
            w.grad = None

    before = before or clear
    return SimpleNamespace(step=step, given=given, before=before, seen=seen or entries)


def same(make: Callable[[], Any], recordings: int = 1, calls: int = 9) -> Any:
    """Call the step of two worlds in turn, one of them compiled; compare all bits that are seen.

    Small arrays are let go of and written over, as large ones are.
    """
    with LIMITS.changed(large_bytes=0):
        return compared(make, recordings, calls)


def compared(make: Callable[[], Any], recordings: int, calls: int) -> Any:
    eager, compiled = make(), make()
    run = mg.compile(compiled.step)
    for i in range(calls):
        found = []
        for world, step in ((eager, eager.step), (compiled, run)):
            world.before(i)
            found.append([step(*world.given(i)), world.seen()])
        for new, old in zip(_flat(found[1]), _flat(found[0]), strict=True):
            assert bits(new) == bits(old), f"call {i + 1}: {new} for {old}"
    assert (run.recordings, run.reasons) == (recordings, [])
    return run


def bits(x: Any) -> tuple[Any, ...]:
    """What is the same of arrays of the same bits."""
    array = np.asarray(x)
    return array.shape, array.dtype, array.tobytes()


def _flat(x: Any) -> list[Any]:
    if isinstance(x, list | tuple):
        return [array for part in x for array in _flat(part)]
    return [] if x is None else [x.numpy() if isinstance(x, mg.Tensor) else x]


CLAIMS: dict[str, tuple[Callable[[], Any], int]] = {}


def claim(recordings: int = 1) -> Callable[[Any], Any]:
    """What a function makes is right at each call, by so many programs."""

    def note(make: Callable[[], Any]) -> Any:
        CLAIMS[make.__name__] = make, recordings
        return make

    return note

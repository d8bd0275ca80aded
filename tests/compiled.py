"""A step and its compiled form, called in turn."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import minigrad as mg

__all__ = ["assert_compiles"]


def assert_compiles(
    step: Callable[..., Any],
    leaves: Sequence[mg.Tensor],
    *calls: tuple[Any, ...],
    kept: Callable[[], list[Any]] = list,
    tolerance: float = 1e-12,
    programs: int = 1,
) -> Any:
    """Compiled, each call gives what it gives eagerly: results, gradients of leaves, what is kept.

    So many programs are recorded, none runs eagerly, and the leaves hold other numbers at each
    call. Returns the compiled step.
    """
    run = mg.compile(step)
    for n, args in enumerate(calls):
        found = []
        for call in (step, run):
            for leaf in leaves:
                leaf.grad = None
            out = call(*args)
            results = [x.numpy().copy() for x in (out if isinstance(out, tuple) else (out,))]
            found.append([*results, *kept(), *(leaf.grad for leaf in leaves)])
        for eager, compiled in zip(*found, strict=True):
            assert (eager is None) == (compiled is None)
            if eager is not None:
                assert (compiled.shape, compiled.dtype) == (eager.shape, eager.dtype)
                np.testing.assert_allclose(compiled, eager, rtol=tolerance, atol=tolerance)
        for k, leaf in enumerate(leaves):
            drawn = np.random.default_rng(10 * n + k).normal(size=leaf.shape)
            leaf.assign_(drawn.astype(leaf.dtype))
    assert (run.recordings, run.reasons) == (programs, [])
    return run

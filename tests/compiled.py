"""A step and its compiled form, called in turn."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import minigrad as mg

__all__ = ["assert_compiles"]


def _drawn(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=array.shape).astype(array.dtype)


def assert_compiles(
    step: Callable[..., Any],
    leaves: Sequence[mg.Tensor],
    *calls: tuple[Any, ...],
    kept: Callable[[], list[Any]] = list,
    tolerance: float = 1e-12,
    programs: int = 1,
    renewed: Callable[[np.ndarray, np.random.Generator], np.ndarray] = _drawn,
) -> Any:
    """Compiled, each call gives what it gives eagerly: results, gradients of leaves, what is kept.

    So many programs are recorded, none runs eagerly, the leaves hold other numbers at each call,
    and no later call writes into what an earlier one gave. Returns the compiled step.
    """

    def is_view(array: np.ndarray) -> bool:
        """Of a leaf, so that the numbers change as it does."""
        return any(np.may_share_memory(array, leaf.numpy()) for leaf in leaves)

    run, given = mg.compile(step), []
    for n, args in enumerate(calls):
        found = []
        for call in (step, run):
            for leaf in leaves:
                leaf.grad = None
            out = call(*args)
            results = [x.numpy() for x in (out if isinstance(out, tuple) else (out,))]
            made = [*results, *(leaf.grad for leaf in leaves)]
            found.append([*kept(), *(x if x is None else x.copy() for x in made)])
            given += [(x, x.copy()) for x in made if x is not None and not is_view(x)]
        for eager, compiled in zip(*found, strict=True):
            assert (eager is None) == (compiled is None)
            if eager is not None:
                assert (compiled.shape, compiled.dtype) == (eager.shape, eager.dtype)
                np.testing.assert_allclose(compiled, eager, rtol=tolerance, atol=tolerance)
        for k, leaf in enumerate(leaves):
            leaf.assign_(renewed(leaf.numpy(), np.random.default_rng(10 * n + k)))
    for array, before in given:
        np.testing.assert_array_equal(array, before, err_msg="changed after it was given")
    assert (run.recordings, run.reasons) == (programs, [])
    return run

"""What all tests share: the one comparison of numbers, its tolerances, and checks of refusals.

>>> assert_same(mg.exp(mg.tensor([0.0, 1.0])), np.exp([0.0, 1.0]))
>>> assert_same([0.5, 1e-15], [0.5, 0.0])
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg

__all__ = ["ROUNDING", "assert_same", "refusals"]

# The part of the largest entry by which two orders of summing a few hundred numbers may differ.
ROUNDING = {"float16": 1e-2, "float32": 1e-5, "float64": 1e-12, "complex128": 1e-12}


def assert_same(found: Any, expected: Any, tolerance: float | None = None, name: str = "") -> None:
    """The same numbers but for rounding: equal shape, and dtype where both are arrays.

    No entry is off by more than `tolerance` times itself or times the largest finite entry that is
    expected; without one, ROUNDING of the dtype; integers and booleans are equal. Both may be
    arrays, Tensors, PyTorch's tensors, numbers, or lists, tuples and dicts of them.
    """
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), f"{name}: {list(found)}, not {list(expected)}"
        for key in expected:
            assert_same(found[key], expected[key], tolerance, f"{name} {key}".strip())
        return
    if isinstance(expected, list | tuple) and not _plain(expected):
        assert len(found) == len(expected), f"{name}: {len(found)}, not {len(expected)}"
        for i, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
            assert_same(mine, theirs, tolerance, f"{name}[{i}]")
        return
    ours, theirs = _array(found), _array(expected)
    assert ours.shape == theirs.shape, f"{name} shape {ours.shape}, expected {theirs.shape}".strip()
    if hasattr(found, "dtype") and hasattr(expected, "dtype"):
        message = f"{name} dtype {ours.dtype}, expected {theirs.dtype}"
        assert ours.dtype == theirs.dtype, message.strip()
    if theirs.dtype.kind not in "biufc":  # text, or None
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
        return
    if tolerance is None:
        tolerance = ROUNDING.get(ours.dtype.name, 0.0)
    largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * largest, err_msg=name)


def _plain(values: Any) -> bool:
    """Whether a list holds nothing but numbers, at any depth."""
    return all(
        _plain(value) if isinstance(value, list | tuple) else np.isscalar(value) for value in values
    )


def _array(values: Any) -> np.ndarray:
    if isinstance(values, mg.Tensor):
        return values.numpy()
    if hasattr(values, "detach"):
        return values.detach().numpy(force=True)
    return np.asarray(values)


def refusals(*rows: tuple[Callable[[], Any], type[Exception], str]) -> Callable[..., None]:
    """A test for each row: this call raises this error, whose text holds this pattern."""

    @pytest.mark.parametrize(("call", "error", "text"), rows)
    def test_refusal(call: Any, error: Any, text: str) -> None:
        with pytest.raises(error, match=text):
            call()

    return test_refusal

"""The model beside the function: onnxruntime runs it at every size tried.

Sums in another order differ in their last digits, which may round a number to another integer; then
all that follows differs. So where a model that rounds gives other results, it is run once more from
one rounding to the next: each part of it goes on with what the function's own rounding gave.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.types import Array, DType
from .run import RecordedCall, Rounding

__all__ = ["check_model"]

LARGEST = 127  # of 8 bits: in units of the rounding, it may err by the tolerance times that


def check_model(path: str, runs: list[RecordedCall], roundings: dict[int, str]) -> None:
    """Hold the model against the function, at every size tried, if onnxruntime is there.

    Args: roundings: the names of what steps rounded, by their positions.
    Raises: ArgumentError where they differ.
    """
    if find_spec("onnxruntime") is None:
        return
    session = _session(path)
    for run in runs:
        found = _results(session, run, {})
        for (name, ours), theirs in zip(run.values.items(), found.values(), strict=True):
            by = _difference(ours, theirs)
            if by > _tolerance(ours.dtype) and not _agrees_in_parts(path, run, roundings):
                raise ArgumentError(
                    f"export_onnx: onnxruntime computes another {name} than the function, by "
                    f"{by:.2g} of its size, with {run.sizes}; nothing was written"
                )


def _session(path: str) -> Any:
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ArgumentError(f"export_onnx: onnxruntime cannot load the model: {error}") from error


def _results(session: Any, run: RecordedCall, more: dict[str, Array]) -> dict[str, Array]:
    """The outputs by their names in the model, of the run's inputs and of these."""
    given = run.inputs | more
    feeds = {argument.name: given[argument.name] for argument in session.get_inputs()}
    feeds = {k: x.astype(np.int64) if x.dtype.kind in "iu" else x for k, x in feeds.items()}
    try:
        found = session.run(None, feeds)
    except Exception as error:
        raise ArgumentError(
            f"export_onnx: onnxruntime cannot run the model with {run.sizes}: {error}"
        ) from error
    return {output.name: x for output, x in zip(session.get_outputs(), found, strict=True)}


def _tolerance(dtype: DType) -> float:
    return 0.02 if dtype == np.float16 else 1e-4


def _difference(ours: Array, theirs: Array) -> float:
    """The largest difference, relative to the largest entry; infinite where shapes differ."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return np.inf
    if not ours.size:
        return 0.0
    finite = np.isfinite(ours)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return np.inf
    wide = np.result_type(ours.dtype, np.float32)
    with np.errstate(invalid="ignore"):
        by = np.abs(np.subtract(ours, theirs, dtype=wide))
    size = np.abs(ours).max(initial=1.0, where=finite)
    return float(by.max(initial=0.0, where=finite) / size)


# ---------------------------------------------------------------- from one rounding to the next


def _agrees_in_parts(path: str, run: RecordedCall, names: dict[int, str]) -> bool:
    """Whether all agrees where each rounding is replaced by the function's own."""
    roundings = {name: run.steps[k].rounding for k, name in names.items() if k < len(run.steps)}
    known = {name: rounding for name, rounding in roundings.items() if rounding is not None}
    if not known or len(known) < len(names):
        return False
    session = _parts(path, known)
    found = _results(session, run, {_given(name): x.values for name, x in known.items()})
    alike = [
        _difference(ours, theirs) <= _tolerance(ours.dtype)
        for ours, (name, theirs) in zip(run.values.values(), found.items(), strict=False)
        if name not in known
    ]
    return all(alike) and all(_is_rounded(x, found[name]) for name, x in known.items())


def _given(name: str) -> str:
    return f"{name}/given"


def _parts(path: str, roundings: dict[str, Rounding]) -> Any:
    """The model with what was rounded as inputs, for all that uses it, and as outputs."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        for k, name in enumerate(node.input):
            if name in roundings:
                node.input[k] = _given(name)
    outputs = {output.name for output in model.graph.output}
    for name, rounding in roundings.items():
        dtype = onnx.helper.np_dtype_to_tensor_dtype(rounding.values.dtype)
        forms = [
            onnx.helper.make_tensor_value_info(x, dtype, [None] * rounding.values.ndim)
            for x in (_given(name), name)
        ]
        model.graph.input.append(forms[0])
        if name not in outputs:
            model.graph.output.append(forms[1])
    parts = f"{path}.parts"
    try:
        onnx.save_model(model, parts)  # beside its constants
        return _session(parts)
    finally:
        os.unlink(parts)


def _is_rounded(ours: Rounding, theirs: Array) -> bool:
    """Whether entries are those that the function rounded to, but for few that are a neighbour."""
    error = LARGEST * _tolerance(theirs.dtype)
    if ours.values.shape != theirs.shape:
        return False
    units = np.abs(np.subtract(ours.values, theirs, dtype=np.float64)) / ours.unit
    steps = np.rint(units)
    near = (steps <= 1) & (np.abs(units - steps) <= error)
    return bool(near.all() and np.count_nonzero(steps) <= max(1, error * steps.size))

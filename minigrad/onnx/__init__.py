"""Models for other programs: a function of tensors as an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from inspect import getclosurevars, isfunction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..engine.context import no_grad
from ..engine.errors import ArgumentError, MissingDependencyError
from ..files import is_special, move_into_place, resolve
from .translation import Untranslatable, translation

if TYPE_CHECKING:
    from .trials import ExportedInputs

__all__ = ["Untranslatable", "export_onnx", "translation"]


def export_onnx(
    function: Callable[..., Any],
    inputs: ExportedInputs,
    path: str | os.PathLike[str],
    *,
    dynamic: dict[str, dict[int, str]] | None = None,
    longest: int = 512,
    external: bool | None = None,
) -> None:
    """Write what a function computes as an ONNX model, which grows with its inputs' sizes.

    The function is called at several sizes and with other values, and what differs between the
    programs is expressed by the sizes: shapes, slices, masks and positions. So `batch` and `length`
    are symbols in the model. Nodes and values bear scopes and names, as views show them. Where
    onnxruntime is installed, the model is run at every size tried and held against the function.

    Args:
        function: of tensors or arrays: a Module, or any function; it returns one, several or a
            dict of them.
        inputs: what it is called with: a list in order, or a dict for keywords. Integers become
            inputs of int64; other dtypes stay.
        dynamic: which axes may change, as {"x": {0: "batch", 1: "length"}}; {} for none. Unless
            given, the first axis and the second, as far as the function takes other sizes there;
            of a further input y of the same kind that may be longer, the second is "y_length".
        longest: the largest size that is tried, and so how far tables of positions reach (rotary
            angles, say): beyond it onnxruntime says that an index is out of bounds. Causal masks,
            windows and counted positions have no end.
        external: whether the constants go in a file beside it, `<path>.data`; above 2 GB always.
    Raises: ArgumentError, naming op and line, for what has no place in a model: random draws (call
        model.eval() first), writes, an op without a form in ONNX, a number that Python took out of
        an array, a loop over a size that may change. MissingDependencyError without onnx.
    Refused: dropout in training; windows and add_windows, the steps of convolution's backward;
        collectives. An op of your own is followed through its kernel, or says what it is by
        `@minigrad.onnx.translation(op)`.
    Limits: `if` on values takes the way it took here; a program is only known where it was tried:
        at the given values, at others drawn from them, and with zeros among integers.
        onnxruntime has no float64 kernels for erf, convolution, average pooling and recurrent
        sequences: a model of float64 computes those in float32.
    Source: https://onnx.ai/onnx/operators; the opset is 18, or the first that has what is needed:
        20 for Gelu, 23 for RMSNormalization.

    >>> import numpy as np, minigrad as mg
    >>> from layers import MultiHeadAttention
    >>> layer = MultiHeadAttention(6, n_heads=2, is_causal=True, rng=0)
    >>> mg.export_onnx(layer, [np.zeros((1, 3, 6))], "attention.onnx")   # doctest: +SKIP
    """
    if find_spec("onnx") is None:
        raise MissingDependencyError('export_onnx needs onnx: pip install "minigrad[onnx]"')
    from . import translations
    from .model import written
    from .trials import Trials, named_inputs
    from .verify import check_model

    assert translations
    by_name = isinstance(inputs, dict)
    failure = None
    target = resolve(path, "export_onnx")
    if is_special(target):  # a second file may be written beside it
        raise ArgumentError(f"export_onnx: {str(target)!r} is a device or a pipe; name a file")
    if dynamic != {}:
        _check_layers(function, longest)
    trials = Trials(function, named_inputs(function, inputs), by_name, dynamic, longest)
    for runs in trials.groups():
        try:
            with TemporaryDirectory(dir=target.parent, prefix=".onnx-") as beside:
                made = os.path.join(beside, target.name)
                roundings = written(runs, trials.axes, _names_of(function), made, external)
                if len(runs) < len(trials.runs) and find_spec("onnxruntime") is None:
                    raise trials.error or AssertionError
                check_model(made, [*trials.runs, *trials.at_one()], roundings)
                for file in sorted(Path(beside).iterdir(), reverse=True):  # the model comes last
                    move_into_place(file, target.with_name(file.name), "export_onnx")
            with no_grad():  # so that what layers show of their last call is of these inputs
                trials.call(trials.inputs)
            return
        except ArgumentError as error:
            other = trials.error if len(runs) < len(trials.runs) else None
            failure = failure or other or error
    raise failure or AssertionError


def _check_layers(function: Callable[..., Any], longest: float) -> None:
    """Raise ArgumentError for a layer that computes otherwise at lengths that no trial reaches."""
    owner: Any = getattr(function, "__self__", function)
    held = [owner]
    if isfunction(owner):
        closure = getclosurevars(owner)
        held += [*closure.nonlocals.values(), *closure.globals.values()]
    modules = [module for x in held if hasattr(x, "named_modules") for module in x.modules()]
    widest = max((getattr(module, "window", None) or 0 for module in modules), default=0)
    if widest >= longest:
        raise ArgumentError(
            f"export_onnx: a window of {widest} tokens would be missing from the model, for no "
            f"trial is longer than longest={longest}; pass longest={widest + 2} or more"
        )
    if any(getattr(module, "depends_on_length", False) for module in modules):
        raise ArgumentError(
            'export_onnx: the angles of rotary positions depend on the length here ("dynamic" or '
            '"longrope" scaling), which a model of all lengths cannot have; pass dynamic={} for '
            "a model of this length alone"
        )


def _names_of(function: Callable[..., Any]) -> dict[int, str]:
    """Paths of a Module's parameters, by the ids of their arrays."""
    owner = getattr(function, "__self__", function)
    named = getattr(owner, "_named_leaves", lambda buffers: ())
    return {id(parameter._data): path for path, parameter in named(buffers=True)}

"""gradcheck: a whole function, or a layer, along each entry of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..autodiff import grad_or_zeros, slope
from ..engine.context import enable_grad, observe
from ..engine.errors import ArgumentError, DTypeError, GradcheckError, GradientError
from ..engine.observer import Observer
from ..engine.op import Array, Op, array_of, checked_array
from ..engine.tensor import Tensor
from .comparison import Comparison
from .derivative import EPS, beside, differentiate, rms
from .rules import at_kinks

__all__ = ["gradcheck"]


def gradcheck(
    f: Callable[..., Any],
    inputs: Any,
    *,
    order: int = 1,
    tolerance: float | None = None,
    seed: int = 0,
) -> Comparison:
    """Check the engine's gradient of f against a numeric one, entry by entry.

    The complex step is used where every op on the way is analytic: it is exact to rounding.
    Elsewhere central differences, leaving out entries where f has a kink. All in float64, under a
    random cotangent.

    Args:
        f: function of tensors to a Tensor; it must do the same each time it is called. Of a layer,
            each trained parameter is checked as well, under its path.
        inputs: one array or Tensor, or a sequence of them; integer ones are held constant.
        order: 2 checks the gradient of the gradient as well.
        tolerance: largest relative error; 1e-10 for the complex step, 1e-6 for differences, unless
            given.
    Returns: a Comparison, of the worst entry.
    Raises: GradcheckError, with that as `report`, if its error is beyond the tolerance, or if
        nothing was compared; GradientError where the result does not depend on an input.

    >>> import minigrad as mg
    >>> mg.gradcheck(lambda x: mg.tanh(x).sum(), np.array([0.5, -1.0])).method
    'complex step'
    >>> from layers import SelfAttention
    >>> report = mg.gradcheck(SelfAttention(3, 2, 2, rng=0), np.ones((1, 2, 3)) + np.eye(2, 3))
    >>> report.entries, report.zeros
    (39, ('b_K',))
    """
    if not callable(f):
        raise DTypeError(f"gradcheck(f, inputs): f must be a function, got {type(f).__name__}")
    arguments = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    places = {f"inputs[{i}]": x for i, x in enumerate(arguments)}
    if hasattr(f, "named_parameters"):
        places |= {path: p for path, p in f.named_parameters() if p.requires_grad}
    arrays = [checked_array("gradcheck", array_of(x)) for x in places.values()]
    values = [v.astype(np.float64) if v.dtype.kind == "f" else v for v in arrays]
    if not any(v.dtype.kind == "f" for v in values):
        kinds = ", ".join(str(v.dtype) for v in values) or "no input"
        raise DTypeError(f"gradcheck: an input must hold floats, got {kinds}; write 1.0 for 1")
    if order not in (1, 2):
        raise ArgumentError(f"gradcheck: order must be 1 or 2, got {order!r}")
    parameters = [*places.values()][len(arguments) :]
    before = [p._data for p in parameters]
    used = _Used()
    try:
        for now in range(1, order + 1):
            function = _Function(f, values, parameters, seed, now, used)
            report = _checked(function, [*places], tolerance)
            if not report.ok:
                raise GradcheckError(f"gradcheck: {report}", report)
    finally:
        for tensor, array in used.written.values():
            tensor.assign_(array)
        for p, array in zip(parameters, before, strict=True):
            p._data = array
    return report


class _Used(Observer):
    """What f does: whether all of it is analytic, and what it writes."""

    shows_inputs = False

    def __init__(self) -> None:
        self.analytic = True
        self.written: dict[int, tuple[Tensor, Array]] = {}

    def made(self, op: Op, inputs: Any, settings: Any, result: Tensor, seconds: float) -> None:
        plain = [array_of(x) for x in inputs]
        if not op.analytic or at_kinks(op, plain, settings, result._data) is not None:
            self.analytic = False

    def said(self, kind: str, **facts: Any) -> None:
        if kind == "leaf" and facts["leaf"].needs == 1:  # of f's own, which takes no complex number
            self.analytic = False
        if kind == "write":  # as BatchNorm its averages
            self.analytic = False
            tensor = facts["tensor"]
            self.written.setdefault(id(tensor), (tensor, tensor._data.copy()))


class _Function:
    """What is differentiated: f(x) under the cotangent u; at second order its gradient, under v."""

    def __init__(
        self,
        f: Callable[..., Any],
        values: list[Array],
        parameters: list[Tensor],
        seed: int,
        order: int,
        used: _Used,
    ) -> None:
        self.f = f
        self.values = values  # of the inputs, then of the parameters
        self.parameters = parameters
        self.free = [i for i, v in enumerate(values) if v.dtype.kind == "f"]
        self.order = 1
        with observe(used):
            first = self(values)
            again = self(values)
        if not np.array_equal(first, again, equal_nan=True):
            raise GradientError(
                "gradcheck: f gave two different results for the same inputs; a layer with dropout "
                "does not after layer.eval()"
            )
        if np.isnan(first).any():
            raise GradientError("gradcheck: f gives NaN for these inputs; choose others")
        self.analytic = used.analytic
        rng = np.random.default_rng(seed)
        weights = rng.uniform(0.5, 1.5, first.shape) * rng.choice([-1.0, 1.0], first.shape)
        self.u = np.where(np.isinf(first), 0.0, weights)  # entries of a mask are constant
        size = max(float(np.abs(values[i]).max(initial=0.0)) for i in self.free) or 1.0
        self.noise = EPS * float(np.abs(first[self.u != 0] * self.u[self.u != 0]).sum()) / size
        self.v = [rng.uniform(0.5, 1.5, values[i].shape) for i in self.free]
        self.order = order
        self.cotangent = self.u if order == 1 else np.concatenate([x.ravel() for x in self.v])

    def __call__(self, values: list[Any]) -> Array:
        """f, or its gradient, at values of which one may be complex; then all floats are."""
        if any(np.iscomplexobj(v) for v in values):
            values = [v.astype(complex) if v.dtype.kind == "f" else v for v in values]
        with enable_grad():
            leaves, output = self.run(values)
            if self.order == 2:
                gradients = grad_or_zeros(output, leaves, self.u)
                return np.concatenate([np.ravel(g) for g in gradients])
        return output._data if isinstance(output, Tensor) else np.asarray(output)

    def run(self, values: list[Any]) -> tuple[list[Tensor], Any]:
        """The leaves that are differentiated by, and what f gives; the parameters hold `values`."""
        k = len(values) - len(self.parameters)
        inputs = [Tensor(v, None, int(i in self.free)) for i, v in enumerate(values[:k])]
        for p, array in zip(self.parameters, values[k:], strict=True):
            p._data = array
        output = self.f(*inputs)
        if not isinstance(output, Tensor | np.ndarray | np.generic | float | int):
            kind = type(output).__name__
            raise GradientError(f"gradcheck: f must return one Tensor, got {kind}")
        return [x for x in inputs if x.needs] + self.parameters, output

    def engine(self) -> tuple[list[Array], list[bool]]:
        """The gradient of ⟨u, f⟩, or of ⟨v, its gradient⟩, by the engine; whether f uses each."""
        with enable_grad():
            leaves, output = self.run(self.values)
            reached = _leaves_of(output)
            if self.order == 2:
                gradients = grad_or_zeros(slope(output, leaves, self.v, self.u), leaves)
            else:
                gradients = grad_or_zeros(output, leaves, self.u)
            return gradients, [id(leaf) in reached for leaf in leaves]


def _leaves_of(output: Any) -> set[int]:
    """The leaves that a result was computed from, by identity."""
    reached: set[int] = set()
    ahead = [getattr(output, "node", None) or output]
    while ahead:
        place = ahead.pop()
        if id(place) not in reached:
            reached.add(id(place))
            ahead += getattr(place, "edges", ())
    return reached


def _checked(function: _Function, places: list[str], tolerance: float | None) -> Comparison:
    """Compare every entry; report the worst."""
    engine, is_used = function.engine()
    analytic = function.analytic
    limit = (1e-10 if analytic else 1e-6) if tolerance is None else tolerance
    usual = rms(np.concatenate([gradient.ravel() for gradient in engine]))
    least = max(usual, function.noise / (limit or EPS))
    entries: list[Comparison] = []
    zeros: list[str] = []
    for i, gradient, uses in zip(function.free, engine, is_used, strict=True):
        of_input = []
        for index in np.ndindex(gradient.shape):
            d = np.zeros(gradient.shape)
            d[index] = 1.0
            comparison = beside(
                partial(
                    differentiate, function, function.values, {i: d}, function.cotangent, analytic
                ),
                analytic,
                engine=float(gradient[index]),
                tolerance=limit,
                least=least,
                where=f"{places[i]}{list(index) if index else ''}",
            )
            of_input.append(replace(comparison, index=index))
        if of_input and all(abs(entry.expected) <= limit * least for entry in of_input):
            if not uses:
                raise GradientError(
                    f"gradcheck: the result does not depend on {places[i]}, so nothing was "
                    "compared; of a layer's parameters, write gradcheck(layer, X)"
                )
            zeros.append(places[i])
        entries += of_input
    kinks = tuple(entry.where for entry in entries if entry.why)
    compared = [entry for entry in entries if not entry.why]
    why = f"all {len(kinks)} entries are at kinks ({kinks[0]} …)" if kinks else "no entries"
    none = Comparison(why=f"{why}; choose other inputs")
    worst = max(compared, key=lambda entry: entry.difference, default=none)
    return replace(
        worst, order=function.order, entries=len(compared), kinks=kinks, zeros=tuple(zeros)
    )

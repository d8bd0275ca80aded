"""Clipping: gradients made smaller before a step, so that one bad batch cannot throw it far."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from weakref import WeakValueDictionary

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.refusals import explained
from ..engine.tensor import Tensor
from ..engine.types import Array
from .updates import checked_parameters, update

__all__ = ["clip_grad_norm", "clip_grad_value", "is_part", "mark_parts"]

_parts: WeakValueDictionary[int, Tensor] = WeakValueDictionary()  # of models spread over ranks


def is_part(parameter: Tensor) -> bool:
    """Whether `mark_parts` was called with this parameter."""
    return _parts.get(id(parameter)) is parameter


def mark_parts(parameters: Iterable[Tensor]) -> None:
    """Say that these are this rank's part of a model, so that their norm needs all ranks."""
    _parts.update({id(p): p for p in parameters})


@explained
def clip_grad_norm(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients by one factor, so that their common norm is at most `max_norm`.

        norm = √(Σ_p Σ g_p²),    g_p ← g_p · min(1, max_norm / norm)

    Parameters without a gradient are passed over. Where the norm is not finite the gradients stay
    as they are: look at what is returned.

    Returns: the norm before clipping, a Tensor of one number.  Raises: as an optimizer does for its
        parameters; ArgumentError unless max_norm is above 0.
    Source: Pascanu et al. 2013, arXiv:1211.5063.

    >>> import minigrad as mg
    >>> w = mg.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> clip_grad_norm([w], max_norm=5.0).item(), w.grad.tolist()
    (10.0, [3.0, 4.0])
    """
    found = checked_parameters("clip_grad_norm(parameters, max_norm)", parameters)
    if any(map(is_part, found)):
        raise ArgumentError(
            "clip_grad_norm(parameters, max_norm): these are this rank's part of a model, of "
            "which a norm says nothing; clip before the model is split, or not at all"
        )
    return _clip_norm(found, _positive("clip_grad_norm", "max_norm", max_norm))


@explained
def clip_grad_value(parameters: Iterable[Tensor], max_value: float) -> None:
    """Cut each entry of each gradient to [-max_value, max_value].

    >>> import minigrad as mg
    >>> w = mg.tensor([3.0, -0.1], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> clip_grad_value([w], max_value=0.5)
    >>> w.grad
    array([ 0.5, -0.2])
    """
    found = checked_parameters("clip_grad_value(parameters, max_value)", parameters)
    _clip_value(found, _positive("clip_grad_value", "max_value", max_value))


def _clip_norm(parameters: list[Tensor], max_norm: float) -> Tensor:
    with update(None, partial(_clip_norm, parameters, max_norm)) as result:
        norm = _norm([np.asarray(p.grad) for p in parameters if p.grad is not None])
        result.append(Tensor(np.array(norm)))
        if max_norm < norm < np.inf:
            factor = float(max_norm) / norm
            for p in parameters:
                if p.grad is not None:
                    p.grad = np.asarray(p.grad * factor)
    return result[0]  # type: ignore[return-value]


def _clip_value(parameters: list[Tensor], max_value: float) -> None:
    with update(None, partial(_clip_value, parameters, max_value)):
        for p in parameters:
            if p.grad is not None:
                p.grad = np.asarray(np.clip(p.grad, -max_value, max_value))


def _norm(gradients: list[Array]) -> float:
    """√(Σ g²) of all entries."""
    with np.errstate(over="ignore", under="ignore"):
        total = _sum_of_squares(gradients, 1.0)
    if 1e-20 < total < np.inf:
        return float(np.sqrt(total))
    # squares may have vanished or overflowed: divide by the largest entry first
    top = max((float(np.abs(g).max(initial=0.0)) for g in gradients), default=0.0)
    if not 0 < top < np.inf:
        return top
    return top * float(np.sqrt(_sum_of_squares(gradients, top)))


def _sum_of_squares(gradients: list[Array], unit: float) -> float:
    total = 0.0
    for g in gradients:
        flat = g.reshape(-1).astype(np.result_type(g.dtype, np.float32), copy=False)
        flat = flat / unit if unit != 1.0 else flat
        total += float(flat.dot(flat))
    return total


def _positive(call: str, name: str, value: float) -> float:
    if not value > 0:
        raise ArgumentError(f"{call}: {name} must be above 0, got {value}")
    return value

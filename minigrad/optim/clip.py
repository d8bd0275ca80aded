"""Clipping: gradients made smaller before a step, so that one bad batch cannot throw it far."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from weakref import WeakValueDictionary

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Array
from ..engine.tensor import Tensor
from .optimizer import at_least_float32, checked_parameters, update

__all__ = ["clip_grad_norm"]

_parts: WeakValueDictionary[int, Tensor] = WeakValueDictionary()  # of models spread over ranks


def mark_parts(parameters: Iterable[Tensor]) -> None:
    """Say that these are this rank's part of a model, so that their norm needs all ranks."""
    _parts.update({id(p): p for p in parameters})


def refuse_parts(call: str, parameters: Iterable[Tensor], why: str) -> None:
    """Raise ArgumentError for a part of a model, for which its rank alone cannot decide."""
    if any(_parts.get(id(p)) is p for p in parameters):
        raise ArgumentError(f"{call}: these are this rank's part of a model, and {why}")


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
    call = "clip_grad_norm(parameters, max_norm)"
    clipped = checked_parameters(call, parameters)
    refuse_parts(call, clipped, "the norm is that of the whole")
    if not max_norm > 0:
        raise ArgumentError(f"{call}: max_norm must be above 0, got {max_norm}")
    return _clip(clipped, max_norm)


def _clip(parameters: list[Tensor], max_norm: float) -> Tensor:
    with update(None, partial(_clip, parameters, max_norm)) as result:
        norm = _norm([np.asarray(p.grad) for p in parameters if p.grad is not None])
        measured = Tensor(np.array(norm))
        result.append(measured)
        if max_norm < norm < np.inf:
            for p in parameters:
                if p.grad is not None:
                    p.grad = np.asarray(p.grad * (float(max_norm) / norm))
    return measured


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
        flat = g.reshape(-1).astype(at_least_float32(g.dtype), copy=False)
        flat = flat / unit if unit != 1.0 else flat
        total += float(flat.dot(flat))
    return total

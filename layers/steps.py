"""Steps of a derivation by hand: what each holds, and how its equations are written in LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Step"]

Array: TypeAlias = NDArray[Any]
Line: TypeAlias = tuple[str, Array]  # the formula of a gradient, and the gradient
# Of y = x W_s + b_s: the symbols y, x and s, then x, b_s or None, and ∂y.
AffineMap: TypeAlias = tuple[str, str, str, Array, Array | None, Array]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the backward pass: an equation, and the gradients that come back through it.

    Attributes: forward: LaTeX.  formulas: of each symbol, the LaTeX of its gradient.  gradients: of
        each symbol, the array.

    >>> step = Step(1, "double", "Y = 2 X", {"X": r"2 \\bar Y"}, {"X": np.full(3, 2.0)})
    >>> step.gradients["X"]
    array([2., 2., 2.])
    """

    number: int
    title: str
    forward: str
    formulas: dict[str, str]
    gradients: dict[str, Array]


class StepList(list[Step]):
    """The steps so far, in order."""

    def add(self, title: str, *forward: str, **lines: Line) -> None:
        """One more: its equations, and of each symbol the formula of its gradient, and that."""
        formulas = {symbol: tex for symbol, (tex, _) in lines.items()}
        gradients = {symbol: np.array(gradient) for symbol, (_, gradient) in lines.items()}
        equations = r", \quad ".join(forward)
        self.append(Step(len(self) + 1, title, equations, formulas, gradients))

    def add_softmax(self, mask: Array | None, grad_S: Array) -> None:
        """The step of A = softmax(S), or of S_masked where there is a mask."""
        S = "S" if mask is None else "S_masked"
        rowsum = rf"\operatorname{{rowsum}}\left({dL('A')} \odot A\right)"
        of_S = rf"A \odot \left({dL('A')} - {rowsum}\right)", grad_S
        self.add("softmax", rf"A = \operatorname{{softmax}}\left({tex_of(S)}\right)", **{S: of_S})


def tex_of(symbol: str) -> str:
    base, _, sub = symbol.partition("_")
    if symbol == "out":
        return r"\mathrm{out}"
    return rf"{base}_{{\mathrm{{{sub}}}}}" if sub.islower() else symbol


def dL(symbol: str) -> str:
    return rf"\frac{{\partial L}}{{\partial {tex_of(symbol)}}}"


def equations(maps: Sequence[AffineMap]) -> list[str]:
    """y = x W, or y = x W + b, of each map."""
    return [
        f"{tex_of(y)} = {x} W_{s}" + ("" if b is None else f" + b_{s}") for y, x, s, _, b, _ in maps
    ]


def of_maps(maps: Sequence[AffineMap]) -> dict[str, Line]:
    """The gradients of each W, ∂W = xᵀ ∂y, and of each b, ∂b = Σ ∂y, if there is one."""
    lines: dict[str, Line] = {}
    for y, x, s, X, _, grad_y in maps:
        lines[f"W_{s}"] = rf"{x}^\top {dL(y)}", _rows(X).T @ _rows(grad_y)
    for y, _, s, _, b, grad_y in maps:
        if b is not None:
            lines[f"b_{s}"] = rf"\sum_{{b,i}} {dL(y)}", _rows(grad_y).sum(axis=0)
    return lines


def scale_equations(mask: Array | None) -> list[str]:
    """S_masked = S + M, where there is a mask, and S = S_raw / √d_k."""
    scale = rf"S = \frac{{{tex_of('S_raw')}}}{{\sqrt{{d_k}}}}"
    return [scale] if mask is None else [rf"{tex_of('S_masked')} = S + M", scale]


def of_scale(mask: Array | None, grad_S: Array, grad_S_raw: Array) -> dict[str, Line]:
    """The gradients of S in S_masked = S + M, if masked, and of S_raw in S = S_raw / √d_k."""
    of_raw = rf"\frac{{1}}{{\sqrt{{d_k}}}} {dL('S')}", grad_S_raw
    return {"S_raw": of_raw} if mask is None else {"S": (dL("S_masked"), grad_S), "S_raw": of_raw}


def _rows(x: Array) -> Array:
    """(B, n, d) → (B · n, d), so that a product of two also sums over the batch."""
    return x.reshape(-1, x.shape[-1])

"""What is measured: one training step of attention.

A case gives its inputs: leaves, which need a gradient, and what else the step is given. Every peer
gets the same numbers, and answers with the output (`out` or `loss`) and `d_` + each leaf's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

__all__ = [
    "QUICK",
    "TABLE",
    "Attention",
    "Case",
    "Inputs",
]


@dataclass(frozen=True)
class Inputs:
    """The numbers of a step: what needs a gradient, and what does not."""

    leaves: dict[str, Any]
    given: dict[str, Any]

    def astype(self, dtype: DTypeLike) -> Inputs:
        """The same numbers in another floating-point type; integers stay."""
        return Inputs(
            *({k: _cast(v, dtype) for k, v in d.items()} for d in (self.leaves, self.given))
        )


def _cast(array: Any, dtype: DTypeLike) -> Any:
    return np.ascontiguousarray(array, dtype if array.dtype.kind == "f" else None)


@dataclass(frozen=True)
class Case:
    """What all cases share: a name, and what it is called in a table."""

    name: str
    title: str
    kind = ""

    def inputs(self, dtype: DTypeLike) -> Inputs:
        """Fresh arrays, the same at every call."""
        raise NotImplementedError


@dataclass(frozen=True)
class Attention(Case):
    """Causal self-attention, projections included: (B, n, d_model) to the same.

    One head with biases, or several without, as the texts have it.
    """

    B: int
    n: int
    d_model: int
    width: int  # of all heads together
    heads: int = 1
    kind = "attention"

    @property
    def d_k(self) -> int:
        return self.width // self.heads

    @property
    def bias(self) -> bool:
        return self.heads == 1

    def inputs(self, dtype: DTypeLike) -> Inputs:
        rng = np.random.default_rng(self.n)
        leaves = {"X": rng.standard_normal((self.B, self.n, self.d_model))}
        for symbol in "QKVO":
            shape = (self.d_model, self.width) if symbol != "O" else (self.width, self.d_model)
            leaves[f"W_{symbol}"] = rng.standard_normal(shape) * sqrt(2 / sum(shape))
            if self.bias:
                leaves[f"b_{symbol}"] = rng.standard_normal(shape[1]) * 0.1
        given = {
            "G": rng.standard_normal((self.B, self.n, self.d_model)),  # the gradient of out
            "mask": np.triu(np.full((self.n, self.n), -np.inf, dtype), 1),
        }
        return Inputs(leaves, given).astype(dtype)


def _single(name: str, *shape: int, title: str | None = None) -> Attention:
    return Attention(name, title or f"single head, {name} {shape}", *shape)


def _multi(name: str, B: int, n: int, d_model: int, heads: int) -> Attention:
    return Attention(name, f"multi-head {(B, n, d_model, heads)}", B, n, d_model, d_model, heads)


def _named(*cases: Case) -> dict[str, Case]:
    return {case.name: case for case in cases}


# (B, n, d_model, d_k) and (B, n, d_model, heads)
TABLE = _named(
    _single("tiny", 1, 4, 8, 8),
    _single("medium", 8, 128, 128, 64),
    _single("long4k", 1, 4096, 64, 64),
    _multi("m-small", 4, 64, 128, 8),
    _multi("m-1k", 1, 1024, 512, 8),
)
QUICK = ("tiny", "medium", "m-small")

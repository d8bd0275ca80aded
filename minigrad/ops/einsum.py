"""Sums of products by Einstein's convention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Call, call, op

__all__ = ["einsum"]

UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _samples(rng: np.random.Generator) -> Iterator[Call]:
    def draw(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape)

    yield call("ij,jk->ik", draw(2, 3), draw(3, 5))
    yield call("bnd,dk->bnk", draw(2, 3, 5), draw(5, 7))
    yield call("bnd,bnk->dk", draw(2, 3, 5), draw(2, 3, 7))
    yield call("ij->ji", draw(2, 3))
    yield call("ij,jk", draw(2, 3), draw(3, 5))
    yield call("ij->j", draw(2, 3))
    yield call("ii->i", draw(3, 3))
    yield call("ii", draw(3, 3))
    yield call("iij,j->i", draw(3, 3, 2), draw(2))
    yield call("i,j->", draw(2), draw(3))
    yield call("...ij,...jk->...ik", draw(7, 2, 3), draw(3, 5))
    yield call("i...,i->...", draw(3, 2, 5), draw(3))
    yield call("ij,jk,kl->il", draw(2, 3), draw(3, 5), draw(5, 2))
    yield call("ij,ij->ij", draw(1, 3), draw(2, 3))
    yield call(",i->i", draw(), draw(3))
    yield call("ij,jk->ik", draw(0, 3), draw(3, 5))


def explicit(subscripts: str, ndims: tuple[int, ...]) -> tuple[list[str], str]:
    """The labels of each operand and of the output, `...` and an implied output spelled out."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ArgumentError(
            f"subscripts {subscripts!r} name {len(terms)} operands, got {len(ndims)}"
        )
    spare = [c for c in UPPER + UPPER.lower() if c not in text]
    widths = [
        n - len(t.replace("...", "")) if "..." in t else 0
        for t, n in zip(terms, ndims, strict=True)
    ]
    dots = "".join(spare[: max(widths, default=0)])
    full = [t.replace("...", dots[len(dots) - w :]) for t, w in zip(terms, widths, strict=True)]
    if not arrow:
        joined = left.replace(",", "").replace("...", "")
        right = dots + "".join(sorted(c for c in set(joined) if joined.count(c) == 1))
    return full, right.replace("...", dots)


def label_sizes(terms: list[str], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """How long each label's axis is; a length of 1 is repeated."""
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        sizes |= {c: n for c, n in zip(term, shape, strict=True) if sizes.get(c, 1) == 1}
    return sizes


def cost(subscripts: str, shapes: Sequence[tuple[int, ...]]) -> int:
    """For every combination of labels, one operation an operand."""
    terms, _ = explicit(subscripts, tuple(map(len, shapes)))
    return len(shapes) * prod(label_sizes(terms, shapes).values())


# ---------------------------------------------------------------- the way back


def returning(subscripts: str, shapes: Sequence[tuple[int, ...]], i: int) -> tuple[str, list[Any]]:
    """The subscripts that give operand i its gradient: of g, the other operands, and factors of
    ones or unit matrices; and the shapes of these factors.
    """
    terms, out = explicit(subscripts, tuple(map(len, shapes)))
    whole = label_sizes(terms, shapes)
    found = {c: whole[c] for c in out}  # how long each label is, other than in operand i
    others = [j for j in range(len(terms)) if j != i]
    for j in others:
        sizes = zip(terms[j], shapes[j], strict=True)
        found |= {c: n for c, n in sizes if n != 1 or c not in found}
    spare = (c for c in UPPER.lower()[::-1] + UPPER[::-1] if c not in "".join(terms))
    factors: list[tuple[str, tuple[int, ...]]] = []
    target = ""
    for label, n in zip(terms[i], shapes[i], strict=True):
        if label in target:  # a diagonal: entries off it get nothing
            label, first = next(spare), label
            factors.append((first + label, (n, n)))
        elif found.get(label) != n:  # summed away, or 1 elsewhere: every entry gets the same
            factors.append((label, (n,)))
        target += label
    left = [out, *(terms[j] for j in others), *(labels for labels, _ in factors)]
    return f"{','.join(left)}->{target}", [shape for _, shape in factors]


def _shapes(operands: Sequence[Any]) -> list[tuple[int, ...]]:
    return [np.shape(x) for x in operands]


# ---------------------------------------------------------------- formulas


def _written(subscripts: str) -> tuple[list[str], str]:
    """The labels as they were written; an implied output is worked out."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    plain = left.replace(",", "").replace("...", "")
    once = "".join(sorted(c for c in {*plain} if plain.count(c) == 1))
    return left.split(","), right if arrow else "..." * ("..." in left) + once


def _call_tex(terms: list[str], target: str, names: list[str]) -> str:
    below = rf"{','.join(terms)} \to {target or '1'}".replace("...", r"\ldots ")
    return rf"\operatorname{{einsum}}_{{{below}}}({', '.join(names)})"


def _tex(subscripts, operands):
    terms, out = _written(subscripts)
    return _call_tex(terms, out, [f"<operands{j}>" for j in range(len(operands))])


def _vjp_tex(subscripts, operands, i):
    """The gradient in the place of operand i, and the output's labels in the place of its."""
    terms, out = _written(subscripts)
    others = [j for j in range(len(operands)) if j != i]
    names = ["<g>", *(f"<operands{j}>" for j in others)]
    return _call_tex([out, *(terms[j] for j in others)], terms[i], names)


# ---------------------------------------------------------------- the op


@op(
    tex=_tex,
    vjp_tex={"operands": _vjp_tex},
    flops=lambda subscripts, operands: cost(subscripts, _shapes(operands)),
    samples=_samples,
    variadic=True,
)
def einsum(subscripts, *operands):
    """Sums products of entries by Einstein's convention: subscripts as np.einsum takes them.

    Raises: ArgumentError for subscripts that don't fit the operands or that repeat an output label.

    >>> einsum("bnd,bnk->dk", np.ones((2, 3, 5)), np.ones((2, 3, 7))).shape
    (5, 7)
    """
    if not isinstance(subscripts, str):
        raise ArgumentError(f"subscripts must be a string, got {type(subscripts).__name__}")
    terms, out = explicit(subscripts, tuple(np.ndim(x) for x in operands))
    if len(set(out)) != len(out):
        raise ArgumentError(f"subscripts {subscripts!r}: the output repeats a label")
    return np.einsum(f"{','.join(terms)}->{out}", *operands, optimize=len(operands) > 1)


@einsum.vjp("operands")
def _(g, i, others, operands_shape, subscripts):
    """The gradient is multiplied by the other arrays, and summed over axes that this one lacks."""
    back, factors = returning(subscripts, operands_shape, i)
    made = [np.eye(*s, dtype=g.dtype) if len(s) == 2 else np.ones(s, g.dtype) for s in factors]
    return einsum(back, g, *others[:i], *others[i + 1 :], *made)

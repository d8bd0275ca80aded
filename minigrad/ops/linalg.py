"""Products of matrices: matmul in every case NumPy knows, and einsum."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy import ndarray

from ..engine.errors import ArgumentError
from ..engine.op import Call, call, op
from ..fast.memory import FEW, empty, empty_as

__all__ = ["einsum", "explicit", "matmul"]


def _matmul_samples(rng: np.random.Generator) -> Iterator[Call]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3, 5), (5, 7)), ((2, 3, 5), (5, 7)), ((2, 3, 5), (2, 5, 7)), ((3, 5), (2, 5, 7)),
        ((2, 1, 3, 5), (7, 5, 2)), ((5,), (5,)), ((3, 5), (5,)), ((5,), (5, 7)),
        ((5,), (2, 5, 7)), ((2, 3, 5), (5,)), ((0, 5), (5, 7)), ((3, 0), (0, 7)),
        ((1, 3, 5), (2, 5, 7)),
    ]  # fmt: skip
    for a, b in shapes:
        yield call(rng.uniform(-1, 1, a), rng.uniform(-1, 1, b))


def _inner_axes(a: Any, b: Any) -> str | None:
    """The rule of matmul that two shapes break, in words."""
    first, second = np.shape(a), np.shape(b)
    if not first or not second:
        return "both need at least one axis"
    n, m = first[-1], second[-2] if len(second) > 1 else second[0]
    if n != m:
        which = "second-to-last" if len(second) > 1 else "only axis"
        return f"a's last axis must equal b's {which}, got {n} != {m}"
    for axis in range(3, min(len(first), len(second)) + 1):
        if first[-axis] != second[-axis] and 1 not in (first[-axis], second[-axis]):
            n, m = first[-axis], second[-axis]
            return f"batch axes must broadcast, but axis -{axis} has {n} and {m}"
    return None


@op(
    tex=r"<a> <b>",
    vjp_tex={"a": r"<g> <b>^\top", "b": r"<a>^\top <g>"},
    flops=lambda a, out: 2 * out.size * np.shape(a)[-1],
    samples=_matmul_samples,
    requires=_inner_axes,
)
def matmul(a, b):
    """Product of matrices: y_ij = Σ_k a_ik b_kj, over the last two axes; the others broadcast.

    One-axis inputs are a row on the left, a column on the right, as in np.matmul.
    Raises: ShapeError unless a's last axis equals b's second-to-last.

    >>> matmul(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
    """
    return best_product(a, b)


def best_product(a: Any, b: Any) -> Any:
    """a @ b, by the fastest way there is for plain arrays; of Tensors it is recorded."""
    if a.__class__ is not ndarray or b.__class__ is not ndarray:
        return np.matmul(a, b)
    if a.size + b.size > FEW:
        return _large_product(a, b)
    if a.ndim == b.ndim == 2:
        return a.dot(b)  # in a third of the time
    if a.ndim == b.ndim == 3 and len(a) == len(b) == 1:
        return a[0].dot(b[0])[None]
    return np.matmul(a, b)


def _large_product(a: Any, b: Any) -> Any:
    """A stack of matrices by one matrix as a single product; the result in memory used again.

    Of two stacks, its axes lie as those of b do: heads that were split are merged without a copy.
    """
    if b.ndim == 2 < a.ndim and a.flags.c_contiguous and a.size:
        rows = a.reshape(-1, a.shape[-1])
        return _large_product(rows, b).reshape(*a.shape[:-1], b.shape[-1])
    if min(a.ndim, b.ndim) < 2 or a.shape[:-2] != b.shape[:-2] or a.dtype is not b.dtype:
        return np.matmul(a, b)
    shape = (*a.shape[:-1], b.shape[-1])
    if a.ndim == 2:
        return a.dot(b, empty(shape, a.dtype))
    rows = b.strides[-1] == b.itemsize < min(b.strides[:-1])  # of b lie in one piece each
    return np.matmul(a, b, empty_as(b, shape) if rows else empty(shape, a.dtype))


@matmul.vjp("a")
def _(g, a_shape, b):
    if b.ndim == 1:
        return np.expand_dims(g, -1) * b
    if len(a_shape) == 1:
        return np.squeeze(np.matmul(np.expand_dims(g, -2), b.swapaxes(-1, -2)), -2)
    return best_product(g, b.mT)


@matmul.vjp("b")
def _(g, a, b_shape):
    if a.ndim == 1:
        return np.expand_dims(a, -1) * np.expand_dims(g, -2) if len(b_shape) > 1 else g * a
    if len(b_shape) == 1:
        return np.squeeze(np.matmul(a.swapaxes(-1, -2), np.expand_dims(g, -1)), -1)
    if len(b_shape) == 2 < a.ndim and a.size and g.size:  # sum over the stack inside one product
        return best_product(a.reshape((-1, b_shape[0])).T, g.reshape((-1, b_shape[1])))
    if b_shape[-1] > b_shape[-2] and g.ndim > 2 and g.__class__ is ndarray and g.size > FEW:
        return best_product(g.mT, a).mT  # most likely of turned keys: it lies by rows, as they do
    return best_product(a.mT, g)


# ---------------------------------------------------------------- einsum


def _einsum_samples(rng: np.random.Generator) -> Iterator[Call]:
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
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in text]
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


def _einsum_flops(subscripts: str, operands: tuple[Any, ...]) -> int:
    """For every combination of labels, one operation an operand."""
    terms, _ = explicit(subscripts, tuple(np.ndim(x) for x in operands))
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        for label, n in zip(term, np.shape(operand), strict=True):
            sizes[label] = n if sizes.get(label, 1) == 1 else sizes[label]
    return len(operands) * prod(sizes.values())


@op(
    tex=r"\operatorname{einsum}(<operands>)",
    vjp_tex={"operands": r"\operatorname{einsum}(<g>, \text{the other operands})"},
    flops=_einsum_flops,
    samples=_einsum_samples,
    variadic=True,
)
def einsum(subscripts, *operands):
    """Sums of products by Einstein's convention: any subscripts np.einsum takes in a string.

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
    terms, out = explicit(subscripts, tuple(len(shape) for shape in operands_shape))
    mine, shape = terms[i], operands_shape[i]
    spare = iter(
        [
            c
            for c in "zyxwvutsrqponmlkjihgfedcbaZYXWVUTSRQPONMLKJIHGFEDCBA"
            if c not in "".join(terms)
        ]
    )
    rest = [(t, x) for j, (t, x) in enumerate(zip(terms, others, strict=True)) if j != i]
    wide: dict[str, int] = {}  # how long each label is elsewhere
    for labels, x in [(out, g), *rest]:
        wide |= {c: n for c, n in zip(labels, np.shape(x), strict=True) if n != 1 or c not in wide}
    target = ""
    for label, n in zip(mine, shape, strict=True):
        if label in target:  # a diagonal: entries off it get nothing
            copy = next(spare)
            rest.append((label + copy, np.eye(n, dtype=g.dtype)))
            label = copy
        elif wide.get(label) != n:  # summed away, or 1 elsewhere: every entry gets the same
            rest.append((label, np.ones(n, dtype=g.dtype)))
        target += label
    source = ",".join([out, *(t for t, _ in rest)])
    return einsum(f"{source}->{target}", g, *(x for _, x in rest))

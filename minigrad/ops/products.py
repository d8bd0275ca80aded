"""Products: matmul in every case NumPy knows, the affine map as one op, and einsum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..engine.errors import ArgumentError, ShapeError
from ..engine.op import Call, accumulation_dtype, as_array, call, op
from ..engine.tensor import Operand

__all__ = ["einsum", "linear", "matmul"]


def as_rows(x):
    """All axes but the last as one: (..., d) → (rows, d)."""
    return x.reshape((prod(x.shape[:-1]), x.shape[-1]))


def _matmul_samples(rng: np.random.Generator) -> Iterator[Call]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3, 5), (5, 7)), ((2, 3, 5), (5, 7)), ((2, 3, 5), (2, 5, 7)), ((3, 5), (2, 5, 7)),
        ((2, 1, 3, 5), (7, 5, 2)), ((5,), (5,)), ((3, 5), (5,)), ((5,), (5, 7)),
        ((5,), (2, 5, 7)), ((2, 3, 5), (5,)), ((0, 5), (5, 7)), ((3, 0), (0, 7)),
        ((1, 3, 5), (2, 5, 7)),
    ]  # fmt: skip
    for a, b in shapes:
        yield call(rng.uniform(-1, 1, a), rng.uniform(-1, 1, b))


def _inner_axes(a: Operand, b: Operand) -> str | None:
    """The rule of matmul that two shapes break, in words."""
    first, second = np.shape(a), np.shape(b)
    if not first or not second:
        return "both need at least one axis"
    n, m = first[-1], second[-2] if len(second) > 1 else second[0]
    turned = len(first) == len(second) > 2 and second[0] == n  # what K.T is of a batch of keys
    remedy = "; .T turns round all axes, the batch too: write a @ b.mT" if turned else ""
    if n != m:
        which = "second-to-last" if len(second) > 1 else "only axis"
        return f"a's last axis must equal b's {which}, got {n} != {m}{remedy}"
    for axis in range(3, min(len(first), len(second)) + 1):
        if first[-axis] != second[-axis] and 1 not in (first[-axis], second[-axis]):
            n, m = first[-axis], second[-axis]
            return f"batch axes must broadcast, but axis -{axis} has {n} and {m}{remedy}"
    return None


@op(
    tex=r"<a> <b>",
    vjp_tex={"a": r"<g> <b>^\top", "b": r"<a>^\top <g>"},
    flops=lambda a, out: 2 * out.size * np.shape(a)[-1],
    samples=_matmul_samples,
    requires=_inner_axes,
)
def matmul(a, b):
    """Multiplies matrices, rows by columns: y_ij = Σ_k a_ik b_kj; axes before these broadcast.

    One-axis inputs are a row on the left, a column on the right, as in np.matmul.
    Raises: ShapeError unless a's last axis equals b's second-to-last.

    >>> matmul(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
    """
    return np.matmul(a, b)


@matmul.vjp("a")
def _(g, a_shape, b):
    """The gradient is multiplied by the second matrix, transposed."""
    if b.ndim == 1:  # y_i = Σ_k a_ik b_k
        return np.expand_dims(g, -1) * b
    if len(a_shape) == 1:  # a row, whose axis the result lacks
        return np.squeeze(np.matmul(np.expand_dims(g, -2), b.mT), -2)
    return np.matmul(g, b.mT)


@matmul.vjp("b")
def _(g, a, b_shape):
    """The first matrix, transposed, is multiplied by the gradient."""
    if a.ndim == 1:
        return np.expand_dims(a, -1) * np.expand_dims(g, -2) if len(b_shape) > 1 else g * a
    if len(b_shape) == 1:
        return np.squeeze(np.matmul(a.mT, np.expand_dims(g, -1)), -1)
    if len(b_shape) == 2:  # every matrix of a stack meets the same b: their rows as one matrix
        return np.matmul(as_rows(a).T, as_rows(g))
    return np.matmul(a.mT, g)


# ---------------------------------------------------------------- linear


def _linear_samples(rng: np.random.Generator) -> Iterator[Call]:
    def draw(*shape: int) -> NDArray[np.float64]:
        return rng.uniform(-1, 1, shape)

    yield call(draw(3, 5), draw(5, 7), draw(7))
    yield call(draw(2, 3, 5), draw(5, 7), draw(7))
    yield call(draw(2, 3, 5), draw(5, 7))
    yield call(draw(5), draw(5, 7), draw(7))
    yield call(draw(0, 5), draw(5, 7), draw(7))
    yield call(draw(2, 3, 5), draw(5, 7), draw(7), shared=True)


def check_inner(x: Operand, W: Operand, b: Operand | None = None, *settings: object) -> str | None:
    """The rule of linear that the shapes break, in words."""
    if np.ndim(W) != 2:
        return f"W must have two axes, got {np.ndim(W)}"
    if np.shape(x)[-1:] != (n := np.shape(W)[0],):
        last = np.shape(x)[-1] if np.ndim(x) else "none"
        return f"x's last axis must equal W's first, got {last} != {n}"
    if b is not None and np.shape(b) != np.shape(W)[1:]:
        return f"b must have W's last axis, got {np.shape(b)} and {np.shape(W)}"
    return None


@op(
    tex=r"<x> <W> + <b>",
    vjp_tex={"x": r"<g> <W>^\top", "W": r"<x>^\top <g>", "b": r"<g>"},
    flops=lambda x, b, out: 2 * out.size * np.shape(x)[-1] + (0 if b is None else out.size),
    samples=_linear_samples,
    requires=check_inner,
)
def linear(x, W, b=None, shared=False):
    """Multiplies each row by the weights and adds the bias if there is one: x W + b.

    Args: shared: for use beside tiled attention: a large product goes on its threads, and BLAS's
        own, which spin on for a while, stay out of their way.
    Shapes: x (..., d_in), W (d_in, d_out), b (d_out,) or None → (..., d_out)
    Raises: ShapeError where these do not fit.

    >>> linear(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), np.array([0.5]))
    array([[11.5]])
    """
    if np.ndim(W) != 2 or (b is not None and np.shape(b) != W.shape[1:]):  # would broadcast
        raise ShapeError(check_inner(x, W, b))
    return np.matmul(x, W) if b is None else np.matmul(x, W) + b


@linear.vjp("x")
def _(g, W):
    """The gradient is multiplied by the weights, transposed."""
    return np.matmul(g, W.T)


@linear.vjp("W")
def _(g, x):
    """The rows of the input, transposed, are multiplied by the rows of the gradient."""
    return np.matmul(as_rows(x).T, as_rows(g))


@linear.vjp("b")
def _(g):
    """The gradient is summed over the rows."""
    return g  # summed over the rows by the edge rule


# ---------------------------------------------------------------- einsum

UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _einsum_samples(rng: np.random.Generator) -> Iterator[Call]:
    def draw(*shape: int) -> NDArray[np.float64]:
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


def returning(
    subscripts: str, shapes: Sequence[tuple[int, ...]], i: int
) -> tuple[str, list[tuple[int, ...]]]:
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


def _shapes(operands: Sequence[Operand]) -> list[tuple[int, ...]]:
    return [np.shape(x) for x in operands]


def _written(subscripts: str) -> tuple[list[str], str]:
    """The labels as they were written; an implied output is worked out."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    plain = left.replace(",", "").replace("...", "")
    once = "".join(sorted(c for c in {*plain} if plain.count(c) == 1))
    return left.split(","), right if arrow else "..." * ("..." in left) + once


def _call_tex(terms: list[str], target: str, names: list[str]) -> str:
    below = rf"{','.join(terms)} \to {target or '1'}".replace("...", r"\ldots ")
    return rf"\operatorname{{einsum}}_{{{below}}}({', '.join(names)})"


def _einsum_tex(subscripts, operands):
    terms, out = _written(subscripts)
    return _call_tex(terms, out, [f"<operands{j}>" for j in range(len(operands))])


def _einsum_vjp_tex(subscripts, operands, i):
    """The gradient in the place of operand i, and the output's labels in the place of its."""
    terms, out = _written(subscripts)
    others = [j for j in range(len(operands)) if j != i]
    names = ["<g>", *(f"<operands{j}>" for j in others)]
    return _call_tex([out, *(terms[j] for j in others)], terms[i], names)


@op(
    tex=_einsum_tex,
    vjp_tex={"operands": _einsum_vjp_tex},
    flops=lambda subscripts, operands: cost(subscripts, _shapes(operands)),
    samples=_einsum_samples,
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
    where = f"{','.join(terms)}->{out}"
    if len(operands) == 1:
        x, summed = operands[0], tuple(k for k, c in enumerate(terms[0]) if c not in out)
        wide = accumulation_dtype(as_array(x), summed) if summed else None
        if wide is not None:
            return np.einsum(where, x, dtype=wide).astype(x.dtype)
    added = _without_booleans(operands)
    return np.einsum(where, *added, optimize=len(operands) > 1)


def _without_booleans(operands):
    """Booleans beside numbers as numbers: NumPy may sum one alone, and a sum of True is True."""
    if not any(getattr(x, "dtype", None) == np.bool_ for x in operands):
        return operands
    dtype = np.result_type(*operands)
    return [np.asarray(x, dtype) for x in operands]


@einsum.vjp("operands")
def _(g, i, others, operands_shape, subscripts):
    """The gradient is multiplied by the other arrays, and summed over axes that this one lacks."""
    back, factors = returning(subscripts, operands_shape, i)
    made = [np.eye(*s, dtype=g.dtype) if len(s) == 2 else np.ones(s, g.dtype) for s in factors]
    return einsum(back, g, *others[:i], *others[i + 1 :], *made)

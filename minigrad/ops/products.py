"""Products: matmul in every case NumPy knows, the affine map as one op, and einsum."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from string import ascii_letters
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError, ShapeError
from ..engine.op import op
from ..engine.tensor import Operand
from .arithmetic import clash
from .dtypes import accumulation_dtype, as_array
from .samples import of_shapes

__all__ = ["einsum", "linear", "matmul"]


def as_rows(x):
    """All axes but the last as one: (..., d) → (rows, d)."""
    return x.reshape((prod(x.shape[:-1]), x.shape[-1]))


def times(a, b, bias=None):
    """A product of matrices, plus a bias; the rows of a stack meet one matrix as one product."""
    if getattr(a, "ndim", 0) == 3 and getattr(b, "ndim", 0) == 2 and len(a) > 1:
        stack, rows, width = a.shape
        product = times(a.reshape((stack * rows, width)), b, bias)
        return product.reshape((stack, rows, b.shape[1]))
    return np.matmul(a, b) if bias is None else np.matmul(a, b) + bias  # in the product's memory


def _inner_axes(a: Operand, b: Operand) -> str | None:
    """The rule of matmul that two shapes break, in words."""
    first = np.shape(a)
    second = np.shape(b)
    if not first or not second:
        return "both need at least one axis"
    n = first[-1]
    m = second[-2:][0]
    turned = len(first) == len(second) > 2 and second[0] == n  # what K.T is of a batch of keys
    remedy = "; .T turns round all axes, the batch too: write a @ b.mT" if turned else ""
    if n != m:
        which = "second-to-last" if len(second) > 1 else "only axis"
        return f"a's last axis must equal b's {which}, got {n} != {m}{remedy}"
    words = clash(first, second, 3)
    return words and f"batch axes {words}{remedy}"


@op(
    tex=r"<a> <b>",
    vjp_tex={"a": r"<g> <b>^\top", "b": r"<a>^\top <g>"},
    flops=lambda a, out: 2 * out.size * np.shape(a)[-1],
    samples=of_shapes(
        ([3, 5], [5, 7]), ([2, 3, 5], [5, 7]), ([2, 3, 5], [2, 5, 7]), ([2, 1, 3, 5], [7, 5, 2]),
        ([5], [5]), ([3, 5], [5]), ([5], [5, 7]), ([5], [2, 5, 7]), ([2, 3, 5], [5]),
        ([0, 5], [5, 7]), ([3, 0], [0, 7]),
    ),
    requires=_inner_axes,
)  # fmt: skip
def matmul(a, b):
    """Multiplies matrices, rows by columns: y_ij = Σ_k a_ik b_kj; axes before these broadcast.

    One-axis inputs are a row on the left, a column on the right, as in np.matmul.
    Raises: ShapeError unless a's last axis equals b's second-to-last.

    >>> matmul(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
    """
    return times(a, b)


@matmul.vjp("a")
def _(g, a_shape, b):
    """The gradient is multiplied by the second matrix, transposed."""
    if b.ndim == 1:  # y_i = Σ_k a_ik b_k
        return np.expand_dims(g, -1) * b
    if len(a_shape) == 1:  # a row, whose axis the result lacks
        return np.squeeze(np.matmul(np.expand_dims(g, -2), b.mT), -2)
    return times(g, b.mT)


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


def _affine(x: Operand, W: Operand, b: Operand | None = None, *settings: object) -> str | None:
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
    samples=of_shapes(
        ([3, 5], [5, 7], [7]), ([2, 3, 5], [5, 7], [7]), ([2, 3, 5], [5, 7]), ([5], [5, 7], [7]),
        ([0, 5], [5, 7], [7]),
    ),
    requires=_affine,
)  # fmt: skip
def linear(x, W, b=None):
    """Multiplies each row by the weights and adds the bias if there is one: x W + b.

    Shapes: x (..., d_in), W (d_in, d_out), b (d_out,) or None → (..., d_out)
    Raises: ShapeError where these do not fit.

    >>> linear(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), np.array([0.5]))
    array([[11.5]])
    """
    if np.ndim(W) != 2 or (b is not None and np.shape(b) != W.shape[1:]):  # would broadcast
        raise ShapeError(_affine(x, W, b))
    return times(x, W, b)


@linear.vjp("x")
def _(g, W):
    """The gradient is multiplied by the weights, transposed."""
    return times(g, W.T)


@linear.vjp("W")
def _(g, x):
    """The rows of the input, transposed, are multiplied by the rows of the gradient."""
    return np.matmul(as_rows(x).T, as_rows(g))


@linear.vjp("b")
def _(g):
    """The gradient is summed over the rows."""
    return g  # summed over the rows by the edge rule


# ---------------------------------------------------------------- einsum


def explicit(subscripts: str, ndims: tuple[int, ...]) -> tuple[list[str], str]:
    """The labels of each operand and of the output, `...` and an implied output spelled out.

    Raises: ArgumentError for another number of operands, or a label that stands twice in one of
        them or in the output.
    """
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ArgumentError(
            f"subscripts {subscripts!r} name {len(terms)} operands, got {len(ndims)}"
        )
    pairs = zip(terms, ndims, strict=True)
    widths = [n - len(t.replace("...", "")) if "..." in t else 0 for t, n in pairs]
    dots = "".join([c for c in ascii_letters.swapcase() if c not in text][: max(widths)])
    full = [t.replace("...", dots[len(dots) - w :]) for t, w in zip(terms, widths, strict=True)]
    if not arrow:
        labels = left.replace(",", "").replace("...", "")
        right = dots + "".join(sorted(c for c in {*labels} if labels.count(c) == 1))
    out = right.replace("...", dots)
    if any(len({*term}) < len(term) for term in (*full, out)):
        raise ArgumentError(
            f"subscripts {subscripts!r}: an operand or the output repeats a label; "
            "of a diagonal, multiply by np.eye(n)"
        )
    return full, out


def _flops(subscripts: str, operands: Sequence[Any]) -> int:
    """For every combination of labels, one operation an operand; a length of 1 is repeated."""
    terms, _ = explicit(subscripts, tuple(x.ndim for x in operands))
    sizes: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        sizes |= {c: n for c, n in zip(term, x.shape, strict=True) if sizes.get(c, 1) == 1}
    return len(operands) * prod(sizes.values())


def returning(
    subscripts: str, shapes: Sequence[tuple[int, ...]], i: int, out_shape: tuple[int, ...]
) -> tuple[str, list[int]]:
    """The subscripts that give operand i its gradient: of g, the other operands, and rows of ones
    for axes that none of these has at its length; and how long these rows are.
    """
    terms, out = explicit(subscripts, tuple(map(len, shapes)))
    axes = [[*zip(term, shape, strict=True)] for term, shape in zip(terms, shapes, strict=True)]
    own = axes.pop(i)
    target = terms.pop(i)
    there = {*zip(out, out_shape, strict=True)}.union(*axes)
    lacking = [axis for axis in own if axis not in there]
    left = [out, *terms, *(label for label, _ in lacking)]
    return f"{','.join(left)}->{target}", [n for _, n in lacking]


def _call_tex(subscripts: str, names: Sequence[str]) -> str:
    arrow = subscripts.replace("->", r" \to ").replace("...", r"\ldots ")
    return rf"\operatorname{{einsum}}_{{{arrow}}}({', '.join(names)})"


def _einsum_tex(subscripts: str, operands: Sequence[Any]) -> str:
    return _call_tex(subscripts, [f"<operands{j}>" for j in range(len(operands))])


def _einsum_vjp_tex(subscripts: str, operands: Sequence[Any], i: int, out: Any) -> str:
    back, lengths = returning(subscripts, [x.shape for x in operands], i, out.shape)
    others = [f"<operands{j}>" for j in range(len(operands)) if j != i]
    return _call_tex(back, ["<g>", *others, *[r"\mathbf 1"] * len(lengths)])


@op(
    tex=_einsum_tex,
    vjp_tex={"operands": _einsum_vjp_tex},
    flops=_flops,
    samples=of_shapes(
        ("bnd,bnk->dk", [2, 3, 5], [2, 3, 7]), ("ij->ji", [2, 3]), ("ij,jk", [2, 3], [3, 5]),
        ("ij->j", [2, 3]), ("i,j->", [2], [3]), ("...ij,...jk->...ik", [7, 2, 3], [3, 5]),
        ("i...,i->...", [3, 2, 5], [3]), ("ij,jk,kl->il", [2, 3], [3, 5], [5, 2]),
        ("ij,ij->ij", [1, 3], [2, 3]), (",i->i", [], [3]), ("ij,jk->ik", [0, 3], [3, 5]),
    ),
    variadic=True,
)  # fmt: skip
def einsum(subscripts, *operands):
    """Sums products of entries by Einstein's convention: subscripts as np.einsum takes them.

    A label stands once in an operand: of the diagonal of x, multiply by a unit matrix, "ij,ij->i".
    Raises: ArgumentError for subscripts that don't fit the operands or that repeat a label.

    >>> einsum("bnd,bnk->dk", np.ones((2, 3, 5)), np.ones((2, 3, 7))).shape
    (5, 7)
    """
    if not isinstance(subscripts, str):
        raise ArgumentError(f"subscripts must be a string, got {type(subscripts).__name__}")
    terms, out = explicit(subscripts, tuple(np.ndim(x) for x in operands))
    where = f"{','.join(terms)}->{out}"
    if len(operands) == 1:
        x = operands[0]
        summed = tuple(k for k, c in enumerate(terms[0]) if c not in out)
        wide = accumulation_dtype(as_array(x), summed) if summed else None
        if wide is not None:
            return np.einsum(where, x, dtype=wide).astype(x.dtype)
    dtype = np.result_type(*operands)  # of booleans beside numbers NumPy may sum one alone
    numbers = [np.asarray(x, dtype) for x in operands]
    return np.einsum(where, *numbers, optimize=len(operands) > 1)


@einsum.vjp("operands")
def _(g, i, others, operands_shape, subscripts):
    """The gradient is multiplied by the other arrays, and summed over axes that this one lacks."""
    back, lengths = returning(subscripts, operands_shape, i, g.shape)
    rows = [np.ones(n, g.dtype) for n in lengths]
    return einsum(back, g, *others[:i], *others[i + 1 :], *rows)

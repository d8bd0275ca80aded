"""Algebra on programs: what a person would rearrange by hand, with the identity that each
rearrangement uses. All of it keeps the results to rounding.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .copy_elimination import place_copies, place_puts
from .matmul_fusion import join
from .program import SMALL, Program, Step, Value, is_whole, nbytes
from .rewrite import Rewriting, drop_dead, final_readers, is_transpose, uses_of
from .simplify import collapsed, seat, tidy

__all__ = ["improve"]


def improve(program: Program) -> None:
    """Rearrange the program."""
    tidy(program)
    drop_dead(program)
    if _computes_after_writing(program):
        return
    changes = (turn_products, move_scales, share_rowsums, join, place_puts, place_copies)
    for change in (*changes, multiply_by_ones, spread):
        if change(program):
            drop_dead(program)
            tidy(program)
            drop_dead(program)


def _computes_after_writing(program: Program) -> bool:
    """Whether anything is computed after a parameter was overwritten: then the order of reads
    matters.
    """
    kinds = [step.kind for step in program.steps if step.outs or step.kind in ("assign", "update")]
    writes = [kind in ("assign", "update") for kind in kinds]
    return True in writes and not all(writes[writes.index(True) :])


def _multiplies_matrices(step: Step | None) -> bool:
    return step is not None and step.kind == "matmul" and min(len(v.shape) for v in step.args) > 1


def turn_products(program: Program) -> bool:
    """(A B)ᵀ = Bᵀ Aᵀ: a product of which only the transpose is read is made the other way round."""
    uses = uses_of(program)
    r = Rewriting(program)

    def visit(step: Step) -> bool:
        if not _multiplies_matrices(step):
            return False
        readers = _through_reshapes(uses, step.out)
        if not readers or not all(
            s is not None and s.kind == "view" and is_transpose(s) for s in readers
        ):
            return False
        a, b = step.args
        *lead, n, m = step.out.shape
        turned = r.transposed(b), r.transposed(a)
        made = r.emit("matmul", "np.matmul", turned, (*lead, m, n), step.out.dtype)
        made.name = step.out.name.removesuffix("_T") if step.out.name else None
        r.now[id(step.out)] = r.transposed(made)
        return True

    return r.run(visit)


def _through_reshapes(uses: dict[int, list[Step | None]], value: Value) -> list[Step | None]:
    """The readers of a value; a stack of one matrix and that matrix are the same."""
    found: list[Step | None] = []
    for step in uses.get(id(value), []):
        if (
            step is not None
            and step.text == "reshape"
            and len(value.shape) == 2
            and step.out.shape[-2:] == value.shape
        ):
            found += _through_reshapes(uses, step.out)
        else:
            found.append(step)
    return found


def _factor(step: Step | None) -> float | None:
    """The number that a step multiplies by."""
    if step is not None and step.text == "np.multiply" and isinstance(step.args[1], int | float):
        return float(step.args[1])
    return None


def _bare(value: Value) -> tuple[Value | None, bool]:
    """What a value is, before a view that keeps its matrices or exchanges their axes; and whether
    it exchanges.
    """
    turned = False
    while value.step is not None and value.step.kind == "view":
        step, source = value.step, value.step.args[0]
        if is_transpose(step):
            turned = not turned
        elif (
            step.text not in ("reshape", "getitem")
            or source.shape[-2:] != value.shape[-2:]
            or (nbytes(source), source.offset) != (nbytes(value), value.offset)  # some, or reversed
        ):
            return None, turned
        value = source
    return value, turned


def _product_of(value: Any) -> Step | None:
    """The product of matrices that a value is, through views that keep them."""
    bare, turned = _bare(value) if value.__class__ is Value else (None, True)
    step = bare.step if bare is not None and not turned else None
    return step if _multiplies_matrices(step) else None


def move_scales(program: Program) -> bool:
    """c (A B) = (c A) B: a factor goes to the smallest of the three arrays."""
    uses = uses_of(program)
    r = Rewriting(program)
    scaled: dict[Any, Value] = {}  # c x, by c and where x lies

    def scale(value: Value, factor: float) -> Value:
        made = scaled.get((factor, seat(value)))
        if made is None:
            made = r.emit("elementwise", "np.multiply", (value, factor), value.shape, value.dtype)
            made.name = f"{value.name}_scaled" if value.name else None
            scaled[factor, seat(value)] = made
        return made

    def known(value: Value, factor: float) -> Value | None:
        """c times a value, or times its transpose, if that was computed before."""
        made = scaled.get((factor, seat(value)))
        if made is not None:
            return r.reshaped(made, value.shape)
        turned = r.transposed(value)
        made = scaled.get((factor, seat(turned)))
        return r.transposed(r.reshaped(made, turned.shape)) if made is not None else None

    def before(step: Step, factor: float) -> bool:
        """S = c (A B), A smaller than S: S = (c A) B."""
        product = _product_of(step.args[0])
        if product is None:
            return False
        a, b = product.args
        once = len(final_readers(uses, product.out)) == 1
        if not once or nbytes(a) >= nbytes(product.out) or _is_small(product.out):
            return False
        args, out = (scale(a, factor), b), product.out
        made = r.emit("matmul", "np.matmul", args, out.shape, out.dtype)
        r.replace(step.out, made)
        r.now[id(step.out)] = r.reshaped(made, step.out.shape)
        return True

    def after(step: Step) -> bool:
        """(c G) B with G larger than the rest: c (G B), or G (c B) where c B is known."""
        for k, value in enumerate(step.args):
            bare, turned = _bare(value)
            factor = _factor(bare.step) if bare is not None else None
            if bare is None or bare.step is None or factor is None:
                continue
            inner, other = bare.step.args[0], step.args[1 - k]
            readers = final_readers(uses, bare)
            if not all(s is not None and s.kind == "matmul" for s in readers):
                continue
            if nbytes(inner) <= max(nbytes(step.out), nbytes(other)) or _is_small(inner):
                continue
            *lead, n, m = value.shape
            large = r.reshaped(inner, (*lead, m, n) if turned else value.shape)
            large = r.transposed(large) if turned else large
            ready = known(other, factor)
            args = (large, ready or other) if k == 0 else (ready or other, large)
            made = r.emit("matmul", "np.matmul", args, step.out.shape, step.out.dtype)
            if ready is None:
                args = (made, factor)
                made = r.emit("elementwise", "np.multiply", args, made.shape, made.dtype)
            r.replace(step.out, made)
            return True
        return False

    def visit(step: Step) -> bool:
        factor = _factor(step)
        if factor is not None:
            if before(step, factor):
                return True
            scaled.setdefault((factor, seat(step.args[0])), step.out)
            return False
        return _multiplies_matrices(step) and after(step)

    return r.run(visit)


def share_rowsums(program: Program) -> bool:
    """rowsum((P Qᵀ) ⊙ A) = rowsum(P ⊙ (A Q)): of softmax's rule, n × d in place of n × n where A Q
    is known.
    """
    r = Rewriting(program)
    products: dict[Any, Value] = {}  # by where the two operands lie

    def visit(step: Step) -> bool:
        if step.kind == "matmul":
            products.setdefault(tuple(map(seat, step.args)), step.out)
        settings = {"axis": -1, "keepdims": True}
        summed = step.args[0].step if step.text == "np.add.reduce" else None
        if summed is None or summed.text != "np.multiply" or step.kwargs != settings:
            return False
        for left, weights in (summed.args, summed.args[::-1]):
            product = _product_of(left)
            if product is None or weights.__class__ is not Value or _is_small(weights):
                continue
            p, turned = product.args
            known = products.get((seat(weights), seat(r.transposed(turned))))
            if known is None or nbytes(known) != nbytes(p) or nbytes(p) >= nbytes(product.out):
                continue
            both = (p, r.reshaped(known, p.shape))
            made = r.emit("elementwise", "np.multiply", both, p.shape, p.dtype)
            shape = (*p.shape[:-1], 1)
            made = r.emit("reduce", "np.add.reduce", (made,), shape, p.dtype, **settings)
            r.now[id(step.out)] = r.reshaped(made, step.out.shape)
            return True
        return False

    return r.run(visit)


def multiply_by_ones(program: Program) -> bool:
    """rowsum(X) = X 1 and Σ rows of X = 1ᵀ X: products are several times as fast as sums."""
    r = Rewriting(program)
    ones: dict[Any, Value] = {}

    def one(shape: tuple[int, ...], dtype: Any) -> Value:
        if (shape, dtype) not in ones:
            value = ones[shape, dtype] = program.constant(np.ones(shape, dtype))
            value.name = "ones"
        return ones[shape, dtype]

    def visit(step: Step) -> bool:
        if step.text != "np.add.reduce":
            return False
        (x,), out, settings = step.args, step.out, step.kwargs
        if out.dtype.kind != "f" or x.dtype != out.dtype:
            return False
        ndim, axis, initial = len(x.shape), settings.get("axis"), settings.get("initial")
        if ndim < 2 or 0 in x.shape or step.into is not None:
            return False
        if axis == 0 and ndim == 2 and set(settings) == {"axis"}:
            args = (one((x.shape[0],), x.dtype), x)
            r.replace(out, r.emit("matmul", "np.matmul", args, out.shape, x.dtype))
            return True
        if axis not in (-1, ndim - 1) or not settings.get("keepdims"):
            return False
        rows = x if x.shape[-2] * x.shape[-1] >= SMALL else collapsed(r, x)
        if rows is None:
            return False
        args = (rows, one((x.shape[-1], 1), x.dtype))
        made = r.emit("matmul", "np.matmul", args, (*rows.shape[:-1], 1), x.dtype)
        made.name = f"{x.name or step.op}_sum"
        if initial is not None:
            made = r.emit("elementwise", "np.add", (made, initial), made.shape, x.dtype)
        r.replace(out, made)
        r.now[id(out)] = r.reshaped(made, out.shape)
        return True

    return r.run(visit)


def spread(program: Program) -> bool:
    """x + b = x + [b … b]: ufuncs of few entries take half the time where all of them lie alike."""
    r = Rewriting(program)
    known: dict[Any, Value] = {}

    def alike(value: Any, shape: tuple[int, ...]) -> Any:
        if value.__class__ is not Value or prod(value.shape) == 1:
            return value
        if value.shape == shape and is_whole(value):
            return value
        key = seat(value), shape
        if key not in known:
            known[key] = r.emit("elementwise", "spread", (value, shape), shape, value.dtype)
        return known[key]

    def visit(step: Step) -> bool:
        if step.kind == "elementwise" and step.text != "spread" and _is_small(step.out):
            step.args = tuple(alike(item, step.out.shape) for item in step.args)
        return False

    r.run(visit)
    return bool(known)


def _is_small(value: Value) -> bool:
    return prod(value.shape) <= SMALL

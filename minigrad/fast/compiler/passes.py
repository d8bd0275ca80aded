"""Algebra on programs: what a person would rearrange by hand, with the identity that each
rearrangement uses. All of it keeps the results to rounding.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .program import SMALL, Program, Step, Value, is_whole
from .rewrite import Rewriting, drop_dead, is_transpose, uses_of
from .simplify import collapsed, seat, tidy

__all__ = ["improve"]


def improve(program: Program) -> None:
    """Rearrange the program."""
    tidy(program)
    drop_dead(program)
    if _computes_after_writing(program):
        return
    for change in (turn_products, multiply_by_ones, spread):
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

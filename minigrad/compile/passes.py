"""Algebra on programs: what a person would rearrange by hand, with the identity that each
rearrangement uses.

All of it keeps the results to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .joins import join
from .program import Program, Step, Value, contiguous, nbytes
from .rewrite import Keeps, Rewriting, drop_dead, final_readers, is_transpose, tidy, uses_of

__all__ = ["improve"]


def improve(program: Program, keeps: Keeps) -> Keeps:
    """Rearrange the program; the kept values are replaced along with the others."""
    for change in (tidy, drop_dead):
        keeps = change(program, keeps)
    if not _computes_after_writing(program):
        for change in (turn_products, move_scales, share_rowsums):
            keeps = change(program, keeps)
        keeps = join(program, drop_dead(program, keeps))
    return keeps


def _computes_after_writing(program: Program) -> bool:
    """Whether anything is computed after a parameter was overwritten: then the order of reads
    matters.
    """
    kinds = [step.kind for step in program.steps if step.outs or step.kind in ("assign", "update")]
    writes = [kind in ("assign", "update") for kind in kinds]
    return True in writes and not all(writes[writes.index(True) :])


def turn_products(program: Program, keeps: Keeps) -> Keeps:
    """(A B)ᵀ = Bᵀ Aᵀ: a product of which only the transpose is read is made the other way round."""
    uses = uses_of(program, keeps)
    r = Rewriting(program, keeps)

    def visit(step: Step) -> bool:
        if step.kind != "matmul" or min(len(v.shape) for v in step.args) < 2:
            return False
        readers = _through_reshapes(uses, step.out)
        if not readers or not all(
            s is not None and s.kind == "view" and is_transpose(s) for s in readers
        ):
            return False
        a, b = step.args
        *lead, n, m = step.out.shape
        made = r.emit(
            "matmul", "np.matmul", (r.transposed(b), r.transposed(a)), (*lead, m, n), step.out.dtype
        )
        r.now[id(step.out)] = r.transposed(made)
        return True

    keeps = r.run(visit)
    return tidy(program, keeps)


def _through_reshapes(uses: dict[int, list[Step | None]], value: Value) -> list[Step | None]:
    """The readers of a value; a stack of one matrix and that matrix are the same."""
    found: list[Step | None] = []
    for step in uses.get(id(value), []):
        same = step is not None and step.kind == "view" and step.text == "reshape"
        if (
            same
            and step is not None
            and step.out.shape[-2:] == value.shape[-2:]
            and len(value.shape) == 2
        ):
            found += _through_reshapes(uses, step.out)
        else:
            found.append(step)
    return found


def _number(step: Step | None) -> float | None:
    """The factor of a step that multiplies by one number."""
    if step is not None and step.text == "np.multiply" and isinstance(step.args[1], int | float):
        return float(step.args[1])
    return None


def move_scales(program: Program, keeps: Keeps) -> Keeps:
    """c (A B) = (c A) B: a factor goes to the smallest of the three arrays."""
    uses = uses_of(program, keeps)
    r = Rewriting(program, keeps)
    scaled: dict[tuple[int, float], Value] = {}

    def scale(value: Value, factor: float) -> Value:
        key = (id(value), factor)
        if key not in scaled:
            scaled[key] = r.emit(
                "elementwise", "np.multiply", (value, factor), value.shape, value.dtype
            )
            scaled[key].name = f"{value.name}_scaled" if value.name else None
        return scaled[key]

    def visit(step: Step) -> bool:
        return _scale_before(r, uses, step, scale) or _scale_after(r, uses, step, scale)

    keeps = r.run(visit)
    drop_dead(program, keeps)
    return tidy(program, keeps)


def _product_of(value: Any) -> tuple[Step, Value] | None:
    """The product that a value is, through a reshape that keeps its matrices."""
    if value.__class__ is not Value or value.step is None:
        return None
    step = value.step
    if step.kind == "view" and step.text == "reshape" and step.args[0].shape == value.shape[-2:]:
        return _product_of(step.args[0])
    return (step, value) if step.kind == "matmul" else None


def _scale_before(r: Rewriting, uses: Any, step: Step, scale: Any) -> bool:
    """S = c (A B), A smaller than S: S = (c A) B."""
    factor = _number(step)
    found = _product_of(step.args[0]) if factor is not None else None
    if found is None or factor is None:
        return False
    product, _ = found
    a, b = product.args
    if nbytes(a) >= nbytes(product.out) or len(a.shape) < 2 or len(b.shape) < 2:
        return False
    if len(uses.get(id(step.args[0]), [])) > 1 or len(uses.get(id(product.out), [])) > 1:
        return False
    made = r.emit(
        "matmul", "np.matmul", (scale(a, factor), b), product.out.shape, product.out.dtype
    )
    r.replace(step.out, made)
    r.now[id(step.out)] = r.reshaped(made, step.out.shape)
    return True


def _scale_after(r: Rewriting, uses: Any, step: Step, scale: Any) -> bool:
    """(c G) B with G larger than the rest: c (G B), or G (c B) where c B is known."""
    if step.kind != "matmul" or min(len(v.shape) for v in step.args) < 2:
        return False
    for k, value in enumerate(step.args):
        bare, turned = _bare(r, value)
        factor = _number(bare.step) if bare is not None else None
        if bare is None or factor is None or bare.step is None:
            continue
        inner, other = bare.step.args[0], step.args[1 - k]
        readers = final_readers(uses, bare)
        products = all(s is not None and s.kind == "matmul" for s in readers)
        if not products or nbytes(inner) <= max(nbytes(step.out), nbytes(other)):
            continue
        large = _as(r, inner, value, turned)
        known = r_scaled(r, other, factor)
        args = [large, known or other] if k == 0 else [known or other, large]
        made = r.emit("matmul", "np.matmul", tuple(args), step.out.shape, step.out.dtype)
        if known is None:
            made = r.emit("elementwise", "np.multiply", (made, factor), made.shape, made.dtype)
        r.replace(step.out, made)
        return True
    return False


def _bare(r: Rewriting, value: Value) -> tuple[Value | None, bool]:
    """What a value is, before a view that keeps its matrices or exchanges their axes; and whether
    it exchanges.
    """
    turned = False
    while value.step is not None and value.step.kind == "view":
        step = value.step
        if is_transpose(step):
            turned = not turned
        elif not (
            step.text in ("reshape", "getitem")
            and step.args[0].shape[-2:] == value.shape[-2:]
            and _product(step.args[0].shape) == _product(value.shape)
        ):
            return None, turned
        value = step.args[0]
    return value, turned


def _product(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=int))


def _as(r: Rewriting, inner: Value, like: Value, turned: bool) -> Value:
    """`inner` seen through the same views as `like` sees its scaled form."""
    shape = (*like.shape[:-2], like.shape[-1], like.shape[-2]) if turned else like.shape
    seen = r.reshaped(inner, shape) if inner.shape != shape else inner
    return r.transposed(seen) if turned else seen


def r_scaled(r: Rewriting, value: Value, factor: float) -> Value | None:
    """c times a value, if that was computed before."""
    whole, turned = _bare(r, value)
    if whole is None:
        return None
    for step in r.steps:
        if _number(step) == factor and step.text == "np.multiply":
            seen, other_turned = _bare(r, step.args[0])
            if seen is whole and step.out.strides == contiguous(step.out.shape, step.out.dtype):
                turned_now = turned != other_turned
                shape = (
                    value.shape
                    if not turned_now
                    else (*value.shape[:-2], value.shape[-1], value.shape[-2])
                )
                made = r.reshaped(step.out, shape)
                return r.transposed(made) if turned_now else made
    return None


def share_rowsums(program: Program, keeps: Keeps) -> Keeps:
    """rowsum((P Qᵀ) ⊙ A) = rowsum(P ⊙ (A Q)): of softmax's rule, n × d in place of n × n where A Q
    is known.
    """
    r = Rewriting(program, keeps)

    def visit(step: Step) -> bool:
        if (
            step.text != "np.add.reduce"
            or step.kwargs.get("axis") != -1
            or not step.kwargs.get("keepdims")
        ):
            return False
        product = step.args[0].step
        if product is None or product.text != "np.multiply":
            return False
        for left, weights in (product.args, product.args[::-1]):
            found = _product_of(left)
            if found is None or weights.__class__ is not Value:
                continue
            p, q_turned = found[0].args
            known = _known_product(r, weights, q_turned)
            if known is not None and nbytes(p) < nbytes(found[0].out) and p.shape == known.shape:
                both = r.emit("elementwise", "np.multiply", (p, known), p.shape, p.dtype)
                shape = (*p.shape[:-1], 1)
                made = r.emit(
                    "reduce", "np.add.reduce", (both,), shape, p.dtype, axis=-1, keepdims=True
                )
                r.now[id(step.out)] = r.reshaped(made, step.out.shape)
                return True
        return False

    keeps = r.run(visit)
    drop_dead(program, keeps)
    return tidy(program, keeps)


def _known_product(r: Rewriting, a: Value, b_turned: Value) -> Value | None:
    """A B, if it was computed before, with Bᵀ given."""
    first, _ = _bare(r, a)
    second, turned = _bare(r, b_turned)
    for step in r.steps:
        if step.kind == "matmul" and first is not None and second is not None:
            x, x_turned = _bare(r, step.args[0])
            y, y_turned = _bare(r, step.args[1])
            if x is first and not x_turned and y is second and y_turned != turned:
                return step.out
    return None

r"""Indices as they stand in brackets: `..., :2` of an index that a record holds as text."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from .symbols import text_tex, times

__all__ = ["along", "index_tex", "span"]

LISTED = 6  # integers of a list that are written out


def along(axis: int, ndim: int, part: str) -> str:
    r"""The index of a part along one axis.

    >>> along(1, 3, "2"), along(2, 3, "2"), along(0, 3, "2")
    ('{:}, 2', '\\ldots, 2', '2')
    """
    if ndim > 1 and axis == ndim - 1:
        return rf"\ldots, {part}"
    return ", ".join(["{:}"] * axis + [part])


def span(start: int | str, stop: int | str, step: str = "") -> str:
    r"""A slice.

    >>> span(0, 2), span(2, 4), span("", "", "-1")
    ('{:}2', '2{:}4', '{:}{:}-1')
    """
    return f"{start or ''}{{:}}{stop}" + (f"{{:}}{step}" if step else "")


@lru_cache(maxsize=1024)
def index_tex(text: str) -> str:
    r"""An index, as Python prints it, as LaTeX; an array in it is told by its shape.

    >>> index_tex("(Ellipsis, slice(None, 2, None))"), index_tex("-1")
    ('\\ldots, {:}2', '-1')
    >>> index_tex("(slice(None, None, -1), None, array([[1, 2, 0]]))")
    '{:}{:}-1, \\text{new}, \\text{array}_{1 \\times 3}'
    """
    try:
        tree = ast.parse(re.sub(r"\bnp\.\w+\((-?\d+)\)", r"\1", text), mode="eval").body
    except (SyntaxError, ValueError):
        return text_tex(text)
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    return ", ".join(map(_part, parts)) or r"\,"


def _part(node: ast.expr) -> str:
    value = ast.unparse(node)
    if isinstance(node, ast.Constant) and node.value is None:
        return r"\text{new}"
    if value in ("Ellipsis", "..."):
        return r"\ldots"
    if isinstance(node, ast.Call) and value.startswith("slice("):
        start, stop, step = ("" if x == "None" else x for x in map(ast.unparse, node.args))
        return span("" if start == "0" else start, stop, step)
    if isinstance(node, ast.Call):
        return _array(node)
    if isinstance(node, ast.List):
        flat = all(not isinstance(x, ast.List) for x in node.elts)
        short = flat and len(node.elts) <= LISTED
        return f"[{', '.join(map(ast.unparse, node.elts))}]" if short else _told(_shape(node))
    return value if re.fullmatch(r"-?\d+", value) else text_tex(value)


def _array(node: ast.Call) -> str:
    """NumPy prints the shape of an array that it does not print whole."""
    said = [ast.unparse(k.value) for k in node.keywords if k.arg == "shape"]
    shape = tuple(ast.literal_eval(said[0])) if said else _shape(node.args[0]) if node.args else ()
    return _told(shape)


def _shape(node: ast.expr) -> tuple[int, ...]:
    if not isinstance(node, ast.List):
        return ()
    return (len(node.elts), *(_shape(node.elts[0]) if node.elts else ()))


def _told(shape: tuple[int, ...]) -> str:
    return rf"\text{{array}}_{{{times(shape)}}}"

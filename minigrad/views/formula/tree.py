"""What a formula is made of, and what a tree tells about itself: how it binds, what it defines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Sign:
    """One sign or word, as LaTeX spells it.

    Its kind is "letter", "number", "operator", "word" (a symbol of several letters), "function",
    "text" (any characters), "shape" or "space".
    """

    kind: str
    tex: str


@dataclass(frozen=True)
class Slot:
    """What stands for an input, a setting, `g` or `out`."""

    name: str


@dataclass(frozen=True)
class Row:
    """Nodes beside one another."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Group:
    """A row in brackets; `tall` ones grow with what they hold."""

    open: str
    inside: Node
    close: str
    tall: bool = False


@dataclass(frozen=True)
class Call:
    """What has brackets right behind it: a function and its arguments, an array and an index."""

    head: Node
    group: Group


@dataclass(frozen=True)
class Fraction:
    top: Node
    bottom: Node
    small: bool = False


@dataclass(frozen=True)
class Script:
    base: Node
    below: Node | None = None
    above: Node | None = None


@dataclass(frozen=True)
class Accent:
    mark: str  # "hat", "bar" or "sqrt"
    base: Node


Node: TypeAlias = Sign | Slot | Row | Group | Call | Fraction | Script | Accent


def operator(tex: str) -> Sign:
    return Sign("operator", tex)


COMMA, EQUALS, SUM, TOP = map(operator, (",", "=", r"\sum", r"\top"))
ADDING = operator("+"), operator("-")
MINUS = ADDING[1]
RELATIONS = (EQUALS, *map(operator, ("<", ">", r"\le", r"\ge")))
QUAD = Sign("space", r"\quad")


def row(items: tuple[Node, ...] | list[Node]) -> Node:
    """Nodes beside one another; a single one stands for itself."""
    return items[0] if len(items) == 1 else Row(tuple(items))


def items_of(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, Row) else (node,)


def children(node: Node) -> Iterator[Node]:
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, tuple):
            yield from value
        elif not isinstance(value, str | bool | None):
            yield value


def base_of(node: Node) -> Node:
    """What stands under scripts; the node itself without any."""
    return node.base if isinstance(node, Script) else node


def walk(node: Node) -> Iterator[Node]:
    """A node and all within it, from the left."""
    yield node
    for child in children(node):
        yield from walk(child)


def changed(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """A tree with other nodes in the place of those for which `change` gives one."""
    other = change(node)
    if other is not None:
        return other
    made: dict[str, Any] = {}
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, tuple):
            made[field.name] = tuple(changed(child, change) for child in value)
        elif not isinstance(value, str | bool | None):
            made[field.name] = changed(value, change)
    return replace(node, **made)


def slots(node: Node) -> list[str]:
    """The names of a formula's slots, each once."""
    return list(dict.fromkeys(n.name for n in walk(node) if isinstance(n, Slot)))


def split(node: Node, separator: Node) -> list[Node]:
    """The parts of a row between the separators that stand in it."""
    parts: list[list[Node]] = [[]]
    for item in items_of(node):
        if item == separator:
            parts.append([])
        else:
            parts[-1].append(item)
    return [row(part) for part in parts]


def definitions(formula: Node) -> tuple[Node, list[tuple[Node, Node]]]:
    r"""A formula, and the signs that are defined behind it: each with what it is.

    >>> from . import parse, latex
    >>> body, signs = definitions(parse(r"\tfrac1n <g>, \quad n = 7"))
    >>> latex(body), [(latex(sign), latex(it)) for sign, it in signs]
    ('\\tfrac1n\\, \\mathrm{g}', [('n', '7')])
    """
    first, *rest = split(formula, QUAD)
    found = []
    for part in rest:
        sign, *definition = split(_without_comma(part), EQUALS)
        if definition:
            found.append((sign, _joined(definition, EQUALS)))
    return (_without_comma(first) if rest else first), found


def _without_comma(node: Node) -> Node:
    items = items_of(node)
    return row(items[:-1]) if items[-1:] == (COMMA,) else node


def _joined(parts: list[Node], separator: Node) -> Node:
    items = [*items_of(parts[0])]
    for part in parts[1:]:
        items += [separator, *items_of(part)]
    return row(items)


# ---------------------------------------------------------------- how a formula binds


def is_operator(node: Node | None) -> bool:
    return isinstance(node, Sign) and node.kind == "operator"


def level(node: Node) -> str:
    """What binds loosest outside of all brackets: "sum", "product", or "atom" for neither."""
    items = items_of(node)
    if any(item in ADDING or item in RELATIONS for item in items):
        return "sum"
    if len(items) == 1 and isinstance(items[0], Row):
        return level(items[0])
    return "atom" if len(items) == 1 else "product"


def is_negative(node: Node) -> bool:
    return items_of(node)[:1] == ADDING[1:]


def keeps_shape(rule: Node) -> bool:
    """Whether a rule works entry by entry or as a product of matrices.

    It has the shape of the op's result then, and the engine sums over what was repeated.
    """
    return not any(
        item == SUM
        or (isinstance(item, Sign) and item.kind == "function" and not item.tex.startswith("\\"))
        or (isinstance(item, Call) and item.group.open == "[")
        or (isinstance(item, Script) and isinstance(item.base, Slot) and item.below is not None)
        for item in walk(definitions(rule)[0])
    )

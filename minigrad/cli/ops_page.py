"""The catalogue of all ops as one page: formulas as MathML, rules, costs. It needs no network."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

from ..views.files import filled
from ..views.formula import Node, definitions, mathml, parse
from ..views.formula.products import gradient
from ..views.formula.tree import EQUALS, items_of, row
from .declared import Declared

__all__ = ["ops_page"]

OUT = Node("slot", "out")
FIXED = '<mo stretchy="false">'


def ops_page(ops: Iterable[Declared]) -> str:
    """The page as text; the same registry gives the same text."""
    groups: dict[str, list[Declared]] = {}
    for one in ops:
        module = one.op.kernel.__module__.rpartition(".")[2]
        groups.setdefault(module.replace("_", " "), []).append(one)
    body, links = [], []
    for room, some in groups.items():
        body.append(_tag("h2", escape(room)))
        body += map(_article, some)
        names = (_tag("a", escape(one.op.name), href=f"#{one.op.name}") for one in some)
        links.append(_tag("p", _tag("strong", escape(room)) + " " + " ".join(names)))
    page = (files(__package__) / "ops.html").read_text(encoding="utf-8")
    count = str(sum(map(len, groups.values())))
    return filled(page, {"links": "\n".join(links), "ops": "\n".join(body), "count": count})


def _article(one: Declared) -> str:
    """One op: what it claims, a row for its formula and for each rule, and how it is checked."""
    rows = [_row(OUT, one.forward, one.flops)]
    for name, rule in one.backward.items():
        rows.append(_row(gradient(Node("slot", name)), rule, one.vjp_flops[name]))
    head = "<tr><th>formula</th><th>FLOPs in the example</th></tr>"
    how = "the complex step" if one.op.analytic else "central differences"
    example = f"Example: {_tag('code', escape(one.example))}"
    formulas = ", whose formulas these are" if one.depends else ""
    return _tag(
        "article",
        _tag("h3", _tag("a", _tag("code", escape(one.signature)), href=f"#{one.op.name}"))
        + _tag("p", escape(one.claim))
        + _tag("table", head + "".join(rows))
        + _tag("p", f"{example}{formulas}. Checked by {how}.", **{"class": "how"}),
        id=one.op.name,
    )


def _row(left: Node, tex: str, flops: int | None) -> str:
    """An equation, with what it defines for itself below it, and what it costs."""
    body, signs = definitions(parse(tex))
    lines = [_equation(left, body), *(_equation(sign, what) for sign, what in signs)]
    cost = "not declared" if flops is None else f"{flops:,}"
    return _tag("tr", _tag("td", "".join(lines)) + _tag("td", cost))


def _equation(left: Node, right: Node) -> str:
    whole = row((*items_of(left), EQUALS, *items_of(right)))
    return _tag("math", _markup(mathml(whole)), display="block")


def _markup(tree: Any) -> str:
    """A tree of MathML as text; a slot is the name of what it stands for."""
    if isinstance(tree, str):
        return escape(tree)
    tag, *children = tree
    attributes = children.pop(0) if children and isinstance(children[0], dict) else {}
    attributes |= {"class": "slot"} if tag == "slot" else {}
    inside = "".join(map(_markup, children))
    if "<mfrac>" not in inside:  # brackets grow with fractions alone
        inside = inside.replace("<mo>(", FIXED + "(").replace("<mo>)", FIXED + ")")
    return _tag("mi" if tag == "slot" else tag, inside, **attributes)


def _tag(name: str, inside: str, **attributes: str) -> str:
    said = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    return f"<{name}{said}>{inside}</{name}>"

r"""Formulas of op declarations with symbols filled in, simplified as a person would write them.

A template such as `<g> <b>^\top` becomes an Expression: a product of matrices, which can be
transposed and summed over a batch, where the template is one; text otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from .brackets import atomic, grown, level, tidy
from .symbols import Symbol

__all__ = ["ONE", "Expression", "Factor", "fill", "gradient", "value"]

_NAME = re.compile(r"<(\w+)>")
WORDS = (r"\mathrm", r"{\text", r"{\mathrm")
_PRODUCT = re.compile(r"<\w+>(\^\\top)?( <\w+>(\^\\top)?)*")


@dataclass(frozen=True)
class Factor:
    """One matrix in a product: a symbol, or the gradient of L for it."""

    symbol: Symbol
    gradient: bool = False
    transposed: bool = False
    index: str = ""  # which of a batch

    def tex(self) -> str:
        body = self.symbol.tex(self.index)
        if self.gradient:
            body = rf"\frac{{\partial L}}{{\partial {body}}}"
            return rf"\left({body}\right)^\top" if self.transposed else body
        if not atomic(body) and (self.transposed or self.index):
            body = rf"\left({body}\right)"
        return rf"{body}^\top" if self.transposed else body


@dataclass(frozen=True)
class Expression:
    """A product of matrices, or any other formula as text; summed over the indices in `over`."""

    factors: tuple[Factor, ...] = ()
    text: str = ""
    over: str = ""
    where: str = ""  # what defines a symbol of the text

    @property
    def body(self) -> str:
        return self.text or _side_by_side([_factor_tex(f, len(self.factors)) for f in self.factors])

    @property
    def tex(self) -> str:
        body = self.body
        if self.over:
            body = rf"\left({body}\right)" if level(body) == "sum" else body
            body = rf"\sum_{{{self.over}}} {body}"
        return f"{body}, {self.where}" if self.where else body

    @property
    def is_one(self) -> bool:
        return self == ONE

    def transpose(self) -> Expression:
        if not self.factors:
            return Expression(text=rf"\left({self.tex}\right)^\top")
        turned = (replace(f, transposed=not f.transposed) for f in reversed(self.factors))
        return replace(self, factors=tuple(turned))

    def indexed(self, index: str) -> Expression:
        """One matrix of a batch of them."""
        if not index or self.is_one:
            return self
        if len(self.factors) == 1 and not self.over:
            return replace(self, factors=(replace(self.factors[0], index=index),))
        return Expression(text=rf"\left({self.tex}\right)_{{{index}}}")

    def summed(self, over: str) -> Expression:
        if not over or self.over:
            return self if not over else Expression(text=self.tex, over=over)
        return replace(self, over=over)

    def as_factors(self, transposed: bool) -> tuple[Factor, ...]:
        if self.factors and not self.over:
            return (self.transpose() if transposed else self).factors
        return (Factor(Symbol(self.tex), transposed=transposed),)


ONE = Expression(text="1")  # the gradient of L for itself


def value(symbol: Symbol) -> Expression:
    return Expression((Factor(symbol),))


def gradient(symbol: Symbol) -> Expression:
    r"""The gradient of L for a symbol.

    >>> gradient(Symbol("Q")).tex
    '\\frac{\\partial L}{\\partial Q}'
    """
    return Expression((Factor(symbol, gradient=True),))


def fill(template: str, values: Mapping[str, Expression]) -> Expression:
    r"""A declaration's formula with values in place of names.

    >>> V, dO = value(Symbol("V")), gradient(Symbol("O"))
    >>> fill(r"<g> <b>^\top", {"g": dO, "b": V}).tex
    '\\frac{\\partial L}{\\partial O} V^\\top'
    >>> fill(r"<g> <b>^\top", {"g": dO, "b": V.transpose()}).transpose().tex
    'V^\\top \\left(\\frac{\\partial L}{\\partial O}\\right)^\\top'
    """
    template, _, where = template.partition(r", \quad ")
    if where:
        found = grown(_text(where, values))
        return replace(fill(template, values), where=rf"\quad {found}")
    if _PRODUCT.fullmatch(template):
        factors: tuple[Factor, ...] = ()
        for name, turned in re.findall(r"<(\w+)>(\^\\top)?", template):
            part = values[name]
            if not part.is_one:
                factors += part.as_factors(bool(turned))
        return Expression(factors) if factors else ONE
    if values.get("g", ONE).is_one:  # a factor of one need not be written
        template = template.replace(r"<g> \odot ", "").replace(r"\, <g>", "")
    return Expression(text=grown(tidy(_text(template, values))))


# ---------------------------------------------------------------- text


def _text(template: str, values: Mapping[str, Expression]) -> str:
    """The template as text, in LaTeX that GitHub accepts."""
    pieces, end = [], 0
    for found in _NAME.finditer(template):
        pieces.append(_plainer(template[end : found.start()]))
        before, after = template[: found.start()].rstrip(), template[found.end() :]
        pieces.append(_bracketed(values[found[1]], before, after))
        end = found.end()
    return "".join([*pieces, _plainer(template[end:])])


def _plainer(tex: str) -> str:
    """No \\operatorname, which GitHub has refused, and no character that Markdown or HTML reads."""
    tex = tex.replace(r"\operatorname", r"\mathrm").replace("|", r"\vert ")
    tex = tex.replace("<", r"\lt ").replace(">", r"\gt ").replace(r"\textstyle", "")
    return re.sub(r"(\\tfrac(1[A-Za-z]|\{\w+\}\{\w+\})) ", r"\1\\, ", tex)


def _bracketed(part: Expression, before: str, after: str) -> str:
    """A value's formula, in brackets where it would be misread without."""
    tex = part.tex
    if after[:1] in ("^", "_", "["):
        plain = part.factors[0] if len(part.factors) == 1 and not part.over else None
        bare = plain and not plain.gradient and not plain.transposed and not _scripted(tex, after)
        return tex if bare and atomic(tex) else rf"\left({tex}\right)"
    enclosed = before[-1:] in ("(", "{", "[", ",") and after[:1] in (")", "}", "]", ",")
    if enclosed or atomic(tex) or not (before or after):
        return tex
    beside = before[-1:] in ("", "+", "-") and after.lstrip()[:1] in ("", "+", "-")
    if beside and (level(tex) == "product" or before[-1:] == "") and not tex.startswith("-"):
        return tex
    return rf"\left({tex}\right)"


def _scripted(tex: str, after: str) -> bool:
    """Whether the sign that follows would be a second script of the same kind."""
    return after[:1] == "_" and "_" in tex


def _side_by_side(factors: list[str]) -> str:
    """Factors of a product; a word stands apart from its neighbours."""
    tex = factors[0]
    for last, factor in pairwise(factors):
        apart = last.startswith(WORDS) or factor.startswith(WORDS)
        tex += rf"\, {factor}" if apart else f" {factor}"
    return tex


def _factor_tex(factor: Factor, count: int) -> str:
    tex = factor.tex()
    return rf"\left({tex}\right)" if count > 1 and level(tex) != "atom" else tex

r"""Formulas: one tree for each, and writers for it.

tree     what a formula is made of, how it binds, and the signs that it defines
parse    the LaTeX of declarations and of hand-derived steps as a tree
signs    each sign in LaTeX, Unicode and ASCII
fill     values in the place of slots, with brackets where they are needed; products of matrices
numbers  numbers as a person writes them
latex, text, mathml    the writers

>>> rule = parse(r"<g> <b>^\top")
>>> text(rule, {"g": "∂L/∂O", "b": "V"})
'∂L/∂O Vᵀ'
>>> latex(fill(rule, {"g": gradient(parse("O")), "b": parse("V")}))
'\\frac{\\partial L}{\\partial O} V^\\top'
>>> mathml(rule)[1]
['slot', 'g']
"""

from .fill import fill
from .latex import latex, text_tex
from .mathml import Tree, mathml
from .numbers import number
from .parse import parse
from .products import (
    ONE,
    gradient,
    gradient_of,
    indexed,
    is_one,
    summed,
    symbol_name,
    transposed,
)
from .text import plain, text
from .tree import Node, changed, definitions, is_negative, keeps_shape, level, slots

__all__ = [
    "ONE",
    "Node",
    "Tree",
    "changed",
    "definitions",
    "fill",
    "gradient",
    "gradient_of",
    "indexed",
    "is_negative",
    "is_one",
    "keeps_shape",
    "latex",
    "level",
    "mathml",
    "number",
    "parse",
    "plain",
    "slots",
    "summed",
    "symbol_name",
    "text",
    "text_tex",
    "transposed",
]

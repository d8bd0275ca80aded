r"""Formulas: one tree for each, and writers for it.

tree       what a formula is made of, each sign, how it binds, and the signs that it defines
parse      the LaTeX of declarations and of hand-derived steps as a tree
fill       values in the place of slots, with brackets where they are needed; numbers
products   products of matrices: transposed, taken matrix by matrix, added
check, evaluate    a formula's value, compared with what the code computes; named has its
           functions, indices the computed indices, recurrence the definitions by steps of time
write, mathml    the writers: LaTeX and text, MathML

>>> rule = parse(r"<g> <b>^\top")
>>> text(rule)
'g bᵀ'
>>> latex(fill(rule, {"g": parse("G"), "b": parse("V")}))
'G V^\\top'
>>> mathml(rule)[1]
['slot', 'g']
"""

from .fill import fill, number
from .mathml import mathml
from .parse import parse
from .tree import Formula, definitions, slots
from .write import latex, plain, text

__all__ = [
    "Formula", "definitions", "fill", "latex", "mathml", "number", "parse", "plain", "slots",
    "text",
]  # fmt: skip

"""Views of a Trace. Each reads the record and nothing else, never a Tensor.

model       one annotated model of a record: scopes, repeated blocks, states, labels; `fold` finds
            what repeats
formula     one tree for formulas, written as LaTeX, text and MathML
data        the record as a dict, ready for JSON
table       the record, and the hand-derived steps beside it, in the terminal
picture     the graph as SVG, PNG, PDF or DOT: `outline` says which boxes and lines there are,
            `labels` what they say, `dot` how they look,
            `picture` runs graphviz and adds themes, titles and ids
page        one HTML file that steps through the record
derivation  the backward pass written out
attention   weights of attention beside their gradients, and figures that read them
notebook    what a notebook shows
colors      colours of each theme, the scale of gradients;  plain: names and numbers as text, files;
            pooling: large matrices made small
"""

from .data import trace_to_dict
from .formula import plain
from .picture import draw_trace
from .table import checks_table, trace_table

__all__ = ["checks_table", "draw_trace", "plain", "trace_table", "trace_to_dict"]

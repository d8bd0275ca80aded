"""Views of a Trace. Each reads the record and nothing else, never a Tensor.

data      the record as a dict, ready for JSON
table     the record, and the hand-derived steps beside it, in the terminal
picture   the graph as SVG, PNG, PDF or DOT, built from these:
  outline   which boxes and lines are drawn: collapsed, focused or folded
  dot, node_style, labels, legend, shapes   those as DOT text
  render    DOT text as bytes, by graphviz-pure or dot
  svg       themes, titles and ids of an SVG
colors    colours, states and their glyphs, the fixed scale of gradients
attention weights of attention beside their gradients, and what reads them
plain     LaTeX, numbers and names as readable text
"""

from .data import trace_to_dict
from .formula import plain
from .picture import draw_trace
from .table import checks_table, trace_table

__all__ = ["checks_table", "draw_trace", "plain", "trace_table", "trace_to_dict"]

"""Checks of gradients, by one measure: what the engine has beside a numeric derivative.

Where g is the gradient of y = f(x), and c what the engine sends back to x, ⟨c, d⟩ = ⟨g, f'(x) d⟩
must hold in every direction d.

comparison  what the engine has beside what it must be
derivative  the right side, by the complex step or by central differences
function    gradcheck: a whole function, or a layer, along each entry of its inputs
rules       check_rules: one call of an op, in a random direction
"""

from .comparison import Comparison as Comparison, compare as compare
from .derivative import VAGUE as VAGUE
from .function import gradcheck as gradcheck
from .rules import check_rules as check_rules, kernel_of as kernel_of

__all__ = ["gradcheck"]

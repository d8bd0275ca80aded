"""minigrad: a tiny tensor-and-op autograd engine on NumPy that shows its work.

>>> import numpy as np, minigrad as mg
>>> x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
>>> (x * x).sum().backward()
>>> x.grad
array([2., 4.])
"""

from .anomaly import anomaly
from .check import gradcheck
from .context import Listener, enable_grad, expect, listen, no_grad, scope
from .functional import checkpoint, grad, hvp, jacobian, jvp, vjp
from .op import call, op, registry
from .ops import *  # noqa: F403
from .ops import __all__ as _ops
from .tensor import Tensor, tensor
from .trace import Trace, draw, trace

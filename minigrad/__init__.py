"""minigrad: a tiny tensor-and-op autograd engine on NumPy that shows its work."""

from .ops import *  # noqa
from .tensor import Tensor, tensor, grad

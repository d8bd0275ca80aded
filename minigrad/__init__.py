"""minigrad: a tiny tensor-and-op autograd engine on NumPy that shows its work.

>>> import numpy as np, minigrad as mg
>>> x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
>>> (x * x).sum().backward()
>>> x.grad
array([2., 4.])
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from . import errors as errors
from . import extend as extend
from .anomaly import *
from .autodiff import *
from .engine.context import enable_grad as enable_grad
from .engine.context import no_grad as no_grad
from .engine.context import scope as scope
from .engine.creation import ones as ones
from .engine.creation import tensor as tensor
from .engine.creation import zeros as zeros
from .engine.errors import CompileWarning as CompileWarning
from .engine.op import op as op
from .engine.tensor import Tensor as Tensor
from .extend import *
from .lazy_imports import in_a_notebook as _in_a_notebook
from .lazy_imports import lazy_imports as _lazy_imports
from .lazy_imports import public_names as _public_names
from .ops import *

if TYPE_CHECKING:
    from . import data as data
    from . import optim as optim
    from .check import *
    from .fast.compile import compile as compile
    from .playing import *
    from .record.replace import replace as replace
    from .saving import *
    from .tracing import *
    from .watching import *

__version__ = "0.1.0"

_import_module("minigrad.fast")

_LATER = {
    "check": "gradcheck",
    "data": "",
    "record.replace": "replace",
    "optim": "",
    "playing": "play",
    "saving": "load save",
    "tracing": "Trace draw trace",
    "watching": "watch",
    "fast.compile": "compile",
}
if not TYPE_CHECKING:  # a checker follows the stars
    __all__ = _public_names(__name__, _LATER, without=extend.__all__)
    __all__ += ["data", "errors", "extend", "optim"]


Tensor._repr_mimebundle_ = _in_a_notebook("tensor_bundle")
__getattr__, __dir__ = _lazy_imports(__name__, _LATER)

"""minigrad: a tiny tensor-and-op autograd engine on NumPy that shows its work.

>>> import numpy as np, minigrad as mg
>>> x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
>>> (x * x).sum().backward()
>>> x.grad
array([2., 4.])
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from . import array_protocol as array_protocol, errors as errors, habits as _habits
from .anomaly import *
from .autodiff import *
from .engine.context import (
    enable_grad as enable_grad,
    listening as listening,
    no_grad as no_grad,
    observe as observe,
    say as say,
    scope as scope,
)
from .engine.declaration import call as call
from .engine.errors import CompileWarning as CompileWarning
from .engine.observer import Observer as Observer
from .engine.op import Op as Op, op as op, registry as registry
from .engine.tensor import (
    Tensor as Tensor,
    clear_gradients as clear_gradients,
    expect_gradients as expect_gradients,
    is_marked_parameter as is_marked_parameter,
    leaf_on_demand as leaf_on_demand,
    mark_constant as mark_constant,
    mark_input as mark_input,
    mark_parameter as mark_parameter,
    ones as ones,
    tensor as tensor,
    zeros as zeros,
)
from .ops import *

if TYPE_CHECKING:
    from . import data as data, optim as optim
    from .check import *
    from .fast.compile import compile as compile
    from .playing import *
    from .record.replace import replace as replace
    from .saving import *
    from .tracing import *
    from .watching import *

__version__ = "0.1.0"

_LATER = {  # imported at first use: by name, the module that has it
    "Trace": "tracing", "compile": "fast.compile", "draw": "tracing", "gradcheck": "check",
    "load": "saving", "play": "playing", "replace": "record.replace", "save": "saving",
    "trace": "tracing", "watch": "watching",
}  # fmt: skip
_MODULES = ("check", "data", "layers", "optim")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _import_module(f"minigrad.{name}")
    if name not in _LATER:
        raise errors.MissingNameError(_habits.missing("module 'minigrad'", name, _names))
    value = globals()[name] = getattr(_import_module(f"minigrad.{_LATER[name]}"), name)
    return value


def __dir__() -> list[str]:
    return _names


_own = {name for name, x in globals().items() if name[0] != "_" and type(x) is not type(errors)}
_names = sorted(_own - {"Any", "TYPE_CHECKING"} | {"data", "errors", "optim", *_LATER})
if not TYPE_CHECKING:  # a checker follows the stars
    __all__ = _names

_import_module("minigrad.fast")

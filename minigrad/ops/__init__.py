"""The ops, each one declaration. Importing them fills the registry.

What a module's `__all__` lists is an op that the package offers, or a function composed of ops;
helpers are imported by name.
"""

import typing as _typing
from types import ModuleType as _Module

from .activations import *
from .arithmetic import *
from .attention import *
from .convolution import *
from .dropout import *
from .functions import *
from .losses import *
from .masks import *
from .norms import *
from .products import *
from .recurrent import *
from .reduce import *
from .select import *
from .shape import *
from .softmax import *

if not _typing.TYPE_CHECKING:  # a checker follows the stars
    __all__ = [
        name
        for name, value in [*globals().items()]
        if name[0] != "_" and not isinstance(value, _Module)
    ]

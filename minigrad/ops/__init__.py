"""The ops, each one declaration. Importing them fills the registry and Tensor's operators.

What a module's `__all__` lists is an op that the package offers; helpers are imported by name.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import public_names as _public_names
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

# isort: split
from . import operators as operators  # once all ops are declared

if not TYPE_CHECKING:  # a checker follows the stars
    __all__ = _public_names(__name__, {})

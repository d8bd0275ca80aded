"""Layers built from minigrad's ops, and the formulas and costs they are held against.

>>> import numpy as np
>>> from layers import MultiHeadAttention, create_causal_mask
>>> attention = MultiHeadAttention(d_model=8, n_heads=2, rng=np.random.default_rng(0))
>>> out = attention(np.ones((1, 3, 8)), create_causal_mask(3))
>>> attention.attention_weights[0, 0].round(2)
array([[1.  , 0.  , 0.  ],
       [0.5 , 0.5 , 0.  ],
       [0.33, 0.33, 0.33]])
"""

import typing as _typing
from types import ModuleType as _ModuleType

from minigrad.errors import MissingNameError as _MissingNameError
from minigrad.habits import missing as _missing

from .attention import *
from .basic import *
from .cache import *
from .convolution import *
from .cost import *
from .efficient import *
from .hand_derived import *
from .masking import *
from .masks import *
from .module import *
from .norm import *
from .positions import *
from .pretrained import *
from .quantized import *
from .recurrent import *
from .steps import *
from .tiles import *
from .transformer import *

_NAMES = sorted(k for k, x in vars().items() if k[0] != "_" and not isinstance(x, _ModuleType))
if not _typing.TYPE_CHECKING:  # a checker follows the stars
    __all__ = _NAMES


def __dir__() -> list[str]:
    return [*_NAMES]


def __getattr__(name: str) -> _typing.NoReturn:
    raise _MissingNameError(_missing("module 'layers'", name, _NAMES))

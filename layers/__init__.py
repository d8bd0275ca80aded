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

from typing import TYPE_CHECKING

from minigrad.extend import hand_derived as _hand_derived
from minigrad.lazy_imports import lazy_imports as _lazy_imports
from minigrad.lazy_imports import public_names as _public_names

from .attention import *
from .cache import *
from .feed_forward import *
from .hand_derived import *
from .hand_derived_ops import *
from .hand_derived_ops import BY_OP as _by_op
from .hand_derived_recurrent import *
from .linear import *
from .mask import *
from .module import *
from .position import *
from .quantized import *
from .scaled_dot_product import *

_hand_derived |= _by_op

if TYPE_CHECKING:
    from .blocks import *
    from .convolution import *
    from .cost import *
    from .efficient import *
    from .efficient_layers import *
    from .embedding import *
    from .generation import *
    from .initialisers import *
    from .layer_costs import *
    from .layout import *
    from .losses import *
    from .low_rank import *
    from .norm import *
    from .pooling import *
    from .recurrent import *
    from .relative import *
    from .rotary import *
    from .sequential import *
    from .sparse import *
    from .transformer import *

_LATER = {
    "blocks": "BlockOptions DecoderBlock TransformerBlock",
    "cost": "A100_RIDGE Traffic arithmetic_intensity count_flops count_memory_bytes "
    "count_traffic_bytes flops_by_step memory_by_array roofline",
    "efficient": "elu_features linear_attention linformer_attention orthogonal_features "
    "performer_attention positive_features",
    "efficient_layers": "LinearAttention LinformerAttention PerformerAttention",
    "embedding": "Embedding",
    "layer_costs": "LayerCost kv_cache_bytes layer_cost",
    "layout": "Layout LayoutRow attend_per_head explain_layout per_head_weights",
    "low_rank": "Adapters LowRankWeight lora",
    "norm": "BatchNorm GroupNorm LayerNorm RMSNorm",
    "relative": "ALiBi RelativePosition T5Bias TransformerXLPosition alibi_slopes t5_bucket",
    "rotary": "Rotary apply_rotary llama3_frequencies ntk_frequencies rotary_angles "
    "rotary_frequencies scaled_frequencies yarn_amplitude yarn_frequencies",
    "sequential": "Sequential",
    "sparse": "big_bird_mask dilated_mask global_mask sliding_window_mask",
    "transformer": "Decoder Encoder LanguageModel",
    "recurrent": "GRU LSTM RNN GRUCell LSTMCell RNNCell",
    "initialisers": "INITIALISERS init_weights seed",
    "convolution": "Conv1d Conv2d",
    "pooling": "AvgPool1d AvgPool2d Flatten MaxPool1d MaxPool2d",
    "generation": "generate",
    "losses": "BCEWithLogitsLoss CrossEntropyLoss HuberLoss L1Loss MSELoss cross_entropy_loss",
}
if not TYPE_CHECKING:  # a checker follows the stars
    __all__ = _public_names(__name__, _LATER)
# Found and not listed: `initial`, the name of init_weights in version 0.1.
_FOUND = _LATER | {"initialisers": _LATER["initialisers"] + " initial"}
__getattr__, __dir__ = _lazy_imports(__name__, _FOUND)

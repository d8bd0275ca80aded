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

from .attention import (
    MultiHeadAttention,
    SelfAttention,
    merge_heads,
    scaled_dot_product_attention,
    softmax_backward,
    split_heads,
)
from .cost import (
    A100_RIDGE,
    arithmetic_intensity,
    count_flops,
    count_memory_bytes,
    flops_by_step,
    memory_by_array,
    roofline,
)
from .hand_derived import Step, multi_head_steps, self_attention_steps
from .linear import Linear, linear
from .mask import combined_mask, create_causal_mask, padding_mask
from .module import Module

__all__ = [
    "A100_RIDGE",
    "Linear",
    "Module",
    "MultiHeadAttention",
    "SelfAttention",
    "Step",
    "arithmetic_intensity",
    "combined_mask",
    "count_flops",
    "count_memory_bytes",
    "create_causal_mask",
    "flops_by_step",
    "linear",
    "memory_by_array",
    "merge_heads",
    "multi_head_steps",
    "padding_mask",
    "roofline",
    "scaled_dot_product_attention",
    "self_attention_steps",
    "softmax_backward",
    "split_heads",
]

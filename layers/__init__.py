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

from minigrad.lazy_imports import lazy_imports

from .attention import MultiHeadAttention, SelfAttention, merge_heads, split_heads
from .cache import ContextCache, KernelState, KVCache
from .feed_forward import Dropout, FeedForward, GatedFeedForward
from .hand_derived import Step, multi_head_steps, self_attention_steps
from .linear import Linear, linear
from .mask import combined_mask, create_causal_mask, padding_mask
from .module import Module
from .position import LearnedPosition, SinusoidalPosition, sinusoidal_encoding
from .quantized import QuantizedWeight, quantize, weight_bytes
from .scaled_dot_product import (
    online_softmax_attention,
    scaled_dot_product_attention,
    softmax_backward,
)

if TYPE_CHECKING:
    from .bias import ALiBi, T5Bias, alibi_slopes, t5_bucket
    from .blocks import DecoderBlock, TransformerBlock
    from .convolution import (
        AvgPool1d,
        AvgPool2d,
        BatchNorm,
        Conv1d,
        Conv2d,
        Flatten,
        GroupNorm,
        MaxPool1d,
        MaxPool2d,
    )
    from .cost import (
        A100_RIDGE,
        Traffic,
        arithmetic_intensity,
        count_flops,
        count_memory_bytes,
        count_traffic_bytes,
        flops_by_step,
        memory_by_array,
        roofline,
    )
    from .efficient import linear_attention, linformer_attention, performer_attention
    from .efficient_layers import LinearAttention, LinformerAttention, PerformerAttention
    from .embedding import Embedding
    from .frequencies import (
        llama3_frequencies,
        ntk_frequencies,
        rotary_frequencies,
        scaled_frequencies,
        yarn_amplitude,
        yarn_frequencies,
    )
    from .generation import generate
    from .hand_derived_recurrent import gru_steps, lstm_steps, rnn_steps
    from .initialisers import INITIALISERS, initial
    from .kernels import elu_features, orthogonal_features, positive_features
    from .layer_costs import GraphCost, LayerCost, count_graph, kv_cache_bytes, layer_cost
    from .layout import Layout, LayoutRow, attend_per_head, explain_layout, per_head_weights
    from .loss import cross_entropy_loss
    from .losses import BCEWithLogitsLoss, CrossEntropyLoss, HuberLoss, KLDivLoss, MSELoss, NLLLoss
    from .low_rank import Adapters, LowRankWeight, lora
    from .norm import LayerNorm, RMSNorm
    from .pretrained import load_pretrained, load_state
    from .recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
    from .relative import RelativePosition, TransformerXLPosition
    from .rotary import Rotary, apply_rotary, rotary_angles
    from .sequential import Sequential
    from .sparse import big_bird_mask, dilated_mask, global_mask, sliding_window_mask
    from .torch_names import from_torch, to_torch
    from .transformer import Decoder, Encoder, LanguageModel

__all__ = [
    "A100_RIDGE",
    "GRU",
    "INITIALISERS",
    "LSTM",
    "RNN",
    "ALiBi",
    "Adapters",
    "AvgPool1d",
    "AvgPool2d",
    "BCEWithLogitsLoss",
    "BatchNorm",
    "ContextCache",
    "Conv1d",
    "Conv2d",
    "CrossEntropyLoss",
    "Decoder",
    "DecoderBlock",
    "Dropout",
    "Embedding",
    "Encoder",
    "FeedForward",
    "Flatten",
    "GRUCell",
    "GatedFeedForward",
    "GraphCost",
    "GroupNorm",
    "HuberLoss",
    "KLDivLoss",
    "KVCache",
    "KernelState",
    "LSTMCell",
    "LanguageModel",
    "LayerCost",
    "LayerNorm",
    "Layout",
    "LayoutRow",
    "LearnedPosition",
    "Linear",
    "LinearAttention",
    "LinformerAttention",
    "LowRankWeight",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "Module",
    "MultiHeadAttention",
    "NLLLoss",
    "PerformerAttention",
    "QuantizedWeight",
    "RMSNorm",
    "RNNCell",
    "RelativePosition",
    "Rotary",
    "SelfAttention",
    "Sequential",
    "SinusoidalPosition",
    "Step",
    "T5Bias",
    "Traffic",
    "TransformerBlock",
    "TransformerXLPosition",
    "alibi_slopes",
    "apply_rotary",
    "arithmetic_intensity",
    "attend_per_head",
    "big_bird_mask",
    "combined_mask",
    "count_flops",
    "count_graph",
    "count_memory_bytes",
    "count_traffic_bytes",
    "create_causal_mask",
    "cross_entropy_loss",
    "dilated_mask",
    "elu_features",
    "explain_layout",
    "flops_by_step",
    "from_torch",
    "generate",
    "global_mask",
    "gru_steps",
    "initial",
    "kv_cache_bytes",
    "layer_cost",
    "linear",
    "linear_attention",
    "linformer_attention",
    "llama3_frequencies",
    "load_pretrained",
    "load_state",
    "lora",
    "lstm_steps",
    "memory_by_array",
    "merge_heads",
    "multi_head_steps",
    "ntk_frequencies",
    "online_softmax_attention",
    "orthogonal_features",
    "padding_mask",
    "per_head_weights",
    "performer_attention",
    "positive_features",
    "quantize",
    "rnn_steps",
    "roofline",
    "rotary_angles",
    "rotary_frequencies",
    "scaled_dot_product_attention",
    "scaled_frequencies",
    "self_attention_steps",
    "sinusoidal_encoding",
    "sliding_window_mask",
    "softmax_backward",
    "split_heads",
    "t5_bucket",
    "to_torch",
    "weight_bytes",
    "yarn_amplitude",
    "yarn_frequencies",
]


__getattr__, __dir__ = lazy_imports(
    __name__,
    {
        "bias": "ALiBi T5Bias alibi_slopes t5_bucket",
        "blocks": "DecoderBlock TransformerBlock",
        "cost": "A100_RIDGE Traffic arithmetic_intensity count_flops count_memory_bytes "
        "count_traffic_bytes flops_by_step memory_by_array roofline",
        "efficient": "linear_attention linformer_attention performer_attention",
        "efficient_layers": "LinearAttention LinformerAttention PerformerAttention",
        "embedding": "Embedding",
        "frequencies": "llama3_frequencies ntk_frequencies rotary_frequencies scaled_frequencies "
        "yarn_amplitude yarn_frequencies",
        "kernels": "elu_features orthogonal_features positive_features",
        "layer_costs": "GraphCost LayerCost count_graph kv_cache_bytes layer_cost",
        "layout": "Layout LayoutRow attend_per_head explain_layout per_head_weights",
        "low_rank": "Adapters LowRankWeight lora",
        "loss": "cross_entropy_loss",
        "norm": "LayerNorm RMSNorm",
        "relative": "RelativePosition TransformerXLPosition",
        "rotary": "Rotary apply_rotary rotary_angles",
        "sequential": "Sequential",
        "sparse": "big_bird_mask dilated_mask global_mask sliding_window_mask",
        "torch_names": "from_torch to_torch",
        "transformer": "Decoder Encoder LanguageModel",
        "recurrent": "GRU LSTM RNN GRUCell LSTMCell RNNCell",
        "hand_derived_recurrent": "gru_steps lstm_steps rnn_steps",
        "initialisers": "INITIALISERS initial",
        "convolution": "AvgPool1d AvgPool2d BatchNorm Conv1d Conv2d Flatten GroupNorm MaxPool1d "
        "MaxPool2d",
        "generation": "generate",
        "pretrained": "load_pretrained load_state",
        "losses": "BCEWithLogitsLoss CrossEntropyLoss HuberLoss KLDivLoss MSELoss NLLLoss",
    },
)

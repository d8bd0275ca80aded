"""Reading attention: the weights of a record beside their gradients, and figures that read them.

record     every attention matrix of a record, beside its gradient and its mask
patterns   the patterns that the texts describe, each with the score behind its verdict
figures    entropy, sparsity, distance, agreement of heads, rollout, gradient × attention
heatmap    matrices as text, at any width
sheet      matrices as text with every number
heatplot   matrices drawn by matplotlib

`patterns` and the figures take plain arrays.
"""

from .figures import (
    Reading,
    attention_distance,
    entropy,
    gradient_times_attention,
    head_agreement,
    rollout,
    sparsity,
)
from .patterns import Pattern, Patterns, patterns
from .record import Attention, Attentions, attentions

__all__ = [
    "Attention",
    "Attentions",
    "Pattern",
    "Patterns",
    "Reading",
    "attention_distance",
    "attentions",
    "entropy",
    "gradient_times_attention",
    "head_agreement",
    "patterns",
    "rollout",
    "sparsity",
]

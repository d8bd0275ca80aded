"""Reading attention: its weights beside their gradients, and figures that read them.

record     every attention matrix of a record, or of plain arrays, with its gradient and its mask
patterns   the patterns that the texts describe, each with the score behind its verdict
figures    entropy, sparsity, distance, agreement of heads, rollout, gradient × attention
matrices   matrices as text, at any width;  plot: drawn by matplotlib

`read_attention(tokens, weights)`, `patterns(weights)` and the figures take plain arrays.
"""

from .figures import (
    attention_distance,
    entropy,
    gradient_times_attention,
    head_agreement,
    rollout,
    sparsity,
)
from .patterns import looks_at, patterns
from .record import Attentions, attentions, read_attention

__all__ = [
    "Attentions", "attention_distance", "attentions", "entropy", "gradient_times_attention",
    "head_agreement", "looks_at", "patterns", "read_attention", "rollout", "sparsity",
]  # fmt: skip

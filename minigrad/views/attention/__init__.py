"""Reading attention: its weights beside their gradients, and figures that read them.

record     every attention matrix of a record, or of plain arrays, with its gradient and its mask
patterns   the patterns that the texts describe, each with the score behind its verdict
figures    entropy, sparsity, rollout, gradient × attention
matrices   matrices as text, at any width;  plot: drawn by matplotlib

`read_attention(tokens, weights)`, `patterns(weights)` and the figures take plain arrays.
"""

from .figures import (
    entropy,
    gradient_times_attention,
    rollout,
    sparsity,
)
from .patterns import looks_at, patterns
from .record import Attentions, attentions, read_attention

__all__ = [
    "Attentions", "attentions", "entropy", "gradient_times_attention", "looks_at", "patterns",
    "read_attention", "rollout", "sparsity",
]  # fmt: skip

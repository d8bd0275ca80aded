"""Attention in tiles: memory that grows with n, not n², and masked blocks skipped."""

from .attention import tiled_attention
from .blocks import attend_block, attend_block_backward

__all__ = ["attend_block", "attend_block_backward", "tiled_attention"]

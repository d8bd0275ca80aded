"""Attention in tiles: memory that grows with n, not n², and masked blocks skipped."""

from .attention import attend_block, attend_block_backward, tiled_attention

__all__ = ["attend_block", "attend_block_backward", "tiled_attention"]

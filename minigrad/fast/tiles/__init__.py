"""Attention in tiles. Importing it lets `tiled_attention` run so."""

from . import attention as attention

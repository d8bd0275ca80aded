"""Attention in tiles. Importing it lets `tiled_attention` run so."""

from . import kernels as kernels

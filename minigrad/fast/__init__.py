"""What is only there to be faster: delete this folder, or set MINIGRAD_FAST=0, and all else works.

Importing it puts overlays on ops, brings attention in tiles, and quicker sums where the engine adds
up.
"""

from ..engine import tensor
from . import overlay, overlays, tiles
from .blas_sums import sum_over

tensor.sum_over = sum_over

__all__ = ["overlay", "overlays", "tiles"]

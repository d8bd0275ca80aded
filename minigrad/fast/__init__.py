"""What is only there to be faster: with MINIGRAD_FAST=0 in the environment, all works without it.

Importing it puts overlays on ops, and brings attention in tiles. The first backward pass tells the
C library to keep freed memory for the next step (see memory.py).
"""

from os import environ

if environ.get("MINIGRAD_FAST") != "0":
    from ..engine.backward import at_first_pass
    from . import loops as loops, overlays as overlays, tiles as tiles
    from .memory import keep_freed_memory

    at_first_pass.append(keep_freed_memory)

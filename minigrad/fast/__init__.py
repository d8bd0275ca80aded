"""What is only there to be faster: with MINIGRAD_FAST=0 in the environment, all else works as well.

Importing it puts overlays on ops, brings attention in tiles, and tells the C library to keep freed
memory for the next step (see memory.py).
"""

from os import environ

if environ.get("MINIGRAD_FAST") != "0":
    from . import loops as loops
    from . import overlays as overlays
    from . import tiles as tiles
    from .memory import keep_freed_memory

    keep_freed_memory()

"""Everyone there is to compare, in the order of the tables' columns."""

from __future__ import annotations

from .peers import Minigrad, Naive, Numpy, Peer
from .pytorch import Torch
from .rounds import BASE

__all__ = ["everyone"]


def everyone() -> dict[str, Peer]:
    """By name."""
    peers: list[Peer] = [
        Numpy(BASE, BASE),
        Minigrad("eager", "minigrad"),
        Minigrad("compiled", "compiled", compiled=True),
        Minigrad("tiled", "tiled", tiled=True),
        Minigrad("compiled-tiled", "compiled tiled", tiled=True, compiled=True),
        Torch("torch", "PyTorch", fused=False),
        Torch("torch-sdpa", "PyTorch SDPA", fused=True),
        Naive("naive", "naive NumPy"),
    ]
    return {peer.name: peer for peer in peers}

"""Everyone there is to compare, in the order of the tables' columns."""

from __future__ import annotations

from .peers import Minigrad, Naive, Numpy, Peer
from .pytorch import Torch
from .rounds import BASE

__all__ = ["everyone"]


def everyone(path: str) -> dict[str, Peer]:
    """By name; `path` is the checkout of minigrad to measure."""
    peers: list[Peer] = [
        Numpy(BASE, BASE),
        Minigrad("eager", "minigrad", path),
        Minigrad("compiled", "compiled", path, compiled=True),
        Minigrad("tiled", "tiled", path, method="tiled"),
        Minigrad("compiled-tiled", "compiled tiled", path, method="tiled", compiled=True),
        Torch("torch", "PyTorch", fused=False),
        Torch("torch-sdpa", "PyTorch SDPA", fused=True),
        Naive("naive", "naive NumPy"),
    ]
    return {peer.name: peer for peer in peers}

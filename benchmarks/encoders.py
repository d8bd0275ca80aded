"""A BERT-shaped encoder's forward, compiled, beside PyTorch: `python -m benchmarks.encoders`.

The shape is MiniLM's: 6 layers, 384 wide, 12 heads, post-norm, exact gelu; 10.6 M parameters
without the embedding. Weights are the same, PyTorch is in its inference mode; outputs are compared
before anything is timed. The contestants take turns in one process: with one thread seconds are the
processor's, with more those of the clock. A figure is the least of all rounds, a ratio the median.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import minigrad as mg
from layers import Encoder

from .clock import Times, least, turns

__all__ = ["main"]

LAYERS, D, HEADS, D_FF = 6, 384, 12, 1536
SHAPES = [(1, 32), (1, 128), (8, 32), (8, 128)]


def ours() -> tuple[Any, Callable[[Any], Any]]:
    """The encoder, and its compiled forward."""
    encoder = Encoder(
        LAYERS, D, HEADS, D_FF, norm_order="post", use_bias=True, rng=0, dtype=np.float32
    ).eval()
    rng = np.random.default_rng(1)
    for parameter in encoder.parameters():  # biases too
        drawn = rng.normal(0, 0.02, parameter.shape).astype(np.float32)
        parameter.assign_(parameter.numpy() + drawn)
    return encoder, mg.compile(lambda X: encoder(X))


def in_torch(encoder: Any) -> Callable[[Any], Any]:
    """The same from copies of its weights, written with fused functions."""
    import torch
    from torch.nn import functional as F

    def copy(x: Any) -> Any:
        return torch.from_numpy(np.array(x.numpy()))

    layers = []
    for block in encoder.blocks:
        a, f = block.attention, block.feed_forward
        QKV = torch.cat([copy(W) for W in (a.W_Q, a.W_K, a.W_V)], 1).T.contiguous()
        b_QKV = torch.cat([copy(b) for b in (a.b_Q, a.b_K, a.b_V)])
        pairs = ((a.W_O, a.b_O), (f.W_1, f.b_1), (f.W_2, f.b_2))
        affine = [(QKV, b_QKV)] + [(copy(W).T.contiguous(), copy(b)) for W, b in pairs]
        norms = [(copy(n.weight), copy(n.bias), n.eps) for n in (block.norm_1, block.norm_2)]
        layers.append((affine, norms))

    def norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
        return F.layer_norm(x, (D,), weight, bias, eps)

    def forward(X: Any) -> Any:
        with torch.inference_mode():
            x = torch.from_numpy(X)
            B, n, _ = x.shape
            for (QKV, O, up, down), (norm_1, norm_2) in layers:
                heads = F.linear(x, *QKV).view(B, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
                A = F.scaled_dot_product_attention(*heads)
                x = norm(x + F.linear(A.transpose(1, 2).reshape(B, n, D), *O), *norm_1)
                x = norm(x + F.linear(F.gelu(F.linear(x, *up)), *down), *norm_2)
            return x.numpy()

    return forward


def measure(contestants: dict[str, Any], X: Any, rounds: int) -> dict[str, list[Times]]:
    """Seconds of a forward, by contestant."""
    for _ in range(5):
        found = {who: encode(X) for who, encode in contestants.items()}
    mine, theirs = found["minigrad"].numpy(), found["PyTorch"]
    np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)
    times = {who: partial(least, partial(encode, X), 0.1) for who, encode in contestants.items()}
    return turns(rounds, times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    import torch

    encoder, compiled = ours()
    rng = np.random.default_rng(2)
    print(
        f"{'threads':8} {'batch':>5} {'tokens':>6} {'PyTorch, ms':>12} {'compiled, ms':>13} ratio"
    )
    for threads in options.threads:
        torch.set_num_threads(threads)
        clock = "cpu" if threads == 1 else "wall"
        for B, n in SHAPES:
            X = rng.normal(size=(B, n, D)).astype(np.float32)
            with threadpool_limits(threads), mg.no_grad():
                contestants = {"minigrad": compiled, "PyTorch": in_torch(encoder)}
                times = measure(contestants, X, options.rounds)
            seconds = {who: [getattr(time, clock) for time in times[who]] for who in times}
            pairs = zip(seconds["minigrad"], seconds["PyTorch"], strict=True)
            ratio = statistics.median(mine / theirs for mine, theirs in pairs)
            least = [min(seconds[who]) * 1e3 for who in ("PyTorch", "minigrad")]
            print(f"{threads:8} {B:5} {n:6} {least[0]:12.2f} {least[1]:13.2f} {ratio:5.2f}")


if __name__ == "__main__":
    main()

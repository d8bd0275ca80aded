"""Why scores are divided by √d_k: without it, softmax saturates and most rows' gradients vanish.

Entries of q and k with mean 0 and variance 1 make scores q·k of variance d_k. At d_k = 512 they
spread over some ±50, softmax puts nearly all weight on one key, and its derivative
A_j (δ_jk − A_k) is nearly 0. Divided by √d_k, scores have variance 1 at any d_k.

The rms over all rows hides this: a few rows whose two best keys happen to be close still learn, and
carry it. So the row in the middle is asked: half of all tokens get even less than it.
"""

from typing import Any, NamedTuple

import numpy as np

import minigrad as mg

N, D_K = 64, 512


class Flow(NamedTuple):
    variance: float  # of the scores
    top: float  # a row's largest weight, mean over rows
    overall: float  # rms of ∂L/∂S
    middle: float  # the same for each row, and then the median


def rms(x: Any, axis: int | None = None) -> Any:
    return np.sqrt(np.mean(x * x, axis=axis))


def through_softmax(factor: float) -> Flow:
    """What comes through A = softmax(factor · q kᵀ), forward and backward."""
    rng = np.random.default_rng(0)
    q, k, g = rng.normal(size=(N, D_K)), rng.normal(size=(N, D_K)), rng.normal(size=(N, N))
    S = mg.tensor(q @ k.T * factor, requires_grad=True)  # (N, N)
    A = mg.softmax(S)  # (N, N)
    A.backward(g)
    top = A.numpy().max(axis=-1).mean()
    return Flow(S.numpy().var(), top, rms(S.grad), np.median(rms(S.grad, axis=-1)))


def main() -> None:
    bare, scaled = through_softmax(1.0), through_softmax(1 / np.sqrt(D_K))
    print("scores      variance  top weight  rms of ∂L/∂S  middle row")
    for name, flow in (("q·k", bare), ("q·k/√d_k", scaled)):
        numbers = (
            f"{flow.variance:8.1f}  {flow.top:10.2f}  {flow.overall:12.1e}  {flow.middle:10.1e}"
        )
        print(f"{name:<10}  {numbers}")
    print(
        f"with scaling, the middle row's gradient is {scaled.middle / bare.middle:.0f} times larger"
    )
    assert abs(bare.variance / D_K - 1) < 0.1
    assert abs(scaled.variance - 1) < 0.1
    assert bare.top > 0.9
    assert scaled.top < 0.5
    assert scaled.middle > 30 * bare.middle


if __name__ == "__main__":
    main()

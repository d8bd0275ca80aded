"""Why attention is built so: each choice beside what happens without it, in numbers.

Prints the numbers that the page guide/why_attention.md shows, and asserts what they are to show.
Given a folder, it draws that page's pictures into it. Times are of this machine, so nothing is
asserted of them.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from timeit import repeat

import numpy as np

import minigrad as mg
from layers import (
    Linformer,
    MultiHeadAttention,
    Performer,
    SinusoidalPosition,
    count_flops,
    memory_by_array,
    online_softmax,
    scaled_dot_product_attention,
    softmax_backward,
)
from minigrad.views.attention import read_attention


def say(what: str, number: str):
    print(f"{what:52} {number}")


def clock(what: str, run: Callable[[], object]):
    say(what, f"{1000 * min(repeat(run, number=1)):.2f} ms")


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def scores(n: int = 64, d_k: int = 512) -> np.ndarray:
    """q · k of n queries and keys whose entries have variance 1."""
    Q, K = draw(2, n, d_k)
    return Q @ K.T


def scaling():
    """Where ∂L/∂A has entries of variance 1, what is left of it in ∂L/∂S?"""
    medians = []
    for name, S in (("unscaled", scores()), ("scaled", scores() / np.sqrt(512))):
        A = mg.softmax(S)
        medians.append(np.median(np.abs(softmax_backward(draw(64, 64, seed=1), A))))
        say(f"variance of scores at d_k = 512, {name}", f"{S.var():.2f}")
        say(f"largest weight of a row, mean, {name}", f"{A.max(axis=1).mean():.2f}")
        say(f"median |∂L/∂S|, {name}", f"{medians[-1]:.1e}")
    assert medians[0] < 1e-15 < 1e-3 < medians[1]


def projections():
    """With one matrix for both, i looks at j as j looks at i, and most at itself."""
    X = draw(32, 16)
    Q, K = X @ draw(16, 16, seed=1), X @ draw(16, 16, seed=2)
    for name, S in (("one projection", Q @ Q.T), ("two projections", Q @ K.T)):
        to_itself = np.mean(S.argmax(axis=1) == np.arange(32))
        say(f"rows that look most at themselves, {name}", f"{to_itself:.0%}")
        say(f"‖S − Sᵀ‖ / ‖S‖, {name}", f"{np.linalg.norm(S - S.T) / np.linalg.norm(S):.1f}")
        assert (to_itself > 0.5) == np.allclose(S, S.T)


def without_matrices():
    """softmax(X Xᵀ / √d) X moves each token to those like it, and nothing can be learned."""
    centres = np.repeat(draw(3, 8), 5, axis=0)
    X = centres + draw(15, 8, seed=1)
    O = scaled_dot_product_attention(X, X, X)[0]
    before, after = (np.linalg.norm(x - centres, axis=1).mean() for x in (X, O))
    say("distance from the group's centre, of X", f"{before:.1f}")
    say("distance from the group's centre, of softmax(X Xᵀ) X", f"{after:.1f}")
    assert after < before


def masked(S: np.ndarray) -> list[np.ndarray]:
    """Weights whose future is set to 0 after softmax; and before it, by −∞."""
    past = np.tri(len(S), dtype=bool)
    return [mg.softmax(S) * past, mg.softmax(mg.mask_add(S, past))]


def masking():
    sums = [A.sum(axis=1) for A in masked(draw(4, 4))]
    for name, of_rows in zip(("after", "before"), sums, strict=True):
        say(f"row sums, masked {name} softmax", " ".join(f"{x:.2f}" for x in of_rows))
    assert sums[0][0] < 0.9
    np.testing.assert_allclose(sums[1], 1)


def order():
    """Without positions the last output does not know in which order the other tokens came."""
    X, layer = draw(1, 7, 8), MultiHeadAttention(8, 2, rng=0)
    shuffled = X[:, [3, 0, 5, 1, 4, 2, 6]]
    places = SinusoidalPosition(8)(np.zeros_like(X)).numpy()
    without, with_them = (
        np.abs(layer(X + P).numpy() - layer(shuffled + P).numpy())[:, -1].max()
        for P in (0 * places, places)
    )
    say("change of y_n by another order, without positions", f"{without:.3f}")
    say("change of y_n by another order, with positions", f"{with_them:.3f}")
    assert without < 1e-14 < 1e-2 < with_them


def key_by_key():
    """The output of one query after each key; where a larger score comes, the sums are scaled."""
    q, K, V = 2 * draw(1, 4, seed=5), draw(5, 4, seed=1), draw(5, 1, seed=2)
    for j in range(1, 6):
        largest = (q @ K[:j].T).max() / 2
        o = online_softmax(q, K[:j], V[:j]).item()
        say(f"after key {j}: largest score, output", f"{largest:.2f} {o:.2f}")
    np.testing.assert_allclose(o, scaled_dot_product_attention(q, K, V)[0].item())


def many_heads():
    flops = [count_flops(1, 512, 256, n_heads=h) for h in (1, 8)]
    weights = [memory_by_array(1, 512, d_model=256, n_heads=h)["attention matrix"] for h in (1, 8)]
    say("FLOPs of 1 head, n = 512, d_model = 256", f"{flops[0]:,}")
    say("FLOPs of 8 heads", f"{flops[1]:,}")
    say("bytes of A, 8 heads over 1", f"{weights[1] // weights[0]}")
    assert flops[1] < 1.05 * flops[0]


def times():
    """One product or many, rows together or apart, and n² entries."""
    X, W = draw(512, 256), draw(256, 256, seed=1)
    parts = [W[:, i : i + 32].copy() for i in range(0, 256, 32)]
    clock("one product of 256 columns", lambda: X @ W)
    clock("eight products of 32 columns", lambda: [X @ part for part in parts])
    clock("a copy of contiguous rows", W.copy)
    clock("a copy of strided rows", partial(W.T.copy, "C"))
    for n in (256, 512, 1024):
        clock(
            f"attention, {n * n:,} weights", partial(scaled_dot_product_attention, *draw(3, n, 64))
        )


def approximations():
    """FLOPs of 256 tokens that change slowly, and how far the outputs are from attention's."""
    walks = np.cumsum(draw(3, 1, 256, 16), axis=2)
    walks -= walks.mean(axis=2, keepdims=True)
    Q, K, V = walks / walks.std() / [[[[2]]], [[[2]]], [[[1]]]]
    exact, i = scaled_dot_product_attention(Q, K, V)[0], np.arange(256)
    errors = {}
    for r in (16, 64, 256):
        averages = Linformer(256, r, rng=0)  # as if it had learned to average neighbours
        averages.E = averages.F = np.kron(np.eye(r), np.full((1, 256 // r), r / 256))
        hows = (Performer(16, r, rng=0), Linformer(256, r, rng=0), averages)
        for name, how in zip(
            ("Performer", "Linformer, drawn", "Linformer, averages"), hows, strict=True
        ):
            with mg.trace() as t:
                O = how(*map(mg.tensor, (Q, K, V)), i, i)[0].numpy()
            error = errors[name, r] = np.linalg.norm(O - exact) / np.linalg.norm(exact)
            flops = sum(entry.flops or 0 for entry in t)
            say(f"{name}, {r}: FLOPs, relative error", f"{flops:,} {error:.2f}")
    assert errors["Performer", 256] < errors["Performer", 16]
    assert errors["Linformer, averages", 64] < 0.1 < 1 < errors["Linformer, drawn", 64]


def draw_pictures(folder: Path):
    tokens = list("abcdefgh")
    scaled = [mg.softmax(scores(8)), mg.softmax(scores(8) / np.sqrt(512))]
    read_attention(tokens, np.stack(scaled)).draw(folder / "why_scale.svg")
    read_attention(tokens, np.stack(masked(draw(8, 8)))).draw(folder / "why_mask.svg")


def main():
    for question in (scaling, projections, without_matrices, masking, order, key_by_key,
                     many_heads, times, approximations):  # fmt: skip
        question()
    if sys.argv[1:]:
        draw_pictures(Path(sys.argv[1]))


if __name__ == "__main__":
    main()

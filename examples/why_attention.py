"""Why attention is built so: each choice beside what happens without it, in numbers.

Prints a line for each number that the page examples/guide/why_attention.md shows, and asserts what
each is to show. Given a folder, it draws the two pictures of that page into it. Milliseconds are of
this machine, so nothing is asserted of them.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np

import minigrad as mg
from layers import (
    Linformer,
    MultiHeadAttention,
    Performer,
    SinusoidalPosition,
    attend,
    count_flops,
    memory_by_array,
    online_softmax,
    scaled_dot_product_attention,
    softmax_backward,
)
from minigrad.views.attention import read_attention


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def scores(d_k: int, n: int = 64) -> np.ndarray:
    """q · k of n queries and keys whose entries have variance 1."""
    Q, K = draw(2, n, d_k)
    return Q @ K.T


def gradient_of_scores(S: np.ndarray) -> float:
    """The median of |∂L/∂S| where ∂L/∂A has entries of variance 1."""
    A = mg.softmax(S)
    return float(np.median(np.abs(softmax_backward(draw(*S.shape, seed=1), A))))


def scaling() -> None:
    raw, scaled = scores(512), scores(512) / np.sqrt(512)
    say("variance of q · k at d_k = 512", f"{raw.var():.0f}")
    say("variance of q · k / √d_k", f"{scaled.var():.2f}")
    say("largest weight of a row, mean, unscaled", f"{mg.softmax(raw).max(axis=1).mean():.2f}")
    say("largest weight of a row, mean, scaled", f"{mg.softmax(scaled).max(axis=1).mean():.2f}")
    say("median |∂L/∂S|, unscaled", f"{gradient_of_scores(raw):.1e}")
    say("median |∂L/∂S|, scaled", f"{gradient_of_scores(scaled):.1e}")
    assert abs(scaled.var() - 1) < 0.1
    assert gradient_of_scores(raw) < 1e-15 < 1e-3 < gradient_of_scores(scaled)


def projections() -> None:
    """With one matrix for queries and keys, i looks at j as j looks at i, and most at itself."""
    X, W_Q, W_K = draw(32, 16), draw(16, 16, seed=1), draw(16, 16, seed=2)
    one, two = X @ W_Q @ (X @ W_Q).T, X @ W_Q @ (X @ W_K).T
    for name, S in (("one projection", one), ("two projections", two)):
        to_itself = np.mean(S.argmax(axis=1) == np.arange(32))
        say(f"rows that look most at themselves, {name}", f"{to_itself:.0%}")
        say(f"‖S − Sᵀ‖ / ‖S‖, {name}", f"{np.linalg.norm(S - S.T) / np.linalg.norm(S):.1f}")
    assert np.allclose(one, one.T)
    assert not np.allclose(two, two.T)


def without_matrices() -> None:
    """softmax(X Xᵀ / √d) X moves each token to those like it, and nothing can be learned."""
    centres = np.repeat(draw(3, 8), 5, axis=0)
    X = centres + draw(15, 8, seed=1)
    O, A = scaled_dot_product_attention(X, X, X)
    own = np.equal.outer(np.arange(15) // 5, np.arange(15) // 5)
    before, after = np.linalg.norm(X - centres, axis=1), np.linalg.norm(O - centres, axis=1)
    say("softmax(X Xᵀ / √d) X: weight on the own group", f"{A[own].sum() / 15:.2f}")
    say("distance from the own group's centre, before", f"{before.mean():.1f}")
    say("distance from the own group's centre, after", f"{after.mean():.1f}")
    assert after.mean() < before.mean()


def masked(S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights whose future is set to 0 after softmax; and before it, by −∞."""
    past = np.tri(len(S), dtype=bool)
    return mg.softmax(S) * past, mg.softmax(mg.mask_add(S, past))


def masking() -> None:
    after, before = masked(draw(4, 4))
    say("row sums, masked after softmax", " ".join(f"{x:.2f}" for x in after.sum(axis=1)))
    say("row sums, masked before softmax", " ".join(f"{x:.2f}" for x in before.sum(axis=1)))
    assert after.sum(axis=1)[0] < 0.9
    np.testing.assert_allclose(before.sum(axis=1), 1)


def order() -> None:
    """Without positions the last output does not know in which order the other tokens came."""
    X, layer, place = draw(1, 7, 8), MultiHeadAttention(8, 2, rng=0), SinusoidalPosition(8)
    shuffled = X[:, [3, 0, 5, 1, 4, 2, 6]]
    with mg.no_grad():
        without = layer(X) - layer(shuffled)
        with_them = layer(place(X)) - layer(place(shuffled))
    changes = [float(np.abs(x.numpy()[:, -1]).max()) for x in (without, with_them)]
    say("change of y_n by another order, without positions", f"{changes[0]:.0e}")
    say("change of y_n by another order, with positions", f"{changes[1]:.2f}")
    assert changes[0] < 1e-14 < 1e-2 < changes[1]


def key_by_key() -> None:
    """The running maximum m, sum l and output o of one query."""
    q, K, V = 2 * draw(1, 4, seed=5), draw(5, 4, seed=1), draw(5, 1, seed=2)
    m, l, o = -np.inf, 0.0, 0.0
    for j, (k, v) in enumerate(zip(K, V, strict=True), 1):
        s = float(q[0] @ k) / 2.0
        new = max(m, s)
        l = l * np.exp(m - new) + np.exp(s - new)
        o = o * np.exp(m - new) + np.exp(s - new) * v[0]
        m = new
        say(f"after key {j}: m, l, o / l", f"{m:.2f} {l:.2f} {o / l:.2f}")
    whole = scaled_dot_product_attention(q, K, V)[0]
    np.testing.assert_allclose(o / l, whole[0, 0])
    np.testing.assert_allclose(online_softmax(q, K, V), whole)


def one_product() -> None:
    X, W = draw(512, 256), draw(256, 256, seed=1)
    parts = [W[:, i : i + 32] for i in range(0, 256, 32)]
    joined = np.concatenate([X @ part for part in parts], axis=1)
    np.testing.assert_allclose(joined, X @ W, rtol=1e-10)
    clock("one product of 256 columns", lambda: X @ W)
    clock("eight products of 32 columns", lambda: [X @ np.ascontiguousarray(p) for p in parts])


def layout() -> None:
    """Copied in the order in which it lies, and across it."""
    x = draw(1000, 1000)
    strided = np.ascontiguousarray(x.T).T
    np.testing.assert_array_equal(x, strided)
    clock("a copy of a contiguous array", x.copy)
    clock("a copy in C order of a strided one", lambda: strided.copy(order="C"))


def many_heads() -> None:
    flops = [count_flops(1, 512, 256, n_heads=h) for h in (1, 8)]
    weights = [memory_by_array(1, 512, d_model=256, n_heads=h)["attention matrix"] for h in (1, 8)]
    say("FLOPs of 1 head, n = 512, d_model = 256", f"{flops[0]:,}")
    say("FLOPs of 8 heads", f"{flops[1]:,}")
    say("bytes of A, 8 heads over 1", f"{weights[1] // weights[0]}")
    assert abs(flops[1] / flops[0] - 1) < 0.05
    assert weights[1] == 8 * weights[0]


def growth() -> None:
    for n in (256, 512, 1024):
        Q, K, V = draw(3, n, 64)
        say(f"entries of A, n = {n}", f"{scaled_dot_product_attention(Q, K, V)[1].size:,}")
        clock(f"attention of {n} tokens", partial(scaled_dot_product_attention, Q, K, V))


def smooth(seed: int, n: int = 256, d: int = 16) -> np.ndarray:
    """Tokens that change slowly, (1, n, d), of variance 1: sums of five waves."""
    rng = np.random.default_rng(seed)
    t = 2 * np.pi * np.arange(n)[:, None] / n
    X = sum(rng.normal(size=d) * np.cos(f * t + rng.uniform(0, 2 * np.pi, d)) for f in range(1, 6))
    return (X / X.std())[None]


def averaging(n: int, k: int) -> Linformer:
    """A Linformer that has learned to average n / k neighbours."""
    how = Linformer(n, k, rng=0)
    means = np.kron(np.eye(k), np.full((1, n // k), k / n))
    how.E.assign_(means)
    how.F.assign_(means)
    return how


def approximations() -> None:
    """FLOPs of 256 tokens, and how far the outputs are from those of attention, relative."""
    Q, K, V = smooth(1) / 2, smooth(2) / 2, smooth(3)
    exact = scaled_dot_product_attention(Q, K, V)[0]
    say("exact: FLOPs", f"{flops_of(attend, Q, K, V):,}")
    errors = {}
    for r in (16, 64, 256):
        for name, how in (
            ("Performer", Performer(16, r, rng=0)),
            ("Linformer, drawn", Linformer(256, r, rng=0)),
            ("Linformer, of averages", averaging(256, r)),
        ):
            i = np.arange(256)
            O = how(*map(mg.tensor, (Q, K, V)), i, i)[0].numpy()
            error = errors[name, r] = np.linalg.norm(O - exact) / np.linalg.norm(exact)
            say(f"{name}, {r}: FLOPs, error", f"{flops_of(how, Q, K, V, i, i):,} {error:.2f}")
    assert errors["Performer", 256] < errors["Performer", 64] < errors["Performer", 16]
    assert errors["Linformer, of averages", 64] < 0.05 < 1 < errors["Linformer, drawn", 64]


def flops_of(how: Callable[..., object], *arguments: np.ndarray) -> int:
    with mg.trace() as t:
        how(*map(mg.tensor, arguments[:3]), *arguments[3:])
    return sum(entry.flops or 0 for entry in t)


def say(what: str, number: str) -> None:
    print(f"{what:52} {number}")


def clock(what: str, run: Callable[[], object]) -> None:
    """The least of five times."""
    times = []
    for _ in range(5):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    print(f"{what:52} {1000 * min(times):.2f} ms")


def draw_pictures(folder: Path) -> None:
    tokens = list("abcdefgh")
    S = scores(512, 8)
    scale = np.stack([mg.softmax(S), mg.softmax(S / np.sqrt(512))])
    read_attention(tokens, scale).draw(folder / "why_scale.svg")
    read_attention(tokens, np.stack(masked(draw(8, 8)))).draw(folder / "why_mask.svg")


QUESTIONS = [
    scaling, projections, without_matrices, masking, order, key_by_key, one_product, layout,
    many_heads, growth, approximations,
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", help="where to draw the pictures")
    folder = parser.parse_args().folder
    for question in QUESTIONS:
        print(f"\n{question.__name__.replace('_', ' ')}")
        question()
    if folder:
        draw_pictures(Path(folder))


if __name__ == "__main__":
    main()

"""Training that no single example can sway: each example's gradient is clipped, and noise is added.

    g ← (Σ_i g_i · min(1, C / ‖g_i‖) + σ C · N(0, 1)) / n    (Abadi et al. 2016, arXiv:1607.00133)

One example lies far from all others, and its label is wrong. Plain training bends to it; private
training hardly moves, and stays right.
"""

import argparse

import numpy as np

import minigrad as mg
from layers import Linear
from minigrad.optim import SGD

N, STEPS, CLIP, NOISE = 200, 75, 1.0, 1.0


def points(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two clouds in five dimensions, and which one each point is of."""
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 5)) + 1.2 * (2 * y[:, None] - 1), y


def loss_of(model: Linear, x: np.ndarray, y: np.ndarray) -> mg.Tensor:
    return mg.cross_entropy(model(mg.tensor(x)), y)


def gradient_of_each(model: Linear, X: np.ndarray, Y: np.ndarray) -> list[list[np.ndarray]]:
    """∂L_i/∂W and ∂L_i/∂b of each example by itself."""
    return [
        mg.grad(loss_of(model, x[None], y[None]), model.parameters())
        for x, y in zip(X, Y, strict=True)
    ]


def private_step(model: Linear, X: np.ndarray, Y: np.ndarray, rng: np.random.Generator) -> float:
    """Set each parameter's gradient; returns the largest norm there was before clipping."""
    each = gradient_of_each(model, X, Y)
    norms = [np.sqrt(sum((g**2).sum() for g in gradients)) for gradients in each]
    for position, p in enumerate(model.parameters()):
        total = sum(
            gradients[position] * min(1.0, CLIP / norm)
            for gradients, norm in zip(each, norms, strict=True)
        )
        p.grad = (total + NOISE * CLIP * rng.normal(size=p.shape)) / len(X)
    return max(norms)


def train(X: np.ndarray, Y: np.ndarray, private: bool) -> tuple[Linear, float]:
    model, rng, largest = Linear(5, 2, rng=0), np.random.default_rng(0), 0.0
    optimizer = SGD(model.parameters(), lr=0.5)
    for _ in range(STEPS):
        batch = rng.choice(len(X), 20, replace=False)
        batch[0] = 0  # the odd one is in every batch
        model.zero_grad()
        if private:
            largest = max(largest, private_step(model, X[batch], Y[batch], rng))
        else:
            loss_of(model, X[batch], Y[batch]).backward()
        optimizer.step()
    return model, largest


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="changes nothing: it takes a second")
    parser.parse_args()
    X, Y = points(N, np.random.default_rng(0))
    X[0] = 10  # far off on the side of 1
    new, wanted = points(1000, np.random.default_rng(1))
    moved, right = {}, {}
    for private in (False, True):
        models = []
        for label in (0, 1):
            Y[0] = label
            model, largest = train(X, Y, private)
            models.append(model)
        w, v = (model.W.numpy()[:, 1] - model.W.numpy()[:, 0] for model in models)
        moved[private] = float(np.linalg.norm(w - v) / np.linalg.norm(w + v))
        with mg.no_grad():
            right[private] = float((models[0](new).numpy().argmax(axis=1) == wanted).mean())
        name = "private" if private else "plain"
        print(
            f"{name:8} {right[private]:.1%} of 1,000 new points right; "
            f"one label turned moves the weights by {moved[private]:.2f} of their size"
        )
    print(f"the largest gradient of one example: {largest:.0f}, clipped to {CLIP:.0f}")
    assert moved[True] < 0.5 * moved[False]
    assert right[True] > 0.9


if __name__ == "__main__":
    main()

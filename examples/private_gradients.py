"""Training that no single example can sway: each example's gradient is clipped, and noise is added.

    g ← (Σ_i g_i · min(1, C / ‖g_i‖) + σ C · N(0, 1)) / n    (Abadi et al. 2016, arXiv:1607.00133)

One example lies far from all others. Its label is turned, and the weights of two trainings are
compared: plain training bends to that one label, private training moves less than half as far.
"""

import numpy as np

import minigrad as mg
from layers import Linear
from minigrad.optim import SGD

N, STEPS, CLIP, NOISE = 200, 75, 1.0, 1.0


def points(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two clouds in five dimensions, and which one each point is of."""
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 5)) + 1.2 * (2 * y[:, None] - 1), y


def gradient(model: Linear, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """∂L/∂W and ∂L/∂b as one vector."""
    parts = mg.grad(mg.cross_entropy(model(x), y), model.parameters())
    return np.concatenate([part.ravel() for part in parts])


def train(X: np.ndarray, Y: np.ndarray, private: bool) -> Linear:
    model, rng = Linear(5, 2, rng=0), np.random.default_rng(0)
    optimizer = SGD(model.parameters(), lr=0.5)
    for _ in range(STEPS):
        batch = rng.choice(len(X), 20, replace=False)
        batch[0] = 0  # the odd one is in every batch
        x, y = X[batch], Y[batch]
        if private:
            each = np.stack([gradient(model, x[i : i + 1], y[i : i + 1]) for i in range(len(x))])
            norms = np.linalg.norm(each, axis=1, keepdims=True)  # (n, 1)
            total = np.sum(each * np.minimum(1.0, CLIP / norms), axis=0)
            g = (total + NOISE * CLIP * rng.normal(size=total.shape)) / len(x)
        else:
            g = gradient(model, x, y)
        model.W.grad = g[:-2].reshape(5, 2)
        model.b.grad = g[-2:]
        optimizer.step()
    return model


def main():
    X, Y = points(N, np.random.default_rng(0))
    X[0] = 10  # far off on the side of 1
    new, wanted = points(1000, np.random.default_rng(1))
    moved, right = {}, {}
    for kind in ("plain", "private"):
        models = []
        for label in (0, 1):  # wrong, and right
            Y[0] = label
            models.append(train(X, Y, kind == "private"))
        w, v = (model.W.numpy()[:, 1] - model.W.numpy()[:, 0] for model in models)
        moved[kind] = np.linalg.norm(w - v) / np.linalg.norm(w + v)
        with mg.no_grad():
            right[kind] = np.mean(models[0](new).numpy().argmax(axis=1) == wanted)
        print(f"{kind:8} {right[kind]:.1%} of 1,000 new points right; ", end="")
        print(f"one label turned moves the weights by {moved[kind]:.2f} of their size")
    assert moved["private"] < 0.5 * moved["plain"]
    assert right["private"] > 0.9


if __name__ == "__main__":
    main()

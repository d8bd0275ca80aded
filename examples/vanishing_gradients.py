"""Vanishing gradients: made, seen, diagnosed and mended.

Eight layers of sigmoids are to learn which of two rings a point lies on. Each derivative of σ is
1/4 at most, so little of the gradient reaches the first layer, and nothing is learnt. With relu and
He's initial weights the same network learns.

    python examples/vanishing_gradients.py flow        writes flow-sigmoid.svg and flow-relu.svg
"""

import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np

import minigrad as mg
from layers import Linear, Module
from minigrad.optim import SGD

LAYERS, WIDTH, STEPS = 8, 24, 300


def rings(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 2) on rings of radius 1 and 2, and which ring, (n, 1)."""
    outer, angle = rng.integers(0, 2, (n, 1)), rng.uniform(0, 2 * np.pi, (n, 1))
    radius = 1 + outer + rng.normal(0, 0.1, (n, 1))
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1) * radius, outer.astype(float)


class Deep(Module):
    def __init__(self, activation: Callable, init: str, rng: np.random.Generator) -> None:
        widths = [2] + [WIDTH] * LAYERS
        self.hidden = [Linear(a, b, rng=rng, init=init) for a, b in pairwise(widths)]
        self.last, self.activation = Linear(WIDTH, 1, rng=rng), activation

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        for layer in self.hidden:
            x = self.activation(layer(x))
        return self.last(x)


def train(model: Deep):
    """The flow over training, and the share of new points that are told right."""
    rng = np.random.default_rng(0)
    optimizer = SGD(model.parameters(), lr=0.03, momentum=0.9)
    with mg.watch(model, every=10) as flow:
        for _ in range(STEPS):
            x, ring = rings(64, rng)
            optimizer.zero_grad()
            loss = mg.binary_cross_entropy_with_logits(model(mg.tensor(x)), ring)
            loss.backward()
            optimizer.step()
            flow.log(loss=loss)
    x, ring = rings(1000, np.random.default_rng(1))
    return flow, float(((model(mg.tensor(x)).numpy() > 0) == (ring > 0.5)).mean())


def main() -> None:
    right = {}
    for name, activation, init in (
        ("sigmoid", mg.sigmoid, "xavier_normal"),
        ("relu", mg.relu, "he_normal"),
    ):
        flow, right[name] = train(Deep(activation, init, np.random.default_rng(0)))
        print(f"{name}: {right[name]:.1%} of 1,000 new points are told right")
        print(flow.diagnose(), end="\n\n")
        assert ("vanishing" in flow.diagnose().kinds) == (name == "sigmoid")
        for prefix in [given for given in sys.argv[1:] if not given.startswith("-")]:
            print("the gradient over training:", flow.draw(f"{prefix}-{name}.svg"))
    assert right["sigmoid"] < 0.7
    assert right["relu"] > 0.95


if __name__ == "__main__":
    main()

"""A multilayer perceptron of 33 numbers learns "exactly one of the two": plain gradient descent.

h = tanh(x W_1 + b_1),    logit = h W_2 + b_2,    loss = mean log(1 + exp(−± logit))
"""

import argparse

import numpy as np

import minigrad as mg
from layers import Linear, Module
from minigrad.optim import SGD

X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])  # (4, 2)
SIGN = np.array([[-1.0], [1.0], [1.0], [-1.0]])  # +1 where exactly one is set


class MLP(Module):
    def __init__(self, hidden: int, rng: np.random.Generator) -> None:
        self.first = Linear(2, hidden, rng=rng)
        self.last = Linear(hidden, 1, rng=rng)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return self.last(mg.tanh(self.first(x)))  # (4, 1)


def loss_of(model: MLP) -> mg.Tensor:
    margin = model(mg.tensor(X)) * SIGN  # (4, 1)   above 0 where the model is right
    return mg.mean(mg.log(1 + mg.exp(-margin)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="changes nothing: it takes a second")
    parser.parse_args()
    model = MLP(hidden=8, rng=np.random.default_rng(0))
    optimizer = SGD(model.parameters(), lr=0.5)
    for step in range(401):
        loss = loss_of(model)
        if step % 100 == 0:
            print(f"step {step:3}   loss {loss.item():.4f}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    final = loss_of(model).item()
    right = (model(mg.tensor(X)).numpy() * SIGN > 0).sum()
    print(f"final loss {final:.4f}, {right} of 4 right")
    assert right == 4
    assert final < 0.02


if __name__ == "__main__":
    main()

"""Handwritten digits, read by three small models: an MLP, a CNN and a vision transformer.

The images are 8×8 pixels of 16 greys: 1,797 of the "Optical Recognition of Handwritten Digits" of
the UCI repository (E. Alpaydin & C. Kaynak, 1998, doi:10.24432/C50P49, CC BY 4.0); see digits.md.

    python examples/digits.py --quick      fewer epochs, lower goals
"""

import sys
from pathlib import Path

import numpy as np

import minigrad as mg
from layers import (
    Conv2d,
    Encoder,
    Flatten,
    LearnedPosition,
    Linear,
    MaxPool2d,
    Module,
    Sequential,
)
from minigrad.data import batches
from minigrad.optim import AdamW, clip_grad_norm, schedule

FILE = Path(__file__).with_name("digits.npz")


def images() -> tuple[np.ndarray, ...]:
    """Pixels in [-1, 1], (n, 8, 8), and digits, (n,): 1,347 to learn from, 450 to be tested on."""
    with np.load(FILE) as file:
        X, y = file["images"].astype(np.float32) / 8 - 1, file["labels"].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(y))
    learn, test = order[:1347], order[1347:]
    return X[learn], y[learn], X[test], y[test]


def mlp(settings: dict) -> Module:
    first, second = Linear(64, 128, **settings), Linear(128, 64, **settings)
    return Sequential(Flatten(), first, mg.relu, second, mg.relu, Linear(64, 10, **settings))


def cnn(settings: dict) -> Module:
    return Sequential(
        lambda X: X.reshape(-1, 1, 8, 8),
        Conv2d(1, 16, 3, padding=1, **settings),  # (B, 16, 8, 8)
        mg.relu,
        Conv2d(16, 32, 3, padding=1, **settings),  # (B, 32, 8, 8)
        mg.relu,
        MaxPool2d(2),  # (B, 32, 4, 4)
        Conv2d(32, 32, 3, padding=1, **settings),
        mg.relu,
        MaxPool2d(2),  # (B, 32, 2, 2)
        Flatten(),
        Linear(128, 10, **settings),
    )


class ViT(Module):
    """Sixteen patches of 2×2 pixels are the tokens (Dosovitskiy et al. 2021, arXiv:2010.11929)."""

    def __init__(self, settings: dict):
        self.patches = Linear(4, 32, **settings)
        self.position = LearnedPosition(16, 32, **settings)
        self.encoder = Encoder(2, 32, 4, 64, **settings)
        self.last = Linear(32, 10, **settings)

    def forward(self, X: mg.Tensor) -> mg.Tensor:
        tokens = X.reshape(-1, 4, 2, 4, 2).transpose((0, 1, 3, 2, 4)).reshape(-1, 16, 4)
        H = self.encoder(self.position(self.patches(tokens)))  # (B, 16, 32)
        return self.last(H.mean(axis=1))  # (B, 10)


def train(model: Module, name: str, epochs: int) -> float:
    """The share of right answers on images never seen."""
    X, y, X_test, y_test = images()
    data = batches(X, y, batch_size=32, rng=np.random.default_rng(1))
    optimizer = AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    decay = schedule.cosine(optimizer, steps=epochs * len(data), warmup=50)

    @mg.compile
    def step(x, digit):
        optimizer.zero_grad()
        loss = mg.cross_entropy(model(x), digit)
        loss.backward()
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
        decay.step()
        return loss

    for epoch in range(1, epochs + 1):
        for x, digit in data:
            loss = step(x, digit)
        print(f"{name}, epoch {epoch} of {epochs}: loss {loss.item():.3f}")
    with mg.no_grad():
        answers = model(X_test).numpy().argmax(axis=1)
    return np.mean(answers == y_test)


def main():
    quick = "--quick" in sys.argv
    for make, goal, epochs in (mlp, 0.97, 20), (cnn, 0.98, 8), (ViT, 0.95, 16):
        model = make({"rng": np.random.default_rng(0), "dtype": np.float32})
        right = train(model, make.__name__, 4 if quick else epochs)
        size = sum(p.size for p in model.parameters())
        print(f"{make.__name__:4} {size:7,} numbers   {right:.1%} of 450 new digits are right")
        assert right >= (0.75 if quick else goal)


if __name__ == "__main__":
    main()

"""Two spirals told apart by a small network; and a run that is stopped half-way and taken up again.

Shuffled batches, a learning rate that warms up and falls, clipped gradients, averaged weights: all
that training needs, saved in one file. The run that goes on from the file ends in the same bits as
the one that was never stopped.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import minigrad as mg
from layers import Linear, Module
from minigrad.data import batches
from minigrad.optim import AdamW, MovingAverage, clip_grad_norm, schedule

EPOCHS, BATCH = 60, 32


def spirals(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 2) on two arms that wind around each other, and which arm each is on, (n,)."""
    arm = rng.integers(2, size=n)
    turn = rng.uniform(0.5, 3.0, size=n) * np.pi
    angle = turn + np.pi * arm
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1) * turn[:, None] / np.pi
    return points + rng.normal(0, 0.05, size=(n, 2)), arm


class MLP(Module):
    def __init__(self, rng: np.random.Generator) -> None:
        self.first = Linear(2, 32, rng=rng)
        self.second = Linear(32, 32, rng=rng)
        self.last = Linear(32, 2, rng=rng)
        self.rng = rng  # dropout draws from it

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        x = mg.tanh(self.first(x))  # (B, 32)
        if self.training:
            x = mg.dropout(x, 0.1, self.rng)
        return self.last(mg.tanh(self.second(x)))  # (B, 2)


class Run:
    """Everything a training run is made of; `parts` is what goes into its file."""

    def __init__(self, seed: int) -> None:
        X, arm = spirals(512, np.random.default_rng(0))
        self.model = MLP(np.random.default_rng(seed))
        parameters = self.model.parameters()
        self.optimizer = AdamW(parameters, lr=0.02)
        self.decay = schedule.cosine(self.optimizer, steps=EPOCHS * 16, warmup=32)
        self.average = MovingAverage(parameters, decay=0.98)
        self.data = batches(X, arm, batch_size=BATCH, rng=np.random.default_rng(seed))
        self.parts = {
            "model": self.model, "optimizer": self.optimizer, "decay": self.decay,
            "average": self.average, "data": self.data,
        }  # fmt: skip

    def train(self, epochs: int) -> None:
        """Go on until so many epochs were seen in all."""
        while self.data.epoch < epochs:
            for x, arm in self.data:
                self.optimizer.zero_grad()
                loss = mg.cross_entropy(self.model(mg.tensor(x)), arm)
                loss.backward()
                clip_grad_norm(self.model.parameters(), max_norm=1.0)
                self.optimizer.step()
                self.decay.step()
                self.average.step()

    def accuracy(self) -> float:
        """On points never seen, with the averaged weights."""
        X, arm = spirals(2000, np.random.default_rng(1))
        self.model.eval()
        with self.average.weights(), mg.no_grad():
            found = self.model(mg.tensor(X)).numpy().argmax(axis=1)
        self.model.train()
        return float((found == arm).mean())


def main(folder: Path) -> None:
    whole = Run(seed=0)
    whole.train(EPOCHS // 2)
    path = mg.save(folder / "spirals.npz", **whole.parts, step=EPOCHS // 2, note="half-way")
    half = whole.accuracy()
    whole.train(EPOCHS)

    again = Run(seed=99)  # other weights, another order: what the file holds takes their place
    print(f"taken up after epoch {mg.load(path, **again.parts)['step']}, at {half:.1%}")
    again.train(EPOCHS)
    same = all(
        np.array_equal(kept.numpy(), resumed.numpy())
        for kept, resumed in zip(whole.model.parameters(), again.model.parameters(), strict=True)
    )
    accuracy = again.accuracy()
    print(f"{accuracy:.1%} of 2,000 new points are right; weights the same to the last bit: {same}")
    assert same
    assert accuracy > 0.97


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="changes nothing: it takes a second")
    parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))

"""An LSTM sees noisy sine waves of many speeds and phases and learns what comes next.

Then it goes on by itself: 40 steps, each from the one before. A wave it never saw stays a wave: it
is off by 0.27, where standing still would be off by 1.00.

    python examples/sine_lstm.py --quick      60 steps of training, not 400
"""

import sys

import numpy as np

import minigrad as mg
from layers import LSTM, Linear, Module
from minigrad.optim import Adam, clip_grad_norm, schedule

LENGTH, SEEN = 80, 40


def waves(n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, LENGTH, 1): periods of 12 to 30 steps, any phase."""
    period, phase = rng.uniform(12, 30, (n, 1)), rng.uniform(0, 2 * np.pi, (n, 1))
    t = np.arange(LENGTH)
    return np.sin(2 * np.pi * t / period + phase)[..., None].astype(np.float32)


class Forecast(Module):
    def __init__(self, rng: np.random.Generator):
        self.lstm = LSTM(1, 32, rng=rng, dtype=np.float32)
        self.out = Linear(32, 1, rng=rng, dtype=np.float32)

    def forward(self, X: mg.Tensor) -> mg.Tensor:
        return X + self.out(self.lstm(X))  # (B, n, 1), what comes after each entry

    def go_on(self, X: np.ndarray, steps: int) -> np.ndarray:
        """X and `steps` more, each computed from the last one."""
        with mg.no_grad():
            for _ in range(steps):
                after = self(X).numpy()[:, -1:]
                X = np.concatenate([X, after], axis=1)
        return X


def main():
    quick = "--quick" in sys.argv
    n_steps = 60 if quick else 400

    rng = np.random.default_rng(0)
    model = Forecast(rng)
    optimizer = Adam(model.parameters(), lr=1e-2)
    decay = schedule.cosine(optimizer, steps=n_steps, warmup=20)

    @mg.compile
    def step(X, after):
        optimizer.zero_grad()
        loss = mg.mse_loss(model(X), after)
        loss.backward()
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
        decay.step()
        return loss

    for t in range(1, n_steps + 1):
        X = waves(32, rng)
        noisy = X[:, :-1] + rng.normal(0, 0.02, X[:, :-1].shape).astype(np.float32)
        loss = step(noisy, X[:, 1:])
        if t % 100 == 0:
            print(f"step {t} of {n_steps}: loss {loss.item():.5f}")
    print(f"mean squared error of the next entry {loss:.5f}")

    new = waves(100, np.random.default_rng(99))
    forecast = model.go_on(new[:, :SEEN], LENGTH - SEEN)
    error = np.sqrt(np.mean((forecast - new)[:, SEEN:] ** 2))
    still = np.sqrt(np.mean((new[:, SEEN - 1 : SEEN] - new[:, SEEN:]) ** 2))
    print(
        f"{LENGTH - SEEN} steps on its own: off by {error:.2f} (by {still:.2f} if it stood still)"
    )
    assert error < (0.9 if quick else 0.35) * still


if __name__ == "__main__":
    main()

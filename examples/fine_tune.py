"""Low-rank adapters beside frozen weights: a model that copies digits learns to encipher them.

    x W + b + s (x A) B      W and b stay, A (d_in, r) and B (r, d_out) learn (Hu et al. 2021)

The model has learned to say six digits again after a sign. How it finds them is in its attention,
which stays as it is. The new task is to say each digit plus one. Adapters of rank 4 learn it. The
same adapters beside weights that learned nothing stay far off. Then they are merged into W, and
the model is an ordinary one again.

    python examples/fine_tune.py --quick      fewer steps, and a lower goal
"""

import sys

import numpy as np

import minigrad as mg
from layers import Embedding, LearnedPosition, Linear, Module, MultiHeadAttention, causal
from minigrad.optim import Adam

DIGITS, LENGTH, SIGN, WIDTH = 10, 6, 10, 32


class LowRank(Module):
    """A Linear layer that is not trained, and beside it a product of rank r that is."""

    def __init__(self, linear: Linear, rank: int, rng: np.random.Generator, s: float = 2.0):
        d_in, d_out = linear.W.shape
        self.linear, self.s = linear, s
        self.A = mg.tensor(rng.normal(size=(d_in, rank)) / d_in**0.5, requires_grad=True)
        self.B = mg.tensor(np.zeros((rank, d_out)), requires_grad=True)  # so it begins as W alone

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return self.linear(x) + mg.scale(x @ self.A @ self.B, self.s)  # (..., d_out)

    def merged(self) -> Linear:
        """An ordinary layer: W + s A B."""
        with mg.no_grad():
            self.linear.W.assign_(self.linear.W + mg.scale(self.A @ self.B, self.s))
        return self.linear


class Copier(Module):
    """An embedding, one layer of causal attention, a layer on each token, logits."""

    def __init__(self, rng: np.random.Generator):
        self.embedding = Embedding(DIGITS + 1, WIDTH, rng=rng)
        self.position = LearnedPosition(2 * LENGTH, WIDTH, rng=rng)
        self.attention = MultiHeadAttention(WIDTH, 2, rng=rng, mask=causal)
        self.hidden = Linear(WIDTH, WIDTH, rng=rng)
        self.out = Linear(WIDTH, DIGITS, rng=rng)

    def forward(self, tokens: np.ndarray) -> mg.Tensor:
        X = self.position(self.embedding(tokens))  # (B, n, d)
        X = X + self.attention(X)  # (B, n, d)
        X = X + mg.gelu(self.hidden(X))  # (B, n, d)
        return self.out(X)[:, LENGTH:]  # (B, 6, 10), what comes after the sign

    def add_adapters(self, rank: int, rng: np.random.Generator) -> list[mg.Tensor]:
        """Freeze all that there is; the parameters that are left to learn."""
        self.freeze()
        self.hidden = LowRank(self.hidden, rank, rng)
        self.out = LowRank(self.out, rank, rng)
        return [self.hidden.A, self.hidden.B, self.out.A, self.out.B]


def sequences(n: int, shift: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Digits, the sign, and each digit plus the shift but the last: (n, 12); what comes, (n, 6)."""
    digits = rng.integers(0, DIGITS, (n, LENGTH))
    answer = (digits + shift) % DIGITS
    return np.concatenate([digits, np.full((n, 1), SIGN), answer[:, :-1]], axis=1), answer


def train(model: Copier, parameters: list[mg.Tensor], shift: int, steps: int) -> float:
    """The loss of the last step."""
    rng = np.random.default_rng(1)
    optimizer = Adam(parameters, lr=1e-2)

    @mg.compile
    def step(tokens, wanted):
        optimizer.zero_grad()
        loss = mg.cross_entropy(model(tokens), wanted)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(steps):
        loss = step(*sequences(64, shift, rng))
    return loss.item()


def right(model: Copier, shift: int) -> float:
    """The share of digits after the sign that are the likeliest."""
    tokens, wanted = sequences(500, shift, np.random.default_rng(99))
    with mg.no_grad():
        return np.mean(model(tokens).numpy().argmax(axis=-1) == wanted)


def main():
    quick = "--quick" in sys.argv
    before, after = (100, 100) if quick else (300, 200)

    rng = np.random.default_rng(0)
    model, untaught = Copier(rng), Copier(rng)
    train(model, model.parameters(), shift=0, steps=before)
    print(f"copies {right(model, 0):.1%} of the digits, enciphers {right(model, 1):.1%}")
    adapters = model.add_adapters(rank=4, rng=rng)
    loss = train(model, adapters, shift=1, steps=after)
    print(f"{sum(p.size for p in adapters)} numbers more: enciphers {right(model, 1):.1%}")
    far = train(untaught, untaught.add_adapters(4, rng), shift=1, steps=after)
    print(f"loss {loss:.4f}; the same adapters beside untaught weights: {far:.4f}")

    tokens, _ = sequences(5, 1, rng)
    beside = model(tokens).numpy()
    model.hidden, model.out = model.hidden.merged(), model.out.merged()
    apart = np.abs(model(tokens).numpy() - beside).max()
    print(f"merged: an ordinary model again, its logits within {apart:.0e}")
    assert [*model.state_dict()] == [*Copier(rng).state_dict()]
    assert apart < 1e-12
    assert right(model, 1) > (0.8 if quick else 0.98)
    assert loss < (0.5 if quick else 0.1) * far


if __name__ == "__main__":
    main()

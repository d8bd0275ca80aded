"""What minigrad/fast adds is speed: with it turned off, models train to the same numbers."""

from tests.process import python

PROGRAM = """
import numpy as np
import minigrad as mg
from layers import Linear, MultiHeadAttention, create_causal_mask

rng = np.random.default_rng(0)
first, last = Linear(3, 5, rng=rng), Linear(5, 1, rng=rng)
attention = MultiHeadAttention(6, 2, rng=rng)
X, mask = rng.normal(size=(7, 3)), create_causal_mask(4)
E = rng.normal(size=(2, 4, 6))
for _ in range(5):
    loss = mg.mean((last(mg.relu(first(X))) - 1.0) ** 2) + mg.mean(attention(E, mask=mask) ** 2)
    loss.backward()
    with mg.no_grad():
        for p in (*first.parameters(), *last.parameters(), *attention.parameters()):
            p.assign_(p.numpy() - 0.1 * p.grad)
            p.grad = None
print(f"{loss.item():.10f}")
"""


def test_without_fast_models_train_to_the_same_numbers() -> None:
    with_it = python("-W", "error", "-c", PROGRAM).stdout
    without = python("-W", "error", "-c", PROGRAM, MINIGRAD_FAST="0").stdout
    assert with_it == without != ""

"""Every room beside engine, ops and layers can be deleted: models train to the same numbers."""

import shutil
from pathlib import Path

import pytest

import minigrad
from tests.process import python

ROOT = Path(minigrad.__file__).parents[1]
ROOMS = ["fast", "views", "onnx", "distributed", "optim", "cli", "playing", "recording"]
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


def trained(folder: Path) -> str:
    return python("-W", "error", "-c", PROGRAM, cwd=folder, root=folder).stdout


@pytest.fixture(scope="module")
def expected() -> str:
    return trained(ROOT)


@pytest.mark.parametrize("room", ROOMS)
def test_models_train_to_the_same_numbers_without(room: str, expected: str, tmp_path: Path) -> None:
    for package in ("minigrad", "layers"):
        left_out = shutil.ignore_patterns("__pycache__", *[room] * (package == "minigrad"))
        shutil.copytree(ROOT / package, tmp_path / package, ignore=left_out)
    assert not (tmp_path / "minigrad" / room).exists()
    assert trained(tmp_path) == expected

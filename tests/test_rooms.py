"""Every room beside engine, ops and layers can be deleted: models train to the same numbers.

Without minigrad/fast, deleted or turned off, all else works and what is missing says so.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import minigrad
from tests.process import python

ROOT = Path(minigrad.__file__).parents[1]
ROOMS = ["fast", "views", "distributed", "optim", "cli", "playing", "recording"]
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


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both packages, of which rooms may be moved away."""
    folder = tmp_path_factory.mktemp("copy")
    for package in ("minigrad", "layers"):
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=left_out)
    return folder


@contextmanager
def without(room: str, copy: Path) -> Iterator[None]:
    place, away = copy / "minigrad" / room, copy / room
    if not place.exists():  # .ci/run runs all tests where minigrad/fast is gone already
        yield
        return
    place.rename(away)
    try:
        yield
    finally:
        away.rename(place)


@pytest.mark.parametrize("room", ROOMS)
def test_models_train_to_the_same_numbers_without(room: str, expected: str, copy: Path) -> None:
    with without(room, copy):
        assert trained(copy) == expected


WITHOUT_FAST = """
import sys
import numpy as np
import minigrad as mg
import layers.transformer, minigrad.check, minigrad.optim
from layers import SelfAttention

def refused(call):
    try:
        call()
    except Exception as error:
        print(f"{type(error).__name__}: {error}")

def step(x):
    (x * x).sum().backward()

X = np.random.default_rng(5).normal(size=(2, 67, 13))
assert mg.softmax(mg.tensor(X, requires_grad=True)).shape == X.shape
print([name for name in sys.modules if name.startswith("minigrad.fast")])
print([op.name for op in mg.registry.values() if op.overlay is not None])
print(mg.attention_method(8, 8192, 8192))
print(SelfAttention(13, 5, 7, method="auto")(np.zeros((1, 1500, 13))).node.op.name)
refused(lambda: mg.compile(step)(mg.tensor(X, requires_grad=True)))
refused(lambda: mg.scaled_dot_product_attention(X, X, X, method="tiled"))
refused(lambda: SelfAttention(13, 5, 7, method="tiled")(X))
"""


@pytest.mark.parametrize("how", ["deleted", "turned off"])
def test_without_fast_auto_is_exact_and_what_is_missing_says_so(how: str, copy: Path) -> None:
    if how == "deleted":
        with without("fast", copy):
            done = python("-W", "error", "-c", WITHOUT_FAST, cwd=copy, root=copy)
    else:
        done = python("-W", "error", "-c", WITHOUT_FAST, MINIGRAD_FAST="0")
    loaded, overlays, method, op, *refusals = done.stdout.splitlines()
    assert (loaded, overlays, method, op) == ("[]", "[]", "exact", "linear")
    assert len(refusals) == 3
    assert all("minigrad/fast" in line and "MINIGRAD_FAST=0" in line for line in refusals)

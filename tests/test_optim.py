"""Optimisers follow PyTorch's updates."""

import subprocess
import sys

import numpy as np
import pytest

import minigrad as mg
from minigrad import optim
from minigrad.errors import ArgumentError, DTypeError, OverwrittenError
from minigrad.optim import SGD, Adam, AdamW

CASES = [
    (SGD, {}),
    (SGD, {"momentum": 0.9}),
    (SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (Adam, {}),
    (Adam, {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.01}),
    (AdamW, {}),
    (AdamW, {"weight_decay": 0.1}),
]


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_a_hundred_steps_equal_pytorchs(kind, settings):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    start, target = rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    w = mg.tensor(start, requires_grad=True)
    theirs = torch.tensor(start, requires_grad=True)
    optimiser = kind([w], lr=0.03, **settings)
    reference = getattr(torch.optim, kind.__name__)([theirs], lr=0.03, **settings)
    for _ in range(100):
        optimiser.zero_grad()
        ((w - target) ** 4).sum().backward()
        optimiser.step()
        reference.zero_grad()
        ((theirs - torch.tensor(target)) ** 4).sum().backward()
        reference.step()
    np.testing.assert_allclose(w.data, theirs.detach().numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
def test_a_step_goes_downhill_and_keeps_dtype_and_memory(kind):
    w = mg.tensor(np.float32([1.0, -2.0]), requires_grad=True)
    memory = w.data
    (w * w).sum().backward()
    kind([w], lr=0.1).step()
    assert w.data is memory
    assert w.dtype == np.float32
    assert float((w.data**2).sum()) < 5.0


def test_a_parameter_without_gradient_is_left_alone():
    w, still = (mg.tensor([1.0], requires_grad=True) for _ in range(2))
    (w * w).sum().backward()
    Adam([w, still], lr=0.1).step()
    assert still.data[0] == 1.0
    assert w.data[0] != 1.0


def test_a_step_makes_older_graphs_refuse_to_run_backward():
    w = mg.tensor([1.0], requires_grad=True)
    loss = (w * w).sum()
    w.grad = np.ones(1)
    SGD([w], lr=0.1).step()
    with pytest.raises(OverwrittenError, match="overwritten at"):
        loss.backward()


def test_bad_settings_are_refused():
    w = mg.tensor([1.0], requires_grad=True)
    with pytest.raises(ArgumentError, match="lr must be at least 0, got -1"):
        SGD([w], lr=-1)
    with pytest.raises(ArgumentError, match="nesterov needs a momentum"):
        SGD([w], nesterov=True)
    with pytest.raises(ArgumentError, match=r"betas must lie in \[0, 1\)"):
        Adam([w], betas=(0.9, 1.0))
    with pytest.raises(ArgumentError, match="got no parameters"):
        Adam([])
    with pytest.raises(DTypeError, match="each must be a leaf Tensor"):
        Adam([w * 2])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_a_parameter_moved_in_parts_moves_as_a_whole_one_does(kind, settings, order, monkeypatch):
    """Parts of 4 entries of 35 that lie in order; of others, the whole at once."""
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=(5, 7)), rng.normal(size=(3, 5, 7))
    moved = []
    for part in (4, 1 << 17):
        monkeypatch.setattr(optim, "PART", part)
        w = mg.tensor(np.asarray(start, order=order), requires_grad=True)
        optimiser = kind([w], lr=0.1, **settings)
        for g in gradients:
            w.grad = g
            optimiser.step()
        moved.append(w.data)
    np.testing.assert_array_equal(*moved)
    assert not np.array_equal(moved[0], start)


def test_a_parameter_of_one_number_is_moved():
    w = mg.tensor(2.0, requires_grad=True)
    for kind in (SGD, Adam, AdamW):
        (w * w).backward()
        kind([w], lr=0.25).step()
    assert w.data < 1.5


def test_optimisers_are_found_without_an_import_of_their_own():
    code = "import minigrad as mg; print(mg.optim.SGD.__name__, hasattr(mg, 'optics'))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "SGD False\n"


@pytest.mark.parametrize("size", [1e-6, 1e-3, 0.1, 1, 20, 200, 60_000])
def test_adam_moves_float16_by_lr_at_each_step_whatever_the_size_of_a_steady_gradient(size):
    w = mg.tensor(np.zeros(3, np.float16), requires_grad=True)
    optimiser = Adam([w], lr=0.01)
    for _ in range(300):
        w.grad = np.full(3, size, np.float16)
        optimiser.step()
    np.testing.assert_allclose(w.data, -3.0, rtol=0.05)

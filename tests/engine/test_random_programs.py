"""Random programs, the same one in minigrad and in PyTorch: the result and all gradients to 1e-12.

A program is a list of steps; each step picks values made before it, so values are reused,
broadcast, dropped.
"""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import MinigradError
from tests.compare import assert_same

torch = pytest.importorskip("torch")

PROGRAMS = 300
STEPS = 14
SHAPES = [(3, 5), (5,), (1, 5), (3, 1), (2, 3, 5), (), (2, 1, 5), (5, 5), (2, 5, 3)]


class Torch:
    """PyTorch's functions by minigrad's names, where those are others."""

    max, transpose = torch.amax, torch.permute

    def __getattr__(self, name):
        return getattr(torch, name)

    def take(self, x, indices, axis):
        return x.index_select(axis, torch.tensor(indices % x.shape[axis]))

    def split(self, x, cuts, axis):
        return torch.tensor_split(x, cuts, axis)


CALLS = [
    lambda f, x, y: f.tanh(x),
    lambda f, x, y: f.relu(x),
    lambda f, x, y: f.exp(f.tanh(x)),
    lambda f, x, y: f.log(x * x + 1),
    lambda f, x, y: 3 - x**2,
    lambda f, x, y: 1 / (2 + f.sigmoid(-x)),
    lambda f, x, y: 0.7 * x + x.detach(),
    lambda f, x, y: f.add(x, y),
    lambda f, x, y: f.subtract(x, y),
    lambda f, x, y: f.multiply(x, y),
    lambda f, x, y: f.maximum(x, y),
    lambda f, x, y: x / (1.5 + f.sigmoid(y)),
    lambda f, x, y: f.where(x - y > 0, x, 2 * y),
    lambda f, x, y: f.matmul(x, y),
    lambda f, x, y: f.matmul(x, y.mT),
    lambda f, x, y: x.mT @ x / 5 + y.sum(),
]


def _along_axes(rng, x):
    """Calls whose settings depend on the shape."""
    axis, keep = int(rng.integers(-x.ndim, x.ndim)), bool(rng.integers(2))
    order = tuple(int(i) for i in rng.permutation(x.ndim))
    chosen = rng.integers(-x.shape[axis], x.shape[axis], 3)
    row = int(rng.integers(-x.shape[0], x.shape[0]))
    rows = [int(i) for i in rng.integers(-x.shape[0], x.shape[0], 4)]
    inside = rng.uniform(size=x.shape) < 0.7
    return [
        lambda f, x, y: f.sum(x, axis, keep),
        lambda f, x, y: f.mean(x, tuple(range(x.ndim)), keep),
        lambda f, x, y: f.max(x, axis, keep),
        lambda f, x, y: f.softmax(x, axis),
        lambda f, x, y: f.cumsum(x, axis),
        lambda f, x, y: f.take(x, chosen, axis),
        lambda f, x, y: f.concatenate((x, 2 * x), axis),
        lambda f, x, y: f.stack((x, x * x), axis),
        lambda f, x, y: f.split(x, [1], axis)[0],
        lambda f, x, y: f.transpose(x, order),
        lambda f, x, y: f.reshape(x, x.shape[::-1]),
        lambda f, x, y: x[row],
        lambda f, x, y: x[..., 1:],
        lambda f, x, y: x[None],
        lambda f, x, y: x[rows],
        lambda f, x, y: x[inside],
        lambda f, x, y: f.squeeze(x),
        lambda f, x, y: f.broadcast_to(x, (2, *x.shape)),
    ]


def _program(rng):
    """Leaves, and steps: a call, and the positions of the two values it may take."""
    shapes = rng.integers(len(SHAPES), size=rng.integers(2, 5))
    leaves = [rng.uniform(-2, 2, SHAPES[i]) for i in shapes]
    values, steps = [mg.tensor(x) for x in leaves], []
    while len(steps) < STEPS:
        i, j = (int(k) for k in rng.integers(len(values), size=2))
        x, y = values[i], values[j]
        calls = _along_axes(rng, x) if 0 < x.ndim < 4 and rng.integers(2) else CALLS
        call = calls[rng.integers(len(calls))]
        try:
            result = call(mg, x, y)
        except MinigradError:  # shapes that do not go together
            continue
        if 0 < result.size < 400 and result.ndim < 5 and np.abs(result.data).max() < 1e3:
            values.append(result)
            steps.append((call, i, j))
    return leaves, steps


def _run(leaves, steps, functions):
    """The program's loss: a fixed weighting of every value that it made."""
    values = list(leaves)
    for call, i, j in steps:
        values.append(call(functions, values[i], values[j]))
    loss = 0
    for n, value in enumerate(values):
        loss = loss + (value * value).mean() * (0.1 + n % 3)
    return loss


def _both(seed):
    """The leaves and the loss in minigrad, and those in PyTorch."""
    leaves, steps = _program(np.random.default_rng(seed))
    xs = [mg.tensor(x, requires_grad=True) for x in leaves]
    ts = [torch.tensor(x, requires_grad=True) for x in leaves]
    return xs, _run(xs, steps, mg), ts, _run(ts, steps, Torch())


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_random_program_agrees_with_pytorch(seed):
    """And grad(..., create_graph=True), which runs the rules on Tensors, gives the same numbers."""
    xs, loss, ts, reference = _both(seed)
    recorded = mg.grad(loss, xs, create_graph=True)
    loss.backward()
    reference.backward()
    assert_same(loss, reference)
    for x, t, again in zip(xs, ts, recorded, strict=True):
        assert_same(x.grad, t.grad)
        assert_same(again, t.grad)


@pytest.mark.parametrize("seed", range(0, PROGRAMS, 6))
def test_a_random_programs_second_derivative_agrees_with_pytorch(seed):
    xs, loss, ts, reference = _both(seed)
    firsts = mg.grad(loss, xs, create_graph=True)
    references = torch.autograd.grad(reference, ts, create_graph=True)
    sum((g * g).sum() for g in firsts).backward()
    sum((g * g).sum() for g in references).backward()
    for x, t in zip(xs, ts, strict=True):
        assert_same(x.grad, t.grad, 1e-11)

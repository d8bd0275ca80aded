"""Random programs, the same one in minigrad and in PyTorch: the result and all gradients to 1e-12.

A program is a list of steps; each step picks values made before it, so values are reused,
broadcast, dropped.
"""

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same

torch = pytest.importorskip("torch")
F = torch.nn.functional

PROGRAMS = 300
STEPS = 14
SHAPES = [(3, 5), (5,), (1, 5), (3, 1), (2, 3, 5), (), (2, 1, 5), (5, 5), (2, 5, 3)]


def _t(array):
    return torch.tensor(np.asarray(array))


def _unary(rng, _):
    pairs = [
        (mg.tanh, torch.tanh), (mg.sigmoid, torch.sigmoid), (mg.relu, torch.relu),
        (mg.silu, F.silu), (mg.abs, torch.abs),
        (mg.gelu, F.gelu), (lambda x: mg.exp(mg.tanh(x)), lambda t: torch.exp(torch.tanh(t))),
        (lambda x: mg.log(x * x + 1), lambda t: torch.log(t * t + 1)),
        (lambda x: mg.sqrt(x * x + 0.5), lambda t: torch.sqrt(t * t + 0.5)),
        (lambda x: -x, lambda t: -t),
        (lambda x: x**2, lambda t: t**2),
        (lambda x: 1 / (2 + mg.sigmoid(x)), lambda t: 1 / (2 + torch.sigmoid(t))),
        (lambda x: mg.clip(x, -0.5, 1), lambda t: t.clamp(-0.5, 1)),
        (lambda x: 3 - x, lambda t: 3 - t),
        (lambda x: mg.gelu(x, "tanh"), lambda t: F.gelu(t, approximate="tanh")),
        (lambda x: mg.scale(x, 0.7), lambda t: t * 0.7),
        (lambda x: x + x.detach(), lambda t: t + t.detach()),
    ]  # fmt: skip
    return pairs[rng.integers(len(pairs))]


def _binary(rng, _):
    pairs = [
        (mg.add, torch.add), (mg.subtract, torch.subtract), (mg.multiply, torch.multiply),
        (mg.maximum, torch.maximum), (mg.minimum, torch.minimum),
        (lambda a, b: a / (1.5 + mg.sigmoid(b)), lambda a, b: a / (1.5 + torch.sigmoid(b))),
        (lambda a, b: (1 + a * a) ** mg.tanh(b), lambda a, b: (1 + a * a) ** torch.tanh(b)),
        (lambda a, b: mg.where(a > b, a, 2 * b), lambda a, b: torch.where(a > b, a, 2 * b)),
    ]  # fmt: skip
    return pairs[rng.integers(len(pairs))]


def _reduction(rng, x):
    axis, keep = int(rng.integers(-x.ndim, x.ndim)), bool(rng.integers(2))
    every = tuple(range(x.ndim)) if rng.integers(3) == 0 else axis
    pairs = [
        (lambda x: x.sum(every, keep), lambda t: t.sum(every, keep)),
        (lambda x: x.mean(every, keep), lambda t: t.mean(every, keep)),
        (lambda x: x.max(every, keep), lambda t: t.amax(every, keep)),
        (lambda x: x.min(every, keep), lambda t: t.amin(every, keep)),
        (lambda x: x.var(every, keepdims=keep), lambda t: t.var(every, correction=0, keepdim=keep)),
        (lambda x: mg.logsumexp(x, every, keep), lambda t: t.logsumexp(every, keep)),
    ]
    return pairs[rng.integers(len(pairs))]


def _along(rng, x):
    axis = int(rng.integers(-x.ndim, x.ndim))
    n = x.shape[axis]
    weight, bias = rng.uniform(0.5, 1.5, x.shape[-1]), rng.uniform(-1, 1, x.shape[-1])
    chosen = rng.integers(-n, n, 3)
    mask = rng.uniform(size=x.shape) < 0.7
    mask[..., 0] = True
    pairs = [
        (lambda x: mg.softmax(x, axis), lambda t: t.softmax(axis)),
        (lambda x: mg.log_softmax(x, axis), lambda t: t.log_softmax(axis)),
        (lambda x: mg.cumsum(x, axis), lambda t: t.cumsum(axis)),
        (lambda x: mg.take(x, chosen, axis), lambda t: t.index_select(axis, _t(chosen % n))),
        (lambda x: mg.concatenate((x, 2 * x), axis), lambda t: torch.cat((t, 2 * t), axis)),
        (lambda x: mg.stack((x, x * x), axis), lambda t: torch.stack((t, t * t), axis)),
        (lambda x: mg.split(x, [1], axis)[0], lambda t: torch.tensor_split(t, [1], axis)[0]),
        (
            lambda x: mg.layer_norm(x, weight, bias),
            lambda t: F.layer_norm(t, t.shape[-1:], _t(weight), _t(bias)),
        ),
        (lambda x: mg.rms_norm(x, weight), lambda t: F.rms_norm(t, t.shape[-1:], _t(weight), 1e-5)),
        (
            lambda x: mg.softmax(mg.mask_add(x, mask)),
            lambda t: t.masked_fill(~_t(mask), -torch.inf).softmax(-1),
        ),
    ]
    return pairs[rng.integers(len(pairs))]


def _move(rng, x):
    order = tuple(int(i) for i in rng.permutation(x.ndim))
    k = int(rng.integers(-x.shape[0], x.shape[0]))
    rows = [int(i) for i in rng.integers(-x.shape[0], x.shape[0], 4)]
    inside = rng.uniform(size=x.shape) < 0.6
    pairs = [
        (lambda x: x.transpose(order), lambda t: t.permute(order)),
        (lambda x: x.reshape(-1), lambda t: t.reshape(-1)),
        (lambda x: x.reshape(*x.shape[::-1]), lambda t: t.reshape(*t.shape[::-1])),
        (lambda x: x[k], lambda t: t[k]),
        (lambda x: x[..., 1:], lambda t: t[..., 1:])
        if x.shape[-1] > 1
        else (lambda x: x[None], lambda t: t[None]),
        (lambda x: x[::-1], lambda t: t.flip(0)),
        (lambda x: x[rows], lambda t: t[rows]),
        (lambda x: x[inside], lambda t: t[_t(inside)])
        if inside.any()
        else (lambda x: x, lambda t: t),
        (lambda x: mg.expand_dims(x, -1), lambda t: t[..., None]),
        (mg.squeeze, torch.squeeze),
        (lambda x: mg.broadcast_to(x, (2, *x.shape)), lambda t: t.expand(2, *t.shape)),
        (lambda x: mg.pad(x, 1, 0.5), lambda t: F.pad(t, (1, 1) * t.ndim, value=0.5)),
    ]
    return pairs[rng.integers(len(pairs))]


def _product(rng, a, b):
    if a.ndim and b.ndim and a.shape[-1] == b.shape[-1] and b.ndim > 1:
        return lambda a, b: a @ b.mT, lambda a, b: a @ b.mT
    if a.ndim and b.ndim == 1 and a.shape[-1] == b.shape[0]:
        return mg.matmul, torch.matmul
    if a.ndim > 1:
        return lambda a, b: a.mT @ a / 5 + b.sum(), lambda a, b: a.mT @ a / 5 + b.sum()
    return lambda a, b: mg.einsum("...,...->", a, b.mean()), lambda a, b: torch.einsum(
        "...,->", a, b.mean()
    )


def _broadcast(a, b):
    try:
        return len(np.broadcast_shapes(a.shape, b.shape)) < 5
    except ValueError:
        return False


def _program(rng):
    """Leaves, and steps as (ours, theirs, positions of the values each takes)."""
    leaves = [
        rng.uniform(-2, 2, SHAPES[i]) for i in rng.integers(len(SHAPES), size=rng.integers(2, 5))
    ]
    values, steps = [mg.tensor(x) for x in leaves], []
    while len(steps) < STEPS:
        i, j = (int(k) for k in rng.integers(len(values), size=2))
        kind = rng.integers(7)
        a, b = values[i], values[j]
        if kind in (0, 1) or (not a.ndim and kind in (3, 4, 5)):
            step = (*_unary(rng, a), (i,))
        elif kind == 2 and _broadcast(a, b):
            step = (*_binary(rng, a), (i, j))
        elif kind == 3 and a.size:
            step = (*_reduction(rng, a), (i,))
        elif kind == 4 and a.size and a.ndim < 4:
            step = (*_along(rng, a), (i,))
        elif kind == 5 and a.size and a.ndim < 4:
            step = (*_move(rng, a), (i,))
        elif kind == 6 and a.ndim and a.ndim + b.ndim < 6:
            step = _product(rng, a, b)
            try:
                step[0](a, b)
            except mg.errors.ShapeError:  # batch axes that don't broadcast
                continue
            step = (*step, (i, j))
        else:
            continue
        result = step[0](*(values[k] for k in step[2]))
        if 0 < result.size < 400 and np.abs(result.data).max() < 1e3:
            values.append(result)
            steps.append(step)
    return leaves, steps


def _run(leaves, steps, backend):
    """The program's loss: a fixed weighting of every value that it made."""
    values = list(leaves)
    for step in steps:
        values.append(step[backend](*(values[k] for k in step[2])))
    loss = 0
    for n, value in enumerate(values):
        loss = loss + (value * value).mean() * (0.1 + n % 3)
    return loss


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_random_program_agrees_with_pytorch(seed):
    """And grad(..., create_graph=True), which runs the rules on Tensors, gives the same numbers."""
    leaves, steps = _program(np.random.default_rng(seed))
    xs = [mg.tensor(x, requires_grad=True) for x in leaves]
    ts = [torch.tensor(x, requires_grad=True) for x in leaves]
    loss, reference = _run(xs, steps, 0), _run(ts, steps, 1)
    recorded = mg.grad(loss, xs, create_graph=True)
    loss.backward()
    reference.backward()
    assert_same(loss, reference)
    for x, t, again in zip(xs, ts, recorded, strict=True):
        assert_same(x.grad, t.grad)
        assert_same(again, t.grad)


@pytest.mark.parametrize("seed", range(0, PROGRAMS, 6))
def test_a_random_programs_second_derivative_agrees_with_pytorch(seed):
    leaves, steps = _program(np.random.default_rng(seed))
    xs = [mg.tensor(x, requires_grad=True) for x in leaves]
    ts = [torch.tensor(x, requires_grad=True) for x in leaves]
    firsts = mg.grad(_run(xs, steps, 0), xs, create_graph=True)
    references = torch.autograd.grad(_run(ts, steps, 1), ts, create_graph=True)
    sum((g * g).sum() for g in firsts).backward()
    sum((g * g).sum() for g in references).backward()
    for x, t in zip(xs, ts, strict=True):
        assert_same(x.grad, t.grad, 1e-11)

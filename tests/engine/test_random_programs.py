"""Random programs, the same one in minigrad and in PyTorch: the result and all gradients."""

import pytest

import minigrad as mg
from tests.compare import assert_same
from tests.random_programs import random_program

torch = pytest.importorskip("torch")

PROGRAMS = 300


class Torch:
    """PyTorch's functions by minigrad's names, where those are others."""

    max, transpose, gelu = torch.amax, torch.permute, torch.nn.functional.gelu

    def __getattr__(self, name):
        return getattr(torch, name)

    def take(self, x, indices, axis):
        return x.index_select(axis, torch.tensor(indices % x.shape[axis]))

    def split(self, x, cuts, axis):
        return torch.tensor_split(x, cuts, axis)

    def layer_norm(self, x, weight, bias):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)

    def scale(self, x, factor):
        return x * factor


def both(seed):
    """The leaves and the loss in minigrad, and those in PyTorch; the last value is a constant."""
    program = random_program(seed)
    last = len(program.arrays) - 1
    xs = [mg.tensor(x, requires_grad=k != last) for k, x in enumerate(program.arrays)]
    ts = [torch.tensor(x, requires_grad=k != last) for k, x in enumerate(program.arrays)]
    return xs[:-1], program.loss(xs), ts[:-1], program.loss(ts, Torch())


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_random_program_agrees_with_pytorch(seed):
    """And grad(..., create_graph=True), which runs the rules on Tensors, gives the same numbers."""
    xs, loss, ts, reference = both(seed)
    recorded = mg.grad(loss, xs, create_graph=True)
    loss.backward()
    reference.backward()
    assert_same(loss, reference)
    for x, t, again in zip(xs, ts, recorded, strict=True):
        assert_same(x.grad, t.grad)
        assert_same(again, t.grad)


@pytest.mark.parametrize("seed", range(0, PROGRAMS, 6))
def test_a_random_programs_second_derivative_agrees_with_pytorch(seed):
    xs, loss, ts, reference = both(seed)
    firsts = mg.grad(loss, xs, create_graph=True)
    references = torch.autograd.grad(reference, ts, create_graph=True)
    sum((g * g).sum() for g in firsts).backward()
    sum((g * g).sum() for g in references).backward()
    for x, t in zip(xs, ts, strict=True):
        assert_same(x.grad, t.grad, 1e-11)

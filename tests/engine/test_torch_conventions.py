"""Ties, ends, kinks and extremes: where conventions could differ, minigrad follows PyTorch."""

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same

torch = pytest.importorskip("torch")
F = torch.nn.functional


def check(call_id, ours, theirs, *arrays):
    return pytest.param(ours, theirs, arrays, id=call_id)


TIES = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
ENDS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
CONVENTIONS = [
    check("max of ties", lambda x: x.max(axis=1), lambda t: t.amax(1), TIES),
    check("max of all ties", lambda x: x.max(), lambda t: t.max(), TIES),
    check("min of ties", lambda x: x.min(axis=1), lambda t: t.amin(1), TIES),
    check("maximum of equals", mg.maximum, torch.maximum, TIES[0], TIES[1]),
    check("minimum of equals", mg.minimum, torch.minimum, TIES[0], TIES[0]),
    check("clip at its ends", lambda x: mg.clip(x, -1, 1), lambda t: t.clamp(-1, 1), ENDS),
    check("relu at 0", mg.relu, torch.relu, ENDS),
    check("abs at 0", mg.abs, torch.abs, ENDS),
    check("squares at 0", lambda x: x**2, lambda t: t**2, ENDS),
    check("cubes at 0", lambda x: x**3.0, lambda t: t**3.0, ENDS),
    check("power 0 at 0", lambda x: x**0, lambda t: t**0, ENDS),
    check("0 to a power", lambda x: 0.0**x, lambda t: 0.0**t, np.array([0.0, 1.0, 2.0])),
    check("powers at 0", mg.power, torch.pow, np.array([0.0, 0, 0, 2]), np.array([1.0, 2, 0, 0])),
    check("negative bases", lambda x: x ** np.array([2.0, 3.0, 2.0, 1.0, 0.0]),
          lambda t: t ** torch.tensor([2.0, 3.0, 2.0, 1.0, 0.0], dtype=torch.float64), ENDS),
    check("sigmoid far out", mg.sigmoid, torch.sigmoid, np.array([-800.0, -30.0, 30.0, 800.0])),
    check("silu far out", mg.silu, F.silu, np.array([-800.0, -30.0, 30.0, 800.0])),
    check("tanh far out", mg.tanh, torch.tanh, np.array([-800.0, -20.0, 20.0, 800.0])),
    check("gelu far out", mg.gelu, F.gelu, np.array([-30.0, -7.0, 7.0, 30.0])),
    check("logsumexp far out", mg.logsumexp, lambda t: t.logsumexp(0), np.array([800.0, 7, 799])),
    check("softmax with -inf", mg.softmax, lambda t: t.softmax(-1), np.array([0.0, -np.inf, 1.0])),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "arrays"), CONVENTIONS)
def test_ties_ends_and_extremes_follow_pytorch(ours, theirs, arrays, agree_with_torch):
    agree_with_torch(ours, theirs, arrays)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(mg.sqrt, torch.sqrt), (mg.log, torch.log), (lambda x: x**0.5, lambda t: t**0.5)],
)
def test_an_infinite_slope_at_0_is_infinite_as_in_pytorch(ours, theirs, agree_with_torch):
    with np.errstate(divide="ignore"):
        agree_with_torch(ours, theirs, [np.array([0.0, 1.0])])


def test_numpys_ddof_is_0_where_pytorch_defaults_to_1(rng):
    x = rng.normal(size=(3, 5))
    assert_same(mg.var(mg.tensor(x)), torch.tensor(x).var(correction=0), 1e-12)

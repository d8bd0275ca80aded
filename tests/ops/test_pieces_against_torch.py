"""Functions, activations and losses beside PyTorch's: values, first and second derivatives."""

from functools import partial

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from tests.compare import refusals

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:reduction")  # of its kl_div
F = torch.nn.functional


def _draw(low, high, shape=(3, 5), seed=17):
    return np.random.default_rng(seed).uniform(low, high, shape)


X, Y = _draw(-3.0, 3.0), _draw(0.05, 0.95, seed=5)
CLASSES, PLACES = np.array([0, 4, 2]), np.array([[0, 4, 2], [1, 1, 3]])

TABLE = [
    ("sin", mg.sin, torch.sin, X),
    ("cos", mg.cos, torch.cos, X),
    ("log1p", mg.log1p, torch.log1p, Y),
    ("expm1", mg.expm1, torch.expm1, X),
    ("erf", mg.erf, torch.erf, X),
    ("square", mg.square, torch.square, X),
    ("sign", mg.sign, torch.sign, X),
    ("softplus", mg.softplus, F.softplus, X),
    ("leaky_relu", lambda x: mg.leaky_relu(x, 0.2), lambda x: F.leaky_relu(x, 0.2), X),
    ("elu", lambda x: mg.elu(x, 0.7), lambda x: F.elu(x, 0.7), X),
    ("glu", lambda x: mg.glu(x, 1), lambda x: F.glu(x, 1), _draw(-3.0, 3.0, (3, 4, 5))),
    ("prelu", mg.prelu, F.prelu, _draw(-3.0, 3.0, (2, 3, 5)), np.array([0.1, -0.2, 0.3])),
    ("prelu-one", mg.prelu, F.prelu, X, np.array([0.25])),
]
LOSSES = (
    "mse_loss huber_loss l1_loss smooth_l1_loss binary_cross_entropy_with_logits kl_div".split()
)
TABLE += [
    (f"{name}-{how}", *(partial(getattr(where, name), reduction=how) for where in (mg, F)), X, Y)
    for name in LOSSES
    for how in ("mean", "sum", "none")
]
P = _draw(0.5, 3.0, 5)
TABLE += [
    (
        f"{name}-{setting}",
        lambda x, t, name=name, more=more: getattr(mg, name)(x, t, **more),
        lambda x, t, name=name, more=more: getattr(F, name)(x, t, **more),
        X,
        Y,
    )
    for name, setting, more in (
        ("smooth_l1_loss", "beta", {"beta": 0.3, "reduction": "sum"}),
        ("smooth_l1_loss", "0", {"beta": 0.0}),
    )
]
TABLE += [
    (
        f"yes-counts-more-{how}",
        lambda x, t, how=how: mg.binary_cross_entropy_with_logits(x, t, how, pos_weight=P),
        lambda x, t, how=how: F.binary_cross_entropy_with_logits(
            x, t, reduction=how, pos_weight=torch.tensor(P)
        ),
        X,
        Y,
    )
    for how in ("mean", "none")
]
TABLE += [
    (
        "kl-logarithms",
        lambda x, t: mg.kl_div(x, t, reduction="batchmean", log_target=True),
        lambda x, t: F.kl_div(x, t, reduction="batchmean", log_target=True),
        X,
        -Y,
    ),
    (
        "nll",
        lambda x: mg.nll_loss(x, CLASSES),
        lambda x: F.nll_loss(x, torch.tensor(CLASSES)),
        X,
    ),
    (
        "nll-axis-1",
        lambda x: mg.nll_loss(x, PLACES, axis=1, reduction="none"),
        lambda x: F.nll_loss(x, torch.tensor(PLACES), reduction="none"),
        _draw(-3.0, 0.0, (2, 5, 3)),
    ),
]


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "arrays"), [(t[0], *t[1:3], t[3:]) for t in TABLE]
)
def test_a_function_is_pytorchs_at_both_orders(name, ours, theirs, arrays, agree_with_torch):
    agree_with_torch(ours, theirs, arrays)
    agree_with_torch(ours, theirs, arrays, second=True)


def test_far_out_nothing_overflows():
    x = np.array([-1e4, -40.0, 40.0, 1e4])
    np.testing.assert_allclose(mg.softplus(x), [0, np.exp(-40), 40, 1e4], rtol=1e-14)
    np.testing.assert_allclose(mg.elu(x), [-1, -1, 40, 1e4])
    loss = mg.binary_cross_entropy_with_logits(x, np.zeros(4), reduction="none")
    np.testing.assert_allclose(loss, mg.softplus(x))
    yes = mg.binary_cross_entropy_with_logits(x, np.ones(4), "none", pos_weight=3.0)
    np.testing.assert_allclose(yes, 3 * mg.softplus(-x))
    zero = np.array([0.0, 1.0])
    np.testing.assert_array_equal(mg.kl_div(np.array([-np.inf, 0.0]), zero), 0.0)


test_what_a_loss_refuses = refusals(
    (lambda: mg.mse_loss(np.ones(3), np.ones((3, 1))), ShapeError, r"one shape, got \(3,\)"),
    (lambda: mg.mse_loss(X, Y, reduction="avg"), ArgumentError, "got \"?'avg'"),
    (lambda: mg.mse_loss(np.ones(0), np.ones(0)), ShapeError, "a mean over nothing"),
    (lambda: mg.huber_loss(X, Y, delta=0.0), ArgumentError, "delta must be above 0"),
    (lambda: mg.smooth_l1_loss(X, Y, beta=-1.0), ArgumentError, "beta must be at least 0"),
    (lambda: mg.binary_cross_entropy_with_logits(X, Y, pos_weight=np.ones(3)), ShapeError,
     r"pos_weight must broadcast to x's shape \(3, 5\), got \(3,\)"),
    (lambda: mg.glu(X), ShapeError, r"of even length, got axis -1 of \(3, 5\)"),
    (lambda: mg.prelu(X, np.ones(3)), ShapeError, r"got weight \(3,\) for x \(3, 5\)"),
    (lambda: mg.nll_loss(X, np.array([0, 5, 1])), OutOfRangeError, r"\[0, 5\), got 5"),
    (lambda: mg.nll_loss(X, Y), ShapeError, "targets"),
    (lambda: mg.nll_loss(X, np.ones(3)), DTypeError, "targets must be integers"),
)  # fmt: skip

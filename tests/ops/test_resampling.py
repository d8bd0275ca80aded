"""Transposed convolution, upsampling and adaptive pooling: as PyTorch's over a grid of settings."""

from itertools import product

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError
from tests.compare import refusals


def _draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


GRID = [
    {"stride": s, "padding": p, "output_padding": more, "groups": g, "dilation": d}
    for s, p, more, g, d in product((1, 2, 3), (0, 1), (0, 2), (1, 2), (1, 2))
    if more < s
]


@pytest.mark.parametrize("n", [1, 2])
def test_a_transposed_convolution_is_pytorchs_at_both_orders(n, agree_with_torch):
    F = pytest.importorskip("torch").nn.functional
    x, bias = _draw(2, 4, *(3, 5)[:n]), _draw(6, seed=1)
    for k, form in enumerate(GRID):
        weight = _draw(4, 6 // form["groups"], *(2, 3)[:n], seed=2)
        agree_with_torch(
            lambda x, w, b, form=form: getattr(mg, f"conv_transpose{n}d")(x, w, b, **form),
            lambda x, w, b, form=form: getattr(F, f"conv_transpose{n}d")(x, w, b, **form),
            [x, weight, bias],
            second=k % 7 == 0,
        )


def test_a_transposed_convolution_is_the_adjoint_of_the_convolution():
    x, y, weight = _draw(2, 4, 7, 9), _draw(2, 6, 3, 4, seed=1), _draw(6, 4, 3, 2, seed=2)
    forward = np.sum(mg.conv2d(x, weight, None, 2, (0, 0)) * y)
    back = np.sum(x[:, :, :, :8] * mg.conv_transpose2d(y, weight, None, 2))
    np.testing.assert_allclose(forward, back, rtol=1e-12)


@pytest.mark.parametrize("lengths", [(1, 6), (4, 5), (7, 3)])
def test_upsample_and_adaptive_pooling_are_pytorchs_at_every_size(lengths, agree_with_torch):
    F = pytest.importorskip("torch").nn.functional
    x = _draw(2, 3, *lengths)
    for size in product((1, 2, 4, 7), (1, 3, 6, 11)):
        for more in ({}, *({"mode": "bilinear", "align_corners": ends} for ends in (False, True))):
            agree_with_torch(
                lambda x, size=size, more=more: mg.upsample(x, size, **more),
                lambda x, size=size, more=more: F.interpolate(x, size, **more),
                [x],
            )
        agree_with_torch(
            lambda x, size=size: mg.adaptive_avg_pool(x, size),
            lambda x, size=size: F.adaptive_avg_pool2d(x, size),
            [x],
        )


@pytest.mark.parametrize("factor", [0.5, 1, 1.5, 2, 3, 3.7])
def test_upsample_by_a_factor_is_pytorchs(factor):
    """Values alone: of factors such as 2.3 PyTorch's gradient of "nearest" is not that of them."""
    torch = pytest.importorskip("torch")
    x = _draw(2, 3, 5)
    for more in ({}, *({"mode": "linear", "align_corners": ends} for ends in (False, True))):
        found = mg.upsample(x, scale_factor=factor, **more)
        wanted = torch.nn.functional.interpolate(torch.tensor(x), scale_factor=factor, **more)
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: mg.upsample(x, (4, 9)),
        lambda x: mg.upsample(x, scale_factor=(2, 3)),
        lambda x: mg.upsample(x, scale_factor=1.7, mode="bilinear"),
        lambda x: mg.adaptive_avg_pool(x, (2, None)),
        lambda x: mg.adaptive_avg_pool(x, 1),
        lambda x: mg.instance_norm(x, np.array([1.0, 2.0]), np.array([0.5, -0.5])),
        lambda x: mg.smooth_l1_loss(x, x * 0.5 + 2.0, beta=0.7),
    ],
)
def test_what_is_composed_of_ops_has_their_gradients(function):
    x = _draw(2, 2, 3, 5)
    assert mg.gradcheck(function, [x], order=2).order == 2


def test_an_infinite_pixel_stays_where_it_is_among_nearest_ones():
    x = np.array([[[1.0, np.inf, 3.0]]])
    np.testing.assert_array_equal(mg.upsample(x, 4)[0, 0], [1.0, 1.0, np.inf, 3.0])


test_what_is_refused = refusals(
    (lambda: mg.conv_transpose1d(_draw(1, 2, 3, 5), _draw(2, 2, 3, 1)), ShapeError,
     r"x must be \(N, C, length\)"),
    (lambda: mg.conv_transpose1d(_draw(1, 2, 3), _draw(3, 2, 3)), ShapeError, "got C = 2"),
    (lambda: mg.conv_transpose1d(_draw(1, 2, 3), _draw(2, 2, 3), _draw(3)), ShapeError,
     r"bias must be \(2,\), got \(3,\)"),
    (lambda: mg.conv_transpose1d(_draw(1, 2, 3), _draw(2, 2, 3), None, 2, 0, 2), ArgumentError,
     "output_padding must be below the stride, got 2 with stride 2"),
    (lambda: mg.conv_transpose1d(_draw(1, 2, 1), _draw(2, 2, 2), padding=1), ShapeError,
     r"the padding takes all of it"),
    (lambda: mg.conv1d(_draw(4, 8, 30, 30), _draw(8, 8, 3, 3)), ShapeError,
     r"x must be \(N, C, length\)"),
    (lambda: mg.upsample(_draw(2, 3, 5)), ArgumentError, "give one of size and scale_factor"),
    (lambda: mg.upsample(_draw(2, 3, 5), 4, mode="bilinear"), ArgumentError,
     'mode of 1 axes must be "nearest" or "linear", got \'bilinear\''),
    (lambda: mg.upsample(_draw(2, 3, 5), 4, align_corners=True), ArgumentError, "align_corners"),
    (lambda: mg.upsample(_draw(2, 3, 5), scale_factor=0.1), ShapeError, r"lengths \(0,\)"),
    (lambda: mg.upsample(_draw(2, 3), 4), ShapeError, r"must be \(N, C, length, …\), got \(2, 3\)"),
    (lambda: mg.adaptive_avg_pool(_draw(2, 3, 5), 0), ArgumentError, "size must be at least 1"),
    (lambda: mg.adaptive_avg_pool(_draw(2, 3, 5), (2, 2)), ArgumentError, "one for each of 1 axes"),
    (lambda: mg.instance_norm(_draw(2, 3, 1)), ShapeError, "a channel of one entry"),
)  # fmt: skip

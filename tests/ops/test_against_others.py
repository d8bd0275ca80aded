"""Functions beside NumPy's and PyTorch's of the same names: values, first, second derivatives."""

from itertools import product

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same


class _Torch:
    """PyTorch's functions, of whichever of its modules."""

    def __init__(self):
        self._torch = pytest.importorskip("torch")

    def __getattr__(self, name):
        return getattr(self._torch.nn.functional, name, None) or getattr(self._torch, name)


def _draw(*shape, low=-3.0, high=3.0, seed=17):
    return np.random.default_rng(seed).uniform(low, high, shape)


# ---------------------------------------------------------------- NumPy's

A, B = _draw(2, 3, 5), _draw(5, 3, 7)

NUMPYS = {
    "ravel": (lambda f, x: f.ravel(x), [A]),
    "moveaxis": (lambda f, x: f.moveaxis(x, (0, 2), (-1, 0)), [A]),
    "vstack": (lambda f, x, y: f.vstack([x, y]), [A[0, 0], A[1]]),
    "hstack": (lambda f, x, y: f.hstack([x, y]), [A[0], B[0].T[:3]]),
    "hstack-rows": (lambda f, x, y: f.hstack([x, y]), [A[0, 0], B[0, 0]]),
    "tile": (lambda f, x: f.tile(x, (2, 1, 3, 2)), [A]),
    "tile-once": (lambda f, x: f.tile(x, 2), [A]),
    "outer": (lambda f, x, y: f.outer(x, y), [A[0], B[0]]),
    "tensordot": (lambda f, x, y: f.tensordot(x, y, 1), [A, B]),
    "tensordot-pairs": (lambda f, x, y: f.tensordot(x, y, ([1, -1], [1, 0])), [A, B]),
    "tensordot-all": (lambda f, x, y: f.tensordot(x, y, 2), [A[0], A[1]]),
}


@pytest.mark.parametrize(("call", "arrays"), NUMPYS.values(), ids=NUMPYS)
def test_a_composed_function_is_numpys(call, arrays):
    expected = call(np, *arrays)
    np.testing.assert_allclose(call(mg, *arrays), expected, rtol=1e-13, atol=1e-15)
    leaves = [mg.tensor(a, requires_grad=True) for a in arrays]
    for module in (mg, np):  # np.outer(x, y) of Tensors is the same function
        found = call(module, *leaves)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-13, atol=1e-15)
    assert mg.gradcheck(lambda *xs: call(mg, *xs), arrays, order=2).order == 2


def test_where_entries_are_is_numpys_answer_and_a_plain_array():
    x = mg.tensor(A, requires_grad=True)
    for name in ("argmax", "argmin", "argsort"):
        found = getattr(x, name)(axis=1)
        assert not isinstance(found, mg.Tensor)
        np.testing.assert_array_equal(found, getattr(np, name)(A, axis=1))
        np.testing.assert_array_equal(getattr(mg, name)(A), getattr(np, name)(A))


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 5)]), ("ij , jk -> ik", [(2, 3), (3, 5)]),
        ("ij,jk", [(2, 3), (3, 5)]),
        ("ba", [(2, 3)]), ("ii", [(3, 3)]), ("ii->i", [(3, 3)]), ("iij->ji", [(3, 3, 2)]),
        ("iii->i", [(3, 3, 3)]),
        ("i,i", [(3,), (3,)]), ("i,j", [(2,), (3,)]), ("ij->", [(2, 3)]),
        ("i,i,i->", [(3,), (3,), (3,)]),
        ("...", [(2, 3)]), ("...i", [(2, 3)]), ("i...->...", [(2, 3, 5)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("...ij,...jk->...ik", [(7, 1, 2, 3), (5, 3, 2)]), ("...i,j...->...ij", [(2, 3), (5, 2)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 5, 7), (2, 3, 2, 7)]), ("Ab,bA->", [(2, 3), (3, 2)]),
        (",i->i", [(), (3,)]),
        ("ij,ij->ij", [(1, 3), (2, 3)]), ("ij,ij->j", [(1, 3), (2, 1)]),
        ("ij,jk,kl,lm->im", [(2, 3), (3, 5), (5, 2), (2, 7)]),
        ("a,a->a", [(1,), (3,)]), ("ii,ij->j", [(3, 3), (3, 2)]), ("ij,jk->k", [(0, 3), (3, 5)]),
        ("z,y->zy", [(2,), (3,)]),
    ],
)  # fmt: skip
def test_einsum_is_numpys_and_its_gradients_check(subscripts, shapes, rng):
    operands = [rng.normal(size=shape) for shape in shapes]
    out = mg.einsum(subscripts, *(mg.tensor(x) for x in operands))
    np.testing.assert_allclose(out.data, np.einsum(subscripts, *operands), rtol=1e-12, atol=1e-14)
    mg.gradcheck(lambda *xs: mg.einsum(subscripts, *xs), operands, order=2)


def test_einsums_flops_count_every_combination_of_labels():
    inputs = np.ones((2, 3, 5)), np.ones((2, 5, 7))
    count = mg.einsum.count_flops(inputs, ("bij,bjk->bik",), np.ones((2, 3, 7)))
    assert count == 2 * 2 * 3 * 5 * 7


# ---------------------------------------------------------------- PyTorch's

X, Y, P = _draw(3, 5), _draw(3, 5, low=0.05, high=0.95, seed=5), _draw(5, low=0.5)
CLASSES, PLACES = np.array([0, 4, 2]), np.array([[0, 4, 2], [1, 1, 3]])
IMAGES = _draw(2, 2, 3, 5)
HOW = ("mean", "sum", "none")

TORCHS = {
    **{
        name: (lambda f, x, name=name: getattr(f, name)(x), [X])
        for name in "sin cos expm1 erf square sign softplus sigmoid relu silu gelu".split()
    },
    "log1p": (lambda f, x: f.log1p(x), [Y]),
    "leaky_relu": (lambda f, x: f.leaky_relu(x, 0.2), [X]),
    "elu": (lambda f, x: f.elu(x, 0.7), [X]),
    "gelu-tanh": (lambda f, x: f.gelu(x, approximate="tanh"), [X]),
    "softmax": (lambda f, x: f.softmax(x, 1), [A]),
    "log_softmax": (lambda f, x: f.log_softmax(x, 1), [A]),
    "logsumexp": (lambda f, x: f.logsumexp(x, (0, 2)), [A]),
    "layer_norm": (
        lambda f, *xs: f.layer_norm(*xs) if f is mg else f.layer_norm(xs[0], (5,), *xs[1:]),
        [X, P, -P],
    ),
    "rms_norm": (
        lambda f, x, w: f.rms_norm(x, w) if f is mg else f.rms_norm(x, (5,), w, 1e-5),
        [X, P],
    ),
    "glu": (lambda f, x: f.glu(x, 1), [_draw(3, 4, 5)]),
    "prelu": (lambda f, x, w: f.prelu(x, w), [_draw(2, 3, 5), np.array([0.1, -0.2, 0.3])]),
    "prelu-one": (lambda f, x, w: f.prelu(x, w), [X, np.array([0.25])]),
    "topk": (lambda f, x: f.topk(x, 2, 1)[0], [A]),
    **{
        f"{name}-{how}": (
            lambda f, x, t, name=name, how=how: getattr(f, name)(x, t, reduction=how),
            [X, Y],
        )
        for name in ("mse_loss", "huber_loss", "l1_loss", "smooth_l1_loss", "kl_div")
        for how in HOW
    },
    "smooth_l1-beta": (lambda f, *xs: f.smooth_l1_loss(*xs, beta=0.3, reduction="sum"), [X, Y]),
    "smooth_l1-0": (lambda f, *xs: f.smooth_l1_loss(*xs, beta=0.0), [X, Y]),
    **{
        f"binary_cross_entropy-{how}-{'more' if more else 'plain'}": (
            lambda f, x, t, how=how, more=more: f.binary_cross_entropy_with_logits(
                x, t, reduction=how, pos_weight=f.tensor(P) if more else None
            ),
            [X, Y],
        )
        for how in HOW
        for more in (False, True)
    },
    "kl-logarithms": (
        lambda f, x, t: f.kl_div(x, t, reduction="batchmean", log_target=True),
        [X, -Y],
    ),
    "nll": (lambda f, x: f.nll_loss(x, f.tensor(CLASSES)), [X]),
    "nll-axis-1": (
        lambda f, x: f.nll_loss(x, f.tensor(PLACES), **{"axis": 1} if f is mg else {}),
        [_draw(2, 5, 3, high=0.0)],
    ),
}


@pytest.mark.filterwarnings("ignore:reduction")  # of its kl_div
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize(("call", "arrays"), TORCHS.values(), ids=TORCHS)
def test_a_function_is_pytorchs_at_both_orders(call, arrays, second, agree_with_torch):
    theirs = _Torch()
    agree_with_torch(lambda *xs: call(mg, *xs), lambda *xs: call(theirs, *xs), arrays, second)


@pytest.mark.parametrize(
    "x", [A, np.array([[3, np.nan, 1]]).T, np.uint8([[3, 0, 1]]).T, np.int8([[-128, 5, 0]]).T]
)
@pytest.mark.parametrize("axis", [0, -2])
def test_topk_finds_the_places_that_pytorchs_does(x, axis):
    torch = pytest.importorskip("torch")
    assert_same(mg.topk(x, 2, axis)[1], torch.topk(torch.tensor(x), 2, axis).indices, 0)


GRID = [
    {"stride": s, "padding": p, "output_padding": more, "groups": g, "dilation": d}
    for s, p, more, g, d in product((1, 2, 3), (0, 1), (0, 2), (1, 2), (1, 2))
    if more < s
]


@pytest.mark.parametrize("n", [1, 2])
def test_a_transposed_convolution_is_pytorchs_at_both_orders(n, agree_with_torch):
    theirs, name = _Torch(), f"conv_transpose{n}d"
    x, bias = _draw(2, 4, *(3, 5)[:n]), _draw(6)
    for k, form in enumerate(GRID):
        weight = _draw(4, 6 // form["groups"], *(2, 3)[:n])
        ours, reference = (
            lambda *xs, f=f, form=form: getattr(f, name)(*xs, **form) for f in (mg, theirs)
        )
        agree_with_torch(ours, reference, [x, weight, bias], second=k % 7 == 0)


def test_a_transposed_convolution_is_the_adjoint_of_the_convolution():
    x, y, weight = _draw(2, 4, 7, 9), _draw(2, 6, 3, 4), _draw(6, 4, 3, 2)
    forward = np.sum(mg.conv2d(x, weight, None, 2, (0, 0)) * y)
    back = np.sum(x[:, :, :, :8] * mg.conv_transpose2d(y, weight, None, 2))
    np.testing.assert_allclose(forward, back, rtol=1e-12)


BETWEEN = [{"mode": "bilinear", "align_corners": ends} for ends in (False, True)]


@pytest.mark.parametrize("lengths", [(1, 6), (4, 5), (7, 3)])
def test_upsample_and_adaptive_pooling_are_pytorchs_at_every_size(lengths, agree_with_torch):
    theirs, x = _Torch(), _draw(2, 3, *lengths)
    for size in product((1, 2, 4, 7), (1, 3, 6, 11)):
        for more in ({}, *BETWEEN):
            agree_with_torch(
                lambda x, size=size, more=more: mg.upsample(x, size, **more),
                lambda x, size=size, more=more: theirs.interpolate(x, size, **more),
                [x],
            )
        agree_with_torch(
            lambda x, size=size: mg.adaptive_avg_pool(x, size),
            lambda x, size=size: theirs.adaptive_avg_pool2d(x, size),
            [x],
        )


@pytest.mark.parametrize("factor", [0.5, 1, 1.5, 2, 3, 3.7])
def test_upsample_by_a_factor_is_pytorchs(factor):
    """Values alone: of factors such as 2.3 PyTorch's gradient of "nearest" is not that of them."""
    torch = pytest.importorskip("torch")
    x = _draw(2, 3, 5, 7)
    for more in ({}, *BETWEEN):
        found = mg.upsample(x, scale_factor=factor, **more)
        wanted = _Torch().interpolate(torch.tensor(x), scale_factor=factor, **more)
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: mg.upsample(x[0], 9, mode="linear"),
        lambda x: mg.upsample(x, scale_factor=(2, 3)),
        lambda x: mg.adaptive_avg_pool(x, (2, None)),
        lambda x: mg.instance_norm(x, np.array([1.0, 2.0]), np.array([0.5, -0.5])),
    ],
)
def test_what_is_composed_of_ops_has_their_gradients(function):
    assert mg.gradcheck(function, [IMAGES], order=2).order == 2


def test_an_infinite_pixel_stays_where_it_is_among_nearest_ones():
    x = np.array([[[1.0, np.inf, 3.0]]])
    np.testing.assert_array_equal(mg.upsample(x, 4)[0, 0], [1.0, 1.0, np.inf, 3.0])

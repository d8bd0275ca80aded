"""Functions beside NumPy's and PyTorch's of the same names: values, first, second derivatives."""

import numpy as np
import pytest

import minigrad as mg


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
    for name in ("argmax", "argmin"):
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

TORCHS = {
    **{
        name: (lambda f, x, name=name: getattr(f, name)(x), [X])
        for name in "sin cos erf square sign softplus sigmoid relu silu gelu".split()
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
    "mse_loss": (lambda f, *xs: f.mse_loss(*xs), [X, Y]),
    "l1_loss": (lambda f, *xs: f.l1_loss(*xs), [X, Y]),
    "huber_loss": (lambda f, *xs: f.huber_loss(*xs, delta=0.7), [X, Y]),
    "bce_with_logits": (
        lambda f, *xs: (
            f.bce_with_logits(*xs) if f is mg else f.binary_cross_entropy_with_logits(*xs)
        ),
        [X, Y],
    ),
}


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize(("call", "arrays"), TORCHS.values(), ids=TORCHS)
def test_a_function_is_pytorchs_at_both_orders(call, arrays, second, agree_with_torch):
    theirs = _Torch()
    agree_with_torch(lambda *xs: call(mg, *xs), lambda *xs: call(theirs, *xs), arrays, second)

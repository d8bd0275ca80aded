"""A call that cannot be made says so: our errors, with the call, the rule and the numbers."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, MinigradError

X = np.ones((3, 4))
HUGE = 2**70


@pytest.mark.parametrize(
    "call",
    [
        lambda x: mg.sum(x, axis=HUGE),
        lambda x: mg.softmax(x, axis=HUGE),
        lambda x: mg.softmax(x, axis=2),
        lambda x: mg.log_softmax(x, axis=-3),
        lambda x: mg.mean(x, axis="rows"),
        lambda x: mg.var(x, axis=1.5),
        lambda x: mg.max(x, axis=(0, 0)),
        lambda x: mg.cumsum(x, axis=HUGE),
        lambda x: mg.logsumexp(x, axis=2),
        lambda x: mg.take(x, [HUGE], axis=0),
        lambda x: mg.take(x, [0], axis=HUGE),
        lambda x: mg.take(x, HUGE),
        lambda x: x[HUGE],
        lambda x: mg.reshape(x, (HUGE, -1)),
        lambda x: mg.broadcast_to(x, (HUGE, 3, 4)),
        lambda x: mg.expand_dims(x, HUGE),
        lambda x: mg.squeeze(x, HUGE),
        lambda x: mg.swapaxes(x, 0, HUGE),
        lambda x: mg.transpose(x, (0, HUGE)),
        lambda x: mg.transpose(x, (0, 0)),
        lambda x: mg.concatenate([x, x], axis=HUGE),
        lambda x: mg.stack([x, x], axis=HUGE),
        lambda x: mg.pad(x, HUGE),
        lambda x: mg.pad(x, -1),
        lambda x: mg.split(x, HUGE),
        lambda x: mg.split(x, 2.0),
        lambda x: mg.split(x, None),
        lambda x: mg.split(x, "2"),
        lambda x: mg.split(x, [1, 2.5]),
        lambda x: mg.split(x, 3, axis="rows"),
        lambda x: mg.split(x, 3, axis=HUGE),
        lambda x: mg.cross_entropy(x, [HUGE] * 3),
        lambda x: mg.cross_entropy(x, None),
        lambda x: mg.cross_entropy(x[0, 0], 0),
        lambda x: mg.cross_entropy(3.0, 0),
        lambda x: mg.clip(x, "a"),
        lambda x: mg.dropout(x, "a", np.random.default_rng(0)),
        lambda x: mg.astype(x, "floating"),
        lambda x: mg.add(np.ones(3, int), HUGE),
        lambda x: mg.layer_norm(x, "w", None),
        lambda x: mg.layer_norm(x, None, None, eps="small"),
    ],
)
@pytest.mark.parametrize("recorded", [False, True])
def test_no_bare_error_of_python_or_numpy_comes_through(call, recorded):
    with pytest.raises(MinigradError):
        call(mg.tensor(X, requires_grad=True) if recorded else mg.tensor(X))


@pytest.mark.parametrize("x", [mg.tensor([2.0], requires_grad=True), np.array([2.0])])
def test_a_variance_needs_more_entries_than_ddof(x):
    with pytest.raises(
        ArgumentError,
        match=r"var\(x, axis, ddof, keepdims\): n - ddof must be above 0, got n = 1 and ddof = 1",
    ):
        mg.var(x, ddof=1)


@pytest.mark.parametrize("mask", [np.tri(3), np.ones((3, 3)), np.tri(3, dtype=np.float32)])
def test_a_float_mask_of_only_0_and_1_is_refused_with_the_remedy(mask):
    with pytest.raises(
        ArgumentError,
        match=r"0 and 1 hide nothing; use a boolean mask \(mask == 1\), or 0 and -inf",
    ):
        mg.mask_add(mg.tensor(np.zeros((2, 3, 3))), mask)


@pytest.mark.parametrize("mask", [np.zeros((3, 3)), np.tri(3) * 2, np.array([1.0, 0.5, 0])])
def test_any_other_finite_mask_is_added(mask):
    np.testing.assert_array_equal(mg.mask_add(np.ones((3, 3)), mask), 1 + mask * np.ones((3, 3)))


def test_complex_outputs_get_no_real_gradient():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    for y in (x * 1j, mg.abs(x * (1 + 2j)), mg.exp(x * 1j).sum()):
        with pytest.raises(MinigradError, match="complex"):
            y.backward(np.ones(y.shape))


def test_a_bound_index_may_not_count_from_the_end_if_that_is_said():
    with pytest.raises(MinigradError, match=r"indices must lie in \[0, 3\), got -1 to 2"):
        mg.take(mg.tensor(X), [2, -1], axis=0, negative=False)
    np.testing.assert_array_equal(mg.take(X, [2, 0], axis=0, negative=False), X[[2, 0]])

"""Products of stacks lie in memory as what they were made of."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.fast.limits import LIMITS

TURNS = {
    "as it is": lambda x: x,
    "heads within rows": lambda x: np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2),
    "turned": lambda x: np.ascontiguousarray(x.mT).mT,
    "turned, heads within rows": lambda x: np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(
        0, 2, 3, 1
    ),
    "cut from something wider": lambda x: np.concatenate([x, x], -1)[..., : x.shape[-1]],
    "backward": lambda x: x[:, ::-1, ::-1, ::-1].copy()[:, ::-1, ::-1, ::-1],
    "rows repeated": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "rows of nothing but one entry": lambda x: np.broadcast_to(x[..., :1], x.shape),
}


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("second", TURNS)
@pytest.mark.parametrize("first", TURNS)
def test_stacks_are_multiplied_however_they_lie(first, second, many, rng):
    A, B = TURNS[first](rng.normal(size=(2, 3, 5, 7))), TURNS[second](rng.normal(size=(2, 3, 7, 4)))
    a, b = mg.tensor(A, requires_grad=True), mg.tensor(B, requires_grad=True)
    a._data, b._data = A, B  # not the copies that tensor() lays out anew
    with LIMITS.changed(small_entries=0 if many else 1 << 12):
        out = a @ b
        u = rng.normal(size=out.shape)
        out.backward(u)
    np.testing.assert_allclose(out.data, np.einsum("bhij,bhjk->bhik", A, B), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(a.grad, np.einsum("bhik,bhjk->bhij", u, B), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(b.grad, np.einsum("bhij,bhik->bhjk", A, u), rtol=1e-12, atol=1e-13)


def test_heads_that_were_split_are_merged_without_a_copy_both_ways(rng):
    """A product lies as the values that it averages do, and a gradient as what it is of."""
    x = mg.tensor(rng.normal(size=(2, 50, 3 * 16)), requires_grad=True)
    V = x.reshape(2, 50, 3, 16).transpose(0, 2, 1, 3)
    A = mg.tensor(rng.uniform(size=(2, 3, 50, 50)), requires_grad=True)
    O = A @ V
    merged = O.transpose(0, 2, 1, 3).reshape(2, 50, 3 * 16)
    assert np.shares_memory(merged.data, O.data)
    (dV,) = mg.grad(merged, [V], rng.normal(size=merged.shape))
    assert dV.transpose(0, 2, 1, 3).flags.c_contiguous
    K_T = V.mT
    S = V @ K_T
    (dK_T,) = mg.grad(S, [K_T], rng.normal(size=S.shape))
    assert dK_T.transpose(0, 3, 1, 2).flags.c_contiguous

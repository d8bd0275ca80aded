"""Ring attention: the whole sequence's numbers, of which each rank holds its tokens only."""

import numpy as np
import pytest

import minigrad as mg
from layers import MultiHeadAttention, Rotary
from layers.parallel import DataParallel, RingAttention, ring_attention, ring_rows
from minigrad import distributed as dist
from minigrad.errors import ArgumentError, ShapeError
from tests.compare import refusals

N = 24  # tokens that 1 to 4 ranks share, causal or not


def arrays(rng):
    return [rng.normal(size=(2, 3, N, d)) for d in (5, 5, 4, 4)]  # q, k, v, the cotangent


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("size", "rounding"), [(1, 1e-14), (40, 1e-12)], ids=["", "large scores"])
def test_it_is_exact_forward_and_backward(p, is_causal, size, rounding, rng):
    *inputs, u = arrays(rng)
    inputs[0] *= size
    tensors = [mg.tensor(x, requires_grad=True) for x in inputs]
    out = mg.scaled_dot_product_attention(*tensors, is_causal=is_causal, method="exact")
    out.backward(u)

    def step():
        own = ring_rows(N, is_causal=is_causal)
        parts = [mg.tensor(x[..., own, :], requires_grad=True) for x in inputs]
        found = ring_attention(*parts, is_causal=is_causal)
        found.backward(u[..., own, :])
        again = ring_attention(*parts, is_causal=is_causal)
        recorded = mg.grad(again, parts, mg.tensor(u[..., own, :]), create_graph=True)
        return own, found.numpy(), [x.grad for x in parts], [g.numpy() for g in recorded]

    for own, found, gradients, recorded in dist.run(p, step):
        np.testing.assert_allclose(found, out.numpy()[..., own, :], rtol=0, atol=rounding)
        for x, one, other in zip(tensors, gradients, recorded, strict=True):
            np.testing.assert_allclose(one, x.grad[..., own, :], rtol=0, atol=10 * size * rounding)
            np.testing.assert_allclose(
                other, x.grad[..., own, :], rtol=0, atol=10 * size * rounding
            )


def test_every_rank_of_a_causal_ring_has_equal_work():
    counts = dist.run(4, lambda: sum(2 * 3 * (i + 1) for i in ring_rows(N)))
    assert len(set(counts)) == 1


def test_a_rank_holds_its_share_of_the_keys_and_no_more(rng):
    """What is saved for backward is that of n / p tokens."""
    *inputs, _ = arrays(rng)

    def step():
        own = ring_rows(N)
        parts = [mg.tensor(x[..., own, :], requires_grad=True) for x in inputs]
        saved = ring_attention(*parts, is_causal=True).node.saved
        return sum(x.nbytes for x in saved if isinstance(x, np.ndarray))

    assert dist.run(4, step)[0] * 4 == dist.run(1, step)[0]


@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_a_layer_on_a_ring_is_the_whole_layer(n_kv_heads, rng):
    """With positions turned as where the tokens stand in the whole; weights' gradients add up."""

    def whole():
        return MultiHeadAttention(16, 4, n_kv_heads, rng=0, is_causal=True, position=Rotary(4))

    X, U = rng.normal(size=(2, 2, N, 16))
    layer = whole()
    out = layer(X)
    dX = layer.backward(U)

    def step():
        own, ring = ring_rows(N), RingAttention(whole())
        x = mg.tensor(X[:, own], requires_grad=True)
        found = ring(x)
        found.backward(U[:, own])
        DataParallel(ring).reduce()
        return own, found.numpy(), x.grad, [p.grad for p in ring.parameters()]

    for own, found, grad, weights in dist.run(3, step):
        np.testing.assert_allclose(found, out.numpy()[:, own], rtol=0, atol=1e-13)
        np.testing.assert_allclose(grad, dX[:, own], rtol=0, atol=1e-13)
        for p, g in zip(layer.parameters(), weights, strict=True):
            np.testing.assert_allclose(g, p.grad, rtol=0, atol=1e-12)


DYNAMIC = Rotary(4, scaling={"type": "dynamic", "factor": 2.0, "max_position_embeddings": 8})


test_what_the_ring_cannot_share_is_refused = refusals(
    (lambda: dist.run(3, ring_rows, 8), ArgumentError, "6 must divide the number of tokens, got 8"),
    (lambda: RingAttention(MultiHeadAttention(12, 4, window=3)), ArgumentError, "window"),
    (lambda: dist.run(2, lambda: RingAttention(MultiHeadAttention(16, 4, position=DYNAMIC))),
     ArgumentError, "depend on how many positions there are"),
    (lambda: dist.run(2, lambda: ring_attention(*[np.ones((5, 4))] * 3, is_causal=True)),
     ShapeError, "must be two runs of one length, as ring_rows says, got 5"),
    (lambda: ring_attention(np.ones((3, 4)), *[np.ones((5, 4))] * 2),
     ShapeError, "q, k and v must have as many rows"),
)  # fmt: skip

"""The layers by either method: the same outputs and gradients; what tiles do not leave behind."""

from functools import partial

import pytest

import minigrad as mg
from layers import MultiHeadAttention, create_causal_mask, in_tiles, padding_mask
from minigrad.fast.limits import LIMITS
from minigrad.fast.tiles import kernels

pytest.importorskip("threadpoolctl")

LAYERS = {
    "one head": partial(MultiHeadAttention, 12, 1, rng=7),
    "many heads": partial(MultiHeadAttention, 12, 6, rng=7),
    "grouped heads": partial(MultiHeadAttention, 12, 6, 2, True, rng=7),
    "one key-value head": partial(MultiHeadAttention, 12, 6, 1, rng=7),
}
MASKS = {"none": None, "causal": create_causal_mask(7), "padding": padding_mask([7, 3], 7)}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", MASKS)
def test_a_trace_of_tiles_measures_all_that_exists(rng, name, kind):
    """∂Q, ∂K, ∂V, ∂X and the weights' against the hand-derived steps; S and A are not there."""
    layer = LAYERS[name](attend=in_tiles)
    X = mg.tensor(rng.standard_normal((2, 7, 12)), requires_grad=True, name="X")
    with mg.trace() as t:
        layer(X, MASKS[kind]).sum().backward()
    checks = t.check()
    measured = {check.symbol for check in checks.measured}
    assert checks.ok
    assert measured >= {"X", "O", "Q", "K", "V", "W_Q", "W_K", "W_V", "W_O"}
    assert sum(entry.op == "tiled_attention" for entry in t) == 1


def test_a_wrong_tile_fails_the_trace_s_check(rng, monkeypatch):
    """A planted fault in backward, of 0.1 %, is seen."""
    real = kernels.backward

    def wrong(*args):
        dq, dk, dv = real(*args)
        return dq * 1.001, dk, dv

    monkeypatch.setattr(kernels, "backward", wrong)
    layer = LAYERS["one head"](attend=in_tiles)
    with LIMITS.changed(one_tile_scores=0), mg.trace() as t:
        layer(mg.tensor(rng.standard_normal((2, 7, 12)), requires_grad=True)).sum().backward()
    assert not t.check().ok

"""Attention in tiles is held to the steps derived by hand."""

import pytest

import minigrad as mg
from layers import MultiHeadAttention, in_tiles
from minigrad.fast.limits import LIMITS
from minigrad.fast.tiles import kernels

pytest.importorskip("threadpoolctl")


def test_a_wrong_tile_fails_the_trace_s_check(rng, monkeypatch):
    """A planted fault in backward, of 0.1 %, is seen."""
    real = kernels.backward

    def wrong(*args):
        dq, dk, dv = real(*args)
        return dq * 1.001, dk, dv

    monkeypatch.setattr(kernels, "backward", wrong)
    layer = MultiHeadAttention(12, 1, rng=7, attend=in_tiles)
    with LIMITS.changed(one_tile_scores=0), mg.trace() as t:
        layer(mg.tensor(rng.standard_normal((2, 7, 12)), requires_grad=True)).sum().backward()
    assert not t.check().ok

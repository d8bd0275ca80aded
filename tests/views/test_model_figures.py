"""Figures of a stack of blocks: shares are what taking its work away does, without padding."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import minigrad as mg
from layers import Encoder, padding_mask
from minigrad.views.model_figures import by_block

ADDED = {
    "pre": ("attention/out", "feed_forward/out"),
    "post": ("attention/out", "feed_forward/out"),
    "both": ("norm_1_out/X_norm", "norm_2_out/X_norm"),
}
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)  # of integrals from -1 to 1


@pytest.mark.parametrize("norm_order", ADDED)
def test_shares_of_a_block_sum_to_what_its_ablation_takes_away(norm_order, rng):
    encoder = Encoder(2, 13, 1, norm_order=norm_order, rng=0)
    X, u = 3 * rng.normal(size=(1, 3, 13)), rng.normal(size=13)

    def number():
        return mg.sum(encoder(X)[0, 1] @ u).named("number")

    whole = number().item()
    for k in range(2):
        attention, feed_forward = (f"blocks.{k}/{name}" for name in ADDED[norm_order])
        with mg.ablate(attention), mg.ablate(feed_forward):
            taken = whole - number().item()
        summed = 0.0
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            s = (node + 1) / 2  # the block adds s of what it adds

            def scaled(F, s=s):
                return F * s

            with mg.replace(attention, scaled), mg.replace(feed_forward, scaled), mg.trace() as t:
                number()
            block = by_block(t, t.attribute("number", of=f"blocks.{k}/attention/A"))[k]
            summed += weight / 2 * (block.attention + block.feed_forward) / s
        assert_allclose(summed, taken, rtol=1e-6)


def test_gradients_by_block_are_of_real_tokens_whatever_the_padding(rng):
    encoder, lengths = Encoder(2, 6, 3, rng=0), [5, 2]
    X = mg.tensor(rng.normal(size=(2, 5, 6)), requires_grad=True, name="X")
    with mg.trace() as t:
        out = encoder(X, padding_mask(lengths))
        mg.sum(out[0] ** 3 + mg.pad(out[1, :2], ((0, 3), (0, 0)))).named("loss").backward()
    blocks = by_block(t, t.attribute("loss", of=X), lengths)
    for k, block in enumerate(blocks):
        handed_on = [e for e in t if e.path.endswith(f"blocks.{k}/X") and e.op][-1]
        gradient = handed_on.gradient
        real = np.concatenate([gradient[0], gradient[1, :2]])
        assert not gradient[1, 2:].any()
        assert_allclose(block.gradient, np.sqrt(np.mean(real**2)))

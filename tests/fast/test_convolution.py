"""Convolution by blocks of images on threads: the same bits every time, and nothing kept of x."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.fast.limits import LIMITS

pytestmark = pytest.mark.needs_fast("convolution by blocks")


def gradients(x, weight):
    out = mg.conv2d(mg.tensor(x, requires_grad=True), weight, None, 1, 1)
    return mg.grad(out, weight, np.sin(np.arange(out.size, dtype=x.dtype)).reshape(out.shape))


def test_a_gradient_has_the_same_bits_however_threads_take_turns(rng):
    x = rng.normal(size=(11, 5, 13, 17)).astype(np.float32)
    weight = mg.tensor(rng.normal(size=(7, 5, 3, 3)).astype(np.float32), requires_grad=True)
    with LIMITS.changed(patch_entries=2000, threaded_macs=0):
        first = gradients(x, weight)
        for _ in range(10):
            np.testing.assert_array_equal(gradients(x, weight), first)


def test_results_lie_in_memory_as_the_next_convolution_reads_them(rng):
    """Channels last, behind the shape (N, C, H, W)."""
    x, weight = rng.normal(size=(3, 5, 19, 23)), rng.normal(size=(7, 5, 3, 3))
    out = mg.conv2d(x, weight, None, 1, 1)
    assert out.shape == (3, 7, 19, 23)
    assert out.transpose(0, 2, 3, 1).flags.c_contiguous


def test_frozen_weights_keep_no_images(rng):
    x = mg.tensor(rng.normal(size=(3, 5, 19, 23)), requires_grad=True)
    out = mg.conv2d(x, rng.normal(size=(7, 5, 3, 3)))
    assert not any(saved is x.data for saved in out.node.saved)


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        ((2, 5, 4, 3), (1, 7, 1, 1)),
        ((2, 5, 4, 3), (3, 7, 2, 1)),
        ((1, 12, 9, 11), (2, (9, 0), (1, 2), 4)),
        ((3, 8, 6, 7), ((1, 4), (0, 8), 1, 8)),
    ],
)
def test_windows_that_lie_in_the_padding_alone_see_zeros(size, settings, rng):
    """One row of windows to a block: some blocks see nothing of the image."""
    groups = settings[3]
    x, w = rng.normal(size=size), rng.normal(size=(2 * groups, size[1] // groups, 3, 2))
    leaves = [mg.tensor(a, requires_grad=True) for a in (x, w)]
    with LIMITS.changed(patch_entries=1, threaded_macs=0), pytest.MonkeyPatch.context() as patch:
        patch.setattr(mg.conv2d.overlay, "above", 0)
        out = mg.conv2d(*leaves, None, *settings)
        assert out.node.plan.overlay is not None
        fast = [out.numpy(), *mg.grad(out.sum() + (out * out).sum(), leaves)]
        patch.setattr(mg.conv2d, "overlay", None)
        out = mg.conv2d(*leaves, None, *settings)
        plain = [out.numpy(), *mg.grad(out.sum() + (out * out).sum(), leaves)]
    for found, expected in zip(fast, plain, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)

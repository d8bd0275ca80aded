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

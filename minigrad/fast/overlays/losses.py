"""Cross-entropy that keeps each row's maximum and sum, so that backward makes its softmax anew."""

from __future__ import annotations

import numpy as np

from ...engine.op import as_array
from ...ops.losses import check_targets, cross_entropy
from ..limits import LIMITS
from ..memory import in_place_buffer, out_buffer
from .softmax import shifted, total_of


@cross_entropy.fast(
    above=LIMITS.small_entries,
    when=lambda logits, targets: logits.dtype.char in "fd",
    auxiliary=("peak", "total"),
)
def _(logits, targets):
    targets = as_array(targets)
    check_targets(logits, targets)
    less, peak = shifted(logits, -1)
    picked = np.take_along_axis(less, targets[..., None], axis=-1)
    total = total_of(np.exp(less, in_place_buffer(less)), -1)
    return np.mean(np.log(total) - picked), peak, total


@cross_entropy.fast.vjp("logits")
def _(g, logits, targets, peak, total):
    targets = as_array(targets)
    d_logits = np.subtract(logits, peak, out_buffer(logits, peak))
    d_logits = np.exp(d_logits, in_place_buffer(d_logits))
    d_logits /= total
    d_logits[(*np.indices(targets.shape, sparse=True), targets)] -= 1
    d_logits *= g / targets.size
    return d_logits

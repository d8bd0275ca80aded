"""Figures of a benchmark: ratios are taken round by round."""

import pytest

from benchmarks.cases import Attention
from benchmarks.rounds import BASE, Figure, Result

FEW = Attention("few", "few", 2, 5, 7, 3)


def result(**samples):
    """Of given seconds; `base` is hand-best."""
    samples = {BASE if name == "base" else name: taken for name, taken in samples.items()}
    return Result(FEW, samples, dict.fromkeys(samples, 0.0))


@pytest.mark.parametrize(
    ("base", "peer", "seconds", "ratio"),
    [  # figures, each the median of the rounds', and whether they are quiet
        ([10.0, 11.0, 12.0], [30.0, 44.0, 24.0], (30.0, False), (3.0, False)),
        ([10.0, 11.0, 90.0], [30.0, 33.0, 45.0], (33.0, True), (3.0, True)),
        ([10.0, 20.0, 20.0], [30.0, 30.0, 30.0], (30.0, True), (1.5, False)),
    ],
)
def test_figures_are_medians_over_the_rounds_and_doubtful_where_half_were_slow(
    base, peer, seconds, ratio
):
    taken = result(base=base, peer=peer)
    assert taken.seconds("peer") == Figure(*seconds)
    assert taken.ratio("peer") == Figure(*ratio)
    assert taken.least_ratio("peer") == min(peer) / min(base)

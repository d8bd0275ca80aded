"""Peers are timed in turn once their answers are right; ratios are taken round by round."""

import pytest

from benchmarks.cases import Attention
from benchmarks.peers import Unsupported
from benchmarks.processes import PeerError
from benchmarks.rounds import BASE, Figure, Result, Settings, measure
from tests.benchmarks.given import Given

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


def test_peers_go_in_turn_and_another_begins_each_round():
    calls = []
    three = [Given(name, calls=calls) for name in "abc"]
    measure(FEW, three, Settings(rounds=4))
    assert "".join(calls) == "abcbcacababc"


def raising(error):
    def method(self, *args):
        raise error

    return method


def wrong_gradient(self, case, dtype):
    given = Given.build(self, case, dtype)
    return given | {"d_W_K": 1.01 * given["d_W_K"]}


NEVER_TIMED = raising(AssertionError("timed"))
FAILING = {
    "wrong": (
        {"build": wrong_gradient, "sample": NEVER_TIMED}, "wrong answer: d_W_K is off by 1.0e-02"
    ),
    "without such a step": ({"build": raising(Unsupported), "sample": NEVER_TIMED}, None),
    "fails to build": ({"build": raising(PeerError("out of memory"))}, "out of memory"),
    "fails to run": ({"sample": raising(PeerError("out of memory"))}, "out of memory"),
}  # fmt: skip


@pytest.mark.parametrize("how", FAILING)
def test_a_peer_that_fails_is_named_and_the_others_go_on(how):
    methods, said = FAILING[how]
    peer = type("Failing", (Given,), methods)("peer")
    taken = measure(FEW, [peer, Given(BASE, [1.0, 2.0])], Settings(rounds=2))
    assert taken.failures == ({"peer": said} if said else {})
    assert taken.samples[BASE] == [1.0, 2.0]
    assert taken.samples.keys() == {BASE}
    assert taken.ratio("peer") is None

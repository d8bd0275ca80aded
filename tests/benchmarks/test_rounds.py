"""Peers are timed in turn once their answers are right; ratios are taken round by round."""

import pytest

from benchmarks.cases import Attention
from benchmarks.peers import Unsupported
from benchmarks.processes import PeerError
from benchmarks.rounds import BASE, Figure, Result, Settings, measure


def result(**samples):
    """Of given seconds; `base` is hand-best."""
    samples = {BASE if name == "base" else name: taken for name, taken in samples.items()}
    return Result(Attention("few", "few", 2, 5, 7, 3), samples, dict.fromkeys(samples, 0.0))


@pytest.mark.parametrize(
    ("base", "peer", "seconds", "ratio", "beyond"),
    [  # figures, each the median of the rounds', and whether they are quiet
        ([10.0, 11.0, 12.0], [30.0, 44.0, 24.0], (30.0, False), (3.0, False), (20.0, False)),
        ([10.0, 11.0, 90.0], [30.0, 33.0, 45.0], (33.0, True), (3.0, True), (20.0, True)),
        ([10.0, 20.0, 20.0], [30.0, 30.0, 30.0], (30.0, True), (1.5, False), (10.0, False)),
    ],
)
def test_figures_are_medians_over_the_rounds_and_doubtful_where_half_were_slow(
    base, peer, seconds, ratio, beyond
):
    taken = result(base=base, peer=peer)
    assert taken.seconds("peer") == Figure(*seconds)
    assert taken.ratio("peer") == Figure(*ratio)
    assert taken.beyond("peer") == Figure(*beyond)
    assert taken.least_ratio("peer") == min(peer) / min(base)


def test_there_is_no_figure_without_samples():
    taken = result(peer=[1.0])
    assert taken.ratio("peer") is taken.seconds("other") is None


def test_peers_go_in_turn_and_another_begins_each_round(contestant, small):
    calls = []
    three = [contestant(name, calls=calls) for name in "abc"]
    measure(small, three, Settings(rounds=4))
    assert "".join(calls) == "abcbcacababc"


def test_a_wrong_peer_is_named_and_never_timed(contestant, small):
    class Wrong(contestant):
        def build(self, case, dtype):
            given = super().build(case, dtype)
            return given | {"d_W_K": 1.01 * given["d_W_K"]}

        def sample(self, seconds, patience):
            raise AssertionError("timed")

    taken = measure(small, [contestant(BASE), Wrong("liar")], Settings(rounds=2))
    assert taken.failures == {"liar": "wrong answer: d_W_K is off by 1.0e-02"}
    assert list(taken.samples) == [BASE]
    assert taken.ratio("liar") is None


def test_a_peer_without_such_a_step_is_passed_over(contestant, small):
    class Other(contestant):
        def build(self, case, dtype):
            raise Unsupported

    taken = measure(small, [contestant(BASE), Other("other")], Settings(rounds=2))
    assert (list(taken.samples), taken.failures) == ([BASE], {})


@pytest.mark.parametrize("where", ["build", "sample"])
def test_a_peer_that_fails_is_named_and_the_others_go_on(contestant, small, where):
    def fail(self, *args):
        raise PeerError("out of memory")

    broken = type("Broken", (contestant,), {where: fail})("broken")
    taken = measure(small, [broken, contestant(BASE, [1.0, 2.0])], Settings(rounds=2))
    assert taken.failures == {"broken": "out of memory"}
    assert taken.samples[BASE] == [1.0, 2.0]
    assert taken.data()["peers"].keys() == {BASE}


def test_patience_is_halved_while_the_machine_stays_busy(contestant, small):
    asked, idle = [], iter([False, False, True, True])

    class Asked(contestant):
        def sample(self, seconds, patience):
            asked.append((seconds, patience))
            return 1.0, next(idle)

    measure(small, [Asked(BASE)], Settings(rounds=4, target=0.02, patience=8.0))
    assert asked == [(0.02, 8.0), (0.02, 4.0), (0.02, 2.0), (0.02, 8.0)]


def test_slow_peers_get_three_rounds(contestant, small):
    calls = []
    two = [contestant(BASE, [0.1] * 5, calls), contestant("slow", [2.0] * 5, calls)]
    measure(small, two, Settings(rounds=5))
    assert (calls.count(BASE), calls.count("slow")) == (5, 3)

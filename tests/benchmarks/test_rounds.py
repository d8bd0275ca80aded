"""Peers are timed in turn once their answers are right; ratios are taken round by round."""

import pytest

from benchmarks.cases import Attention
from benchmarks.clock import Sample
from benchmarks.peers import Unsupported
from benchmarks.rounds import BASE, Figure, Result, Settings, measure
from benchmarks.worker import PeerError


def result(**times):
    """Of given seconds, negative where disturbed; `base` is hand-best."""
    samples = {
        BASE if name == "base" else name: [Sample(abs(t), t > 0) for t in taken]
        for name, taken in times.items()
    }
    return Result(Attention("few", "few", 2, 5, 7, 3), samples, dict.fromkeys(samples, 0.0))


def test_a_ratio_is_the_median_of_the_rounds_ratios_not_the_ratio_of_medians():
    taken = result(base=[1.0, 2.0, 10.0], peer=[3.0, 8.0, 20.0])
    assert taken.ratio("peer") == Figure(3.0, True)
    assert taken.seconds("peer").value / taken.seconds(BASE).value == 4.0


def test_a_difference_is_the_median_of_the_rounds_differences():
    assert result(base=[1.0, 2.0, 10.0], peer=[3.0, 8.0, 11.0]).beyond("peer") == Figure(2.0, True)


def test_a_round_in_which_either_was_disturbed_does_not_count():
    taken = result(base=[1.0, -1.0, 1.0, 1.0], peer=[2.0, 90.0, -90.0, 4.0])
    assert taken.ratio("peer") == Figure(3.0, True)
    assert taken.seconds("peer") == Figure(4.0, True)


def test_a_figure_is_doubtful_when_less_than_half_of_its_rounds_were_quiet():
    taken = result(base=[1.0, -1.0, -1.0], peer=[2.0, 4.0, 6.0])
    assert taken.ratio("peer") == Figure(4.0, False)
    assert taken.seconds("peer") == Figure(4.0, True)


def test_growth_is_doubtful_if_either_end_is():
    shorter, longer = result(base=[1.0, 3.0, 2.0]), result(base=[9.0, 7.0, 8.0])
    assert longer.growth(BASE, shorter) == Figure(4.0, True)
    assert longer.growth(BASE, result(base=[-2.0])) == Figure(4.0, False)


def test_there_is_no_figure_without_samples():
    taken = result(peer=[1.0])
    assert taken.ratio("peer") is taken.seconds("other") is taken.growth("other", taken) is None


def test_peers_go_in_turn_and_another_begins_each_round(contestant, small):
    calls = []
    three = [contestant(name, calls=calls) for name in "abc"]
    measure(small, three, Settings(rounds=4))
    assert "".join(calls) == "abcbcacababc"


def test_a_wrong_peer_is_named_and_never_timed(contestant, small):
    class Wrong(contestant):
        def build(self, case, dtype):
            given, seconds = super().build(case, dtype)
            return given | {"d_W_K": 1.01 * given["d_W_K"]}, seconds

        def sample(self, steps, patience):
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
    assert [s.seconds for s in taken.samples[BASE]] == [1.0, 2.0]
    assert taken.data()["peers"].keys() == {BASE}


def test_patience_is_halved_while_the_machine_stays_busy(contestant, small):
    asked = []

    class Asked(contestant):
        def sample(self, steps, patience):
            asked.append(patience)
            return super().sample(steps, patience)

    measure(small, [Asked(BASE, [None, None, 1.0, 1.0])], Settings(rounds=4, patience=8.0))
    assert asked == [8.0, 4.0, 2.0, 8.0]


def test_slow_peers_get_three_rounds_and_short_steps_are_taken_many_at_once(contestant, small):
    asked = []

    class Timed(contestant):
        about = 0.001

        def build(self, case, dtype):
            return super().build(case, dtype)[0], self.about

        def sample(self, steps, patience):
            asked.append((self.name, steps, patience))
            return Sample(self.about, True)

    slow = Timed("slow")
    slow.about = 2.0
    measure(small, [Timed(BASE), slow], Settings(rounds=5, target=0.02, patience=7.0))
    assert asked.count((BASE, 20, 7.0)) == 5
    assert asked.count(("slow", 1, 7.0)) == 3

"""A disturbed sample is taken again; one that stays disturbed says so. No clock decides here."""

import pytest

from benchmarks import clock
from benchmarks.clock import Load, Sample, sample

QUIET, OTHERS, QUEUED = Load(0.0, 0.0), Load(0.0, 0.5), Load(0.2, 0.0)


@pytest.fixture
def machine(monkeypatch):
    """A machine whose loads and times are given; each reading of its clock takes what comes."""

    def made(loads, times=(), patience=100.0, fastest=float("inf")):
        now, left, loads = [0.0], list(times), iter(loads)

        def step():
            now[0] += left.pop(0) if left else 1.0

        monkeypatch.setattr(clock, "perf_counter", lambda: now[0])
        monkeypatch.setattr(clock, "mark", lambda: None)
        monkeypatch.setattr(clock, "load_since", lambda _: next(loads))
        monkeypatch.setattr(clock, "wait_until_idle", lambda deadline: True)
        return sample(step, 1, patience, fastest)

    return made


def test_a_quiet_sample_is_taken_as_it_is(machine):
    assert machine([QUIET], [9.0, 2.0]) == Sample(2.0, True)


def test_a_disturbed_sample_is_taken_again(machine):
    assert machine([OTHERS, QUEUED, QUIET], [9, 3, 9, 4, 9, 2]) == Sample(2.0, True)


def test_what_stays_disturbed_is_marked_and_the_least_disturbed_is_kept(machine):
    loads = [Load(0.0, 0.9), Load(0.0, 0.3), Load(0.0, 0.6), OTHERS]
    assert machine(loads, [1, 7, 1, 5, 1, 6, 1, 9], 25.0) == Sample(5.0, False)


def test_threads_that_queue_behind_their_own_are_believed_when_samples_agree(machine):
    assert machine([QUEUED] * 3, [1, 2.0, 1, 2.125, 1, 2.0625]) == Sample(2.0625, True)


def test_a_sample_far_slower_than_the_fastest_is_taken_again(machine):
    assert machine([QUIET, QUIET], [9, 3.0, 9, 2.0], fastest=2.0) == Sample(2.0, True)


def test_slow_samples_are_believed_when_three_agree(machine):
    assert machine([QUIET] * 3, [9, 3.0, 9, 3.125, 9, 3.0625], fastest=2.0) == Sample(3.0625, True)


@pytest.mark.parametrize(
    ("load", "disturbed"),
    [(QUIET, False), (Load(0.02, 0.09), False), (Load(0.04, 0.0), True), (Load(0.0, 0.2), True)],
)
def test_a_load_disturbs_from_a_few_percent(load, disturbed):
    assert load.disturbed is disturbed


def test_other_work_is_what_the_cores_did_less_our_own(monkeypatch):
    before = clock.Mark(wall=10.0, own=1.0, queued=0.5, busy=100.0)
    after = clock.Mark(wall=12.0, own=2.5, queued=0.7, busy=102.52)
    monkeypatch.setattr(clock, "mark", lambda: after)
    load = clock.load_since(before)
    assert load.queued == pytest.approx(0.1)
    assert load.others == pytest.approx(0.5)


def test_without_proc_nothing_is_seen_and_nothing_fails(monkeypatch):
    monkeypatch.setattr(clock, "watched", lambda: False)
    assert clock.load_since(clock.mark()) == QUIET
    assert clock._alone()

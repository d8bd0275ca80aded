"""The least of many steps, taken in turn, on a machine that is idle. No clock decides here."""

from itertools import count

import pytest

from benchmarks import clock


def test_the_least_step_is_taken_over_so_many_seconds_and_one_at_least(monkeypatch):
    now, taken = [0.0], iter([3.0, 1.0, 2.0, 9.0])

    def step():
        now[0] += next(taken)

    monkeypatch.setattr(clock, "perf_counter", lambda: now[0])
    monkeypatch.setattr(clock, "process_time", lambda: 2 * now[0])
    assert clock.least(step, 5.0) == (1.0, 2.0)
    assert clock.least(step, 0.0) == (9.0, 18.0)


def test_contestants_take_turns():
    number = count()
    found = clock.turns(3, {name: lambda: next(number) for name in "ab"})
    assert found == {"a": [0, 2, 4], "b": [1, 3, 5]}


@pytest.mark.parametrize(("seconds", "quiet"), [([1, 1.2, 9], True), ([1, 1.3, 1.3], False)])
def test_a_median_far_above_the_least_tells_of_other_load(seconds, quiet):
    assert clock.is_quiet(seconds) is quiet


@pytest.mark.parametrize(
    ("patience", "loads", "idle"), [(9.0, [5, 2, 1, 1, 1], True), (0.0, [3] * 9, False)]
)
def test_a_sample_waits_for_an_idle_machine_as_long_as_patience_lasts(
    patience, loads, idle, monkeypatch, tmp_path
):
    left = iter(loads)

    def sleep(seconds):
        if seconds < 0.01:  # before each look
            (tmp_path / "loadavg").write_text(f"0.1 0.2 0.3 {next(left)}/400 17\n")

    monkeypatch.setattr(clock, "sleep", sleep)
    monkeypatch.setattr(clock, "LOAD", str(tmp_path / "loadavg"))
    assert clock.wait_until_idle(patience) is idle


def test_without_proc_nobody_waits(monkeypatch):
    monkeypatch.setattr(clock, "LOAD", "/no/such/file")
    assert clock.wait_until_idle(0.0)

"""Threads over single-threaded BLAS: what a call changes is put back, however it ends."""

import linecache
import os
import sys
import threading
from contextlib import contextmanager, suppress
from time import sleep

import pytest

from minigrad.fast import threads
from minigrad.fast.threads import one_threaded_blas, run

threadpoolctl = pytest.importorskip("threadpoolctl")


def blas_threads():
    """Threads of NumPy's BLAS; another test may have loaded one more, that of SciPy say."""
    found = [x for x in threadpoolctl.threadpool_info() if x["user_api"] == "blas"]
    numpys = [library for library in found if "numpy" in library["filepath"]]
    return {library["num_threads"] for library in numpys or found}


ONE = {1}


@pytest.fixture(autouse=True)
def two_blas_threads():
    """They are there again at the end. Processes of pytest-xdist begin with one, for PyTorch."""
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        assert blas_threads() == {2}
        yield
        assert blas_threads() == {2}


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    return thread


# ---------------------------------------------------------------- BLAS on one thread


def test_within_blas_has_one_thread_and_after_it_its_own():
    before = blas_threads()
    with one_threaded_blas as count:
        assert blas_threads() == ONE
        assert count == max(before)
        with one_threaded_blas:
            assert blas_threads() == ONE
        assert blas_threads() == ONE
    assert blas_threads() == before


def test_the_last_one_out_restores_it_whoever_came_first():
    before, said = blas_threads(), {}
    first_in, last_out, done, end = (threading.Event() for _ in range(4))

    def enter():
        with one_threaded_blas:
            said["within"] = blas_threads()
            first_in.set()
            last_out.wait()
        done.set()
        end.wait()  # the thread lives on

    user = in_a_thread(enter)
    first_in.wait()
    with one_threaded_blas:
        last_out.set()
        done.wait()
        said["still"] = blas_threads()
    assert said == {"within": ONE, "still": ONE}
    assert blas_threads() == before
    in_a_thread(lambda: one_threaded_blas.__enter__() and one_threaded_blas.__exit__()).join()
    end.set()
    user.join()


@contextmanager
def interrupted(after):
    """KeyboardInterrupt before the so-manieth line that runs in threads.py; whether it came.

    Not where no signal is ever looked at: at the first bytecode of __exit__, and between the end of
    a with-block and the release of its lock.
    """
    lines, came = 0, []

    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename != threads.__file__:
            return None
        first = frame.f_code.co_firstlineno
        never = frame.f_code.co_name == "__exit__" and frame.f_lineno <= first + 2
        never |= linecache.getline(threads.__file__, frame.f_lineno).lstrip().startswith("with ")
        if event == "line" and not never and not came:
            lines += 1
            if lines > after:
                came.append(frame.f_lineno)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield came
    finally:
        sys.settrace(before)


def test_an_interrupt_at_any_line_leaves_no_limit():
    before, after, came = blas_threads(), 0, [0]
    while came:
        with suppress(KeyboardInterrupt), interrupted(after) as came, one_threaded_blas:
            pass
        assert blas_threads() == before, f"at line {came}"
        assert one_threaded_blas._within == []
        after += 1
    assert after > 20


def test_without_threadpoolctl_there_is_one_thread(monkeypatch):
    monkeypatch.setattr(threads, "_blas", lambda: None)
    monkeypatch.setattr(one_threaded_blas, "_threads", 1)
    with one_threaded_blas as count:
        assert count == 1


# ---------------------------------------------------------------- work on threads


def test_every_item_is_worked_on_once():
    done = []
    run(lambda item, _: done.append(item), range(100), 3)
    assert sorted(done) == list(range(100))


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("item", [0, 1])
def test_the_first_exception_stops_the_others_and_is_raised(error, item):
    """Of two threads, one fails at once, on either side; the other ends after its item."""
    both, done = threading.Barrier(2), []

    def work(i, _):
        if i < 2:
            both.wait()
        if i == item:
            raise error("planted")
        sleep(0.001)
        done.append(i)

    with pytest.raises(error, match="planted"), one_threaded_blas:
        run(work, range(100_000), 2)
    assert len(done) < 99_999


def test_an_interrupt_while_helpers_work_waits_for_what_they_are_at(monkeypatch):
    """So nobody writes into an array after the call has ended."""
    for after in range(0, 40, 3):
        state = []

        def work(item, _, state=state):
            state.append("began")
            state.append("ended")

        with suppress(KeyboardInterrupt), interrupted(after):
            run(work, range(4), 2)
        assert state.count("began") == state.count("ended")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_makes_helpers_of_its_own_and_has_all_threads_of_blas():
    run(lambda *_: None, range(2), 2)
    with one_threaded_blas:
        child = os.fork()
        if child == 0:
            done = []
            run(lambda item, _: done.append(item), range(8), 2)
            os._exit(0 if sorted(done) == list(range(8)) and blas_threads() == {2} else 1)
    assert os.waitpid(child, 0)[1] == 0

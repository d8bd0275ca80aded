"""Threads over single-threaded BLAS: what a call changes is put back, however it ends."""

import os
from threading import Barrier, Event, Thread
from time import sleep

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from minigrad.fast.threads import run


def blas_threads():
    """Threads of NumPy's BLAS; another test may have loaded one more, that of SciPy say."""
    found = [x for x in threadpool_info() if x["user_api"] == "blas"]
    numpys = [library for library in found if "numpy" in library["filepath"]]
    return {library["num_threads"] for library in numpys or found}


@pytest.fixture(autouse=True)
def two_blas_threads():
    """They are there again at the end. Processes of pytest-xdist begin with one, for PyTorch."""
    with threadpool_limits(2, user_api="blas"):
        assert blas_threads() == {2}
        yield
        assert blas_threads() == {2}


def test_every_item_is_worked_on_once_while_blas_has_one_thread():
    done, seen = [], []

    def work(item):
        done.append(item)
        seen.append(blas_threads())

    run(work, range(20))
    assert sorted(done) == [*range(20)]
    assert all(x == {1} for x in seen)


def test_two_items_are_worked_on_at_once_and_the_context_of_the_caller_holds():
    both = Barrier(2, timeout=20)

    def work(_):
        both.wait()
        assert np.geterr()["over"] == "raise"

    with np.errstate(over="raise"):
        run(work, range(2))


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("item", [0, 1])
def test_the_first_exception_stops_the_others_and_is_raised(error, item):
    """Of two threads, one fails at once, on either side; the other ends after its item."""
    both, done = Barrier(2), []

    def work(i):
        if i < 2:
            both.wait()
        if i == item:
            raise error("planted")
        sleep(0.001)
        done.append(i)

    with pytest.raises(error, match="planted"):
        run(work, range(100_000))
    assert len(done) < 99_999


def test_a_call_within_or_beside_another_is_done_by_its_own_thread():
    done, began, go_on = [], Event(), Event()
    run(lambda i: run(lambda j: done.append((i, j)), range(3)), range(4))
    assert sorted(done) == [(i, j) for i in range(4) for j in range(3)]

    def wait(_):
        began.set()
        go_on.wait(20)

    other = Thread(target=run, args=(wait, range(2)))
    other.start()
    began.wait(20)
    run(done.append, range(3))
    assert done[-3:] == [0, 1, 2]
    go_on.set()
    other.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_makes_helpers_of_its_own():
    run(lambda _: None, range(2))
    child = os.fork()
    if child == 0:
        both, done = Barrier(2, timeout=20), []
        run(lambda item: done.append((item, both.wait())), range(8))
        os._exit(0 if len(done) == 8 and blas_threads() == {2} else 1)
    assert os.waitpid(child, 0)[1] == 0

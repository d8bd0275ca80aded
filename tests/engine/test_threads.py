"""Threads that go backward into the same leaf: every gradient arrives."""

import time
from threading import Thread

import numpy as np

import minigrad as mg


class SlowToAdd(np.ndarray):
    """A gradient that takes its time to be added to: without a lock another thread reads it too."""

    def __add__(self, other):
        time.sleep(0.05)
        return np.asarray(self) + other


def test_threads_that_go_backward_into_one_leaf_lose_no_gradient():
    w = mg.tensor(np.ones(3), requires_grad=True)
    w.grad = np.zeros(3).view(SlowToAdd)
    threads = [Thread(target=lambda: mg.sum(w * 2.0).backward()) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(w.grad, [8.0, 8.0, 8.0])

"""Memory and a long chain: what they count, on things of a known size."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import memory
from benchmarks.contestants import everyone
from benchmarks.peers import Unsupported
from benchmarks.remote import ROOT
from benchmarks.worker import long_chain


def loaded(name):
    peer = everyone(str(ROOT))[name]
    peer.load()
    return peer


def test_memory_is_what_is_held_at_once_at_most(monkeypatch):
    def work():
        kept = np.ones(3_000_000, np.uint8)
        for _ in range(2):
            np.ones(2_000_000, np.uint8)
        return kept

    monkeypatch.setattr(memory, "method", lambda: "traced")
    assert 5_000_000 <= memory.growth(work) < 5_100_000
    assert not tracemalloc.is_tracing()


def test_a_long_chain_is_walked_and_checked():
    with pytest.raises(Unsupported):
        long_chain(loaded("hand-best"), 50)
    assert list(long_chain(loaded("eager"), 50)) == ["forward", "backward", "to be freed"]

    class Doubling:
        def __add__(self, other):
            return self

        def backward(self):
            self.grad = 2.0

    peer = loaded("eager")
    peer.mg = SimpleNamespace(tensor=lambda value, requires_grad: Doubling())
    with pytest.raises(ArithmeticError, match=r"50 additions: the gradient is 2\.0, not 1"):
        long_chain(peer, 50)

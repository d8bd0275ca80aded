"""Memory, a long chain, and what is on disk: what they count, on things of a known size."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import memory
from benchmarks.cases import Attention
from benchmarks.contestants import everyone
from benchmarks.peers import Peer, Unsupported
from benchmarks.remote import ROOT
from benchmarks.worker import long_chain


def loaded(name):
    peer = everyone(str(ROOT))[name]
    peer.load()
    return peer


class Keeping(Peer):
    """Allocates 3 MB beforehand, and 2 MB in each step, which it lets go."""

    def attention(self, case, inputs):
        kept = np.ones(3_000_000, np.uint8)
        return lambda: {"out": (kept, np.ones(2_000_000, np.uint8))[0][:1]}


def test_traced_memory_counts_what_is_allocated_beforehand_and_within(monkeypatch):
    monkeypatch.setattr(memory, "method", lambda: "traced")
    case = Attention("few", "", 2, 5, 7, 3)
    assert 5_000_000 <= memory.peak(Keeping("keeping", "keeping"), case, "float32") < 5_100_000
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

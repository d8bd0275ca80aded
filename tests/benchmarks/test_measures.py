"""Memory, a long chain, and what is on disk: what they count, on things of a known size."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import footprint, memory
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


@pytest.fixture
def project(tmp_path):
    """A checkout with one source of a known size, and a file of 100 bytes beside it."""
    (tmp_path / "minigrad" / "__pycache__").mkdir(parents=True)
    (tmp_path / "minigrad" / "__pycache__" / "a.pyc").write_bytes(bytes(5000))
    (tmp_path / "minigrad" / "a.py").write_text("x = 1\n")
    (tmp_path / "minigrad" / "style.css").write_bytes(bytes(100))
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["numpy>=2.0", "no.such_package>=1"]\n'
    )
    return tmp_path


def test_size_is_that_of_files_and_of_the_bytecode_sources_make(project):
    assert 106 < footprint.size(project, "minigrad") < 506
    (project / "minigrad" / "style.css").write_bytes(bytes(1100))
    assert 1106 < footprint.size(project, "minigrad") < 1506


def test_dependencies_are_the_projects_own_and_the_missing_have_no_size(project):
    assert footprint.dependencies(project) == ["no-such-package"]
    assert footprint.size(project, "no-such-package") is None
    assert footprint.size(project, "graphviz") > 100_000

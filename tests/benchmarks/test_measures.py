"""Memory, a long chain, single ops and training: what is counted, and that answers are right."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import memory
from benchmarks.contestants import everyone
from benchmarks.ops import compare, figures_of, measure_ops
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


def test_a_wrong_gradient_is_named_instead_of_timed():
    out, right = np.ones(3), np.array([1.0, 2.0])
    assert compare("sum", [[out, right], [out, right]]) == ""
    assert "gradient of input 0 differs" in compare("sum", [[out, right * 1.01], [out, right]])


def test_a_figure_is_the_least_and_says_whether_the_machine_was_quiet():
    assert figures_of([(1.0, 2.0), (1.1, 1.5), (1.2, 1.6)], 5.0) == (1.0, 1.5, 5.0, True)
    assert not figures_of([(1.0, 1.0), (2.0, 1.0), (2.0, 1.0)], 5.0).quiet


@pytest.mark.slow
def test_an_op_is_timed_beside_pytorch():
    pytest.importorskip("torch")
    report = measure_ops(["max_pool"], str(ROOT), 1, 0.01, lambda what: None)
    ((title, *figures),) = report.rows
    assert title == "max_pool"
    assert float(figures[-1]) > 0


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm"])
def test_losses_are_pytorchs_eager_and_compiled(name):
    pytest.importorskip("torch")
    from benchmarks.training_models import CASES, step_of

    losses = {}
    for who in ("PyTorch", "eager", "compiled"):
        step, given = step_of(who, CASES[name]), CASES[name].batch(np.random.default_rng(0))
        losses[who] = [step(*given).item() for _ in range(3)]  # recorded, compared, replayed
    for who in ("eager", "compiled"):
        np.testing.assert_allclose(losses[who], losses["PyTorch"], rtol=1e-3)

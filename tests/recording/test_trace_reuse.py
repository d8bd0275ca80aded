"""One trace records one run, and can be sent to another process."""

import pickle

import numpy as np
import pytest

import minigrad as mg
from layers import SelfAttention
from minigrad.errors import GradientError


def run():
    layer = SelfAttention(5, 2, 3, rng=0)
    X = mg.tensor(np.random.default_rng(1).normal(size=(2, 7, 5)), requires_grad=True, name="X")
    with mg.trace() as t:
        mg.sum(layer(X)).backward()
    return t


def test_a_trace_that_has_recorded_a_run_refuses_another():
    t = run()
    with pytest.raises(GradientError, match=r"make another: mg\.trace\(\)"), t:
        pass
    assert len(t) == len(run())


def test_a_trace_comes_back_from_its_pickle_and_shows_the_same(tmp_path):
    t = run()
    back = pickle.loads(pickle.dumps(t))
    assert back.to_dict() == t.to_dict()
    assert back.table() == t.table()
    assert t.draw(tmp_path / "t.dot").read_text() == back.draw(tmp_path / "b.dot").read_text()
    assert back.check(ops=True).ok
    np.testing.assert_array_equal(back["Q"].gradient, t["Q"].gradient)

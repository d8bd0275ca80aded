"""A wrong rule is red in every view, and nothing else is."""

import json

import numpy as np
import pytest

import minigrad as mg
from minigrad.views import words
from minigrad.views.table import checks_table
from minigrad.views.theme import Light
from tests.views.graphs import views_of

UNARY = "exp log sqrt sin cos tanh sigmoid relu gelu silu softplus square negative abs".split()
OPS = {name: getattr(mg, name) for name in UNARY} | {
    "multiply": lambda x: mg.multiply(x, x + 1.0),
    "divide": lambda x: mg.divide(x, x + 1.0),
    "matmul": lambda x: mg.matmul(x, x.mT),
    "softmax": mg.softmax,
    "log_softmax": mg.log_softmax,
    "logsumexp": mg.logsumexp,
    "power": lambda x: (x * x + 1.0) ** 1.5,
    "mean": lambda x: mg.mean(x, axis=-1),
    "concatenate": lambda x: mg.concatenate([x, x + 1.0]),
    "getitem": lambda x: x[1:, :2],
    "layer_norm": lambda x: mg.layer_norm(x, np.ones(3), np.ones(3)),
    "cross_entropy": lambda x: mg.cross_entropy(x, np.array([0, 2])),
}
FAULTS = {
    "a thousandth": lambda g: g * 1.0005,
    "its sign": lambda g: -g,
    "all of it": lambda g: g * 0.0,
    "an entry": lambda g: np.where(np.arange(g.size).reshape(g.shape) == 0, g + 0.01, g),
}


def run(op):
    x = mg.tensor(np.linspace(0.3, 1.7, 6).reshape(2, 3), requires_grad=True, name="x")
    with mg.trace() as t:
        mg.sum(mg.sin(OPS[op](x))).backward()
    t.check(ops=True)
    return t


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_red_in_every_view(op, fault, plant):
    def spoil(g):  # of an index, most entries are zeros that are not stored
        return FAULTS[fault](g.onto(None) if hasattr(g, "onto") else g)

    plant(op, mg.registry[op].inputs[0], spoil)
    t = run(op)
    texts = views_of(t) | {"checks": checks_table(t.checks, 300)}
    for view, text in texts.items():
        assert "✗" in text, view
        assert "differ" in text, view
    assert f'color="{Light.alarm}"' in texts["picture"]
    assert "✗ for" in texts["picture"]  # in its box, beside the sentence above
    page = json.loads(texts["page"])
    assert [ok for _, ok in page["verdicts"]] == [False]
    wrong = [t[i].op for i, entry in enumerate(page["entries"]) if entry.get("bin") == 8]
    assert {*wrong} == {op}


@pytest.mark.parametrize("op", OPS)
def test_where_nothing_is_wrong_nothing_is_red(op):
    texts = views_of(run(op))
    assert not [view for view, text in texts.items() if "✗" in text]
    assert Light.alarm not in texts["picture"]


def test_a_nan_is_red_in_every_view():
    x = mg.tensor([-1.0, 2.0], requires_grad=True, name="x")
    with np.errstate(invalid="ignore"), mg.trace() as t:
        mg.sum(mg.sqrt(x)).backward()
    texts = views_of(t)
    for view, text in texts.items():
        assert "NaN or" in text, view
    assert words.gradient(t["x"]) == "not finite"
    assert "NaN or ∞" in texts["table"]
    assert any("->" in line and Light.alarm in line for line in texts["picture"].splitlines())

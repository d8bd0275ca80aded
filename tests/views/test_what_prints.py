"""What Python shows of a result says what it is in one to ten lines."""

import numpy as np
import pytest

import minigrad as mg
from layers import SelfAttention


@pytest.fixture(scope="module")
def shown():
    layer = SelfAttention(5, 2, 3, rng=0)
    X = mg.tensor(np.random.default_rng(1).normal(size=(2, 7, 5)), requires_grad=True, name="X")

    def run():
        with mg.trace() as t:
            mg.sum(layer(X)).backward()
        return t

    t = run()
    with mg.watch(layer) as flow:
        mg.sum(layer(X)).backward()
        flow.log(loss=1.0)
    return {
        "trace": t,
        "empty trace": mg.trace(),
        "checks": t.check(),
        "attentions": t.attention(),
        "attention": t.attention()[0],
        "path": t.worst_path,
        "entry": t["Q"],
        "flow": flow,
        "findings": flow.diagnose(),
    }


EXPECTED = {
    "trace": "Trace: 10 steps forward",
    "empty trace": "nothing recorded yet",
    "checks": "gradients equal the hand-derived steps",
    "attentions": "Attention self_attention/A: A (2, 1, 7, 7)",
    "attention": "Attention self_attention/A: A (2, 1, 7, 7)",
    "path": "Path from the loss to",
    "entry": "self_attention/Q: linear, (2, 7, 2) float64, ∂L rms",
    "flow": "logged: loss",
    "findings": "Findings: ",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_result_says_what_it_is_in_a_few_lines(shown, name):
    text = repr(shown[name])
    assert EXPECTED[name] in text
    assert len(text.splitlines()) <= 10
    assert max(map(len, text.splitlines())) <= 160
    assert "object at 0x" not in text
    assert "array(" not in text


def test_a_compiled_step_and_its_program_say_what_they_are():
    compiled = mg.compile(lambda a: mg.sum(a * a))
    compiled(np.ones(3))
    (variant,) = compiled.variants
    assert repr(variant.program).startswith("<Program: ")


@pytest.mark.parametrize("name", ["trace", "flow"])
def test_a_table_shows_as_text_where_python_shows_its_repr(shown, name):
    table = shown[name].table()
    assert repr(table) == str(table)
    assert "\n" in repr(table)

"""What a layer is handed is an input of the record, what one owns a parameter."""

import copy

import numpy as np

import minigrad as mg
from layers import FeedForward, LayerNorm, TransformerBlock


def test_what_a_layer_is_handed_is_an_input_and_what_it_owns_a_parameter():
    """Also where no hand-derived steps name X: a norm, a block, an MLP."""
    for layer in (LayerNorm(6), TransformerBlock(6, 2, 7), FeedForward(6, 7)):
        X = mg.tensor(np.ones((1, 3, 6)), requires_grad=True, name="X")
        with mg.trace() as t:
            layer(X)
        kinds = {entry.name: entry.kind for entry in t if entry.op is None and entry.needs}
        assert kinds.pop("X") == "input"
        assert set(kinds.values()) == {"parameter"}


def test_a_leaf_that_nothing_holds_is_no_parameter_and_is_counted_apart(tmp_path):
    """Data with a gradient, or weights without a Module; an optimizer makes parameters of them."""
    layer = FeedForward(6, 7)
    X = mg.tensor(np.ones((3, 6)), requires_grad=True, name="X")
    W = mg.tensor(np.ones((6, 5)), requires_grad=True, name="W")
    bias = mg.tensor(np.zeros(6), requires_grad=True, name="bias")
    with mg.trace() as t:
        loss = mg.sum(layer((X * 2.0 + bias) * 1.0) @ W)
        loss.backward()
        mg.optim.SGD([W], lr=0.1)
    kinds = {entry.name: entry.kind for entry in t if entry.op is None and entry.needs}
    held = sum(p.size for p in layer.parameters()) + W.size
    assert (kinds["X"], kinds["bias"], kinds["W"]) == ("leaf", "leaf", "parameter")
    said = f"{held} parameter values · {X.size + bias.size} values of leaves with a gradient"
    assert said in t.draw(tmp_path / "g.svg").read_text()
    copied = copy.deepcopy(layer)
    with mg.trace() as t:
        copied.W_1 * 1.0
    assert t[0].kind == "parameter"

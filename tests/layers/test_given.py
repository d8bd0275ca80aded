"""What a layer is handed is an input of the record; what it owns is a parameter."""

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

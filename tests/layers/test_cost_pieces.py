"""layer_cost of recurrent and convolutional layers is what their graph counts, op by op."""

import numpy as np
import pytest

import minigrad as mg
from layers import (
    GRU,
    LSTM,
    RNN,
    Conv1d,
    Conv2d,
    Flatten,
    GroupNorm,
    Linear,
    MaxPool2d,
    Sequential,
    count_graph,
    layer_cost,
)

LAYERS = {
    "lstm": (LSTM(3, 5, 2, True, rng=0), (2, 7, 3)),
    "lstm step by step": (LSTM(3, 5, method="steps", rng=0), (2, 3, 3)),
    "gru": (GRU(3, 5, rng=0), (2, 7, 3)),
    "rnn": (RNN(3, 5, rng=0), (2, 7, 3)),
    "conv1d": (Conv1d(3, 4, 3, stride=2, rng=0), (2, 3, 11)),
    "grouped": (Conv2d(4, 6, 3, padding=1, groups=2, rng=0), (2, 4, 8, 7)),
    "group norm": (GroupNorm(3, 6), (5, 6, 8, 8)),
    "cnn": (
        Sequential(
            Conv2d(1, 4, 3, padding=1, rng=0), mg.relu, MaxPool2d(2), Flatten(),
            Linear(64, 3, rng=1),
        ),
        (5, 1, 8, 8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_the_cost_from_sizes_is_the_count_of_the_graph(name):
    layer, shape = LAYERS[name]
    cost = layer_cost(layer, input_shape=shape)
    x = mg.tensor(np.random.default_rng(0).normal(size=shape), requires_grad=True)
    counted = count_graph(layer, x)
    assert cost.forward == counted.forward
    assert cost.backward == sum(counted.backward.values())
    assert cost.activation_bytes == counted.activation_bytes


def test_a_sequence_layer_tells_its_width():
    cost = layer_cost(LSTM(3, 5, rng=0), batch_size=2, seq_len=7)
    assert cost == layer_cost(LSTM(3, 5, rng=0), input_shape=(2, 7, 3))

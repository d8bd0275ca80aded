"""A gradient is measured along time: the axis that an op declares, or calls of one module."""

import pytest

import minigrad as mg
from layers import GRU, LSTM, Linear, LSTMCell, Module, TransformerBlock
from minigrad.optim import SGD

from .models import leaf, traced


class ByHand(Module):
    """A loop over time that calls one cell."""

    def __init__(self):
        self.cell = LSTMCell(3, 5, rng=0)

    def forward(self, x):
        state = None
        for k in range(x.shape[1]):
            state = self.cell(x[:, k], state)
        return mg.expand_dims(state[0], 1)


RECURRENT = {
    "lstm": LSTM(3, 5, rng=0),
    "gru": GRU(3, 5, rng=0),
    "steps": LSTM(3, 5, rng=0, method="steps"),
    "by hand": ByHand(),
}


def test_blocks_with_weights_of_their_own_are_no_steps_in_time(rng):
    blocks = [TransformerBlock(6, 2, rng=rng) for _ in range(3)]

    def loss():
        h = leaf(2, 5, 6)
        for block in blocks:
            h = block(h)
        return mg.sum(h)

    assert traced(loss).in_time == []


@pytest.mark.parametrize("name", RECURRENT)
def test_what_vanishes_through_time_is_diagnosed_and_a_short_sequence_is_not(name, rng):
    for steps in (50, 5):
        model, x = RECURRENT[name], rng.normal(size=(4, steps, 3))
        optimizer = SGD(model.parameters(), lr=1e-3)
        with mg.watch(model, every=2) as flow:
            for _ in range(8):
                optimizer.zero_grad()
                mg.mean(model(x)[:, -1] ** 2.0).backward()
                optimizer.step()
        texts = [finding.text for finding in flow.diagnose() if finding.kind == "vanishing"]
        assert len(texts) == (steps == 50)
        assert all("vanishes through time" in text and "at step 50" in text for text in texts)


@pytest.mark.parametrize(
    ("lengths", "measured"),
    [([50, 40, 40], [[50], [40], [40]]), ([1, 50, 40, 1, 30], [[], [], [40], [], []])],
)
def test_each_length_is_measured_but_for_the_first_after_short_ones(rng, lengths, measured):
    model = ByHand()
    with mg.watch(model, every=1) as flow:
        for steps in lengths:
            mg.sum(model(rng.normal(size=(2, steps, 3)))).backward()
            flow.log(loss=1.0)
            model.zero_grad()
    assert [[n for *_, n in m.through_time.values()] for m in flow.moments] == measured


def test_a_linear_loop_without_a_state_is_no_time(rng):
    layer = Linear(3, 3, rng=rng)
    t = traced(lambda: sum(mg.sum(layer(leaf(2, 3, seed=k))) for k in range(5)))
    assert t.in_time == []

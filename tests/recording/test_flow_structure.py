"""What the graph of the first step shows before any training, and what healthy graphs do not."""

import numpy as np
import pytest

import minigrad as mg
from layers import BatchNorm, Conv2d, LanguageModel, Linear, SelfAttention, Sequential, lora
from minigrad.optim import Adam
from minigrad.watching import Flow

from .watched import watched


class Net:
    """Two layers of 5, 7 and 3 units; 11 examples."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.a, self.b = Linear(5, 7, rng=rng), Linear(7, 3, rng=rng)
        self.parameters = [*self.a.parameters(), *self.b.parameters()]
        self.x, self.y = rng.normal(size=(11, 5)), rng.integers(3, size=11)

    def scores(self, f=mg.relu, scale=1.0):
        return self.b(f(self.a(mg.tensor(self.x * scale))))


def mse(out, y):
    return mg.mean((out - y) ** 2)


PLANTED = [
    ("double softmax", lambda net: mg.cross_entropy(mg.softmax(net.scores()), net.y)),
    ("double softmax", lambda net: mg.cross_entropy(mg.softmax(net.scores()) * 1.0, net.y)),
    ("last activation", lambda net: mg.cross_entropy(mg.relu(net.scores()), net.y)),
    ("last activation", lambda net: mg.cross_entropy(mg.sigmoid(net.scores()), net.y)),
    ("last activation", lambda net: mse(mg.relu(net.scores()), net.x[:, :3])),
    ("last activation", lambda net: mse(mg.tanh(net.scores()).reshape(-1), np.arange(33.0))),
    ("no activation", lambda net: mg.cross_entropy(net.scores(lambda h: h), net.y)),
    ("no activation", lambda net: mg.cross_entropy(net.scores(lambda h: 2 * h + 1), net.y)),
    ("input scale", lambda net: mg.cross_entropy(net.scores(scale=8000.0), net.y)),
    ("broadcast", lambda net: mse(net.scores()[:, :1], net.x[:, 0])),
    (  # the penalty's detached weights are no op that takes them
        "broadcast",
        lambda net: mse(net.scores()[:, :1], net.x[:, 0]) + mg.sum(net.b.W.detach() ** 2),
    ),
]
HEALTHY = [
    lambda net: mg.cross_entropy(net.scores(), net.y),
    lambda net: mg.cross_entropy(net.scores(mg.gelu), net.y),
    lambda net: mg.cross_entropy(mg.log_softmax(net.scores()), net.y),
    lambda net: mse(mg.sigmoid(net.scores()), (net.x[:, :3] > 0).astype(float)),
    lambda net: mse(mg.relu(net.scores()), np.abs(net.x[:, :3])),
    lambda net: mse(net.scores()[:, :1], net.x[:, :1]),
    lambda net: mg.cross_entropy(net.scores(lambda h: mg.layer_norm(h, None, None)), net.y),
]


def kinds(parameters, loss):
    """The kinds of what is found in the graph of a run's first step."""
    optimizer = Adam([p for p in parameters if p.requires_grad], lr=1e-3)
    found = watched(parameters, lambda step: loss(), 2, optimizer).diagnose()
    return [one.kind for one in found if one.step == 0 and one.kind in dict(PLANTED)]


@pytest.mark.parametrize(("kind", "loss"), [*PLANTED, *((None, loss) for loss in HEALTHY)])
def test_a_planted_oddity_of_the_graph_is_named_alone_and_a_healthy_one_has_none(kind, loss):
    net = Net()
    assert kinds(net.parameters, lambda: loss(net)) == [kind] * (kind is not None)


@pytest.mark.parametrize("adapted", [False, True])
def test_a_language_model_and_its_adapters_are_healthy(adapted):
    tokens = np.random.default_rng(0).integers(0, 11, (2, 7))
    model = LanguageModel(11, 12, 3, 2, max_len=9, rng=0)
    if adapted:
        lora(model, 2, rng=0)

    def loss():
        return mg.cross_entropy(model(tokens).reshape((-1, 11)), tokens.reshape(-1))

    assert kinds(model.parameters(), loss) == []


def test_layers_that_mean_to_have_no_activation_between_them_and_a_norm_of_inputs_are_healthy(rng):
    x, y = rng.normal(size=(5, 7, 8)), rng.integers(3, size=(5, 7))
    head = Linear(8, 3, rng=rng)
    attention = Sequential(SelfAttention(8, 8, 8, rng=rng), head)
    narrow = Sequential(Linear(8, 2, rng=rng), Linear(2, 8, rng=rng))
    normed = Sequential(BatchNorm(8), head)
    separable = Sequential(Conv2d(2, 2, 3, groups=2, rng=rng), Conv2d(2, 3, 1, rng=rng))
    images = mg.tensor(rng.normal(size=(5, 2, 7, 7)))
    for net, loss in (
        (attention, lambda: mg.cross_entropy(attention(x), y)),
        (narrow, lambda: mse(narrow(mg.tensor(x[0])), x[0])),
        (normed, lambda: mg.cross_entropy(normed(mg.tensor(x[0] * 9e3)), y[0])),
        (separable, lambda: mg.mean(separable(images) ** 2)),
    ):
        assert kinds(net.parameters(), loss) == []


def test_two_convolutions_without_an_activation_are_named(rng):
    one, two = Conv2d(2, 2, 3, rng=rng), Conv2d(2, 2, 3, rng=rng)
    both, x = [*one.parameters(), *two.parameters()], rng.normal(size=(5, 2, 7, 7))
    assert kinds(both, lambda: mg.mean(two(one(mg.tensor(x))) ** 2)) == ["no activation"]
    assert kinds(both, lambda: mg.mean(two(mg.relu(one(mg.tensor(x)))) ** 2)) == []


def test_what_was_seen_in_the_graph_is_saved_and_read_again(tmp_path):
    net, path = Net(), tmp_path / "f.jsonl"
    flow = watched(net.parameters, lambda step: PLANTED[0][1](net), path=path)
    assert flow.diagnose().kinds == ["double softmax"]
    assert Flow.read(path).to_dict() == flow.to_dict()
    assert "softmax" in flow.diagnose()[0].text

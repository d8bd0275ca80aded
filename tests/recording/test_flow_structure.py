"""What the graph of the first step shows before any training, and what healthy graphs do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from layers import BatchNorm, Conv2d, LanguageModel, Linear, SelfAttention, lora
from minigrad.optim import Adam
from minigrad.watching import Flow


def kinds(parameters: Any, step: Callable[[], Any], steps: int = 2) -> list[str]:
    """The kinds of what is found in the graph of a run's first step."""
    trained = [p for p in parameters if p.requires_grad]
    optimizer = Adam(trained, lr=1e-3)
    with mg.watch(parameters, every=1) as flow:
        for _ in range(steps):
            optimizer.zero_grad()
            step().backward()
            optimizer.step()
    return [one.kind for one in flow.diagnose() if one.step == 0 and one.kind in PLANTED]


class Net:
    """Two layers of 5, 7 and 3 units; 11 examples."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.a, self.b = Linear(5, 7, rng=rng), Linear(7, 3, rng=rng)
        self.parameters = [*self.a.parameters(), *self.b.parameters()]
        self.x, self.y = rng.normal(size=(11, 5)), rng.integers(3, size=11)

    def scores(self, f: Any = mg.relu, scale: float = 1.0) -> Any:
        return self.b(f(self.a(mg.tensor(self.x * scale))))


def same(x: Any) -> Any:
    return x


def mse(out: Any, y: Any) -> Any:
    return mg.mean((out - y) ** 2)


PLANTED: dict[str, Callable[[Net], Any]] = {
    "double softmax": lambda net: mg.cross_entropy(mg.softmax(net.scores()), net.y),
    "last activation": lambda net: mg.cross_entropy(mg.relu(net.scores()), net.y),
    "no activation": lambda net: mg.cross_entropy(net.scores(same), net.y),
    "input scale": lambda net: mg.cross_entropy(net.scores(scale=8000.0), net.y),
    "broadcast": lambda net: mse(net.scores()[:, :1], net.x[:, 0]),
}
MORE: list[tuple[str, Callable[[Net], Any]]] = [
    *PLANTED.items(),
    ("double softmax", lambda net: mg.cross_entropy(mg.softmax(net.scores()) * 1.0, net.y)),
    ("last activation", lambda net: mg.cross_entropy(mg.sigmoid(net.scores()), net.y)),
    ("last activation", lambda net: mse(mg.relu(net.scores()), net.x[:, :3])),
    ("last activation", lambda net: mse(mg.tanh(net.scores()).reshape(-1), np.arange(33.0))),
    ("no activation", lambda net: mg.cross_entropy(net.scores(lambda h: 2 * h + 1), net.y)),
]


@pytest.mark.parametrize(("kind", "loss"), MORE)
def test_a_planted_oddity_of_the_graph_is_named_alone(
    kind: str, loss: Callable[[Net], Any]
) -> None:
    net = Net()
    assert kinds(net.parameters, lambda: loss(net)) == [kind]


HEALTHY: list[Callable[[Net], Any]] = [
    lambda net: mg.cross_entropy(net.scores(), net.y),
    lambda net: mg.cross_entropy(net.scores(mg.gelu), net.y),
    lambda net: mg.cross_entropy(mg.log_softmax(net.scores()), net.y),
    lambda net: mse(mg.sigmoid(net.scores()), (net.x[:, :3] > 0).astype(float)),
    lambda net: mse(mg.relu(net.scores()), np.abs(net.x[:, :3])),
    lambda net: mse(net.scores()[:, :1], net.x[:, :1]),
    lambda net: mg.cross_entropy(net.scores(lambda h: mg.layer_norm(h, None, None)), net.y),
]


@pytest.mark.parametrize("loss", HEALTHY)
def test_nothing_is_said_of_healthy_graphs(loss: Callable[[Net], Any]) -> None:
    net = Net()
    assert kinds(net.parameters, lambda: loss(net)) == []


def test_a_language_model_and_its_adapters_are_healthy() -> None:
    tokens = np.random.default_rng(0).integers(0, 11, (2, 7))
    model = LanguageModel(11, 12, 3, 2, max_len=9, rng=0)

    def loss() -> Any:
        return mg.cross_entropy(model(tokens).reshape((-1, 11)), tokens.reshape(-1))

    assert kinds(model.parameters(), loss) == []
    lora(model, 2, rng=0)
    assert kinds(model.parameters(), loss) == []


def test_attention_before_a_linear_layer_an_autoencoder_and_a_norm_of_inputs_are_healthy(
    rng: np.random.Generator,
) -> None:
    x, y = rng.normal(size=(5, 7, 8)), rng.integers(3, size=(5, 7))
    attention, head = SelfAttention(8, 8, 8, rng=rng), Linear(8, 3, rng=rng)
    both = [*attention.parameters(), *head.parameters()]
    assert kinds(both, lambda: mg.cross_entropy(head(attention(x)), y)) == []
    down, up = Linear(8, 2, rng=rng), Linear(2, 8, rng=rng)
    both = [*down.parameters(), *up.parameters()]
    assert kinds(both, lambda: mse(up(down(mg.tensor(x[0]))), x[0])) == []
    norm, first = BatchNorm(8), Linear(8, 3, rng=rng)
    both = [*norm.parameters(), *first.parameters()]
    assert kinds(both, lambda: mg.cross_entropy(first(norm(mg.tensor(x[0] * 9e3))), y[0])) == []


def test_two_convolutions_without_an_activation_are_named(rng: np.random.Generator) -> None:
    one, two = Conv2d(2, 3, 3, rng=rng), Conv2d(3, 2, 3, rng=rng)
    both, x = [*one.parameters(), *two.parameters()], rng.normal(size=(5, 2, 7, 7))
    assert kinds(both, lambda: mg.mean(two(one(mg.tensor(x))) ** 2)) == ["no activation"]
    assert kinds(both, lambda: mg.mean(two(mg.relu(one(mg.tensor(x)))) ** 2)) == []


def test_what_was_seen_in_the_graph_is_saved_and_read_again(tmp_path: Any) -> None:
    net = Net()
    with mg.watch(net.parameters, path=tmp_path / "f.jsonl") as flow:
        PLANTED["double softmax"](net).backward()
        Adam(net.parameters).step()
    assert flow.diagnose().kinds == ["double softmax"]
    assert Flow.read(tmp_path / "f.jsonl").to_dict() == flow.to_dict()
    assert "softmax" in flow.diagnose()[0].text

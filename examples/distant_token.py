"""Three ways to reach a distant token: attention, a stack of convolutions, a recurrent network.

Each maps n tokens of width d to n tokens, and is asked for the last one, y_n. Then it is counted in
the graph of that run: how many ops lie on the shortest path from the first token to y_n, FLOPs and
parameters. The gradient ‖∂y_n/∂x_1‖ says how much of the first token arrives. That of attention
falls as 1/n, that of a recurrent network by a factor with each token. That of convolutions is a
bell around half of their reach, and token 1 lies at its edge.

FLOPs grow as n² d for attention, k n d² for each layer of convolutions, and n d² for a recurrent
network. A stack of convolutions needs (n − 1) / (k − 1) layers before y_n sees x_1 at all; one
layer less and the gradient is zero, which is asserted.
"""

from math import ceil
from typing import NamedTuple

import numpy as np

import minigrad as mg
from layers import Conv1d, Linear, Module, SelfAttention

D, K = 16, 5  # width of a token; of a convolution's window
LENGTHS = (25, 50, 100)


class Attention(Module):
    def __init__(self, n: int):
        self.layer = SelfAttention(D, D, D, rng=0)

    def forward(self, *tokens: mg.Tensor) -> mg.Tensor:
        return self.layer(mg.stack(list(tokens)))[-1]  # (n, d) → (d,)


class Convolutions(Module):
    """relu after each; a window ends at its own token, so it reaches k − 1 tokens back."""

    def __init__(self, n: int, less: int = 0):
        depth = ceil((n - 1) / (K - 1)) - less
        rng = np.random.default_rng(0)
        self.layers = [Conv1d(D, D, K, rng=rng) for _ in range(depth)]

    def forward(self, *tokens: mg.Tensor) -> mg.Tensor:
        X = mg.expand_dims(mg.stack(list(tokens), axis=1), 0)  # (1, d, n)
        for layer in self.layers:
            X = mg.relu(layer(mg.pad(X, [(0, 0), (0, 0), (K - 1, 0)])))
        return X[0, :, -1]  # (d,)


class Recurrent(Module):
    def __init__(self, n: int):
        rng = np.random.default_rng(0)
        self.take = Linear(D, D, rng=rng)
        self.keep = Linear(D, D, use_bias=False, rng=rng)

    def forward(self, *tokens: mg.Tensor) -> mg.Tensor:
        h = np.zeros((1, D))
        for x in tokens:
            h = mg.tanh(self.take(mg.expand_dims(x, 0)) + self.keep(h))  # (1, d)
        return h[0]  # (d,)


KINDS = {"attention": Attention, "convolutions": Convolutions, "recurrent": Recurrent}


class Row(NamedTuple):
    path: int  # ops between the first token and y_n, on the shortest way
    flops: int
    parameters: int
    gradient: float  # ‖∂y_n/∂x_1‖, Frobenius


def tokens_of(n: int) -> list[mg.Tensor]:
    X = np.random.default_rng(1).normal(size=(n, D))
    return [mg.tensor(x, requires_grad=True, name=f"x_{j}") for j, x in enumerate(X, 1)]


def measured(model: Module, n: int) -> Row:
    tokens = tokens_of(n)
    with mg.trace() as t:
        y = model(*tokens)
    flops = sum(entry.flops or 0 for entry in t)
    parameters = sum(p.size for p in model.parameters())
    return Row(path_length(y, tokens[0]), flops, parameters, gradient(model, tokens))


def path_length(y: mg.Tensor, x: mg.Tensor) -> int:
    """Ops between x and y on the shortest way, found by going back from y step by step."""
    reached = {y.node}
    length = 0
    while x not in reached:
        reached = {edge for node in reached for edge in getattr(node, "edges", ())}
        length += 1
    return length


def gradient(model: Module, tokens: list[mg.Tensor]) -> float:
    """‖∂y_n/∂x_1‖, Frobenius."""
    first, *others = tokens
    return np.linalg.norm(mg.jacobian(lambda x: model(x, *others), first.data))


def show(rows: dict[int, dict[str, Row]]):
    print(f"d = {D}; convolutions of {K} tokens, as many as it takes; nothing is trained\n")
    print("                 n   path       FLOPs  parameters   gradient of token 1")
    for name in KINDS:
        for n in LENGTHS:
            row = rows[n][name]
            print(f"{name:14}{n:>4}{row.path:>7}{row.flops:>12,}", end="")
            print(f"{row.parameters:>12,}{row.gradient:>22.1e}")


def check(rows: dict[int, dict[str, Row]]):
    """A path that stays, one that grows as n / (k − 1), and one that grows as n."""
    for n in LENGTHS:
        attention, convolutions, recurrent = (rows[n][name] for name in KINDS)
        assert attention.path == rows[25]["attention"].path
        assert convolutions.path >= 3 * ceil((n - 1) / (K - 1))  # pad, convolution, relu
        assert recurrent.path >= 2 * n
        assert convolutions.flops > recurrent.flops > 0
        assert gradient(Convolutions(n, less=1), tokens_of(n)) == 0 < convolutions.gradient
    far = [rows[100][name].gradient / rows[25][name].gradient for name in KINDS]
    assert far[0] > 0.1 > 1e-2 > far[1] > far[2]


def main():
    rows = {n: {name: measured(make(n), n) for name, make in KINDS.items()} for n in LENGTHS}
    show(rows)
    check(rows)


if __name__ == "__main__":
    main()

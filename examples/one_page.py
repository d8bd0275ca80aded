"""The whole idea on one page: NumPy, and nothing of ours until the comparison at the end.

A tensor remembers how it was computed. Seven ops each say how a gradient goes back through them. A
few lines walk the ops in reverse. Attention is composed of them, with one head and with many, and a
picture shows its graph with the size of every gradient. Then the same weights go through minigrad
and through the steps derived by hand, and all three agree to rounding.

    python examples/one_page.py graph.svg       without a path it draws nothing
"""

import shutil
import subprocess
import sys
import sysconfig
from functools import partial
from itertools import count
from math import sqrt
from pathlib import Path

import graphviz
import numpy as np

# ------------------------------------------------ 1. a tensor remembers how it was computed


class Tensor:
    numbers = count()  # in the order of making, so that inputs come before what is made of them

    def __init__(self, data, op="", inputs=(), rule=None, name=""):
        self.data = np.asarray(data, dtype=float)
        self.op, self.inputs, self.rule = op, inputs, rule  # none of these for what came in
        self.name = name
        self.number = next(self.numbers)
        self.grad = None

    def named(self, name):
        self.name = name
        return self


# ------------------------------------------------ 2. an op declares its backward


def op(declared):
    """What is declared gives a result and a rule: from its gradient to that of each input."""

    def call(*inputs, **settings):
        result, rule = declared(*(x.data for x in inputs), **settings)
        return Tensor(result, declared.__name__, inputs, rule)

    return call


@op
def matmul(a, b):
    return a @ b, lambda g: (g @ b.swapaxes(-1, -2), a.swapaxes(-1, -2) @ g)


@op
def add(a, b):
    return a + b, lambda g: (g, g)


@op
def mask_add(S, *, mask):
    return S + mask, lambda g: (g,)


@op
def scale(x, *, factor):
    return x * factor, lambda g: (g * factor,)


@op
def reshape(x, *, shape):
    return x.reshape(shape), lambda g: (g.reshape(x.shape),)


@op
def transpose(x, *, axes):
    return x.transpose(axes), lambda g: (g.transpose(np.argsort(axes)),)


@op
def softmax(S):
    e = np.exp(S - S.max(axis=-1, keepdims=True))
    A = e / e.sum(axis=-1, keepdims=True)
    return A, lambda g: (A * (g - (g * A).sum(axis=-1, keepdims=True)),)


# ------------------------------------------------ 3. backward: the same steps in reverse


def backward(out, gradient):
    """Give every tensor that `out` was computed from its gradient."""
    out.grad = gradient
    for tensor in reversed(all_before(out)):
        gradients = tensor.rule(tensor.grad) if tensor.rule else ()
        for x, g in zip(tensor.inputs, gradients, strict=True):
            g = summed_to(g, x.data.shape)
            x.grad = g if x.grad is None else x.grad + g  # used twice: both gradients add


def all_before(out):
    """What `out` was computed from, and itself, in the order of making."""
    found, stack = {}, [out]
    while stack:
        tensor = stack.pop()
        found[tensor.number] = tensor
        stack += [x for x in tensor.inputs if x.number not in found]
    return [found[number] for number in sorted(found)]


def summed_to(g, shape):
    """Where an input was broadcast, its gradient is the sum over all its copies."""
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    stretched = [k for k, n in enumerate(shape) if n == 1 and g.shape[k] > 1]
    return g.sum(axis=tuple(stretched), keepdims=True)


# ------------------------------------------------ 4. attention is composed of these ops


def linear(X, p, symbol):
    """X W + b. Parameters are in a dict, under the papers' symbols: W_Q, b_Q, W_K, …"""
    return add(matmul(X, p[f"W_{symbol}"]), p[f"b_{symbol}"])


def attend(Q, K, V, mask):
    """softmax(Q Kᵀ / √d_k + M) V, over the last two axes."""
    *others, n, d = range(K.data.ndim)
    S_raw = matmul(Q, transpose(K, axes=(*others, d, n))).named("S_raw")  # (…, n, n)
    S = scale(S_raw, factor=1 / sqrt(Q.data.shape[-1])).named("S")
    A = softmax(mask_add(S, mask=mask).named("S_masked")).named("A")  # rows sum to 1
    return matmul(A, V).named("O")  # (…, n, d_v)


def self_attention(X, p, mask):
    Q, K, V = (linear(X, p, symbol).named(symbol) for symbol in "QKV")  # (B, n, d_k or d_v)
    O = attend(Q, K, V, mask)  # (B, n, d_v)
    return linear(O, p, "O").named("out")  # (B, n, d_model)


def multi_head_attention(X, p, mask, heads):
    B, n, _ = X.data.shape

    def split(x):  # (B, n, h·d_k) → (B, h, n, d_k)
        return transpose(reshape(x, shape=(B, n, heads, -1)), axes=(0, 2, 1, 3))

    flat = [linear(X, p, symbol).named(f"{symbol}_flat") for symbol in "QKV"]  # (B, n, h·d_k)
    Q, K, V = (split(x).named(symbol) for x, symbol in zip(flat, "QKV", strict=True))
    O = attend(Q, K, V, mask)  # (B, h, n, d_v)
    C = reshape(transpose(O, axes=(0, 2, 1, 3)), shape=(B, n, -1)).named("C")  # (B, n, h·d_v)
    return linear(C, p, "O").named("out")


# ------------------------------------------------ 5. the graph as a picture


def picture(out):
    """A box for each tensor: its name, op and shape, and the root mean square of its gradient."""
    dot = graphviz.Digraph(node_attr={"shape": "box", "fontname": "Helvetica", "fontsize": "10"})
    for tensor in all_before(out):
        size = np.sqrt(np.mean(tensor.grad**2)).round(12)
        lines = [
            f"{tensor.name}  {tensor.op}".strip(),
            f"{tensor.data.shape}",
            f"gradient {size:.2g}",
        ]
        fill = {} if tensor.op else {"style": "filled", "fillcolor": "#dfe8f5"}  # what came in
        dot.node(f"{tensor.number}", "\n".join(lines), **fill)
        for x in tensor.inputs:
            dot.edge(f"{x.number}", f"{tensor.number}")
    return dot


def draw(out, path):
    """Render the picture: graphviz-pure is installed with minigrad, `dot` is the system's."""
    program = shutil.which("graphviz-pure", path=sysconfig.get_path("scripts")) or "dot"
    command = [program, "-Kdot", f"-T{Path(path).suffix[1:]}", "-o", str(path)]
    subprocess.run(command, input=picture(out).source, encoding="utf-8", check=True)


# ------------------------------------------------ the same through minigrad, and by hand


def compare(attention, layer, steps):
    """Ours, minigrad's and the hand-derived gradients: our result, and the largest difference."""
    import minigrad as mg
    from layers import create_causal_mask

    rng = np.random.default_rng(1)
    X = rng.normal(size=(2, 5, 8))
    gradient = rng.normal(size=(2, 5, 8))
    mask = create_causal_mask(5)
    arrays = {name: parameter.numpy() for name, parameter in layer.named_parameters()}

    ours = {name: Tensor(array, name=name) for name, array in {"X": X, **arrays}.items()}
    out = attention(ours["X"], ours, mask)
    backward(out, gradient)

    x = mg.tensor(X, requires_grad=True)
    engines = layer(x, mask)
    engines.backward(gradient)
    gradients = {"X": x.grad} | {name: p.grad for name, p in layer.named_parameters()}

    derived = {}
    for step in steps(X=X, mask=mask, grad_output=gradient, **arrays):
        derived |= step.gradients

    differences = [out.data - engines.numpy()]
    differences += [ours[name].grad - gradients[name] for name in gradients]
    differences += [x.grad - derived[x.name] for x in all_before(out) if x.name in derived]
    assert len(differences) == 1 + len(gradients) + len(derived)
    return out, max(float(np.abs(difference).max()) for difference in differences)


def main(*paths):
    from layers import MultiHeadAttention, SelfAttention, multi_head_steps, self_attention_steps

    one = SelfAttention(d_model=8, d_k=4, d_v=3, rng=0)
    _, difference = compare(self_attention, one, self_attention_steps)
    print(f"one head:   the largest difference of any gradient is {difference:.1e}")
    assert difference < 1e-13

    many = MultiHeadAttention(d_model=8, n_heads=2, use_bias=True, rng=0)
    out, difference = compare(
        partial(multi_head_attention, heads=2), many, partial(multi_head_steps, n_heads=2)
    )
    print(f"many heads: the largest difference of any gradient is {difference:.1e}")
    assert difference < 1e-13

    assert picture(out).source.count("->") == sum(len(x.inputs) for x in all_before(out))
    for path in paths:
        draw(out, path)
        print("its graph:", path)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Random compositions of ops, NumPy and sizes: exported, and run elsewhere at other sizes."""

import numpy as np
import pytest

import minigrad as mg
from layers import create_causal_mask
from tests.onnx.exported import assert_same_at_other_sizes

PROGRAMS, STEPS, D = 15, 8, 6

ONE = [
    mg.tanh, mg.sigmoid, mg.relu, mg.abs, mg.square, mg.softplus, mg.silu, mg.sin, mg.softmax,
    mg.log_softmax, mg.elu, mg.expm1,
    lambda x: mg.gelu(x, approximate="tanh"),
    lambda x: mg.clip(x, -1.0, 0.5),
    lambda x: mg.softmax(x, axis=1),
    lambda x: mg.cumsum(x, axis=1),
    lambda x: mg.flip(x, axis=1),
    lambda x: mg.roll(x, 2, axis=1),
    lambda x: mg.sort(x, axis=1),
    lambda x: mg.swapaxes(mg.swapaxes(x, 1, 2), -1, -2),
    lambda x: mg.layer_norm(x, np.linspace(0.5, 1.5, D), None),
    lambda x: mg.rms_norm(x, None),
    lambda x: x - mg.mean(x, axis=1, keepdims=True),
    lambda x: x / (1 + mg.std(x, axis=(0, 1), keepdims=True)),
    lambda x: x * (1 / x.shape[1]),
    lambda x: x / x.shape[0],
    lambda x: mg.sum(x, axis=1, keepdims=True) / np.sqrt(x.shape[1]) + x,
    lambda x: mg.reshape(mg.reshape(x, (x.shape[0], x.shape[1], 2, D // 2)), x.shape),
    lambda x: mg.reshape(mg.reshape(x, (x.shape[0] * x.shape[1], D)) * 2, x.shape),
    lambda x: mg.concatenate((x[:, 1:], x[:, :1]), axis=1),
    lambda x: mg.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0))),
    lambda x: mg.where(x.data > 0, x, 0.1 * x),
    lambda x: x * np.where(x.data.mean(axis=-1, keepdims=True) > 0, 1.0, 0.5),
    lambda x: x + np.arange(x.shape[1])[:, None] / 10,
    lambda x: x + np.sin(np.arange(x.shape[1])[:, None] * np.linspace(0.1, 1, D)),
    lambda x: mg.softmax(x @ x.mT + create_causal_mask(x.shape[1])) @ x,
    lambda x: mg.scaled_dot_product_attention(x, x, x, is_causal=True),
    lambda x: mg.take(x, np.arange(x.shape[1])[::-1].copy(), axis=1),
    lambda x: mg.linear(x, np.ones((D, D)) / D, np.arange(float(D))),
    lambda x: mg.einsum("bnd,de->bne", x, np.eye(D)[::-1].copy()),
    lambda x: mg.broadcast_to(mg.max(x, axis=1, keepdims=True), x.shape),
    lambda x: mg.stack([x, -x], axis=1)[:, 1],
    lambda x: mg.repeat(x, 2, axis=1)[:, ::2],
    lambda x: x[:, np.arange(x.shape[1]) % 1 + np.arange(x.shape[1])],
]  # fmt: skip
TWO = [
    mg.add, mg.subtract, mg.multiply, mg.maximum, mg.minimum,
    lambda a, b: mg.where(a.data < b.data, a, b),
    lambda a, b: mg.softmax(mg.matmul(a, b.mT)) @ b,
    lambda a, b: mg.concatenate((a, b), axis=2)[..., D // 2 : D // 2 + D],
    lambda a, b: a / (1 + mg.abs(b)),
]  # fmt: skip


def program(seed):
    """A function of one array, of so many steps; entries stay within a few units."""
    rng = np.random.default_rng(seed)
    chosen = [
        ("two", int(rng.integers(len(TWO))), rng.random(2)) if rng.random() < 0.3
        else ("one", int(rng.integers(len(ONE))), rng.random(2))
        for _ in range(STEPS)
    ]  # fmt: skip

    def run(x):
        made = [x]
        for kind, k, at in chosen:
            a, b = (made[int(u * len(made))] for u in at)
            made.append(mg.tanh(ONE[k](a) if kind == "one" else TWO[k](a, b)).named(f"step{k}"))
        return made[-1]

    return run


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_random_program_is_the_same_elsewhere(seed, rng, tmp_path):
    def draw(batch, n):
        return [mg.tensor(rng.normal(size=(batch, n, D)))]

    sizes = (1, 3), (3, 8), (7, 31)
    assert_same_at_other_sizes(program(seed), draw, sizes, tmp_path, longest=40)

"""Steps as people write them are compiled into one program, and leave behind what they leave
eagerly: what they return, weights, gradients, tensors that they write to.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from layers import Linear
from minigrad.optim import SGD, Adam, AdamW, clip_grad_norm
from tests.compare import assert_same

pytestmark = pytest.mark.usefixtures("sizes")


def world(kind):
    """What a step reaches, each time the same."""
    rng = np.random.default_rng(0)
    shapes = {"w": (5,), "W": (5, 3), "b": (3,), "square": (5, 5), "rows": (7, 30)}
    shapes |= {"W_ih": (5, 20), "W_hh": (5, 20), "q": (3, 5, 2), "k": (3, 5, 2), "v": (3, 5, 2)}
    made = {
        name: mg.tensor(rng.uniform(0.5, 1.5, shape), requires_grad=True, name=name)
        for name, shape in shapes.items()
    }
    for name, shape in {"store": (3, 5, 2), "cache": (8, 5), "last": (5,)}.items():
        made[name] = mg.tensor(np.zeros(shape), name=name)
    return SimpleNamespace(**made, optimizer=kind([made["w"]], lr=0.1))


def outcomes(step, kind, compiled):
    """All that is there after each of six calls, no two in the same memory."""
    m = world(kind)
    run = partial(step, m)
    run = mg.compile(run) if compiled else run
    tensors = [x for x in vars(m).values() if isinstance(x, mg.Tensor)]
    found = []
    for call in range(6):
        x = np.random.default_rng(call // 2).uniform(size=(7, 5))
        result = run(x)
        several = result if isinstance(result, tuple) else (result,)
        given = [getattr(y, "_data", y) for y in several]
        left = [y for t in tensors for y in (t.numpy(), t.grad)]
        found.append([y if y is None else np.array(y) for y in (*given, *left)])
        pairs = combinations([y for y in (*given, *left) if y is not None], 2)
        assert not any(np.may_share_memory(a, b) for a, b in pairs)
        for y in given:
            y[...] = -1  # it is the caller's
        for t in tensors:
            t.grad = None
    return found, run


# ---------------------------------------------------------------- losses, sent back in many ways


def twice(m, x):
    loss = mg.sum(mg.tanh(m.w * x))
    loss.backward(retain_graph=True)
    loss.backward()
    return loss


def two_losses(m, x):
    loss = mg.sum(m.w * x)
    loss.backward()
    mg.sum(mg.exp(m.w)).backward()
    return loss


def seeded(m, x):
    y = m.w * x
    y.backward(x)
    return y


def alike(m, x):
    """Two leaves are sent one gradient."""
    y = m.q + m.k
    (y * y).sum().backward()
    return y


def also_returned(m, x):
    """A gradient that a leaf holds, too."""
    loss = mg.sum(mg.tanh(m.w * x))
    gradient = mg.grad(loss, m.w, retain_graph=True)
    loss.backward()
    return gradient


def recurrent(m, x):
    h, c = np.zeros((1, 5)), np.zeros((1, 5))
    for t in range(4):
        z = mg.tensor(x[t : t + 1]) @ m.W_ih + mg.matmul(h, m.W_hh)
        i, f, o = (mg.sigmoid(z[:, k : k + 5]) for k in (0, 5, 10))
        c = f * c + i * mg.tanh(z[:, 15:])
        h = o * mg.tanh(c)
    loss = mg.mean(h * h) + mg.mean(m.w)
    loss.backward()
    return loss


def rows_taken_many_times(m, x):
    index = np.random.default_rng(0).integers(-7, 7, (20, 11))
    out = mg.take(m.rows, index, axis=0) * 2.0
    out.backward(np.sin(np.arange(out.size)).reshape(out.shape))
    return out


def picked_by_a_list(m, x):
    """Not by a tuple, which names one entry on each axis."""
    out = mg.tanh(m.q * x[0, 0])[[2, 0]]
    out.backward(np.sin(np.arange(out.size)).reshape(out.shape))
    return out


def turned_twice(m, x):
    y = mg.tanh((m.square * m.square).mT)  # which NumPy lays out by columns
    loss = mg.tanh(y).sum() + (m.square * mg.tanh(mg.transpose(y))).sum()
    loss.backward()
    return loss


def turned_and_flattened(m, x):
    y = m.square * m.square
    loss = mg.tanh(x[0] @ y.mT).sum() + mg.tanh(y.mT.reshape(-1)).sum()
    loss.backward()
    return loss


def of_stacks(function):
    """A stack in reverse is not the stack."""

    def step(m, x):
        out = function(m.q, m.k, m.v)
        mg.sum(mg.tanh(out) * out).backward()
        return out

    return step


# ---------------------------------------------------------------- gradients a step takes itself


def descent(m, x):
    loss = mg.mean((x @ m.W + m.b) ** 2)
    d_W, d_b = mg.grad(loss, [m.W, m.b])
    m.W.assign_(m.W.numpy() - 0.1 * d_W)
    m.b.assign_(m.b.numpy() - 0.1 * d_b)
    return loss.detach()


def weighted(m, x):
    y = mg.tanh(x @ m.W + m.b)
    d_W = mg.grad(y, m.W, x[:, :3] * 2.0, retain_graph=True)
    return mg.tensor(d_W) + mg.tensor(mg.grad(mg.sum(y * y), m.W)) * 2.0


def of_what_was_computed(m, x):
    h = mg.tanh(x @ m.W)
    loss = mg.sum((h + m.b) ** 2)
    d_h, d_W, again = mg.grad(loss, [h, m.W, m.W], retain_graph=True)
    loss.backward()
    return mg.tensor(d_h), mg.tensor(d_W + again)


# ---------------------------------------------------------------- what is done with gradients


def squares(m, x):
    m.w.grad = None
    loss = mg.mean(mg.tanh(mg.tensor(x[0]) * m.w) ** 2) * 100
    loss.backward()
    return loss


def descent_through_data(m, x):
    loss = squares(m, x)
    m.w.data -= 0.1 * m.w.grad
    return loss


def clipped_by_hand(m, x):
    loss = squares(m, x)
    norm = np.sqrt(sum((p.grad**2).sum() for p in [m.w]))
    m.w.grad = m.w.grad * np.minimum(1.0, 0.5 / (norm + 1e-6))
    return loss


def clipped_on_condition(m, x):
    loss = squares(m, x)
    norm = np.linalg.norm(m.w.grad)
    if norm > 40 * x[0, 0]:
        m.w.grad *= 20 / norm
    return loss


def clipped_in_place(m, x):
    loss = squares(m, x)
    np.clip(m.w.grad, -0.1, 0.1, out=m.w.grad)
    return loss


class OfOnesOwn(SGD):
    """An optimizer of somebody else's."""

    def step(self):
        for p in self.parameters:
            p.grad = p.grad * 0.5
        super().step()


def trained(m, x, clip=np.inf):
    loss = squares(m, x)
    norm = clip_grad_norm([m.w], clip)
    m.optimizer.step()
    return loss, norm


def looked_at_after_training(m, x):
    """An audit lets the program move the weights, too, and then moves them back."""
    trained(m, x)
    return mg.exp(m.w).detach()


# ---------------------------------------------------------------- tensors that a step writes to


def assigned(m, x):
    y = m.w * x[0]
    loss = mg.sum(y * y)
    loss.backward()
    m.last.assign_(y.detach())
    u = m.last * 3.0
    m.last.assign_(u)
    return loss, u.detach()


def written_by_rows(m, x, turned=False):
    at = (x[0, :3] * 4).astype(np.int64)
    with mg.no_grad():
        before = mg.exp(m.store) + at[:, None, None]
        m.store[np.arange(3), at] = x[:3, :2] * 2.0
        m.store[:, 4] = x[0, :2]
        seen = mg.exp(mg.swapaxes(m.store, 1, 2) if turned else m.store)
        return before, seen, mg.tanh(mg.astype(mg.tensor(at), "float64"))


def decoding(m, x):
    position = (x[0, :1] * 8).astype(np.int64)
    with mg.no_grad():
        row = mg.tensor(x[1])
        m.cache.assign_(mg.where((np.arange(8) == position)[:, None], row, m.cache))
        seen = np.where(np.arange(8) <= position, 0.0, -np.inf)
        return mg.softmax(mg.mask_add(m.cache @ m.w, seen)) @ m.cache


STEPS = [
    twice, two_losses, seeded, alike, also_returned,
    recurrent, rows_taken_many_times,
    picked_by_a_list, turned_twice, turned_and_flattened,
    of_stacks(lambda q, k, v: mg.scale((q @ k.mT)[::-1], 0.5)),
    of_stacks(lambda q, k, v: mg.softmax(mg.scale((q @ k.mT)[::-1], 0.5)) @ v),
    of_stacks(lambda q, k, v: mg.softmax(mg.scale(q @ k.mT, 0.5))[::-1] @ v),
    of_stacks(lambda q, k, v: mg.scale(mg.tanh(q @ k.mT), 0.5)[::-1] @ v),
    of_stacks(lambda q, k, v: mg.scale(mg.tanh(q @ k.mT), 0.5)[::-1].mT @ v),
    descent, descent_through_data, weighted, of_what_was_computed,
    clipped_by_hand, clipped_on_condition, clipped_in_place,
    assigned, written_by_rows, partial(written_by_rows, turned=True), decoding,
]  # fmt: skip
MOMENTUM = partial(SGD, momentum=0.9)
TRAINED = [(trained, kind) for kind in (SGD, MOMENTUM, Adam, AdamW, OfOnesOwn)]


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        *((step, SGD) for step in STEPS),
        *TRAINED,
        (partial(trained, clip=0.5), SGD),
        (looked_at_after_training, Adam),
    ],
)
def test_a_step_leaves_behind_what_it_leaves_eagerly(step, kind):
    """At calls that are compared, which move weights once, and at others."""
    (eager, _), (compiled, run) = (outcomes(step, kind, compiled) for compiled in (False, True))
    assert run.reasons == []
    assert run.recordings == (2 if step is clipped_on_condition else 1)
    for wanted, found in zip(eager, compiled, strict=True):
        for a, b in zip(wanted, found, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert_same(b, a, 1e-11)


def test_a_method_may_be_compiled_in_its_class():
    class Trainer:
        def __init__(self, start):
            self.w = mg.tensor(start, requires_grad=True)
            self.optimizer = Adam([self.w], lr=0.1)

        def eager(self, x):
            self.optimizer.zero_grad()
            loss = mg.sum((self.w * x - 1) ** 2)
            loss.backward()
            self.optimizer.step()
            return loss

        step = mg.compile(eager)

    rng = np.random.default_rng(0)
    pairs = [(Trainer(start), Trainer(start)) for start in ([1.0, 2.0], [3.0, -1.0])]
    for _ in range(5):
        for eager, compiled in pairs:
            x = rng.normal(size=2)
            assert_same(compiled.step(x), eager.eager(x), 1e-14)
            assert_same(compiled.w, eager.w, 1e-14)
    assert (Trainer.step.recordings, Trainer.step.reasons) == (2, [])


@pytest.mark.parametrize("clears", ["module", "optimizer"])
def test_gradients_that_a_step_clears_first_need_one_program(clears):
    """Whether there is one at the start does not matter then."""
    layer, rng = Linear(5, 3, rng=0), np.random.default_rng(0)
    owner = layer if clears == "module" else SGD(layer.parameters(), lr=0.1)

    def step(x):
        owner.zero_grad()
        loss = mg.mean(mg.dropout(layer(x), 0.5, rng) ** 2)
        loss.backward()
        return loss

    run = mg.compile(step)
    for call in range(5):
        x, state = np.full((2, 5), 1.0 + call), rng.bit_generator.state
        found = [run(x).numpy(), *(p.grad for p in layer.parameters())]
        rng.bit_generator.state = state
        for a, b in zip(
            [step(x).numpy(), *(p.grad for p in layer.parameters())], found, strict=True
        ):
            assert_same(b, a, 1e-12)
    assert (run.recordings, run.reasons) == (1, [])

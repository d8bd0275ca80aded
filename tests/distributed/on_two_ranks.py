"""What tests run on ranks: `mpiexec -n 2 python -m mpi4py on_two_ranks.py NAME`."""

import sys

import numpy as np

import minigrad as mg
from layers import (
    ALiBi,
    BatchNorm,
    FeedForward,
    GatedFeedForward,
    LanguageModel,
    Linear,
    MultiHeadAttention,
    Rotary,
    Sequential,
    create_causal_mask,
)
from layers.parallel import average_gradients, shard
from minigrad import distributed as dist
from minigrad.errors import MinigradError
from minigrad.optim import SGD, LossScale, clip_grad_norm

WORLD = dist.world()
RANK, P = WORLD.rank, WORLD.size
DRAW = np.random.default_rng(7)
PARTS = DRAW.uniform(-1, 1, (P, 2 * P, 3))  # the input of each rank
same = np.testing.assert_array_equal
close = np.testing.assert_allclose

OPS = {  # op, settings, whether its input and its output are alike, and what each rank gets
    "all_reduce": (dist.all_reduce, {}, False, True, lambda xs: [sum(xs)] * P),
    "copy_to_ranks": (dist.copy_to_ranks, {}, True, False, lambda xs: xs),
    "all_gather": (dist.all_gather, {}, False, True, lambda xs: [np.concatenate(xs)] * P),
    "split_to_ranks": (dist.split_to_ranks, {}, True, False, lambda xs: np.split(xs[0], P)),
    "all_gather, apart": (
        dist.all_gather, {"apart": True}, False, False, lambda xs: [np.concatenate(xs)] * P
    ),
    "reduce_scatter": (dist.reduce_scatter, {}, False, False, lambda xs: np.split(sum(xs), P)),
    "broadcast": (dist.broadcast, {"root": 1}, False, False, lambda xs: [xs[1]] * P),
    "reduce": (
        dist.reduce, {"root": 1}, False, False,
        lambda xs: [sum(xs) if r == 1 else np.zeros_like(xs[0]) for r in range(P)],
    ),
}  # fmt: skip


def total(x, alike):
    """Over all ranks; what is the same on each counts once."""
    return x if alike else WORLD.all_reduce(np.asarray(x))


def values():
    for op, settings, alike, _, expected in OPS.values():
        xs = [PARTS[0 if alike else r] for r in range(P)]
        same(op(xs[RANK], **settings), expected(xs)[RANK])
        turned = [np.asfortranarray(x) for x in xs]
        same(op(turned[RANK], **settings), expected(xs)[RANK])
    for dtype in (np.float16, np.float32, complex, np.int64, bool):
        x = np.arange(4).reshape(2, 2).astype(dtype)
        found = dist.all_reduce(x), dist.all_gather(x), dist.reduce_scatter(x), dist.broadcast(x)
        assert [y.dtype for y in found] == [np.dtype(dtype)] * 4
        same(found[0], x.astype(bool) if dtype is bool else P * x)
    alone = WORLD.split(RANK)
    assert (alone.rank, alone.size) == (0, 1)
    same(dist.all_reduce(np.array([RANK]), alone), [RANK])


def gradients():
    """Each rule is its op's adjoint: Σ u · op(x) = Σ vjp(u) · x, over all ranks."""
    for name, (op, settings, alike_in, alike_out, _) in OPS.items():
        x = mg.tensor(PARTS[0 if alike_in else RANK], requires_grad=True)
        y = op(x, **settings)
        u = np.random.default_rng(0 if alike_out else RANK).uniform(-1, 1, y.shape)
        y.backward(u)
        left = total((u * y.numpy()).sum(), alike_out)
        close(left, total((x.grad * x.numpy()).sum(), alike_in), rtol=1e-12, err_msg=name)


def split_layers():
    """Text 003: heads on two ranks; outputs and gradients are those of the whole layer."""
    draw = np.random.default_rng(1)
    X, U, Y = (draw.normal(size=(2, 5, 24)) for _ in range(3))
    Y = mg.tensor(Y, requires_grad=True)
    mask = create_causal_mask(5)
    kinds = [
        (MultiHeadAttention(24, 4, use_bias=True, rng=0), (mask,), {}),
        (MultiHeadAttention(24, 4, 2, rng=0, position=Rotary(6)), (), {}),
        (MultiHeadAttention(24, 4, rng=0), (), {"context": Y}),
        (FeedForward(24, 34, rng=0), (), {}),
        (GatedFeedForward(24, 34, use_bias=True, rng=0), (), {}),
    ]
    for layer, args, keywords in kinds:
        x, x_whole = (mg.tensor(X, requires_grad=True) for _ in range(2))
        whole, part = layer(x_whole, *args, **keywords), shard(layer)
        whole.backward(U)
        of_context, Y.grad = Y.grad, None
        with mg.trace() as t:
            out = part(x, *args, **keywords)
            out.backward(U)
        close(out.numpy(), whole.numpy(), rtol=0, atol=1e-13)
        close(x.grad, x_whole.grad, rtol=0, atol=1e-13)
        if keywords:
            close(Y.grad, of_context, rtol=0, atol=1e-13)
            Y.grad = None
        assert [e.op for e in t if e.op == "all_reduce"] == ["all_reduce"]
        for path, p in part.part.named_parameters():
            g = dict(layer.named_parameters())[path].grad
            for axis in (-1, 0):
                if g.shape[axis] != p.shape[axis]:
                    g = np.split(g, P, axis)[RANK]
            close(p.grad, g, rtol=0, atol=1e-12, err_msg=path)


def new_model():
    return LanguageModel(11, d_model=8, n_heads=2, n_layers=2, max_len=6, rng=0)


def trained(model, tokens, after=lambda model: None):
    losses, optimizer = [], SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        loss = mg.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        after(model)
        optimizer.step()
        losses.append(loss.item())
    return losses


def training():
    """Split by heads, or by rows, a model learns what it learns on one process."""
    tokens = np.random.default_rng(3).integers(0, 11, (2 * P, 6))
    expected = trained(new_model(), tokens)
    close(trained(shard(new_model()), tokens), expected, rtol=1e-12)
    rows = np.split(tokens, P)[RANK]
    losses = trained(new_model(), rows, average_gradients)
    close(WORLD.all_reduce(np.array(losses)) / P, expected, rtol=1e-12)
    unused = Sequential(FeedForward(3, 4, rng=0), FeedForward(3, 4, rng=0))
    unused.layers[RANK](np.ones((1, 3))).sum().backward()
    unused.layers[1].b_2.grad = None
    average_gradients(unused)
    close(unused.layers[0].b_2.grad, np.full(3, 1 / P))


def compiled():
    """A sum that rank 1 does not use is made all the same, in every call: rank 0 waits for it."""
    x = mg.tensor(PARTS[RANK], requires_grad=True)

    def step(x):
        total = dist.all_reduce(mg.sum(mg.tanh(x)))
        loss = mg.sum(x * x) + (total if RANK == 0 else 0.0)
        loss.backward()
        return loss

    fast = mg.compile(step)
    for _ in range(5):
        x.grad = None
        loss = fast(x)
    assert not fast.reasons
    close(loss.item(), step(mg.tensor(PARTS[RANK], requires_grad=True)).item(), rtol=1e-12)


def part_of_a_feed_forward():
    part = shard(FeedForward(3, 4, rng=0))
    part(np.ones(3)).sum().backward()
    return part.parameters()


def a_step_of_one_alone():
    """Rank 0 takes its step before the gradients are averaged."""
    model = Linear(3, 4, rng=0)
    model(PARTS[RANK]).sum().backward()
    if RANK == 0:
        SGD(model.parameters(), lr=0.1).step()
    average_gradients(model)


REFUSED = {
    "other shapes": lambda: dist.all_reduce(np.ones(3 + RANK)),
    "other collectives": lambda: (dist.all_reduce if RANK else dist.broadcast)(np.ones(3)),
    "other weights": lambda: shard(FeedForward(3, 4, rng=RANK)),
    "clipped alone": lambda: clip_grad_norm(part_of_a_feed_forward(), 1.0),
    "scaled alone": lambda: LossScale(SGD(part_of_a_feed_forward(), lr=0.1)),
    "other seeds": lambda: average_gradients(Linear(3, 4, rng=RANK)),
    "frozen on one": lambda: average_gradients(Linear(3, 4, rng=0).freeze(*["b", "W"][: RANK + 1])),
    "a step of one alone": a_step_of_one_alone,
    "heads": lambda: shard(MultiHeadAttention(9, 3, rng=0)),
    "hidden entries": lambda: shard(FeedForward(3, 5, rng=0)),
    "a bias by heads": lambda: shard(MultiHeadAttention(8, 4, rng=0, position=ALiBi(4))),
    "nothing to split": lambda: shard(Linear(3, 4, rng=0)),
    "statistics": lambda: average_gradients(Sequential(Linear(3, 4, rng=0), BatchNorm(4))),
    "uneven parts": lambda: dist.reduce_scatter(np.ones((3, 4))),
    "no such root": lambda: dist.broadcast(np.ones(3), root=2),
}


def refusals():
    """What is refused is refused on every rank, and the next collective finds all of them."""
    for name, call in REFUSED.items():
        try:
            call()
        except MinigradError as error:
            if RANK == 0:
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
        dist.all_reduce(np.ones(1))


def one_raises():
    if RANK == 1:
        raise ValueError("a bad batch")
    dist.all_reduce(np.ones(3))


if __name__ == "__main__":
    for claim in sys.argv[1:]:
        globals()[claim]()
        print(f"rank {RANK}: {claim}", flush=True)

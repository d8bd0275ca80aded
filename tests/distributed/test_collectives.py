"""Collectives: what they give, their gradients on 1, 2 and 4 ranks, and the bytes they send."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import distributed as dist
from minigrad.errors import ArgumentError, OutOfRangeError, RankError, ShapeError
from tests.compare import refusals

# What is the same on every rank: of the input, of the result. Such a tensor counts once.
ALIKE = {
    "all_reduce": (False, True),
    "copy_to_ranks": (True, False),
    "all_gather": (False, True),
    "split_to_ranks": (True, False),
}
OPS = [op for op in mg.registry.values() if isinstance(op, dist.Collective)]
OPS += [dist.scatter, dist.gather]
on_ranks = pytest.mark.parametrize("p", [1, 2, 4])
each_op = pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)


def draw(op, rank, sample=0, what=0):
    """An input of a rank; the same on every rank where the op takes that."""
    seed = 0 if ALIKE.get(op.__name__, (False, False))[what] else rank + 1
    samples = list(dist.all_reduce.samples(np.random.default_rng([7, what, seed])))
    return samples[sample].args[0]


def expected(op, xs):
    """What each rank gets, in plain NumPy, from what each gives."""
    p, whole = len(xs), np.concatenate(xs)
    total = sum(xs)

    def parts(x):
        return np.split(x, p)

    zeros = [np.zeros_like] * (p - 1)
    return {
        "all_reduce": [total] * p,
        "copy_to_ranks": xs,
        "all_gather": [whole] * p,
        "all_gather_apart": [whole] * p,
        "split_to_ranks": parts(xs[0]),
        "reduce_scatter": parts(total),
        "broadcast": [xs[0]] * p,
        "reduce": [total, *(zero(total) for zero in zeros)],
        "scatter": parts(xs[0]),
        "gather": [whole, *(zero(whole) for zero in zeros)],
        "ring_shift": [xs[r - 1] for r in range(p)],
    }[op.__name__]


@on_ranks
@each_op
@pytest.mark.parametrize("sample", [0, 1, 2])
def test_each_rank_gets_what_the_collective_says(op, p, sample):
    """Also of an array in another memory order, and of one without entries."""
    xs = [draw(op, rank, sample) for rank in range(p)]
    found = dist.run(p, lambda: op(xs[dist.world().rank]))
    for one, other in zip(found, expected(op, xs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-15)


@on_ranks
@each_op
def test_the_rule_is_the_adjoint_on_every_number_of_ranks(op, p):
    """Σ u · op(x) = Σ vjp(u) · x, as ops are linear; what is alike counts once."""
    alike_in, alike_out = ALIKE.get(op.__name__, (False, False))

    def step():
        rank = dist.world().rank
        x = mg.tensor(draw(op, rank), requires_grad=True)
        y = op(x)
        u = np.random.default_rng(0 if alike_out else rank).uniform(-1, 1, y.shape)
        y.backward(u)
        return (u * y.numpy()).sum(), (x.grad * x.numpy()).sum(), x.grad

    ys, xs, gradients = zip(*dist.run(p, step), strict=True)
    left = ys[0] if alike_out else sum(ys)
    right = xs[0] if alike_in else sum(xs)
    np.testing.assert_allclose(left, right, rtol=1e-12)
    if alike_in:
        np.testing.assert_array_equal(gradients[0], gradients[-1])


@on_ranks
@each_op
def test_gradients_of_gradients_agree_with_differences(op, p):
    """In lockstep: each rank moves its own entries by h at once, along one direction."""

    def slope(h):
        def step():
            rank = dist.world().rank
            x = draw(op, rank) + h * draw(op, rank, what=0)
            x = mg.tensor(x, requires_grad=True)
            y = op(mg.tanh(x))
            loss = (y * y).sum()
            g = mg.grad(loss, x, create_graph=True)
            v = mg.tensor(draw(op, rank))
            along = (g * v).sum()
            second = mg.grad(along, x)
            return along.item(), (second * v.numpy()).sum()

        return np.array(dist.run(p, step))

    alike_in = ALIKE.get(op.__name__, (False, False))[0]
    h = 1e-5
    once = slice(0, 1) if alike_in else slice(None)
    numeric = ((slope(h) - slope(-h)) / (2 * h))[once, 0].sum()
    np.testing.assert_allclose(slope(0.0)[once, 1].sum(), numeric, rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble, complex, np.int64])
def test_any_dtype_is_sent_and_comes_back_as_it_is(dtype):
    def step():
        x = np.arange(6).reshape(2, 3).astype(dtype)
        found = [dist.all_reduce(x), dist.all_gather(x), dist.reduce_scatter(x.T[:2])]
        return [*found, dist.scatter(x), dist.gather(x)]

    for found in dist.run(2, step):
        assert [y.dtype for y in found] == [np.dtype(dtype)] * 5
        np.testing.assert_array_equal(found[0], 2 * np.arange(6).reshape(2, 3))


def test_what_is_not_finite_comes_to_the_root_alone():
    x = np.array([np.inf, np.nan, 1.0])
    root, other = dist.run(2, lambda: dist.reduce(x))
    np.testing.assert_array_equal(root, 2 * x)
    np.testing.assert_array_equal(other, np.zeros(3))


test_what_is_refused = refusals(
    (lambda: dist.run(3, lambda: dist.reduce_scatter(np.ones((3, 4)), axis=1)),
     ShapeError, "3 ranks cannot share axis 1 of length 4"),
    (lambda: dist.all_reduce(np.ones(3), 2), ArgumentError, "must be a group of ranks or None"),
    *((lambda f=f, root=root: dist.run(2, lambda: f(np.ones(2), root=root)),
       OutOfRangeError, rf"root must lie in \[0, 2\), got {root}")
      for f in (dist.broadcast, dist.reduce, dist.gather, dist.scatter) for root in (2, -1)),
    (lambda: dist.run(0, print), ArgumentError, "size must be at least 1, got 0"),
)  # fmt: skip


def test_a_collective_is_a_node_with_its_line_formula_and_bytes():
    def step():
        x = mg.tensor(np.ones((3, 5)), requires_grad=True, name="x")
        with mg.trace() as t:
            dist.all_reduce(dist.copy_to_ranks(x).named("X")).sum().backward()
        return t

    t = dist.run(2, step)[1]
    copied, reduced = (entry for entry in t if entry.op in ("copy_to_ranks", "all_reduce"))
    assert "test_collectives.py" in copied.place
    assert (copied.vjp_tex["x"], reduced.tex) == (r"\sum_r <g>^{(r)}", r"\sum_r <x>^{(r)}")
    assert reduced.settings == {"ranks": "<rank 1 of 2>"}


def test_a_checkpoint_sends_nothing_twice():
    sent = []

    def block(x, w):
        y = dist.all_reduce(mg.tanh(dist.copy_to_ranks(x) * w))
        sent.append(dist.world().rank)
        return mg.tanh(y)

    def step(checkpointed):
        rank = dist.world().rank
        x = mg.tensor(np.linspace(-1, 1, 5), requires_grad=True)
        w = mg.tensor(np.linspace(rank, 2, 5), requires_grad=True)
        y = mg.checkpoint(block, x, w) if checkpointed and rank else block(x, w)
        y.sum().backward()
        return x.grad, w.grad

    for one, other in zip(dist.run(2, step, True), dist.run(2, step, False), strict=True):
        np.testing.assert_array_equal(one, other)
    assert sent.count(1) == 3  # the block ran again on rank 1 alone


def test_groups_of_ranks_have_collectives_of_their_own():
    def step():
        world = dist.world()
        rows, columns = world.split(world.rank // 2), world.split(world.rank % 2)
        mine = np.array([10.0**world.rank])
        return dist.all_reduce(mine, rows).item(), dist.all_reduce(mine, columns).item()

    assert dist.run(4, step) == [(11, 101), (11, 1010), (1100, 101), (1100, 1010)]


def test_anomaly_finds_a_tensor_that_should_be_the_same_on_every_rank():
    def step(x):
        with mg.anomaly():
            return dist.copy_to_ranks(x() * 1.0)

    assert len(dist.run(2, step, lambda: mg.tensor(np.ones(3), requires_grad=True))) == 2
    with pytest.raises(RankError, match="must be the same on every rank"):
        dist.run(2, step, lambda: mg.tensor(np.full(3, dist.world().rank), requires_grad=False))


@pytest.mark.parametrize(
    ("op", "dtype", "given", "got", "sent"),
    [
        (dist.all_reduce, np.float64, 12, 12, (144, 0)),
        (dist.copy_to_ranks, np.float64, 12, 12, (0, 144)),
        (dist.all_gather_apart, np.float64, 12, 48, (288, 288)),
        (dist.all_reduce, np.float16, 12, 12, (72, 0)),
        (dist.all_gather, np.float16, 12, 48, (72, 0)),
        (dist.reduce_scatter, np.float16, 48, 12, (144, 72)),
        (dist.reduce_scatter, np.float32, 48, 12, (144, 144)),
        (dist.broadcast, np.float16, 12, 12, (18, 72)),
        (dist.ring_shift, np.float32, 12, 12, (48, 48)),
    ],
)
def test_bytes_are_those_that_travel(op, dtype, given, got, sent):
    """On four ranks; float16 is summed as float32; the last of a broadcast sends nothing on."""
    assert op.count_bytes(np.zeros(given, dtype), np.zeros(got, dtype), 4) == sent

"""Training on many ranks: what one process computes, to rounding; one checkpoint for all."""

import numpy as np
import pytest

import minigrad as mg
from layers import LanguageModel, Linear, Sequential
from layers.parallel import (
    DataParallel,
    ShardedOptimizer,
    Whole,
    clip_grad_norm,
    grid,
    save,
    shard,
    split_cross_entropy,
)
from minigrad import distributed as dist
from minigrad.errors import ArgumentError, RankError
from minigrad.optim import SGD, AdamW
from minigrad.optim import clip_grad_norm as clip_of_one


def make():
    return LanguageModel(
        11, 12, 4, 1, max_len=8, n_kv_heads=2, rng=0, dropout=0.1, attention_dropout=0.1
    )


def batch(step):
    """Of 5 rows, or of 1: fewer than ranks."""
    tokens = np.random.default_rng(step).integers(0, 11, (1 if step % 4 == 3 else 5, 7))
    return tokens[:, :-1], tokens[:, 1:]


def alone(steps):
    """Losses and norms of one process."""
    model = make()
    optimizer, found = AdamW(model.parameters(), 1e-2), []
    for step in range(steps):
        X, y = batch(step)
        optimizer.zero_grad()
        loss = mg.cross_entropy(model(X), y)
        loss.backward()
        found.append((loss.item(), clip_of_one(model.parameters(), 0.5).item()))
        optimizer.step()
    return found, model.state_dict()


class Run:
    """A model, its optimizer, and where it stands in training, on a grid of ranks."""

    def __init__(self, tensor, zero):
        self.data, self.tensor = grid(tensor)
        self.model = shard(make(), self.tensor)
        self.parallel = DataParallel(self.model, self.data)
        self.optimizer = AdamW(self.model.parameters(), 1e-2)
        if zero:
            self.optimizer = ShardedOptimizer(self.optimizer, self.data)

    def train(self, first, last):
        found = []
        for step in range(first, last):
            X, y = batch(step)
            self.optimizer.zero_grad()
            logits = self.model(self.parallel.rows(X))
            loss = split_cross_entropy(logits, self.parallel.rows(y), self.tensor)
            loss = self.parallel.mean(loss)
            loss.backward()
            self.parallel.reduce()
            total = dist.all_reduce(loss.numpy(), self.data).item()
            found.append((total, clip_grad_norm(self.model, 0.5)))
            self.optimizer.step()
        return found

    def parts(self):
        return {"model": Whole(self.model), "optimizer": Whole(self.model, self.optimizer)}


@pytest.mark.parametrize(
    ("p", "tensor", "zero", "steps"),
    [(2, 1, False, 50), (2, 2, False, 50), (3, 1, True, 8), (4, 2, True, 8), (4, 4, False, 8)],
)
def test_losses_are_those_of_one_process(p, tensor, zero, steps):
    """Also with dropout, uneven batches, clipped gradients, and the optimizer's state split."""
    expected, _ = alone(steps)
    for found in dist.run(p, lambda: Run(tensor, zero).train(0, steps)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_a_run_goes_on_from_one_file_on_any_number_of_ranks_or_none(tmp_path):
    """To the same bits on as many ranks, dropout's draws included."""
    path = tmp_path / "run.npz"

    def begin():
        run = Run(2, True)
        run.train(0, 3)
        save(path, **run.parts(), step=3)
        run.train(3, 5)
        return Whole(run.model).state_dict()

    def resume(tensor, zero):
        run = Run(tensor, zero)
        step = mg.load(path, **run.parts())["step"]
        run.train(step, 5)
        return Whole(run.model).state_dict()

    whole = dist.run(4, begin)[0]
    for p, tensor, zero in (4, 2, True), (2, 2, False), (1, 1, False):
        found = dist.run(p, resume, tensor, zero)[-1]
        for name, array in whole.items():
            atol = 0 if p == 4 else 1e-10
            np.testing.assert_allclose(found[name], array, rtol=0, atol=atol, err_msg=name)
    model = make()
    optimizer = AdamW(model.parameters(), 1e-2)
    assert mg.load(path, model=model, optimizer=optimizer)["step"] == 3
    for name, array in alone(3)[1].items():
        np.testing.assert_allclose(model.state_dict()[name], array, rtol=0, atol=1e-10)


def test_the_optimizer_of_a_model_that_is_frozen_in_part_is_kept_by_path():
    def moved(model):
        trained = [p for p in model.parameters() if p.requires_grad]
        for p in trained:
            p.grad = p.numpy() * 2
        optimizer = AdamW(trained, 1e-2)
        optimizer.step()
        return optimizer

    def step():
        part = shard(make().freeze("W_Q", "embedding"))
        optimizer = moved(part)
        state = Whole(part, optimizer).state_dict()
        again = AdamW(optimizer.parameters, 1e-2)
        Whole(part, again).load_state_dict(state)
        return state, Whole(part, again).state_dict()

    expected = moved(make().freeze("W_Q", "embedding")).state_dict()
    for states in dist.run(2, step):
        for state in states:
            assert state["shapes"] == expected["shapes"]
            for i, kept in expected["kept"].items():
                np.testing.assert_array_equal(state["kept"][i]["mean"], kept["mean"])


def test_gradients_of_parts_of_a_batch_may_be_added_up_before_they_are_sent():
    X, y = np.random.default_rng(5).normal(size=(2, 4, 3)), np.zeros((2, 4, 2))
    layer = Linear(3, 2, rng=0)
    mg.mean((layer(X.reshape(8, 3)) - y.reshape(8, 2)) ** 2).backward()

    def step():
        own = Linear(3, 2, rng=0)
        parallel = DataParallel(own)
        for x, t in zip(X, y, strict=True):
            out = own(parallel.rows(x)) - parallel.rows(t)
            parallel.mean(mg.scale(mg.mean(out * out), 0.5)).backward()
        parallel.reduce()
        return own.W.grad, own.b.grad

    for W, b in dist.run(3, step):
        np.testing.assert_allclose(W, layer.W.grad, rtol=1e-12)
        np.testing.assert_allclose(b, layer.b.grad, rtol=1e-12)


def test_a_layer_that_only_some_ranks_use_has_the_gradient_of_those():
    """Of two alike, each used by one rank, and of a third that none uses."""
    X = np.random.default_rng(5).normal(size=(6, 3))

    def step():
        layers = [Linear(3, 2, rng=k) for k in range(3)]
        parallel = DataParallel(Sequential(*layers))
        mg.sum(layers[dist.world().rank](parallel.rows(X))).backward()
        parallel.reduce()
        with pytest.raises(RankError, match="added up over the ranks again"):
            parallel.reduce()
        SGD(parallel.model.parameters(), lr=0.1).step()
        return [layer.W.grad for layer in layers]

    for first, second, third in dist.run(2, step):
        np.testing.assert_allclose(first, X[:3].sum(0)[:, None].repeat(2, 1))
        np.testing.assert_allclose(second, X[3:].sum(0)[:, None].repeat(2, 1))
        assert third is None


def test_the_state_of_an_optimizer_is_split_among_ranks():
    def step():
        model = make()
        optimizer = ShardedOptimizer(AdamW(model.parameters(), 1e-2))
        for p in model.parameters():
            p.grad = np.ones_like(p.numpy())
        optimizer.step()
        optimizer.lr = 3e-3
        kept = optimizer.optimizer.state_dict()["kept"]
        return sum(state["mean"].size for state in kept.values()), optimizer.optimizer.lr

    numbers = sum(p.size for p in make().parameters())
    found = dist.run(3, step)
    assert sum(own for own, _ in found) == numbers
    assert max(own for own, _ in found) < 0.45 * numbers
    assert found[0][1] == 3e-3


def test_a_step_that_is_refused_leaves_every_rank_its_gradients():
    def step():
        model = make()
        parallel = DataParallel(model)
        optimizer = ShardedOptimizer(AdamW(model.parameters(), 1e-2))
        parallel.mean(mg.sum(model(parallel.rows(np.array([[3, 1], [4, 1]]))))).backward()
        with pytest.raises(RankError, match=r"call reduce\(\)"):
            optimizer.step()
        return all(p.grad is not None for p in model.parameters())

    assert dist.run(2, step) == [True, True]


def test_a_grid_that_the_ranks_do_not_fill_is_an_error():
    with pytest.raises(
        ArgumentError, match=r"must divide the number of ranks, which is 1.*mpiexec -n 2"
    ):
        grid(tensor=2)
    with pytest.raises(ArgumentError, match="which is 3"):
        dist.run(3, grid, 2)

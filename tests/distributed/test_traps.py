"""What is wrong on many ranks, or right on one alone, is refused by name, with the remedy."""

import numpy as np
import pytest

import minigrad as mg
from layers import (
    BatchNorm,
    Dropout,
    FeedForward,
    LanguageModel,
    Linear,
    Sequential,
    generate,
)
from layers.parallel import (
    DataParallel,
    ShardedOptimizer,
    Whole,
    clip_grad_norm,
    shard,
    split_cross_entropy,
)
from minigrad import distributed as dist
from minigrad.errors import ArgumentError, OutOfRangeError, RankError
from minigrad.optim import SGD, LossScale, schedule
from minigrad.optim import clip_grad_norm as clip_of_one
from minigrad.optim.updates import observers


def sharded():
    return shard(LanguageModel(11, 12, 4, 1, max_len=8, rng=0))


def train(forget=None, skip=None, keep=None):
    """Three steps, of which one forgets to add gradients up; the optimizer skips another, and one
    adds to the gradients of the step before.
    """
    model = Linear(3, 2, rng=0)
    parallel = DataParallel(model)
    optimizers = [SGD([p], lr=0.1) for p in model.parameters()]
    for step in range(3):
        loss = parallel.mean(model(parallel.rows(np.ones((4, 3)))).sum())
        for optimizer in optimizers if step != keep else ():
            optimizer.zero_grad()
        loss.backward()
        if step != forget:
            parallel.reduce()
        for optimizer in optimizers if step != skip else ():
            optimizer.step()
    return optimizers[0].steps


def reduce_every_part(parts):
    """Gradients of several parts of a batch, each added up over the ranks with those before."""
    model = Linear(3, 2, rng=0)
    parallel = DataParallel(model)
    for x in parts:
        model(parallel.rows(x)).sum().backward()
        parallel.reduce()


def test_the_check_of_reduced_gradients_leaves_with_its_data_parallel():
    def known():
        parallel = DataParallel(Linear(3, 2, rng=0))
        check = parallel.reduced
        there = check in observers
        del parallel
        return there, check in observers

    assert dist.run(2, known) == [(True, False)] * 2


def another_seed_on_each_rank():
    model = FeedForward(4, 6, rng=dist.world().rank)
    made = DataParallel(model)
    model(made.rows(np.ones((2, 4)))).sum().backward()
    made.reduce()


def overflow(**ranks):
    """A step where the gradients of one rank are not finite."""
    model = sharded()
    scaler = LossScale(SGD(model.parameters(), lr=0.1), **ranks)
    for p in model.parameters():
        p.grad = np.full(p.shape, np.inf if dist.world().rank == 1 else 1.0)
    scaler.step()
    return scaler.skipped, scaler.scale


def compiled_backward():
    """Nine steps of which the compiled part clears the gradients."""
    model = Linear(3, 2, rng=0)
    parallel, optimizer = DataParallel(model), SGD(model.parameters(), lr=0.1)

    @mg.compile
    def backward(x):
        optimizer.zero_grad()
        parallel.mean(mg.mean(model(x))).backward()

    for _ in range(9):
        backward(parallel.rows(np.ones((4, 3))))
        parallel.reduce()
        optimizer.step()
    return optimizer.steps, backward.recordings, backward.reasons


def loss_of(token):
    return split_cross_entropy(sharded()(np.array([[1, 2]])), np.array([[1, token]]))


OTHER_SEED = r"W_1 of rank 1 is not that of rank 0; draw weights from the"
TOKENS = r"must lie in \[0, 11\), got"
TRAPS = [
    (lambda: DataParallel(Sequential(Linear(3, 5, rng=0), BatchNorm(5))),
     ArgumentError, r"layers\.1 is a BatchNorm.*GroupNorm"),
    (lambda: shard(Sequential(Linear(3, 5, rng=0), mg.relu)),
     ArgumentError, r"Sequential holds nothing.*DataParallel"),
    (lambda: shard(FeedForward(4, 6, rng=dist.world().rank)), RankError, OTHER_SEED),
    (another_seed_on_each_rank, RankError, OTHER_SEED),
    (lambda: train(1), RankError, r"SGD\.step\(\).*this rank's rows; call reduce\(\)"),
    (lambda: train(forget=1, skip=0), RankError, r"rows; call reduce\(\)"),
    (lambda: train(keep=1), RankError, "added up over the ranks again"),
    (lambda: reduce_every_part(np.ones((2, 4, 3))), RankError, r"added up over the ranks again"),
    (lambda: reduce_every_part(np.ones((1, 1, 3))), RankError, r"a row that another rank has"),
    (lambda: clip_of_one(sharded().parameters(), 1.0),
     ArgumentError, r"call layers\.parallel\.clip_grad_norm\(model, max_norm\)"),
    (lambda: clip_grad_norm(Linear(3, 2, rng=0), 1.0),
     ArgumentError, "Linear is not split over ranks"),
    (lambda: Whole(Linear(3, 2, rng=0)), ArgumentError, r"Whole\(model\): Linear is not split"),
    (lambda: sharded()(np.array([[1, -1]])), OutOfRangeError, TOKENS),
    (lambda: sharded()(np.array([[1, 11]])), OutOfRangeError, TOKENS),
    (lambda: loss_of(-1), OutOfRangeError, f"split_cross_entropy: tokens {TOKENS}"),
    (lambda: loss_of(11), OutOfRangeError, f"split_cross_entropy: tokens {TOKENS}"),
    (lambda: list(generate(sharded(), [1, 2], 2)), ArgumentError, r"gather\(model, like\)"),
    (overflow, ArgumentError, r"pass ranks="),
]  # fmt: skip


@pytest.mark.parametrize(("program", "error", "said"), TRAPS)
def test_what_is_wrong_on_many_ranks_is_refused(program, error, said):
    with pytest.raises(error, match=said):
        dist.run(2, program)


def test_the_same_programs_without_the_mistake_run():
    assert dist.run(2, train) == [3, 3]
    assert dist.run(2, train, None, 1) == [2, 2]
    assert dist.run(2, lambda: reduce_every_part(np.ones((1, 2, 3)))) == [None] * 2
    where_one_overflows_all_skip = dist.run(2, lambda: overflow(ranks=dist.world()))
    assert where_one_overflows_all_skip == [(1, 2.0**11)] * 2


def test_gradients_that_a_compiled_step_cleared_are_added_up_anew():
    assert dist.run(2, compiled_backward) == [(9, 1, [])] * 2


def test_dropout_in_a_sequential_draws_what_one_process_draws():
    X = np.ones((6, 50))

    def apart():
        model = Sequential(Dropout(0.5, np.random.default_rng(3)))
        parallel = DataParallel(model)
        return model(parallel.rows(X)).numpy()

    whole = Sequential(Dropout(0.5, np.random.default_rng(3)))(X).numpy()
    np.testing.assert_array_equal(np.concatenate(dist.run(2, apart)), whole)


def test_a_schedule_sets_the_rate_of_a_sharded_optimizer():
    def program():
        w = mg.tensor(np.ones(3), requires_grad=True)
        optimizer = ShardedOptimizer(SGD([w], lr=0.4))
        decay = schedule.linear(optimizer, steps=4)
        for _ in range(2):
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
            decay.step()
        return optimizer.lr

    assert dist.run(2, program) == [0.2, 0.2]


def test_a_sharded_optimizer_skips_a_step_that_overflows():
    def program():
        w = mg.tensor(np.ones(3), requires_grad=True)
        optimizer = ShardedOptimizer(SGD([w], lr=0.5))
        scaler = LossScale(optimizer, scale=8.0)
        for gradient in (1.0, np.inf):
            optimizer.zero_grad()
            scaler.backward(mg.sum(w * gradient))
            scaler.step()
        return w.numpy().tolist(), repr(scaler)

    said = "LossScale(scale=4): 1 steps taken, 1 skipped"
    assert dist.run(2, program) == [([0.5] * 3, said)] * 2


def test_one_rank_alone_saves_a_sharded_model(tmp_path):
    def program():
        model = sharded()
        if dist.world().rank == 0:
            mg.save(tmp_path / "run.npz", model=Whole(model))

    with pytest.raises(RankError, match="the state of a sharded model, for which every rank calls"):
        dist.run(2, program)
    assert not (tmp_path / "run.npz").exists()

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


def language_model():
    return LanguageModel(11, 12, 4, 1, max_len=8, rng=0)


def on_two_ranks(program, error, match):
    with pytest.raises(error, match=match):
        dist.run(2, program)


def test_batch_norm_under_data_parallel():
    model = Sequential(Linear(3, 5, rng=0), BatchNorm(5))
    on_two_ranks(lambda: DataParallel(model), ArgumentError, r"layers\.1 is a BatchNorm.*GroupNorm")


def test_dropout_in_a_sequential_draws_what_one_process_draws():
    X = np.ones((6, 50))

    def apart():
        model = Sequential(Dropout(0.5, np.random.default_rng(3)))
        parallel = DataParallel(model)
        return model(parallel.rows(X)).numpy()

    whole = Sequential(Dropout(0.5, np.random.default_rng(3)))(X).numpy()
    np.testing.assert_array_equal(np.concatenate(dist.run(2, apart)), whole)


def test_a_model_of_which_nothing_is_split():
    model = Sequential(Linear(3, 5, rng=0), mg.relu)
    on_two_ranks(lambda: shard(model), ArgumentError, r"Sequential holds nothing.*DataParallel")


@pytest.mark.parametrize("split", [shard, DataParallel])
def test_a_seed_for_each_rank(split):
    def program():
        model = FeedForward(4, 6, rng=dist.world().rank)
        made = split(model)
        if split is DataParallel:
            model(made.rows(np.ones((2, 4)))).sum().backward()
            made.reduce()

    on_two_ranks(program, RankError, r"W_1 of rank 1 is not that of rank 0; draw weights from the")


def test_a_forgotten_reduce_is_found_at_the_step():
    def program(forget):
        model = Linear(3, 2, rng=0)
        parallel, optimizer = DataParallel(model), SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            model(parallel.rows(np.ones((4, 3)))).sum().backward()
            if step != forget:
                parallel.reduce()
            optimizer.step()
        return optimizer.steps

    assert dist.run(2, program, None) == [3, 3]
    on_two_ranks(lambda: program(1), RankError, r"SGD\.step\(\).*this rank's rows; call reduce\(\)")


def test_the_wrong_one_of_the_two_clip_grad_norms():
    def of_one():
        model = shard(language_model())
        clip_of_one(model.parameters(), 1.0)

    on_two_ranks(of_one, ArgumentError, r"call layers\.parallel\.clip_grad_norm\(model, max_norm\)")
    model = Linear(3, 2, rng=0)
    on_two_ranks(
        lambda: clip_grad_norm(model, 1.0), ArgumentError, "Linear is not split over ranks"
    )


def test_whole_of_a_model_that_is_not_sharded():
    on_two_ranks(
        lambda: Whole(Linear(3, 2, rng=0)), ArgumentError, r"Whole\(model\): Linear is not split"
    )


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


@pytest.mark.parametrize("token", [-1, 11])
def test_a_token_that_no_rank_has(token):
    tokens = np.array([[1, token]])

    def loss():
        model = shard(language_model())
        split_cross_entropy(model(np.array([[1, 2]])), tokens)

    on_two_ranks(
        lambda: shard(language_model())(tokens), OutOfRangeError, r"must lie in \[0, 11\), got"
    )
    on_two_ranks(loss, OutOfRangeError, r"split_cross_entropy: tokens must lie in \[0, 11\)")


def test_generate_by_a_sharded_model():
    on_two_ranks(
        lambda: list(generate(shard(language_model()), [1, 2], 2)),
        ArgumentError,
        r"gather\(model, like\)",
    )


def test_where_one_rank_overflows_all_skip_the_step():
    def program(ranks):
        world = dist.world()
        model = shard(language_model())
        scaler = LossScale(SGD(model.parameters(), lr=0.1), ranks=world if ranks else None)
        for p in model.parameters():
            p.grad = np.full(p.shape, np.inf if world.rank == 1 else 1.0)
        scaler.step()
        return scaler.skipped, scaler.scale

    assert dist.run(2, program, True) == [(1, 2.0**11)] * 2
    on_two_ranks(lambda: program(False), ArgumentError, r"pass ranks=")


def test_one_rank_alone_saves_a_sharded_model(tmp_path):
    def program():
        model = shard(language_model())
        if dist.world().rank == 0:
            mg.save(tmp_path / "run.npz", model=Whole(model))

    on_two_ranks(program, RankError, "the state of a sharded model, for which every rank calls")
    assert not (tmp_path / "run.npz").exists()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_bytes_are_those_that_travel(dtype):
    """float16 is summed as float32; of a broadcast the last rank sends nothing on."""
    x = np.zeros(12, dtype)
    wide = 4 * 12
    own = x.nbytes
    p = 4
    assert dist.all_reduce.count_bytes(x, x, p)[0] == 2 * wide * (p - 1) // p
    assert dist.all_gather.count_bytes(x, np.zeros(48, dtype), p)[0] == own * (p - 1)
    assert dist.reduce_scatter.count_bytes(np.zeros(48, dtype), x, p)[0] == wide * (p - 1)
    assert dist.broadcast.count_bytes(x, x, p)[0] == own * (p - 1) // p

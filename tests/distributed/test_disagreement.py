"""Where ranks do different things, each gets an error that names ranks, calls and lines."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import distributed as dist
from minigrad.errors import ArgumentError, RankError


def leaf(shape=(3,), name=None):
    return mg.tensor(np.ones(shape), requires_grad=True, name=name)


def other_order(rank):
    for name in ("ba", "ab")[rank]:
        dist.all_reduce(leaf(name=name))


def a_result_unused_in_backward(rank):
    x = leaf(name="x")
    y = dist.copy_to_ranks(x)
    (x if rank else y).sum().backward()
    dist.all_reduce(leaf(name="next"))


def fewer_gradients(rank):
    x, w = leaf(name="x"), leaf(name="w")
    y = (dist.copy_to_ranks(x) * w).sum()
    mg.grad(y, [w] if rank else [x, w])


def one_collective_more(rank):
    for _ in range(2 - rank):
        dist.all_reduce(leaf(name="x"))


def two_groups_in_another_order(rank):
    one, two = dist.world().split(0), dist.world().split(0)
    for group in (one, two) if rank else (two, one):
        dist.all_reduce(leaf(name="x"), group)


CASES = [
    (lambda rank: (dist.all_gather if rank else dist.all_reduce)(leaf()),
     ["rank 0: all_reduce() of (3,) float64", "rank 1: all_gather(, axis=0)"]),
    (lambda rank: dist.all_reduce(leaf((3 + rank,))), ["rank 1: all_reduce() of (4,) float64"]),
    (lambda rank: dist.all_reduce(np.ones(3, np.float32 if rank else np.float64)),
     ["rank 1: all_reduce() of (3,) float32"]),
    (lambda rank: dist.all_gather(leaf((3, 3)), axis=rank),
     ["rank 0: all_gather(, axis=0)", "rank 1: all_gather(, axis=1)"]),
    (other_order, ["rank 0: all_reduce(b)", "rank 1: all_reduce(a)"]),
    (a_result_unused_in_backward,
     ["rank 0: all_reduce(gradient of x)", "backward of copy_to_ranks", "rank 1: all_reduce(next"]),
    (fewer_gradients, ["rank 0 waits in all_reduce(gradient of x)", "its program has ended"]),
    (one_collective_more, ["rank 0 waits in all_reduce(x)", "for rank 1", "program has ended"]),
    (two_groups_in_another_order, ["waits for another collective"]),
]  # fmt: skip


@pytest.mark.parametrize(("program", "said"), CASES)
def test_a_disagreement_is_an_error_on_every_rank_that_waits(program, said):
    with pytest.raises(RankError) as caught:
        dist.run(2, lambda: program(dist.world().rank))
    for text in [*said, "test_disagreement.py:"]:
        assert text in str(caught.value)


def test_an_error_on_one_rank_ends_the_others_and_is_what_is_raised():
    def program():
        if dist.world().rank == 1:
            raise ValueError("a bad batch")
        dist.all_reduce(leaf(name="x"))

    with pytest.raises(ValueError, match="a bad batch") as caught:
        dist.run(3, program)
    assert caught.value.__notes__ == ["on rank 1 of 3"]


def test_a_rank_that_does_nothing_for_too_long_is_an_error(monkeypatch):
    """The others give up after MINIGRAD_WAIT seconds, which must be a number."""
    import threading

    given_up = threading.Event()

    def program():
        if dist.world().rank:
            given_up.wait()
        try:
            dist.all_reduce(leaf(name="x"))
        finally:
            given_up.set()

    monkeypatch.setenv("MINIGRAD_WAIT", "0.1")
    with pytest.raises(RankError, match="nothing of it for"):
        dist.run(2, program)
    monkeypatch.setenv("MINIGRAD_WAIT", "soon")
    with pytest.raises(ArgumentError, match="must be a number of seconds above 0, is 'soon'"):
        dist.run(2, program)

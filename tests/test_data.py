"""Batches: every example once in each epoch, in an order that can be saved and gone on with."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.data import batches
from minigrad.errors import ArgumentError, DTypeError, GradientError, ShapeError
from tests.compare import refusals

X = np.arange(22).reshape(11, 2)


def test_an_epoch_gives_every_example_once_and_pairs_stay_together(rng):
    seen = []
    for x, y in batches(X, list(X[:, 0]), batch_size=4, rng=rng):
        np.testing.assert_array_equal(x[:, 0], y)
        seen += y.tolist()
    assert sorted(seen) == X[:, 0].tolist()
    assert seen != sorted(seen)


def test_each_epoch_has_an_order_of_its_own(rng):
    data = batches(X, batch_size=11, rng=rng)
    first, second = ([x.tolist() for x in data] for _ in range(2))
    assert first != second


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [4, 4, 3]), (True, [4, 4])])
def test_the_last_batch_is_kept_or_dropped_and_len_counts_it(drop_last, sizes):
    data = batches(X, batch_size=4, drop_last=drop_last)
    assert [len(x) for x in data] == sizes
    assert (len(data), data.epoch, data.position) == (len(sizes), 1, 0)


class Column:
    """A column of a table, as pandas has it after its rows were shuffled: labels, not positions."""

    def __len__(self):
        return 3

    def __getitem__(self, label):
        return {2: "a", 0: "b", 1: "c"}[label]

    def __array__(self, dtype=None, copy=None):
        return np.array(["a", "b", "c"])


def test_tensors_columns_and_other_sequences_are_taken_by_position():
    ragged = [[1], [2, 3], [4, 5]]
    given = mg.tensor(X[:3]), ["a", "b", "c"], range(3), Column(), ragged
    x, words, numbers, column, lists = next(iter(batches(*given, batch_size=3)))
    np.testing.assert_array_equal(x, X[:3])
    np.testing.assert_array_equal(numbers, [0, 1, 2])
    assert words == column.tolist() == ["a", "b", "c"]
    assert lists == ragged


def test_a_loop_within_another_over_the_same_batches_leaves_it_alone(rng):
    """As where the accuracy on the training data is measured during an epoch."""
    data, outer = batches(X, batch_size=4, rng=rng), []
    for x in data:
        outer += x[:, 0].tolist()
        assert sorted(row for y in data for row in y[:, 0].tolist()) == X[:, 0].tolist()
        assert len(outer) <= len(X)
    assert sorted(outer) == X[:, 0].tolist()
    assert data.epoch == 4


def load_state_of(data, **settings):
    other = batches(data, batch_size=4, **settings)
    batches(X, batch_size=4).load_state_dict(other.state_dict())


test_what_is_refused = refusals(
    (lambda: batches(X, batch_size=0),
     ArgumentError, "batch_size must be an integer from 1 on, got 0"),
    (lambda: batches(X, batch_size=2, rng=0), DTypeError, r"rng must be a Generator, got 0"),
    (lambda: batches(X, 64, batch_size=2), DTypeError, "an? int has no positions"),
    (lambda: batches(np.ma.masked_equal(X, 3), batch_size=2), DTypeError, r"x\.filled"),
    (lambda: batches(batch_size=2), ShapeError, r"one length, got \[\]"),
    (lambda: batches(X, batch_size=12, drop_last=True), ArgumentError, "11 examples make no batch"),
    (lambda: batches(iter(X), batch_size=2), DTypeError, "has no positions; write a list"),
    (lambda: batches(mg.tensor(1.0 * X, requires_grad=True), batch_size=2),
     GradientError, "detach"),
    (lambda: load_state_of(X[:5]), ArgumentError, "11 examples and .*, 5 and"),
    (lambda: load_state_of(X, rng=np.random.default_rng(0)),
     ArgumentError, "11 examples and rng=None here, 11 and {.*} in the state"),
)  # fmt: skip

"""Best: the best state so far, in memory and in a file."""

import numpy as np
import pytest

import minigrad as mg
from layers import Dropout, Linear, Sequential
from minigrad.errors import ArgumentError
from minigrad.optim import Adam
from tests.compare import refusals


def model_of(seed=0):
    return Sequential(Linear(3, 2, rng=seed), Dropout(0.5, rng=seed))


def move(model, to):
    model[0].W.assign_(np.full((3, 2), float(to)))


@pytest.mark.parametrize(
    ("mode", "values", "better"),
    [
        ("min", [3.0, 2.0, 2.0, float("nan"), 1.0, 5.0], [True, True, False, False, True, False]),
        ("max", [3.0, 2.0, 4.0, np.float32(4), 9.0, 5.0], [True, False, True, False, True, False]),
        ("min", [float("nan"), mg.tensor(2.0), float("inf")], [False, True, False]),
    ],
)
def test_the_best_by_its_number_is_put_back_from_memory_and_from_the_file(
    mode, values, better, tmp_path
):
    model = model_of()
    best = mg.Best(model, "val_loss", tmp_path / "best.npz", mode=mode)
    for step, value in enumerate(values):
        move(model, step)
        assert best.update(value, step) == better[step]
    at = max(k for k, found in enumerate(better) if found)
    assert (best.step, best.value, best.waited) == (at, float(values[at]), len(values) - 1 - at)
    found = mg.load(tmp_path / "best.npz", model=(other := model_of(1)))
    assert (found["step"], found["note"]) == (at, {"val_loss": float(values[at])})
    best.restore()
    for one in (model, other):
        np.testing.assert_array_equal(one[0].W.numpy(), np.full((3, 2), float(at)))
    assert [path.name for path in tmp_path.iterdir()] == ["best.npz"]


def test_patience_runs_out_after_so_many_updates_in_a_row_without_a_better_number():
    best = mg.Best(model_of(), patience=2)
    stops = []
    for value in (3.0, 4.0, 2.0, 2.5, float("nan"), 2.0, 1.0):
        best.update(value)
        stops.append(best.should_stop)
    assert stops == [False, False, False, False, True, True, False]
    assert not mg.Best(model_of()).should_stop


def test_other_parts_and_generators_go_back_too():
    model, x = model_of(), np.ones((5, 3))
    optimizer = Adam(model.parameters())
    best = mg.Best(model, optimizer=optimizer)

    def step():
        optimizer.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    step()
    best.update(1.0)
    first = [step() for _ in range(3)]
    best.restore()
    assert [step() for _ in range(3)] == first


def test_a_run_that_is_stopped_and_loaded_knows_its_best(tmp_path):
    model = model_of()
    best = mg.Best(model, patience=3)
    move(model, 7)
    best.update(1.0, step=5)
    move(model, 8)
    best.update(2.0)
    mg.save(tmp_path / "run.npz", model=model, best=best)
    other = model_of(1)
    again = mg.Best(other, patience=3)
    mg.load(tmp_path / "run.npz", model=other, best=again)
    assert (again.value, again.step, again.waited) == (1.0, 5, 1)
    again.restore()
    np.testing.assert_array_equal(other[0].W.numpy(), np.full((3, 2), 7.0))
    more = mg.Best(other, rng=np.random.default_rng(0))
    with pytest.raises(ArgumentError, match=r"Best: has \['model', 'rng'\], the file \['model'\]"):
        mg.load(tmp_path / "run.npz", best=more)


test_what_is_refused = refusals(
    (lambda: mg.Best(model_of(), mode="less"), ArgumentError, 'mode must be "min" or "max"'),
    (lambda: mg.Best(model_of(), patience=0), ArgumentError, "patience must be at least 1, got 0"),
    (lambda: mg.Best(model_of(), "acc").restore(), ArgumentError, "no acc has been a number yet"),
)

"""What is typed from habit works, or meets an error that says what to write: one table has it."""

import re

import numpy as np
import pytest

import layers
import minigrad as mg
from layers import Linear, Sequential
from minigrad import habits
from minigrad.errors import MissingNameError


@pytest.fixture
def names(rng):
    """What the right sides of the table may name."""
    x = mg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True, name="x")
    layer = Linear(3, 2, rng=rng)
    model = Sequential(Linear(3, 3, rng=rng))
    return {
        "mg": mg, "layers": layers, "np": np, "Linear": Linear, "Sequential": Sequential,
        "x": x, "q": mg.tensor(rng.normal(size=(2, 7, 8))), "targets": np.array([0, 2]),
        "rng": rng, "layer": layer, "model": model,
        "optimizer": mg.optim.Adam(model.parameters()),
    }  # fmt: skip


@pytest.mark.parametrize("ours", dict.fromkeys(habits.HABITS.values()))
def test_what_to_write_instead_runs(ours, names):
    exec(ours, names)


def test_the_table_has_at_most_sixty_rows_and_the_guide_prints_each():
    assert 50 < len(habits.markdown().splitlines()) - 2 <= 60


@pytest.mark.parametrize("name", habits.HABITS)
def test_a_name_of_habit_meets_what_to_write_wherever_it_is_missing(name):
    model = Sequential(Linear(3, 3))
    lacking = [x for x in (mg.tensor([1.0]), mg, layers, model) if not hasattr(x, name)]
    assert lacking
    for owner in lacking:
        with pytest.raises(MissingNameError, match=re.escape(habits.HABITS[name])):
            getattr(owner, name)


def test_other_names_meet_the_op_the_nearest_or_numpys():
    for owner, name, remedy in (
        (mg.tensor([1.0]), "gelu", "write mg.gelu"),
        (mg.tensor([1.0]), "searchsorted", "write x.numpy().searchsorted"),
        (layers, "softmax", "write mg.softmax"),
        (mg, "softmaks", "the nearest is softmax"),
        (Linear(2, 3), "forwad", "the nearest is forward"),
    ):
        with pytest.raises(MissingNameError, match=re.escape(remedy)):
            getattr(owner, name)
    assert not hasattr(mg.tensor([1.0]), "nothing_like_it")


def test_a_number_is_rounded_and_formatted_as_pythons():
    assert round(mg.tensor(1.2345), 2) == 1.23
    assert f"{mg.tensor(1.2345):.2f}" == "1.23"

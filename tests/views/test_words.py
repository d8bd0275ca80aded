"""The same fact has the same words and digits in every view."""

import re

import numpy as np
import pytest

import minigrad as mg
from layers import LinearKernel, MultiHeadAttention, SelfAttention
from minigrad.record.finish import finish
from minigrad.views import words
from tests.record.models import traced
from tests.views.graphs import RUNS, attention, mlp, views_of


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_the_loss_has_the_same_digits_in_every_view(run):
    t = run()
    loss = words.digits(t["loss"].value.item())
    for view, text in views_of(t).items():
        assert f"loss = {loss}" in text, view


def test_before_any_backward_every_view_says_so():
    with mg.trace() as t:
        mg.sum(mg.exp(mg.tensor(np.ones(3), requires_grad=True, name="x")))
    texts = views_of(t)
    assert all("backward has not run" in text for text in texts.values())
    assert "## Backward" not in texts["derivation"]
    assert "class=gradient" not in texts["picture"]


def test_a_gradient_that_is_zero_in_theory_is_called_so_and_not_by_its_rounding():
    b_K = attention()["b_K"]
    assert words.gradient(b_K) == "0 in theory"
    rounding = f"{b_K.gradient_rms:.1e}"
    for view, text in views_of(attention()).items():
        assert "0 in theory" in text, view
        assert rounding not in text or view == "page", view


def test_where_grad_holds_more_than_the_last_backward_every_view_says_so():
    x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    with mg.trace() as t:
        mg.sum(x * 2.0).named("first").backward()
        mg.sum(x * 3.0).named("loss").backward()
    [note] = finish(t).notes[:1]
    for view, text in views_of(t).items():
        flat = re.sub(r"<[^>]*>", " ", text.replace("&#160;", "")).replace("\\", "")
        assert re.sub(r"\W+", "", note) in re.sub(r"\W+", "", flat), view


def test_what_is_wrong_is_said_first(plant):
    plant("exp", "x", lambda g: g * 1.01)
    with mg.trace() as t:
        mg.sum(mg.exp(SelfAttention(5, 3, 4, rng=0)(np.ones((1, 7, 5))))).backward()
    t.check(ops=True)
    assert [verdict.ok for verdict in words.verdicts(t.checks)] == [False, True]


def test_what_was_not_checked_is_counted_and_what_was_is_not():
    said = [verdict.sentence for verdict in words.verdicts(finish(mlp.__wrapped__()).checks)]
    assert said == ["4 backward steps not checked numerically: t.check(ops=True) does"]
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with mg.trace() as t:
        mg.sum(mg.exp(x) * mg.relu(0.0 * x)).backward()
    t.check(ops=True)
    [verdict] = words.verdicts(t.checks)
    assert verdict.ok
    assert re.match("4 backward steps agree with numeric derivatives, to", verdict.sentence)
    assert verdict.sentence.endswith("1 not checked: at kinks, where there is no derivative")


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (1e-3, "the gradient shrinks 1,000 times on the way to x"),
        (1e3, "the gradient grows 1,000 times on the way to x"),
        (-1.0, "exactly 0 at x"),
        (np.inf, "infinite from x on"),
    ],
)
def test_the_headline_says_what_becomes_of_the_gradient_and_where_it_is_lost(by, said):
    x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    with np.errstate(invalid="ignore"):
        t = traced(lambda: mg.sum(mg.relu(x * by)).named("loss"))
    assert said in words.headline(t)


def test_a_layer_that_no_derived_steps_cover_is_named():
    layer = MultiHeadAttention(6, 2, rng=0, attend=LinearKernel())
    with mg.trace() as t:
        mg.sum(layer(np.ones((1, 3, 6)))).backward()
    said = [verdict.sentence for verdict in words.verdicts(finish(t).checks)]
    assert "no derived steps cover MultiHeadAttention with LinearKernel" in said


def test_every_view_shows_a_run_whatever_its_numbers():
    for size in (1e-200, 1e200, np.inf, np.nan):
        x = mg.tensor(np.full(3, size), requires_grad=True, name="x")
        with np.errstate(all="ignore"), mg.trace() as t:
            mg.sum(x * size).named("loss").backward()
        assert all(views_of(t).values())

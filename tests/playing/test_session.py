"""A run that is played with: a change gives what a fresh run with that value gives."""

import json
import re
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import minigrad as mg
from layers import Linear
from minigrad.errors import ArgumentError
from minigrad.optim import Adam
from minigrad.playing.run import Source
from minigrad.playing.session import PlaySession
from minigrad.views.attention import attentions
from minigrad.views.page import page_html
from tests.browsing import answer_of
from tests.compare import assert_same

from .functions import LAYER, MASK, WORDS, X, attention, ratio


def session(function=attention):
    name = function.__name__
    tokens = getattr(function, "tokens", None)
    page = {"title": f"{name}: {' '.join(tokens or ())}", "tokens": tokens}
    return PlaySession(Source(lambda: function, name, name=name), lambda run: dict(page))


def node(of, name):
    """The last entry of a name, or of an op."""
    found = [e.id for e in of.run.trace.entries if name in (e.name, e.op)]
    return found[-1]


def mask_of(of):
    constants = [e for e in of.run.trace.entries if e.kind == "constant"]
    return next(e.id for e in constants if e.shape == (5, 5))


def gradients(of):
    return {e.path: e.gradient for e in of if e.learns}


# ---------------------------------------------------------------- an edit is a fresh run


@contextmanager
def holding(array, index, value):
    before = array[index]
    array[index] = value
    yield
    array[index] = before


def first_scale(of):
    return next(e.id for e in of.run.trace.entries if e.op == "scale")


OTHER = "the dog slept on it"
# a change, what the function runs within to give the same, and its arguments
CHANGES = {
    "nothing": (lambda s: None, nullcontext(), {}),
    "an entry of a leaf": (
        lambda s: s.set_entry(node(s, "X"), [0, 2, 3], "1.25"),
        holding(X.data, (0, 2, 3), 1.25),
        {},
    ),
    "an entry of a mask": (
        lambda s: s.set_entry(mask_of(s), [0, 3], s.look(mask_of(s), [0, 3])["toggle"]),
        holding(MASK, (0, 3), 0.0),
        {},
    ),
    "a cut weight of attention": (
        lambda s: s.cut(node(s, "A"), [0, 4, 1]),
        mg.ablate("A", index=(0, 4, 1)),
        {},
    ),
    "an argument of the function": (
        lambda s: s.set_keyword("temperature", "4"),
        nullcontext(),
        {"temperature": 4.0},
    ),
    "the factor that it becomes": (
        lambda s: s.set_argument(first_scale(s), "factor", 0.25),
        nullcontext(),
        {"temperature": 4.0},
    ),
    "a temperature without end": (
        lambda s: s.set_keyword("temperature", "inf"),
        nullcontext(),
        {"temperature": np.inf},
    ),
    "words": (lambda s: s.set_keyword("words", OTHER), nullcontext(), {"words": OTHER.split()}),
}


@pytest.mark.parametrize(("change", "around", "given"), CHANGES.values(), ids=CHANGES)
def test_a_change_gives_the_run_that_the_function_gives_with_it_and_so_does_its_program(
    change, around, given, capsys
):
    played, before = session(), X.numpy().copy()
    change(played)
    assert_array_equal(X.numpy(), before)  # the user's own tensor is as it was
    with around, mg.trace() as fresh:
        attention(**given).backward()
    assert played.run.loss == fresh["loss"].value
    assert_same(gradients(played.run.trace), gradients(fresh), 0)
    exec(played.python(), {"attention": attention})
    assert float(capsys.readouterr().out) == played.run.loss


def test_other_words_name_the_positions():
    played = session()
    played.set_keyword("words", OTHER)
    assert played.page["tokens"] == OTHER.split()
    assert played.page["title"] == f"attention: {OTHER}"
    played.undo()
    assert played.page["tokens"] == WORDS


def test_a_second_step_of_adam_goes_on_from_the_first(capsys):
    """The program steps with the optimizer itself."""
    played = session()
    for _ in range(2):
        played.step(0.01, "Adam")
    adam = played.run.loss
    assert "Adam(" in played.python()
    exec(played.python(), {"attention": attention})
    assert float(capsys.readouterr().out) == adam < session().run.loss
    played.undo()
    played.step(0.01, "Adam")
    assert played.run.loss == adam


def test_a_cut_weight_of_attention_is_zero_and_stays_attention():
    played = session()
    played.cut(node(played, "A"), [0, 4, 1])
    (one,) = attentions(played.run.trace)
    assert one.A[0, 0, 4, 1] == 0.0
    assert one.dA is not None


def test_a_cut_edge_leaves_the_other_uses_of_its_value():
    w = mg.tensor([2.0], requires_grad=True, name="w")

    def twice():
        return mg.sum(w * 3.0 + w).named("loss")

    played = session(twice)
    played.cut(node(played, "add"), of="b")
    assert (played.run.loss, gradients(played.run.trace)["w"]) == (6.0, [3.0])


def test_what_is_frozen_gets_no_gradient_and_what_is_held_does_not_move():
    played = session()
    held = played.run.trace["A"].value
    played.freeze(node(played, "A"))
    played.freeze(node(played, "W_V"))
    played.set_entry(node(played, "X"), [0, 0, 0], 3.0)
    assert_array_equal(played.run.trace["A"].value, held)
    assert all(played.run.trace[name].gradient is None for name in ("W_V", "W_Q"))
    assert played.run.trace["b_V"].gradient is not None


# ---------------------------------------------------------------- undo


def test_what_is_held_has_the_value_that_a_change_gave_it():
    """Also where it is held by the node that the change replaced."""
    played = session()
    overwritten = node(played, "V")
    played.cut(overwritten, [0, 1, 1])
    loss = played.run.loss
    played.freeze(overwritten)
    assert played.run.loss == loss


def test_undo_and_redo_give_every_bit_again_and_a_drag_is_one_change():
    played = session()
    losses = [played.run.loss]
    for value in (1.0, 2.0, 3.0):
        played.set_entry(node(played, "X"), [0, 0, 0], value, gesture="g1")
    losses.append(played.run.loss)
    played.cut(node(played, "A"), [0, 2, 1])
    losses.append(played.run.loss)
    assert [len(played.changes), len(played.past)] == [2, 2]
    back = [played.undo() or played.run.loss for _ in range(2)]
    assert back == losses[1::-1]
    assert [played.redo() or played.run.loss for _ in range(2)] == losses[1:]
    played.reset()
    assert (played.run.loss, played.changes) == (losses[0], [])
    played.undo()
    assert played.run.loss == losses[2]
    for _ in range(2):
        played.undo()
    with pytest.raises(ArgumentError, match="nothing to undo"):
        played.undo()


def test_a_second_value_of_an_entry_overwrites_the_first_and_undo_brings_it_back():
    played = session()
    for value in (1.0, 2.0):
        played.set_entry(node(played, "X"), [0, 0, 0], value)
    assert [change.value for change in played.changes] == [2.0]
    played.undo()
    assert [change.value for change in played.changes] == [1.0]


# ---------------------------------------------------------------- what cannot be

REFUSED = {
    "not a number": (lambda s: s.set_entry(0, [0], "two"), ArgumentError, "number is needed"),
    "NaN": (lambda s: s.set_entry(0, [0], "nan"), ArgumentError, "got NaN"),
    "index": (lambda s: s.set_entry(0, [1], 1.0), ArgumentError, r"\[1\] is outside shape \(1,\)"),
    "axes": (lambda s: s.set_entry(0, [0, 0], 1.0), ArgumentError, "is 1 whole numbers"),
    "no such value": (lambda s: s.set_entry(99, [0], 1.0), ArgumentError, "no value 99"),
    "it raises": (lambda s: s.set_entry(0, [0], 11.0), RuntimeError, "too large"),
    "infinite loss": (lambda s: s.set_entry(0, [0], -2.0), ArgumentError, "loss would be inf"),
    "no argument": (lambda s: s.set_keyword("t", 1), ArgumentError, "has no argument 't'"),
    "nothing moves": (lambda s: s.step("much"), ArgumentError, "number is needed"),
}


@pytest.mark.parametrize(("change", "kind", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_and_the_run_stays(change, kind, said):
    played = session(ratio)
    run, loss = played.run, played.run.loss
    with pytest.raises(kind, match=said):
        change(played)
    assert played.run is run
    assert (run.loss, played.changes, played.past) == (loss, [], [])
    played.set_entry(0, [0], 2.0)
    assert played.run.loss == 0.25


def test_a_run_that_no_page_can_show_is_refused_and_the_run_stays():
    """Five words cannot name four positions."""

    def first(n=5):
        return mg.mean(LAYER(X[:, :n], MASK[:n, :n]))

    first.tokens = WORDS
    played = session(first)
    with pytest.raises(ArgumentError, match=r"over \[4\] positions"):
        played.set_keyword("n", 4)
    assert (played.changes, played.past, played.version) == ([], [], 0)


def test_what_a_change_put_there_is_not_changed_itself():
    played = session()
    played.set_entry(node(played, "V"), [0, 1, 1], 2.0)
    made = [e for e in played.run.trace.entries if e.inserted and e.op]
    for entry in made:
        edge = played.run.trace.into(entry)[0]
        with pytest.raises(ArgumentError, match="was put there by a change: undo that one"):
            played.cut(entry.id, of=edge.input)
    assert len(played.changes) == 1


def test_the_entry_of_a_scalar_is_the_scalar_itself():
    played = session()
    played.set_entry(node(played, "loss"), [], 3.0)
    assert [change.said for change in played.changes] == ["loss = 3"]


def test_a_parameter_without_a_name_asks_for_one():
    w = mg.tensor([2.0], requires_grad=True)
    with pytest.raises(ArgumentError, match=r'has no name.*name="..."'):
        session(lambda: mg.sum(w * w)).set_entry(0, [0], 1.0)


def test_a_function_that_draws_is_known_to_vary():
    rng = np.random.default_rng(0)
    w = mg.tensor([2.0], requires_grad=True, name="w")
    assert session(lambda: mg.sum(w * rng.normal())).varies
    assert not session(ratio).varies


# ---------------------------------------------------------------- the program


def everything(played):
    played.set_entry(node(played, "X"), [0, 2, 3], 1.25)
    played.set_entry(mask_of(played), [0, 3], 0)
    played.step(0.3)
    played.set_keyword("temperature", 2)
    played.freeze(node(played, "A"))
    played.freeze(node(played, "b_V"))
    played.cut(node(played, "V"), [0, 1, 1])
    played.set_argument(node(played, "S"), "factor", 0.7)


def test_the_program_of_many_changes_makes_the_same_run(capsys):
    played = session()
    everything(played)
    exec(played.python(), {"attention": attention})
    assert float(capsys.readouterr().out) == played.run.loss


def test_values_of_one_path_are_told_apart_by_their_call(capsys):
    """A program that runs the function again counts the calls of each run."""
    layer = Linear(2, 2, use_bias=False, rng=np.random.default_rng(0))

    def steps():
        h = mg.tensor(np.ones((1, 2)), name="h0")
        for _ in range(3):
            h = mg.tanh(layer(h)).named("h")
        return mg.sum(h).named("loss")

    played = session(steps)
    second = [e.id for e in played.run.trace.entries if e.name == "h"][1]
    played.set_entry(second, [0, 1], 0.5)
    assert "index=(0, 1), call=1" in played.python()
    with mg.replace("h", 0.5, index=(0, 1), call=1):
        assert steps().item() == played.run.loss
    played.step(0.1)
    exec(played.python(), {"steps": steps})
    assert float(capsys.readouterr().out) == played.run.loss


def test_a_step_moves_parameters_of_one_path_each_by_its_own_gradient(capsys):
    """Two layers of no model have one name, and one parameter has the end of their paths."""
    rng = np.random.default_rng(0)
    first, second = Linear(3, 2, use_bias=False, rng=rng), Linear(2, 2, use_bias=False, rng=rng)
    W = mg.tensor(rng.normal(size=(2, 3)), requires_grad=True, name="W")
    adam = Adam([W, *first.parameters(), *second.parameters()], lr=0.1)  # marks them

    def layers():
        return mg.sum(mg.tanh(second(mg.tanh(first(W)))))

    played = session(layers)
    for _ in range(2):
        played.step(0.1, "Adam")
    exec(played.python(), {"layers": layers})
    assert float(capsys.readouterr().out) == played.run.loss
    for _ in range(2):
        adam.zero_grad()
        layers().backward()
        adam.step()
    assert layers().item() == pytest.approx(played.run.loss, rel=1e-12)


# ---------------------------------------------------------------- served


def test_a_question_of_the_page_changes_the_run_and_one_of_an_older_page_does_not():
    server = mg.play(ratio)
    kind = {"Content-Type": "application/json"}
    for version, refused in ((1, True), (0, False), (0, True)):
        body = json.dumps({"do": "step", "lr": 0.1, "version": version}).encode()
        status, text = answer_of(f"{server.address}ask", "POST", body, **kind)
        assert status == 200
        assert ("another page has changed this run" in text) == refused
    assert len(server.session.changes) == 1
    server.close()


def test_what_is_not_finite_reaches_the_page():
    """The loss is NaN from the start, and so it stays with an infinite factor."""

    def broken(factor=1.0):
        x = mg.tensor([np.nan, 1.0], requires_grad=True, name="x")
        return mg.sum(x * factor)

    server = mg.play(broken)
    assert answer_of(server.address)[0] == 200
    given = {"do": "argument", "name": "factor", "value": "inf", "version": 0}
    state, _ = server.answer(json.dumps(given).encode()).decode().split("\n")
    assert json.loads(state)["loss"] == ["nan", "nan"]
    assert json.loads(state)["arguments"] == [["factor", "inf", "number"]]
    server.close()


def test_the_page_as_a_file_has_nothing_of_it():
    with mg.trace() as t:
        attention().backward()
    page = page_html(t, tokens=WORDS)
    assert not re.search("play-bar|minigradPlay|connect-src", page)

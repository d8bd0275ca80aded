"""The live page: an edit is a fresh run with that value, forward and backward."""

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError
from minigrad.playing.run import LossFunction, run_loss
from minigrad.playing.server import PlayServer
from minigrad.playing.session import PlaySession
from tests.compare import assert_same
from tests.playing.functions import LAYER, WORDS, small


@pytest.fixture
def session():
    return PlaySession(LossFunction(small, "small", WORDS))


def named(record, name):
    return next(e for e in reversed(record.entries) if e.name == name)


def gradients(record):
    return {name: named(record, name).gradient for name in ("X", "W_Q", "W_V", "W_O")}


def fresh(*replaced, **arguments):
    """An ordinary run with another value in it, and its gradients."""
    with mg.trace() as t:
        if replaced:
            with mg.replace(*replaced):
                small(**arguments).backward()
        else:
            small(**arguments).backward()
    return t, gradients(t)


def loss_of(session):
    return session.run.record.ops[-1].value.item()


def same(session, record, expected):
    assert loss_of(session) == pytest.approx(named(record, "loss").value.item(), rel=1e-12)
    assert_same(gradients(session.run.record), expected)


def test_an_attention_weight_is_put_in_place_of_what_the_op_made(session):
    A = named(session.run.record, "A")
    assert "error" not in session.answer({"do": "set", "entry": A.id, "flat": 5, "value": "0.25"})

    def changed(A):
        where = np.zeros(A.shape, bool)
        where.flat[5] = True
        return mg.where(where, np.full(A.shape, 0.25), A)

    same(session, *fresh("A", changed))


def test_a_leaf_is_changed_for_all_of_its_uses(session):
    leaf, before = named(session.run.record, "W_V"), LAYER.W_V.numpy().copy()
    session.answer({"do": "set", "entry": leaf.id, "flat": 2, "value": "3"})
    assert_same(LAYER.W_V.numpy(), before)  # the user's own is left alone
    value = before.copy()
    value.flat[2] = 3.0
    LAYER.W_V.assign_(value)
    try:
        expected = fresh()
    finally:
        LAYER.W_V.assign_(before)
    same(session, *expected)


def test_a_leaf_whose_memory_is_transposed_is_changed_too():
    X = mg.tensor(np.arange(6.0).reshape(2, 3).T, requires_grad=True, name="X")
    session = PlaySession(LossFunction(lambda: mg.sum(mg.square(X)), "squares"))
    session.answer({"do": "set", "entry": 0, "flat": 1, "value": 7})
    assert loss_of(session) == np.square([0, 7, 1, 4, 2, 5]).sum()


def test_a_cut_puts_zeros_in_the_place_of_one_input_or_of_a_value(session):
    O = named(session.run.record, "O")
    session.answer({"do": "cut", "entry": O.id, "input": "b"})
    record, expected = fresh("V", lambda V: V * 0.0)
    assert loss_of(session) == pytest.approx(named(record, "loss").value.item(), rel=1e-12)
    assert_same(named(session.run.record, "W_O").gradient, expected["W_O"])
    assert named(session.run.record, "W_V").gradient is None
    session.answer({"do": "undo"})
    session.answer({"do": "cut", "entry": named(session.run.record, "A").id})
    same(session, *fresh("A", lambda A: A * 0.0))


def test_a_setting_is_another_setting(session):
    out = named(session.run.record, "out")
    session.answer({"do": "setting", "entry": out.id, "name": "factor", "value": "0.5"})
    same(session, *fresh(factor=0.5))


def test_arguments_of_the_function_change_and_name_the_positions(session):
    shown = session.answer({"do": "argument", "name": "words", "value": "a longer one"})
    assert shown["attention"][0]["keys"] == [["a", "longer", "one"]]
    same(session, *fresh(words=["a", "longer", "one"]))
    session.answer({"do": "argument", "name": "factor", "value": "3"})
    same(session, *fresh(words=["a", "longer", "one"], factor=3.0))


def test_a_step_moves_parameters_against_their_gradients(session):
    W, before = named(session.run.record, "W_O"), loss_of(session)
    session.answer({"do": "step", "lr": 0.1})
    assert_same(named(session.run.record, "W_O").value, W.value - 0.1 * W.gradient)
    session.answer({"do": "step", "lr": 0.1})
    assert loss_of(session) < before


def test_undo_and_reset_take_changes_back_and_the_list_names_them(session):
    first, A = loss_of(session), named(session.run.record, "A")
    session.answer({"do": "set", "entry": A.id, "flat": 0, "value": 0})
    shown = session.answer({"do": "argument", "name": "factor", "value": "3"})
    assert shown["play"]["changes"] == ["A[0, 0, 0] = 0", "factor = 3.0"]
    session.answer({"do": "undo"})
    assert session.content()["play"]["changes"] == ["A[0, 0, 0] = 0"]
    session.answer({"do": "reset"})
    assert (loss_of(session), session.changes) == (first, [])


REFUSED = [
    ({"do": "fly", "entry": 0}, "a page asks for"),
    ({"do": "set", "entry": 0, "flat": 10**6, "value": 1}, "out of bounds"),
    ({"do": "argument", "name": "none", "value": "1"}, "none"),
]


@pytest.mark.parametrize(("asked", "said"), REFUSED)
def test_what_cannot_be_done_is_told_and_changes_nothing(session, asked, said):
    loss = loss_of(session)
    assert said in session.answer(asked)["error"]
    assert (loss_of(session), session.changes) == (loss, [])


def test_a_change_whose_run_fails_is_left_out(session):
    A = named(session.run.record, "A")
    answer = session.answer({"do": "setting", "entry": A.id, "name": "axis", "value": 7})
    assert "axis 7 is out of bounds" in answer["error"]
    assert session.changes == []


def test_a_run_leaves_neither_an_edit_nor_a_gradient_behind(session):
    LAYER.zero_grad()
    A = named(session.run.record, "A")
    for value in (0, 1):
        session.answer({"do": "set", "entry": A.id, "flat": 0, "value": value})
    assert session.run.record.notes == []
    assert LAYER.W_V.grad is None
    assert_same(gradients(run_loss(LossFunction(small, "small")).record), fresh()[1])


def test_only_who_knows_the_address_gets_an_answer():
    server = PlayServer(PlaySession(LossFunction(small, "small")))
    base = server.address.rsplit("/", 2)[0]
    try:
        assert b"play-bar" in urlopen(server.address).read()
        answer = urlopen(ask(server.address + "ask", {"do": "reset"}))
        assert json.loads(answer.read())["play"]["changes"] == []
        for request, status in (
            (Request(base + "/guess/"), 404),
            (Request(server.address, headers={"Host": "example.org"}), 404),
            (ask(server.address + "other", {}), 404),
        ):
            with pytest.raises(HTTPError) as refused:
                urlopen(request)
            assert refused.value.code == status
            refused.value.close()
    finally:
        server.close()


def ask(address, question):
    return Request(address, json.dumps(question).encode(), {"Content-Type": "application/json"})


def test_mg_play_serves_a_function_and_refuses_what_is_none(capsys):
    server = mg.play(small)
    assert server.address in capsys.readouterr().out
    assert server.address in server._repr_html_()
    server.close()
    with pytest.raises(DTypeError, match="takes a function"):
        mg.play(3)
    with pytest.raises(ArgumentError, match="must return its loss"):
        mg.play(lambda: mg.tensor([1.0, 2.0]))


def test_a_page_asks_why_of_any_entry_and_the_run_stays(session):
    run, Q = session.run, named(session.run.record, "Q")
    ledgers = session.answer({"do": "why", "entry": Q.id, "index": [0, 1, 2]})["ledgers"]
    shown = ledgers[f"{Q.id} [0, 1, 2]"]
    assert sum(row["value"] for row in shown["rows"]) == pytest.approx(Q.gradient[0, 1, 2])
    assert session.run is run
    refused = session.answer({"do": "why", "entry": Q.id, "index": [9, 9, 9]})
    assert "its gradient has shape" in refused["error"]

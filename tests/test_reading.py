"""How many of our files a reader opens on the way of a task: those that run once names are loaded.

A limit only comes down.
"""

import gc
import sys
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from layers import SelfAttention, create_causal_mask
from minigrad.optim import SGD

ROOT = f"{Path(mg.__file__).parents[1]}/"
VIEWS = ("minigrad/record/", "minigrad/views/", "minigrad/tracing.py")


def functions_of(run):
    """The functions of ours that run at a second call, without what frees earlier garbage."""
    run()
    gc.collect()
    seen = set()
    gc.disable()
    sys.setprofile(lambda frame, event, argument: seen.add(frame.f_code))
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    ours = (f"{ROOT}minigrad/", f"{ROOT}layers/")
    return {c for c in seen if c.co_filename.startswith(ours)}


def an_op():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    return lambda: mg.softmax(x).backward(np.ones(2))


def attention():
    layer, mask = SelfAttention(6, 3, 3, rng=0), create_causal_mask(5)
    X = mg.tensor(np.ones((2, 5, 6)), requires_grad=True)
    return lambda: layer(X, mask=mask)


def a_step(x):
    w = mg.tensor(np.ones((3, 5)), requires_grad=True)
    optimizer = SGD([w], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (x @ w).sum()
        loss.backward()
        optimizer.step()
        return loss

    return mg.compile(step)


def a_first_call():
    x = np.ones((2, 3))
    return lambda: a_step(x)(x)


def a_later_call():
    x = np.ones((2, 3))
    compiled = a_step(x)
    compiled(x)
    compiled(x)  # recorded again, and compared
    return lambda: compiled(x)


def traced():
    with mg.trace() as t:
        mg.sum(attention()() ** 2).backward()
    return t


def a_picture():
    t = traced()
    return lambda: t.draw("g.svg")


def a_page():
    t = traced()
    return lambda: t.html("g.html")


LIMITS = [
    (an_op, "", 6),  # its declaration, dtypes, op, tensor, node, backward
    (attention, "", 12),
    (attention, "layers/", 4),
    (a_first_call, "minigrad/fast/compile/", 5),
    (a_later_call, "minigrad/fast/compile/", 3),
    (a_picture, VIEWS, 9),
    (a_page, VIEWS, 18),  # its ledgers among them: why, ledger, recorder, what an op was given
]


@pytest.mark.parametrize(("task", "folder", "most"), LIMITS)
def test_so_many_files_at_most_are_on_the_way(task, folder, most, tmp_path):
    with chdir(tmp_path):
        files = {code.co_filename.removeprefix(ROOT) for code in functions_of(task())}
    on_the_way = {file for file in files if file.startswith(folder)}
    assert len(on_the_way) <= most, on_the_way


def test_attention_with_a_mask_is_36_functions_at_most():
    assert len(functions_of(attention())) <= 36

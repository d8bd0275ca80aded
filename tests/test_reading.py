"""How many of our files a reader opens on the way of a task: those that run once names are loaded.

A limit only comes down.
"""

import gc
import operator
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from layers import MultiHeadAttention, create_causal_mask
from minigrad.optim import SGD

ROOT = Path(mg.__file__).parents[1]


def files_of(run: Callable[[], Any]) -> set[str]:
    """The files of minigrad and layers whose code runs, without what frees earlier garbage."""
    run()
    gc.collect()
    seen: set[str] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        seen.add(frame.f_code.co_filename)

    gc.disable()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    folders = (ROOT / "minigrad", ROOT / "layers")
    found = {Path(name) for name in seen if name.endswith(".py")}
    return {str(p.relative_to(ROOT)) for p in found if any(f in p.parents for f in folders)}


def an_op() -> Any:
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    return lambda: mg.softmax(x).backward(np.ones(2))


def the_traversal() -> Any:
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    return lambda: (x * x + x).sum().backward()


def attention_with_a_causal_mask() -> Any:
    layer = MultiHeadAttention(6, 2, rng=0)
    X, mask = mg.tensor(np.ones((2, 5, 6))), create_causal_mask(5)
    return lambda: layer(X, mask=mask)


def a_compiled_step() -> tuple[Any, Any]:
    w, x = mg.tensor(np.ones((3, 5)), requires_grad=True), np.ones((2, 3))
    optimizer = SGD([w], lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (x @ w).sum()
        loss.backward()
        optimizer.step()
        return loss

    return mg.compile(step), x


def its_first_call() -> Any:
    return lambda: operator.call(*a_compiled_step())


def a_later_call() -> Any:
    compiled, x = a_compiled_step()
    for _ in range(3):  # it records, compares, and from then on replays
        compiled(x)
    return lambda: compiled(x)


def a_picture() -> Any:
    pytest.importorskip("graphviz")
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with mg.trace() as t:
        (x * x).sum().backward()
    return lambda: t.draw("g.svg")


LIMITS = [
    (an_op, "", 6),  # its declaration, dtypes, op, tensor; node, backward
    (the_traversal, "minigrad/engine/", 4),  # tensor, backward, node, and an op's plan
    (attention_with_a_causal_mask, "layers/", 5),
    (its_first_call, "minigrad/fast/compile/", 5),
    (a_later_call, "minigrad/fast/compile/", 3),
    (a_picture, "minigrad/views/", 8),
]


@pytest.mark.parametrize(("task", "folder", "most"), LIMITS)
def test_so_many_files_at_most_are_on_the_way(
    task: Callable[[], Any], folder: str, most: int, tmp_path: Path
) -> None:
    with chdir(tmp_path):
        on_the_way = {name for name in files_of(task()) if name.startswith(folder)}
    assert len(on_the_way) <= most, on_the_way

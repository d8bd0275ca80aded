"""How many of our files a reader opens on the way of a task: those that run once names are loaded.

A limit only comes down.
"""

import operator
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from layers import MultiHeadAttention, create_causal_mask
from minigrad.optim import SGD

ROOT = Path(mg.__file__).parents[1]


def files_of(run: Callable[[], Any]) -> set[str]:
    """The files of minigrad and layers whose code runs."""
    run()
    seen: set[str] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        seen.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
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


def picture(tmp_path: Path) -> Any:
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with mg.trace() as t:
        (x * x).sum().backward()
    return lambda: t.draw(tmp_path / "g.svg")


def test_an_op_forward_and_backward() -> None:
    """Its declaration, op, tensor."""
    assert len(files_of(an_op())) <= 3


def test_the_engine_on_the_way_of_the_traversal() -> None:
    """Tensor and op."""
    found = files_of(the_traversal())
    assert len([name for name in found if name.startswith("minigrad/engine/")]) <= 2


def test_multi_head_attention_with_a_causal_mask() -> None:
    found = files_of(attention_with_a_causal_mask())
    assert len([name for name in found if name.startswith("layers/")]) <= 5


@pytest.mark.needs_fast("compiled steps")
@pytest.mark.parametrize(("call", "most"), [(its_first_call, 12), (a_later_call, 5)])
def test_a_call_of_a_compiled_step(call: Callable[[], Any], most: int) -> None:
    """The first one records and writes the program. Goal 10."""
    found = files_of(call())
    assert len([name for name in found if name.startswith("minigrad/fast/compiler/")]) <= most


@pytest.mark.needs_fast("compiled steps")
def test_the_way_from_a_step_to_its_program_and_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """compile, record, symbol, program, source: who is on the stack as calls are written down."""
    from minigrad.fast.compiler import program, source

    seen: set[str] = set()

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            while frame.f_back is not None:
                seen.add(frame.f_code.co_filename)
                frame = frame.f_back
            seen.add(function.__code__.co_filename)
            return function(*args, **kwargs)

        return noted

    monkeypatch.setattr(program.Program, "add", noting(program.Program.add))
    monkeypatch.setattr(source.SourceWriter, "write", noting(source.SourceWriter.write))
    its_first_call()()
    folder = Path(program.__file__).parent
    on_the_way = {Path(name).stem for name in seen if Path(name).parent == folder}
    assert on_the_way == {"__init__", "record", "symbol", "program", "source"}


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("graphviz")
    found = files_of(picture(tmp_path))
    assert len([name for name in found if name.startswith("minigrad/views/")]) <= 8

"""What every test may use: a seeded generator, a call of any op, and a planted fault."""

import os
from collections.abc import Callable
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import minigrad.distributed  # its ops are tested as all others are
from minigrad.engine.op import Op

# Read by PyTorch when it is imported: on busy cores its threads wait longer than they work.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What is printed is as for a pipe, whatever terminal the tests run in.
os.environ["COLUMNS"] = "100"
os.environ.pop("NO_COLOR", None)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20150914)


@pytest.fixture
def invoke() -> Callable[..., Any]:
    """Call an op with its inputs and its settings, wherever its signature wants them."""

    def run(op: Op, inputs: Any, settings: Any) -> Any:
        values = dict(zip(op.settings, deepcopy(settings), strict=True))
        values |= (
            {op.inputs[0]: inputs} if op.variadic else dict(zip(op.inputs, inputs, strict=True))
        )
        positional: list[Any] = []
        for name, parameter in op.signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional += values.pop(name)
            elif parameter.kind is not parameter.KEYWORD_ONLY:
                positional.append(values.pop(name))
        return op(*positional, **values)

    return run


@pytest.fixture
def plant(monkeypatch) -> Callable[..., None]:
    """Make a backward rule wrong: its gradient passes through `spoil`."""

    def spoil_rule(op: str, name: str, spoil: Callable[[Any], Any]) -> None:
        made = mg.registry[op]
        rule = made.rules[name]

        def spoiled(*arguments: Any) -> Any:
            parts = rule.function(*arguments)
            if len(rule.inputs) == 1:
                return spoil(parts)
            each = zip(rule.inputs, parts, strict=True)
            return tuple([spoil(part) if one == name else part for one, part in each])

        wrong = rule._replace(function=spoiled)
        monkeypatch.setattr(made, "rules", {**made.rules, name: wrong})
        monkeypatch.setattr(made, "faster", None)  # a faster rule would not be wrong
        monkeypatch.setattr(made, "plans", {})

    return spoil_rule


# ------------------------- once for each op (`declared`), or each sample of each op (`case`)


def _cases():
    for op in mg.registry.values():
        for n, sample in enumerate(op.samples(np.random.default_rng(7))):
            inputs, settings = op.bound(sample.args, sample.kwargs)
            case = SimpleNamespace(op=op, inputs=inputs, settings=settings, name=f"{op.name}-{n}")
            case.free = [
                i for i, x in enumerate(inputs) if getattr(x, "dtype", np.dtype(int)).kind == "f"
            ]
            result = op.flat(*inputs, *deepcopy(settings))
            case.masked = np.isinf(result[0] if op.auxiliary else result)
            yield case


CASES = list(_cases())


def pytest_generate_tests(metafunc):
    """A marker `only(f)` keeps the cases, or the ops, for which f holds."""
    keep = [mark.args[0] for mark in metafunc.definition.iter_markers("only")]
    if "case" in metafunc.fixturenames:
        cases = [case for case in CASES if all(f(case) for f in keep)]
        metafunc.parametrize("case", cases, ids=lambda case: case.name)
    if "declared" in metafunc.fixturenames:
        ops = [op for op in mg.registry.values() if all(f(op) for f in keep)]
        metafunc.parametrize("declared", ops, ids=lambda op: op.name)


@pytest.fixture
def leaves():
    """The inputs of a case as fresh leaves; the free ones, or only some, need a gradient."""

    def make(case, dtype=np.float64, needed=None):
        needed = case.free if needed is None else needed
        return [
            mg.tensor(x.astype(dtype) if i in case.free else x, requires_grad=i in needed)
            if isinstance(x, np.ndarray)
            else x
            for i, x in enumerate(case.inputs)
        ]

    return make


@pytest.fixture
def cotangent():
    """A gradient for a result of this shape, the same each time."""

    def make(shape, dtype=np.float64):
        return np.asarray(np.random.default_rng(11).uniform(0.5, 1.5, shape), dtype)

    return make

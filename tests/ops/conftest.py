"""The registry's tests run once for each op (`declared`) or each sample of each op (`case`)."""

from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest

import minigrad as mg


def _cases():
    for op in mg.registry.values():
        for n, sample in enumerate(op.samples(np.random.default_rng(7))):
            inputs, settings = op.bind(*sample.args, **sample.kwargs)
            case = SimpleNamespace(op=op, inputs=inputs, settings=settings, name=f"{op.name}-{n}")
            case.free = [
                i for i, x in enumerate(inputs) if getattr(x, "dtype", np.dtype(int)).kind == "f"
            ]
            result = op.forward(*inputs, *deepcopy(settings))
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


def pytest_configure(config):
    config.addinivalue_line("markers", "only(f): of the registry's ops or samples, those of f")


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

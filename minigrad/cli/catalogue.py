"""`minigrad ops`: every op with its signature, claim and formulas."""

from __future__ import annotations

import inspect
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..engine.declaration import Call
from ..engine.errors import ArgumentError
from ..engine.op import Op, registry
from ..record.record import show
from ..views.maths import plain
from ..views.terminal import paint
from ..views.words import shaped

__all__ = ["known_ops", "run", "sample_call"]


def run(arguments: Namespace) -> int:
    ops = known_ops(arguments.names)
    for op in ops:
        print(*_lines(op), sep="\n")
    print("out is the result, g its gradient ∂L/∂out")
    return 0


def known_ops(names: Sequence[str]) -> list[Op]:
    """The ops of these names, or all. Raises: ArgumentError for a name that is none's."""
    for name in names:
        if name not in registry:
            raise ArgumentError(f"no op is named {name!r}; `minigrad ops` lists all")
    return [registry[name] for name in dict.fromkeys(names or registry)]


def _lines(op: Op) -> Iterator[str]:
    """Signature, claim, and the formulas of its first sample."""
    call = next(iter(op.samples(np.random.default_rng(0))))
    inputs, settings = op.bound(call.args, call.kwargs)
    forward, rules = op.formulas(inputs, settings, op(*call.args, **call.kwargs))
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in op.signature.parameters.values()]
    yield paint("bold", f"{op.name}{inspect.Signature(bare)}")
    yield "  " + " ".join(str(op.__doc__).partition("\n\n")[0].split())
    yield f"    out = {plain(forward)}"
    for name, tex in rules.items():
        yield f"    ∂L/∂{name} = {plain(tex)}"
    yield f"    as in {sample_call(op, call)}\n"


def sample_call(op: Op, call: Call) -> str:
    """A sample as it would be written, arrays by their shapes."""
    named = [f"{name}={_brief(value)}" for name, value in call.kwargs.items()]
    return f"{op.name}({', '.join([*map(_brief, call.args), *named])})"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return shaped(value.shape)
    if isinstance(value, list):
        return f"[{', '.join(map(_brief, value))}]"
    return show(value)

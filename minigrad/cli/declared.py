"""What an op declares, as plain data: its formulas, those of its first sample where they differ."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Call, Op, registry
from ..recording.formulas import first_sentence

__all__ = ["Declared", "declared", "known_ops", "sample_call"]


class Declared(NamedTuple):
    """An op, its signature, its claim and its formulas."""

    op: Op
    signature: str
    claim: str
    words: dict[str, str]  # of each rule, what it does with the gradient
    forward: str
    backward: dict[str, str]
    example: str  # the first sample's call
    depends: bool  # whether a formula depends on the call: then these are the example's


def known_ops(names: Sequence[str]) -> list[Op]:
    """The ops of these names, or all. Raises: ArgumentError with the nearest names."""
    for name in names:
        if name not in registry:
            near = difflib.get_close_matches(name, registry, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "`minigrad ops` lists all"
            raise ArgumentError(f"no op is named {name!r}; {hint}")
    return [registry[name] for name in dict.fromkeys(names)] if names else list(registry.values())


def declared(op: Op) -> Declared:
    call = next(iter(op.samples(np.random.default_rng(0))))
    inputs, settings = op.bind(*call.args, **call.kwargs)
    known = inputs, settings, op(*call.args, **call.kwargs)
    forward, rules = op.formulas(*known)
    depends = not all(isinstance(tex, str) for tex in (op.tex, *op.vjp_tex.values()))
    if depends:  # of a variadic op, the first input stands for all
        rules = dict(zip(op.inputs, rules.values(), strict=False))
    else:
        forward, rules = str(op.tex), {name: str(tex) for name, tex in op.vjp_tex.items()}
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in op.signature.parameters.values()]
    signature = op.name + str(inspect.Signature(bare))
    claim = " ".join((op.__doc__ or "").strip().partition("\n\n")[0].split())
    words = {name: first_sentence(rule.function) for name, rule in op.rules.items()}
    return Declared(op, signature, claim, words, forward, rules, sample_call(op, call), depends)


def sample_call(op: Op, call: Call) -> str:
    """A sample as it would be written, arrays by their shapes."""
    named = [f"{name}={_brief(value)}" for name, value in call.kwargs.items()]
    return f"{op.name}({', '.join([*map(_brief, call.args), *named])})"


def _brief(value: Any) -> str:
    """An argument in few words: an array by its shape."""
    if isinstance(value, np.ndarray):
        shape = "×".join(map(str, value.shape)) or "scalar"
        return shape if value.dtype.kind == "f" else f"{value.dtype} {shape}"
    if isinstance(value, list | tuple) and any(isinstance(x, np.ndarray) for x in value):
        return f"[{', '.join(map(_brief, value))}]"
    if isinstance(value, np.random.Generator):
        return "rng"
    text = value.__name__ if isinstance(value, type) else repr(value)
    return text if len(text) <= 40 else text[:39] + "…"

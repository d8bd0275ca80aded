"""`minigrad ops`: every op with its signature, claim and formulas."""

from __future__ import annotations

import difflib
import inspect
import textwrap
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Call, Op, registry
from ..views.maths import plain
from ..views.terminal import paint, wide

__all__ = ["known_ops", "run", "sample_call"]


def run(arguments: Namespace) -> int:
    ops, width = known_ops(arguments.names), max(wide(None), 20)
    print("\n\n".join("\n".join(_paragraph(op, width)) for op in ops))
    print(f"\n{len(ops)} op{'s' * (len(ops) > 1)}; out is the result, g its gradient ∂L/∂out")
    return 0


def known_ops(names: Sequence[str]) -> list[Op]:
    """The ops of these names, or all. Raises: ArgumentError with the nearest names."""
    for name in names:
        if name not in registry:
            near = difflib.get_close_matches(name, registry, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "`minigrad ops` lists all"
            raise ArgumentError(f"no op is named {name!r}; {hint}")
    return [registry[name] for name in dict.fromkeys(names)] if names else [*registry.values()]


def _paragraph(op: Op, width: int) -> list[str]:
    """Signature, claim, and formulas; those that depend on the call are of the first sample."""

    def wrapped(text: str, indent: int) -> list[str]:
        first = " " * indent
        return textwrap.wrap(
            text,
            width,
            initial_indent=first,
            subsequent_indent=f"{first}  ",
            break_on_hyphens=False,
        )

    call = next(iter(op.samples(np.random.default_rng(0))))
    inputs, settings = op.bound(call.args, call.kwargs)
    forward, rules = op.formulas(inputs, settings, op(*call.args, **call.kwargs))
    fixed = isinstance(op.tex, str) and all(isinstance(tex, str) for tex in op.vjp_tex.values())
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in op.signature.parameters.values()]
    claim = " ".join((op.__doc__ or "").strip().partition("\n\n")[0].split())
    lines = [paint("bold", line) for line in wrapped(op.name + str(inspect.Signature(bare)), 0)]
    lines += [*wrapped(claim, 2), *wrapped(f"out = {plain(op.tex if fixed else forward)}", 4)]
    for name, tex in zip(op.inputs, rules.values(), strict=False):
        lines += wrapped(f"∂L/∂{name} = {plain(op.vjp_tex[name] if fixed else tex)}", 4)
    return lines if fixed else [*lines, *wrapped(f"as in {sample_call(op, call)}", 4)]


def sample_call(op: Op, call: Call) -> str:
    """A sample as it would be written, arrays by their shapes."""
    named = [f"{name}={_brief(value)}" for name, value in call.kwargs.items()]
    return f"{op.name}({', '.join([*map(_brief, call.args), *named])})"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        shape = "×".join(map(str, value.shape)) or "scalar"
        return shape if value.dtype.kind == "f" else f"{value.dtype} {shape}"
    if isinstance(value, list | tuple) and any(isinstance(x, np.ndarray) for x in value):
        return f"[{', '.join(map(_brief, value))}]"
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"

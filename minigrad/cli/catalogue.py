"""Every op with its signature, claim and formulas, as text or as data."""

from __future__ import annotations

import difflib
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Op, registry
from ..views.formula import plain
from ..views.terminal import Paint
from .check_ops import sample_call

__all__ = ["catalogue", "entry", "known_ops"]


def known_ops(names: Sequence[str]) -> list[Op]:
    """The ops of these names, or all. Raises: ArgumentError with the nearest names."""
    for name in names:
        if name not in registry:
            near = difflib.get_close_matches(name, registry, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "`minigrad ops` lists all"
            raise ArgumentError(f"no op is named {name!r}; {hint}")
    return [registry[name] for name in dict.fromkeys(names)] if names else list(registry.values())


def catalogue(ops: Iterable[Op], width: int, *, tex: bool, ascii: bool) -> str:
    """A paragraph for each op; g stands for the gradient of the result, out for the result."""
    paint, ops = Paint(), list(ops)
    parts = ["\n".join(_paragraph(op, width, tex, ascii, paint)) for op in ops]
    count = f"{len(ops)} op{'s' * (len(ops) > 1)}"
    key = f"{count}; out is the result, g its gradient {'dL/dout' if ascii else '∂L/∂out'}"
    return "\n\n".join([*parts, textwrap.fill(key, max(width, 20))])


def entry(op: Op) -> dict[str, Any]:
    """An op as plain data.

    >>> from minigrad import registry
    >>> entry(registry["exp"])["backward"]
    {'x': 'g ⊙ out'}
    """
    forward, backward, _ = _formulas(op)
    return {
        "name": op.name,
        "signature": _signature(op),
        "claim": _claim(op),
        "inputs": list(op.inputs),
        "settings": list(op.settings),
        "forward": plain(forward),
        "backward": {name: plain(tex) for name, tex in backward.items()},
        "tex": _filled(forward),
        "vjp_tex": {name: _filled(tex) for name, tex in backward.items()},
        "complex_step": op.analytic,
    }


def _paragraph(op: Op, width: int, tex: bool, ascii: bool, paint: Paint) -> list[str]:
    first, *rest = _wrapped(_signature(op), width, 0)
    lines = [paint.bold(line) for line in (first, *rest)] + _wrapped(_claim(op), width, 2)
    said = _filled if tex else lambda formula: plain(formula, ascii=ascii)
    forward, backward, example = _formulas(op)
    lines += _wrapped(f"out = {said(forward)}", width, 4)
    for name, formula in backward.items():
        of = rf"\partial L / \partial {_name(name)}" if tex else f"∂L/∂{name}"
        lines += _wrapped(f"{of} = {said(formula)}", width, 4)
    if example:
        lines += [paint("dim", line) for line in _wrapped(f"as in {example}", width, 4)]
    return lines


def _formulas(op: Op) -> tuple[str, dict[str, str], str]:
    """The declared formulas; where they depend on the call, those of the first sample, and it."""
    rules = {name: tex for name, tex in op.vjp_tex.items() if isinstance(tex, str)}
    if isinstance(op.tex, str) and len(rules) == len(op.vjp_tex):
        return op.tex, rules, ""
    call = next(iter(op.samples(np.random.default_rng(0))))
    inputs, settings = op.bind(*call.args, **call.kwargs)
    forward, rules = op.formulas(inputs, settings, op(*call.args, **call.kwargs))
    first = dict(zip(op.inputs, rules.values(), strict=False))  # of a variadic op, the first input
    return forward, first, sample_call(op, call)


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    blank = " " * indent
    return textwrap.wrap(
        text,
        max(width, 20),
        initial_indent=blank,
        subsequent_indent=blank + "  ",
        break_on_hyphens=False,
    )


def _claim(op: Op) -> str:
    """The first paragraph's first line of the docstring."""
    return (op.__doc__ or "").strip().partition("\n")[0].strip()


def _signature(op: Op) -> str:
    """The signature without annotations."""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in op.signature.parameters.values()]
    return op.name + str(inspect.Signature(bare))


def _filled(tex: str) -> str:
    """LaTeX whose placeholders are names."""
    return re.sub(r"<(\w+)>", lambda match: _name(match[1]), tex)


def _name(name: str) -> str:
    safe = name.replace("_", r"\_")
    return safe if len(name) == 1 else rf"\mathrm{{{safe}}}"

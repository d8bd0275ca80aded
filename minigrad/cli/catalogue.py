"""`minigrad ops`: every op with its signature, claim and formulas, as text or data."""

from __future__ import annotations

import json
import re
import textwrap
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

from ..engine.op import Op
from ..views.formula import plain
from ..views.terminal import Paint, wide
from .declared import Declared, declared, known_ops
from .output import show

__all__ = ["entry", "run"]


def run(arguments: Namespace) -> int:
    ops = known_ops(arguments.names)
    if arguments.json:
        show(json.dumps([entry(op) for op in ops], indent=1))
    else:
        show(_text(map(declared, ops), wide(None)))
    return 0


def entry(op: Op) -> dict[str, Any]:
    """An op as plain data.

    >>> from minigrad import registry
    >>> entry(registry["exp"])["backward"]
    {'x': 'g ⊙ out'}
    """
    one = declared(op)
    return {
        "name": op.name,
        "signature": one.signature,
        "claim": one.claim,
        "inputs": list(op.inputs),
        "settings": list(op.settings),
        "forward": plain(one.forward),
        "backward": {name: plain(tex) for name, tex in one.backward.items()},
        "tex": _named(one.forward),
        "vjp_tex": {name: _named(tex) for name, tex in one.backward.items()},
        "words": one.words,
        "complex_step": op.analytic,
    }


def _text(ops: Iterable[Declared], width: int) -> str:
    """A paragraph for each op; g stands for the gradient of the result, out for the result."""
    paint, width = Paint(), max(width, 20)
    parts = ["\n".join(_paragraph(op, width, paint)) for op in ops]
    count = f"{len(parts)} op{'s' * (len(parts) > 1)}"
    key = f"{count}; out is the result, g its gradient ∂L/∂out"
    return "\n\n".join([*parts, textwrap.fill(key, width)])


def _paragraph(op: Declared, width: int, paint: Paint) -> list[str]:
    lines = [paint.bold(line) for line in _wrapped(op.signature, width, 0)]
    lines += [*_wrapped(op.claim, width, 2), *_wrapped(f"out = {plain(op.forward)}", width, 4)]
    for name, formula in op.backward.items():
        lines += _wrapped(f"∂L/∂{name} = {plain(formula)}", width, 4)
        lines += _wrapped(op.words[name], width, 6)
    example = _wrapped(f"as in {op.example}", width, 4) if op.depends else []
    return lines + [paint("dim", line) for line in example]


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    first = " " * indent
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=first + "  ", break_on_hyphens=False
    )


def _named(tex: str) -> str:
    """LaTeX whose placeholders are names."""
    return re.sub(r"<(\w+)>", lambda match: _name(match[1]), tex)


def _name(name: str) -> str:
    safe = name.replace("_", r"\_")
    return safe if len(name) == 1 else rf"\mathrm{{{safe}}}"

"""`minigrad ops`: every op with its signature, claim and formulas, as text or data."""

from __future__ import annotations

import difflib
import inspect
import json
import re
import textwrap
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..engine.errors import ArgumentError
from ..engine.op import Call, Op, registry
from ..recording.formulas import first_sentence
from ..views.formula import plain
from ..views.terminal import Paint, wide
from .output import show

__all__ = ["declared", "entry", "known_ops", "run", "sample_call"]


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
    declaration = declared(op)
    return {
        "name": op.name,
        "signature": declaration.signature,
        "claim": declaration.claim,
        "inputs": list(op.inputs),
        "settings": list(op.settings),
        "forward": plain(declaration.forward),
        "backward": {name: plain(tex) for name, tex in declaration.backward.items()},
        "tex": _named(declaration.forward),
        "vjp_tex": {name: _named(tex) for name, tex in declaration.backward.items()},
        "words": declaration.words,
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


# ---------------------------------------------------------------- what an op declares


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

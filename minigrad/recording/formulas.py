"""What an op's declaration says of one call: its formulas, its cost, and settings left unsaid."""

from __future__ import annotations

import re
from functools import lru_cache
from inspect import signature
from typing import Any

from ..engine.context import Change, Context
from ..engine.errors import DeclarationError
from ..engine.graph import Node
from ..engine.op import Op

__all__ = ["declared_facts", "facts_of_node"]

QUIET = ("keepdims", "shape")  # they change no entry, and are seen in the shape of the result


class _Unheard(Change):
    """Within, no one hears of ops: what a declaration computes is no step of the run."""

    __slots__ = ()

    def _changed(self, now: Context) -> Context:
        return Context(False, now.scope, (), now)


def declared_facts(
    op: Op, inputs: Any, settings: Any, out: Any, shown: dict[str, str]
) -> dict[str, Any]:
    """An entry's `tex`, `vjp_tex`, `unsaid` and `flops`. Args: shown: the settings as text.

    Raises: DeclarationError if a formula or a cost that the op declares as a function fails.
    """
    try:
        with _Unheard():
            tex, rules = op.formulas(inputs, settings, out)
            flops = op.count_flops(inputs, settings, out)
    except Exception as error:
        raise DeclarationError(f"op {op.name}: a formula or its cost failed: {error!r}") from error
    unsaid = _unsaid(op, [tex, *rules.values()], shown)
    return {"tex": tex, "vjp_tex": rules, "unsaid": unsaid, "flops": flops}


def facts_of_node(node: Node, shown: dict[str, str]) -> dict[str, Any]:
    """The formulas of a graph's node, which knows only inputs that need a gradient or were saved.

    Where they tell more of the others, they are not claimed: the op's name stands instead.
    """
    op, plan = node.op, node.plan
    names = op.input_names(len(plan.kinds))
    known: dict[str, Any] = dict(zip(plan.names, node.saved or (), strict=False))
    known |= {names[i]: edge for i, edge in zip(plan.needed, node.edges, strict=True)}
    inputs = [known.get(name, _Unknown()) for name in names]
    try:
        return declared_facts(op, inputs, node.settings, node, shown) | {"flops": None}
    except DeclarationError:
        named = rf"\operatorname{{{op.name}}}"
        tex = f"{named}({', '.join(f'<{name}>' for name in names)})"
        rules = {name: rf"\operatorname{{vjp}}_{{{named}}}(<g>)" for name in names}
        return {"tex": tex, "vjp_tex": rules, "unsaid": tuple(shown)}


class _Unknown:
    """An input of which a graph has kept nothing."""


def _unsaid(op: Op, formulas: list[str], shown: dict[str, str]) -> tuple[str, ...]:
    """The settings, other than those left as they are by default, that no formula tells."""
    slots = {name for text in formulas for name in re.findall(r"<(\w+)>", text)}
    told = slots | _told(op) | {*QUIET}
    parameters = op.signature.parameters
    return tuple(
        name
        for name, text in shown.items()
        if name not in told and text not in (repr(parameters[name].default), "rng")
    )


@lru_cache(maxsize=512)
def _told(op: Op) -> frozenset[str]:
    """What the formulas that are functions ask for, and so tell."""
    functions = (f for f in (op.tex, *op.vjp_tex.values()) if callable(f))
    return frozenset(name for f in functions for name in signature(f).parameters)

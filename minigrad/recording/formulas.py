"""What an op declares of one call: its formulas, its cost, and the settings that no formula has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any

import numpy as np

from ..autodiff import grad
from ..engine.context import Context, use_context
from ..engine.errors import DeclarationError
from ..engine.op import Op, Shaped
from ..engine.tensor import Node, Tensor
from ..engine.types import Arguments, Array
from .record import Declaration

__all__ = ["UNOBSERVED", "Invocation", "array_of", "facts_of_node", "first_sentence"]

UNOBSERVED = use_context(Context(True, "", ()))  # for views and measures: no listener
QUIET = ("keepdims", "shape")  # they change no entry; the shape of the result shows them


@dataclass(slots=True)
class Invocation:
    """One call of an op, without its arrays: it gives its formulas, and can run again.

    Called, it gives an entry's `tex`, `vjp_tex`, `settings`, `unsaid`, `flops`, `own_op`, `words`.
    """

    op: Op
    inputs: Arguments  # arrays as their forms
    sources: list[int | None]  # for each input its entry; None for a plain value
    settings: Arguments
    out: Shaped
    arrays: dict[int, Array]  # inputs, by position, that are not what their entries hold
    fault: str = ""  # why its gradients may be wrong though its rules are not

    def __call__(self) -> Declaration:
        """Raises: DeclarationError if a formula or a cost that the op declares fails."""
        names = self.op.input_names(len(self.inputs)), self.op.settings
        values = zip((*names[0], *names[1]), (*self.inputs, *self.settings), strict=True)
        shown = {
            name: "rng" if isinstance(value, np.random.Generator) else repr(value)
            for name, value in values
            if value is not None and not isinstance(value, Shaped | np.ndarray)
        }
        return declared_facts(self.op, self.inputs, self.settings, self.out, shown)

    def run(self, inputs: Sequence[Any]) -> Array:
        """The op's own kernel on other inputs."""
        out = self.op.forward(*inputs, *self._fresh_settings())
        return np.asarray(out[0] if self.op.auxiliary else out)

    def kinks(self, inputs: Sequence[Any]) -> Array | None:
        """Where the result has no derivative, as the op declares it; None if nowhere."""
        if self.op.kinks is None:
            return None
        names = (*self.op.inputs, *self.op.settings, "out")
        known = dict(zip(names, (*inputs, *self.settings, self.run(inputs)), strict=True))
        found = np.asarray(self.op.call_by_name(self.op.kinks, **known))
        return found if found.any() else None

    def slope(
        self, inputs: Sequence[Any], toward: Mapping[int, Array], step: float = 1e-14
    ) -> Array:
        """f'(x) d by the complex step, Im f(x + ihd) / h: h² is lost, and nothing is subtracted."""
        moved = [x + 1j * step * toward[i] if i in toward else x for i, x in enumerate(inputs)]
        return np.asarray(np.imag(self.run(moved)) / step)

    def gradients(
        self, inputs: Sequence[Any], wanted: Iterable[int], gradient: Array
    ) -> list[Array]:
        """What the op's rules send to the inputs at these positions."""
        tensors = {i: Tensor(np.asarray(inputs[i]), None, 1) for i in wanted}
        given = tuple(tensors.get(i, x) for i, x in enumerate(inputs))
        with UNOBSERVED:
            out = Tensor.__apply__(self.op, given, tuple(self._fresh_settings()))
            return list(grad(out, [*tensors.values()], gradient))

    def _fresh_settings(self) -> list[Any]:
        """The settings; what was drawn at random is drawn again."""
        return [deepcopy(x) if isinstance(x, np.random.Generator) else x for x in self.settings]


def array_of(value: Any) -> Any:
    """What a Tensor holds; all else as it is."""
    return value._data if isinstance(value, Tensor) else value


def declared_facts(
    op: Op, inputs: Arguments, settings: Arguments, out: Shaped | Node, shown: dict[str, str]
) -> Declaration:
    """What the op's declaration says of one call. Args: shown: the settings as text."""
    try:
        with UNOBSERVED:
            tex, rules = op.formulas(inputs, settings, out)
            flops = op.count_flops(inputs, settings, out)
    except Exception as error:
        raise DeclarationError(f"op {op.name}: a formula or its cost failed: {error!r}") from error
    unsaid = _unsaid(op, [tex, *rules.values()], shown)
    facts = {"tex": tex, "vjp_tex": rules, "unsaid": unsaid, "flops": flops}
    return facts | {"settings": shown, "own_op": _is_own(op), "words": _words(op)}


def facts_of_node(node: Node, shown: dict[str, str]) -> Declaration:
    """The formulas of a graph's node, which knows only inputs that need a gradient or were saved.

    Where a formula needs the others, the op's name takes its place.
    """
    op, plan = node.op, node.plan
    names = op.input_names(len(plan.kinds))
    known: dict[str, Any] = dict(zip(plan.saves, node.saved or (), strict=False))
    known |= {names[i]: edge for i, edge in zip(plan.needed, node.edges, strict=True)}
    inputs = tuple([known.get(name, _Unknown()) for name in names])
    try:
        return declared_facts(op, inputs, node.settings, node, shown) | {"flops": None}
    except DeclarationError:
        named = rf"\operatorname{{{op.name}}}"
        tex = f"{named}({', '.join(f'<{name}>' for name in names)})"
        rules = {name: rf"\operatorname{{vjp}}_{{{named}}}(<g>)" for name in names}
        facts = {"tex": tex, "vjp_tex": rules, "unsaid": tuple(shown), "settings": shown}
        return facts | {"own_op": _is_own(op), "words": _words(op)}


def _is_own(op: Op) -> bool:
    """Whether a user declared it: no test of minigrad's holds its formulas against its code."""
    return not op.kernel.__module__.startswith(("minigrad.", "layers."))


class _Unknown:
    """An input of which a graph has kept nothing."""


def _unsaid(op: Op, formulas: list[str], shown: dict[str, str]) -> tuple[str, ...]:
    """The settings without their default value that no formula has."""
    slots = {name for text in formulas for name in re.findall(r"<(\w+)>", text)}
    said = slots | _asked_for(op) | {*QUIET}
    parameters = op.signature.parameters
    return tuple(
        name
        for name, text in shown.items()
        if name not in said and text not in (repr(parameters[name].default), "rng")
    )


@lru_cache(maxsize=512)
def _asked_for(op: Op) -> frozenset[str]:
    """The names that formulas which are functions take, and so show."""
    functions = (f for f in (op.tex, *op.vjp_tex.values()) if callable(f))
    return frozenset(name for f in functions for name in signature(f).parameters)


@lru_cache(maxsize=512)
def _words(op: Op) -> dict[str, str]:
    """What an op does, and by input what its rule does with the gradient, each in one sentence."""
    rules = {name: first_sentence(rule.function) for name, rule in op.rules.items()}
    return {"": first_sentence(op.kernel), **rules}


def first_sentence(function: Callable[..., Any]) -> str:
    """What a docstring says first, up to the formula or the detail behind a colon or semicolon.

    >>> from minigrad import registry
    >>> first_sentence(registry["exp"]), first_sentence(lambda x: x)
    ('Raises e to the power of each entry.', '')
    """
    claim = " ".join((function.__doc__ or "").strip().partition("\n\n")[0].split())
    said = re.split(r"[.:;](?=\s|$)", claim, maxsplit=1)[0]
    return f"{said}." if said else ""

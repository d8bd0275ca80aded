"""Rules, and plans: how an op runs forward and back, as code generated from its rules.

A node saves what the rules' parameters name and nothing else. A plan decides that once, for all
calls in which the same inputs need a gradient.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from .errors import DeclarationError
from .types import Arguments, Function, Gradient, Kernel

if TYPE_CHECKING:
    from .op import Op

__all__ = ["FasterKernel", "Plan", "Rule", "declare_rule", "parameters_of", "tuple_of"]


class Rule(NamedTuple):
    """A backward rule: the inputs it serves, the function, what its parameters name after `g`."""

    inputs: tuple[str, ...]
    function: Kernel
    needs: tuple[str, ...]


class FasterKernel(Protocol):
    """What minigrad/fast lets run in place of an op's kernel: see its `Overlay`."""

    above: int  # it takes first inputs of more entries
    when: Callable[..., bool] | None  # and which arguments
    kernel: Kernel
    forward: Kernel
    auxiliary: tuple[str, ...]
    rules: dict[str, Rule]
    plans: dict[int, Plan]

    def takes(self, inputs: Sequence[object], settings: Sequence[object]) -> bool: ...
    def plan(self, key: int) -> Plan: ...


class Plan:
    """How an op runs, forward and back, where certain of its inputs need a gradient.

    `key` is a 1, then two bits for each input, which `kinds` holds one by one: 0 if it needs no
    gradient, 1 if it needs one, 2 if only on demand.
    `forward(*inputs, *settings)` takes plain arrays and gives the result and the tuple that a node
    keeps; `backward(g, saved)` gives the gradients, in order, on demand ones left out. Both are
    generated, once, from what the rules name; `source` shows them. The plan of an overlay runs the
    overlay's kernel and rules; where gradients are Tensors, `partial(wanted, textbook=True)` runs
    the op's own.
    """

    __slots__ = (
        "_partial", "auxiliary", "backward", "forward", "kernel", "kinds", "needed", "needs", "op",
        "overlay", "saves", "source",
    )  # fmt: skip

    @property
    def names(self) -> tuple[str, ...]:
        """Of the inputs that need a gradient."""
        names = self.op.input_names(len(self.kinds))
        return tuple([names[i] for i in self.needed])

    def __init__(self, op: Op, key: int, overlay: FasterKernel | None = None) -> None:
        self.op = op
        count = (key.bit_length() - 1) // 2
        self.kinds = kinds = tuple(key >> 2 * i & 3 for i in reversed(range(count)))
        self.overlay = overlay
        self.needed = tuple(i for i, kind in enumerate(kinds) if kind)
        self.needs = 1 if 1 in kinds else max(kinds, default=0)  # what the result needs
        self.kernel = overlay.kernel if overlay else op.kernel
        self.auxiliary = overlay.auxiliary if overlay else op.auxiliary
        rules = [(self._rule(i, textbook), i) for textbook in (False, True) for i in self.needed]
        saved = [name for rule, i in rules for name in self._saved_by(rule, i)]
        self.saves: tuple[str, ...] = tuple(dict.fromkeys(saved))
        self._partial: dict[tuple[tuple[bool, ...], bool], Callable[..., tuple[Gradient, ...]]] = {}
        self.source = ""
        self.forward: Callable[..., tuple[Any, Arguments]] = self._generate_forward()
        self.backward = self.partial(tuple(kinds[i] == 1 for i in self.needed))

    def partial(
        self, wanted: tuple[bool, ...], textbook: bool = False
    ) -> Callable[[Gradient, Arguments], tuple[Gradient, ...]]:
        """The backward that runs only the wanted rules; the other gradients are None."""
        key = wanted, textbook or self.overlay is None
        if key not in self._partial:
            self._partial[key] = self._generate_backward(*key)
        return self._partial[key]

    def _rule(self, i: int, textbook: bool) -> Rule:
        overlay, name = self.overlay, self.op.input_name(i)
        if overlay is not None and not textbook and name in overlay.rules:
            return overlay.rules[name]
        return self.op.rule_for(name)

    def _generate_forward(self) -> Kernel:
        op, first = self.op, self.op.inputs[0]
        inputs = op.input_names(len(self.kinds))
        called = op.arguments({first: tuple_of(inputs)} if op.variadic else {})
        body = [
            f"{', '.join(['out', *self.auxiliary])} = _kernel({called})",
            "if out.__class__ is not _ndarray:",
            "    out = _asarray(out)",
            f"return out, {tuple_of([self._origin(name, inputs) for name in self.saves])}",
        ]
        known = {"_ndarray": np.ndarray, "_asarray": np.asarray, "_shape": np.shape}
        return self._define(
            "forward", [*inputs, *op.settings], body, known | {"_kernel": self.kernel}
        )

    def _generate_backward(self, wanted: tuple[bool, ...], textbook: bool) -> Kernel:
        namespace: dict[str, Any] = {}
        lines, results = [], []
        chosen = [i for i, want in zip(self.needed, wanted, strict=True) if want]
        for i in self.needed:
            if i not in chosen:
                results.append("None")
                continue
            rule = self._rule(i, textbook)
            name = f"rule_{rule.inputs[0]}"
            namespace[name] = rule.function
            arguments = ", ".join(["g", *(self._argument(n, rule, i, chosen) for n in rule.needs)])
            if len(rule.inputs) == 1:
                results.append(f"{name}({arguments})")
            else:
                line = f"{', '.join('d_' + n for n in rule.inputs)} = {name}({arguments})"
                lines += [] if line in lines else [line]
                results.append(f"d_{self.op.inputs[i]}")
        unpack = [f"({', '.join(self.saves)},) = saved"] if self.saves else []
        body = [*unpack, *lines, f"return {tuple_of(results)}"]
        return self._define("backward", ["g", "saved"], body, namespace)

    def _define(
        self, name: str, parameters: list[str], body: list[str], namespace: dict[str, Any]
    ) -> Kernel:
        source = f"def {name}({', '.join(parameters)}):\n    " + "\n    ".join(body)
        self.source += source + "\n"
        namespace["__package__"] = __package__  # no frame that a user wrote
        exec(source, namespace)
        return namespace[name]

    def _saved_by(self, rule: Rule, i: int) -> list[str]:
        """The names of what a node saves for a rule; `others` and a sequence stand for several."""
        names: list[str] = []
        for need in rule.needs:
            if self.op.variadic and need in ("others", self.op.inputs[0]):
                every = enumerate(self.op.input_names(len(self.kinds)))
                names += [name for j, name in every if j != i or need != "others"]
            elif need not in self._not_saved(rule):
                names.append(need)
        return names

    def _argument(self, need: str, rule: Rule, i: int, chosen: list[int]) -> str:
        """The expression that gives a rule one of its arguments, in the source of `backward`."""
        if self.op.variadic and need in ("others", self.op.inputs[0]):
            every = enumerate(self.op.input_names(len(self.kinds)))
            return tuple_of([n if j != i or need != "others" else "None" for j, n in every])
        if need not in self._not_saved(rule):
            return need
        if need == "i":
            return str(i)
        return repr(tuple(self.op.inputs.index(name) in chosen for name in rule.inputs))

    def _not_saved(self, rule: Rule) -> set[str]:
        """Of `i` and `needed`, those that a rule may name and that name no input or setting."""
        names = {"i"} if self.op.variadic else set()
        names |= {"needed"} if len(rule.inputs) > 1 else set()
        return names.difference(self.op.inputs, self.op.settings)

    def _origin(self, name: str, inputs: list[str]) -> str:
        """The expression that gives a saved name its value, in the source of `forward`."""
        if name in ("out", *inputs, *self.op.settings, *self.auxiliary):
            return name
        if self.op.variadic:
            return tuple_of([f"_shape({x})" for x in inputs])
        source = name.removesuffix("_shape")
        return (
            f"{source}.shape"
            if self.op.inputs.index(source) in self.needed
            else f"_shape({source})"
        )

    def input_of(self, name: str) -> int | None:
        """The position of the input that was saved under `name`, None if it is no input."""
        op = self.op
        if op.variadic:
            position = name.removeprefix(op.inputs[0])
            return int(position) if position.isdigit() else None
        return op.inputs.index(name) if name in op.inputs else None


def tuple_of(expressions: list[str]) -> str:
    """The source of a tuple."""
    return f"({', '.join(expressions)},)" if expressions else "()"


def parameters_of(function: Callable[..., object]) -> tuple[str, ...]:
    """The names of a function's parameters; `inspect.signature` takes ten times as long."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    return code.co_varnames[:count]


def declare_rule(
    op: Op,
    rules: dict[str, Rule],
    plans: dict[int, Plan],
    auxiliary: tuple[str, ...],
    inputs: tuple[str, ...],
) -> Callable[[Function], Function]:
    """Put a rule for these inputs into `rules`. Raises DeclarationError for unknown parameters."""

    def declare(function: Function) -> Function:
        names = parameters_of(function)
        known = {"out", *op.inputs, *op.settings, *auxiliary}
        known |= {f"{name}_shape" for name in op.inputs}
        known |= {"i", "others"} if op.variadic else set()
        known |= {"needed"} if len(inputs) > 1 else set()
        unknown = [name for name in names[1:] if name not in known]
        strangers = [name for name in inputs if name not in op.inputs]
        if names[:1] != ("g",) or unknown or strangers or not inputs:
            raise DeclarationError(
                f"op {op.name}, rule for {inputs}: a rule takes g first and then only what the op "
                f"has ({', '.join(sorted(known))}); got ({', '.join(names)})"
            )
        for name in inputs:
            rules[name] = Rule(inputs, function, names[1:])
        plans.clear()
        return function

    return declare

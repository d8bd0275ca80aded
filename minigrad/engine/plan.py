"""Plan: what an op saves for its backward, and how its rules are called.

A rule's parameters say what it needs. So what is saved follows from the rules of those inputs that
need a gradient: everything that they name, each once. The rule of softmax is `def _(g, out, axis)`,
so a node of softmax saves its result and the axis, and not x:

>>> import minigrad as mg
>>> print(plan_of(mg.softmax, needed=0b1))
take = lambda x, axis, out: (out, axis,)
run = lambda g, out, axis: (rule_x(g, out, axis),)

`take` runs when the op has run, `run` when backward comes to the node. Of a product, what is saved
depends on which of the two inputs need a gradient; here it is the second alone:

>>> print(plan_of(mg.matmul, needed=0b10))
take = lambda a, b, out: (a, b.shape,)
run = lambda g, a, b_shape: (rule_b(g, a, b_shape),)

Both are written as text and evaluated once for each plan, since they run for every node: in their
place, loops over names take 0.1 µs more for `take` and 0.3 to 0.5 µs for `run`, of 4 µs that a node
of a small product takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from .declaration import Arguments, Declaration, Gradient, Rule, may_name, values_of
from .errors import DeclarationError

__all__ = ["Plan", "plan_of"]


class Plan(NamedTuple):
    """What is saved, and which rules run, where certain inputs of an op need a gradient.

    names, rules: of these inputs.
    saves: names of what is saved, each once.  places: where each rule's needs are among it.
    take: from inputs, settings, out and by-products, what is saved.
    run: from the output's gradient and what was saved, the inputs' gradients; None if a rule
        serves several inputs, which is called once for all of them: see `Node.run_rules`.
    text: of both, as Python.
    """

    names: tuple[str, ...]
    rules: tuple[Rule, ...]
    saves: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    take: Callable[..., Arguments]
    run: Callable[..., tuple[Gradient, ...]] | None
    text: str

    def __str__(self) -> str:
        return self.text


def plan_of(op: Declaration, needed: int) -> Plan:
    """Make the plan of an op, and keep it in `op.plans`.

    Args: needed: a bit for each input, the lowest for the first: 1 if it needs a gradient.
    """
    positions = [i for i in range(needed.bit_length()) if needed >> i & 1]
    names = tuple(map(op.input_name, positions))
    rules: list[Rule] = []
    saved: dict[str, str] = {}  # by name, the expression that takes it
    arguments: list[list[str]] = []  # of each rule, the names of what it gets
    for i, name in zip(positions, names, strict=True):
        rule = op.rules.get(op.inputs[0 if op.variadic else i])
        if rule is None:
            raise DeclarationError(f"op {op.name}: no backward rule for input {name!r}")
        takes = may_name(op, rule.inputs, i)
        own = {"i": f"i{i}", "others": f"others{i}"} if op.variadic else {}
        rules.append(rule)
        arguments.append([own.get(need, need) for need in rule.needs])
        saved |= {own.get(need, need): takes[need] for need in rule.needs}
    saves = tuple(saved)
    places = tuple([tuple([saves.index(need) for need in needs]) for needs in arguments])

    take = f"lambda {', '.join(values_of(op))}: {tuple_of(saved.values())}"
    calls = [
        f"rule_{name}({', '.join(['g', *needs])})"
        for name, needs in zip(names, arguments, strict=True)
    ]
    run = f"lambda {', '.join(['g', *saves])}: {tuple_of(calls)}"
    functions = {f"rule_{name}": rule.function for name, rule in zip(names, rules, strict=True)}
    is_simple = all(len(rule.inputs) == 1 for rule in rules)
    plan = op.plans[needed] = Plan(
        names,
        tuple(rules),
        saves,
        places,
        evaluated(take, _shape=np.shape, _shapes=_shapes),
        evaluated(run, **functions) if is_simple else None,
        f"take = {take}\nrun = {run}" if is_simple else f"take = {take}",
    )
    return plan


def _shapes(arrays: Iterable[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(np.shape, arrays))


def tuple_of(expressions: Iterable[str]) -> str:
    """The text of a tuple."""
    inside = ", ".join(expressions)
    return f"({inside},)" if inside else "()"


def evaluated(text: str, **known: Any) -> Any:
    """The function that a text is, which may use what is known by these names."""
    return eval(text, known)

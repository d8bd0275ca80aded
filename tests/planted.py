"""Faults that tests plant in the engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import minigrad as mg

__all__ = ["wrong_rules"]


@contextmanager
def wrong_rules(name: str, factor: float = 1.001) -> Iterator[None]:
    """The op's rule for its first input, wrong by a factor."""
    op = mg.registry[name]
    rules, faster = dict(op.rules), op.faster
    rule = op.rules[op.inputs[0]]

    def off(*args: Any) -> Any:
        found = rule.function(*args)
        if isinstance(found, tuple):
            return (found[0] * factor, *found[1:])
        if hasattr(found, "onto"):
            return type(found)(found.values * factor, found.index, found.shape)
        return found * factor

    op.faster = None  # a faster rule would not be wrong
    op.rules |= {n: r._replace(function=off) for n, r in rules.items() if r is rule}
    op.plans.clear()
    try:
        yield
    finally:
        op.rules, op.faster = rules, faster
        op.plans.clear()

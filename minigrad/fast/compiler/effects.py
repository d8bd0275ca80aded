"""What a program does to the outside: gradients, writes, updates, and what it returns."""

from __future__ import annotations

from typing import Any

from ...engine.graph import SourceLocation as Where
from ...engine.graph import writes
from ...engine.tensor import Tensor
from .program import Known, Step, Value, Wrapped, nbytes, root
from .terms import Terms

__all__ = ["Changed", "Effects"]


class Changed(Exception):
    """What the program asked of the numbers has another answer than when it was recorded."""


class Effects(Terms):
    """Lines for effects. They come last, when all is computed: an error leaves none half done."""

    def _check(self, step: Step) -> None:
        (value, truth), question = step.args, step.function
        changed, text = self.names.bind(Changed, "Changed"), self.text(value)
        if question is not bool and question is not None:
            text = f"{self.names.bind(question, question.__name__)}({text})"
        self.lines.append(f"if {'not ' if truth else ''}{text}: raise {changed}")

    def _grad(self, step: Step) -> None:
        leaf, expression, value = step.args
        target, text = self.tensor(leaf, expression), self._source(value, "whole", True)
        base = root(value)
        own = base.kind in ("step", "room") and not (base.step and base.step.shares)
        own = own and not self.taken & {id(base), id(value)}
        own = own and (nbytes(base) == nbytes(value) or value.part)
        self.taken.add(id(value if value.part else base))
        self.whole.append(f"{target}.grad = {text if own else f'{text}.copy()'}")

    def _clear(self, step: Step) -> None:
        self.whole.append(f"{self.tensor(*step.args)}.grad = None")

    def _assign(self, step: Step) -> None:
        _, _, target, value = step.args
        noted = self.names.bind(_noting(self.where), "written")
        text = self.text(target)
        self.whole += [f"{text}[...] = {self.text(value)}", f"{noted}({text})"]

    def _update(self, step: Step) -> None:
        owner, call = step.args
        made = f"{self.names.bind(call, f'{type(owner).__name__.lower()}_step')}()"
        if step.made is not None:
            name = self.known[id(step.made), 0, "whole"] = self.names.fresh("updated")
            made = f"{name} = {made}._data"
        self.whole.append(made)

    def _result(self, item: Any) -> str:
        if isinstance(item, Wrapped):
            if item.scalar:
                return f"{self.text(item.value)}[()]"
            named = f", {item.name!r}" if item.name else ""
            self.names.objects.setdefault("Tensor", _tensor)
            return f"Tensor({self._returned(item.value)}{named})"
        if isinstance(item, Known):
            return self.tensor(item.tensor, item.expression)
        if item.__class__ is Value:
            return self._returned(item)
        if isinstance(item, tuple) and item.__class__ is not tuple:
            kind = self.names.bind(type(item), type(item).__name__)
            return f"{kind}({', '.join(map(self._result, item))})"
        if isinstance(item, tuple):
            return f"({''.join(self._result(entry) + ', ' for entry in item)})"
        if isinstance(item, list):
            return f"[{', '.join(map(self._result, item))}]"
        if isinstance(item, dict):
            keys = [
                repr(k) if isinstance(k, str | int) else self.names.bind(k, "key") for k in item
            ]
            pairs = [f"{k}: {self._result(v)}" for k, v in zip(keys, item.values(), strict=True)]
            return f"{{{', '.join(pairs)}}}"
        return self.value(item)

    def _returned(self, value: Value) -> str:
        """What is returned must not be what a `.grad` holds, or a constant of ours."""
        base = root(value)
        shared = id(base) in self.taken or (base.step is not None and base.step.shares)
        return self._source(value, "whole", True) + (
            ".copy()" if shared or base.kind == "constant" else ""
        )


def _tensor(array: Any, name: str | None = None) -> Tensor:
    made = Tensor(array)
    made._name = name
    return made


def _noting(where: Where) -> Any:
    def written(array: Any) -> None:
        writes.note(array, where)

    return written

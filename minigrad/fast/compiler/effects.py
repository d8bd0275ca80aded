"""What a program does to the outside: gradients, writes, updates, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...engine.listener import Listener, notify
from ...engine.tensor import Tensor
from ...engine.writes import SourceLocation, writes
from .program import ExistingTensor, NewTensor, Step, Value, nbytes, root
from .terms import Terms

__all__ = ["GuardFailed", "repeated", "write_effect", "write_result"]


class GuardFailed(Exception):
    """A recorded guard evaluated differently: the numbers answer what a kernel asked otherwise."""


def write_effect(writer: Terms, step: Step) -> None:
    """The line of a check, or of something that is written."""
    _LINES[step.kind](writer, step)


def _check(writer: Terms, step: Step) -> None:
    (value, truth), question = step.args, step.function
    changed, text = writer.names.bind(GuardFailed, "GuardFailed"), writer.text(value)
    if question is not bool and question is not None:
        text = f"{writer.names.bind(question, question.__name__)}({text})"
    writer.lines.append(f"if {'not ' if truth else ''}{text}: raise {changed}")


def _grad(writer: Terms, step: Step) -> None:
    leaf, expression, value = step.args
    target = writer.tensor(leaf, expression)
    text = writer.text(value)
    base = root(value)
    own = base.step is not None and not base.step.shares and id(base) not in writer.taken
    own = own and nbytes(base) == nbytes(value)
    writer.taken.add(id(base))
    writer.whole.append(f"{target}.grad = {text if own else f'{text}.copy()'}")


def _clear(writer: Terms, step: Step) -> None:
    writer.whole.append(f"{writer.tensor(*step.args)}.grad = None")


def _assign(writer: Terms, step: Step) -> None:
    target, value = (writer.text(v) for v in step.args[2:4])
    noted = writer.names.bind(_noting(writer.where), "written")
    writer.whole += [f"{target}[{writer.index(step.args[4])}] = {value}", f"{noted}({target})"]


def _update(writer: Terms, step: Step) -> None:
    owner, call = step.args
    name = f"{type(owner).__name__.lower()}_step"
    made = f"{writer.names.bind(repeated(owner, call), name)}()"
    writer.whole.append(f"{writer.name(step.out)} = {made}._data" if step.outs else made)


def repeated(owner: Any, call: Callable[[], Any]) -> Callable[[], Any]:
    """An update, made unless a listener takes its place, as an audit does."""

    def update() -> Any:
        return None if True in notify(Listener.replaces_update, owner) else call()

    return update


_LINES = {
    "check": _check,
    "grad": _grad,
    "clear": _clear,
    "forget": _clear,
    "assign": _assign,
    "update": _update,
}


def _noting(where: SourceLocation) -> Any:
    def written(array: Any) -> None:
        writes.note(array, where)

    return written


# ---------------------------------------------------------------- what is returned


def write_result(writer: Terms) -> None:
    """The last lines: attributes that the step sets, and what it returns. What an attribute held is
    let go of at the start, so that two do not take memory at once.
    """
    for owner, key, value in writer.program.keeps:
        name = writer.names.bind(owner, "attributes")
        writer.whole.append(f"{name}[{key!r}] = {writer.text(value)}")
        writer.whole.insert(0, f"{name}[{key!r}] = None")
    writer.whole.append(f"return {_result(writer, writer.program.result)}")


def _result(writer: Terms, item: Any) -> str:
    if isinstance(item, NewTensor):
        if item.scalar:
            return f"{writer.text(item.value)}[()]"
        named = f", {item.name!r}" if item.name else ""
        writer.names.objects.setdefault("Tensor", _tensor)
        return f"Tensor({_returned(writer, item.value)}{named})"
    if isinstance(item, ExistingTensor):
        return writer.tensor(item.tensor, item.expression)
    if item.__class__ is Value:
        return _returned(writer, item)
    if isinstance(item, dict):
        pairs = [f"{writer.value(k)}: {_result(writer, v)}" for k, v in item.items()]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(item, tuple | list):
        inner = "".join(f"{_result(writer, entry)}, " for entry in item)
        if item.__class__ in (tuple, list):
            return f"({inner})" if item.__class__ is tuple else f"[{inner}]"
        return f"{writer.names.bind(type(item), type(item).__name__)}({inner})"
    return writer.value(item)


def _returned(writer: Terms, value: Value) -> str:
    """What is returned must not be what a `.grad` holds, or a constant of ours."""
    base, text = root(value), writer.text(value)
    shared = id(base) in writer.taken or (base.step is not None and base.step.shares)
    return f"{text}.copy()" if shared or base.kind == "constant" else text


def _tensor(array: Any, name: str | None = None) -> Tensor:
    made = Tensor(array)
    made._name = name
    return made

"""The program as Python: the lines of a tape as NumPy calls, named, and written down.

What nobody reads is left out, a view is taken once, and a result goes where an operand lay that
nobody reads any more; large arrays are let go of after their last use.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from keyword import kwlist
from typing import Any

import numpy as np

from ...engine.tensor import Tensor
from ..limits import LIMITS
from .arguments import mapped
from .lines import Returned, TapeLine, Value
from .symbols import Calls, NumpyCall, Variable, fitted
from .text import Names

__all__ = ["ProgramText"]

ABOUT = {"grad": "gradients", "clear": "gradients", "keep": "what layers keep"}
INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "greater": ">", "less": "<",
    "greater_equal": ">=", "less_equal": "<=", "equal": "==", "not_equal": "!=",
    "bitwise_and": "&", "bitwise_or": "|",
}  # fmt: skip
AUGMENTED = {"+", "-", "*", "/", "&", "|"}  # as in `x += y`


class ProgramText(Calls):
    """Python for the lines of a tape. `text` is the source, `names.objects` what it is handed.

    Args: parameters: what the step calls its arguments, by path.
    """

    def __init__(
        self, lines: Sequence[TapeLine], result: Any, name: str, parameters: dict[str, str]
    ) -> None:
        super().__init__(Names([name, "args", "kwargs", "build", *dir(builtins), *kwlist]))
        self._parameters = parameters
        self._head: list[str] = []
        for line in lines:
            self.line = line
            self._add(line)
        self.line = TapeLine("result", None, (), op="result")
        self._do("return {}", [result], kind="keep")
        self.calls = self._needed()
        self._place()
        self.text = self._written(name)

    def _do(self, form: str, given: Any = (), made: Any = (), kind: str = "effect") -> None:
        """Add a call of a form, with a place for each that it is given."""
        reads: list[Variable] = []
        form = form.format(*[self.written(self._read(x), reads) for x in given])
        self.calls.append(NumpyCall(form, reads, [*made], self.line, kind))

    # ------------------------------------------------------------------ variables

    def _variable(self, value: Value) -> Variable:
        found = self.variables.get(value.number)
        if found is None:  # it comes from outside
            found = self._make(value)
            if value.path:
                found.hint = self._parameters.get(value.path, value.name)
                found.text = self.names.fresh(found.hint)
                self._head.append(f"{found.text} = {value.path}")
            else:
                found.text = self.names.bound(value.thing, value.name)
            found.text += "._data" * value.is_tensor
        return found

    def _make(self, value: Value) -> Variable:
        made = Variable(self, value.shape, value.dtype, value.name, strides=value.strides)
        self.variables[value.number] = made
        return made

    def _object(self, value: Value) -> str:
        return self._variable(value).text.removesuffix("._data")

    def _read(self, x: Any) -> Any:
        """An argument of a line, or what is returned, with Variables for its Values."""

        def leaf(x: Any) -> Any:
            if x.__class__ is Returned:
                return self._returned(x)
            return self._variable(x) if x.__class__ is Value else x

        return mapped(x, leaf)

    def _returned(self, x: Returned) -> Variable:
        """A Tensor or a gradient as the step returns it."""
        variable = self._variable(x.value)
        form = "{0}" if variable.shape else "np.asarray({0})"
        if x.how in ("itself", "grad"):
            form = self._object(x.value) + ".grad" * (x.how == "grad")
        elif x.how == "tensor":
            form = f"{self.names.bound(Tensor, 'Tensor')}({form})"
        return self.noted(form.format("{}"), [variable], variable, True)

    # ------------------------------------------------------------------ lines to calls

    def _add(self, line: TapeLine) -> None:
        """Add the calls of a line."""
        given = line.given
        if line.kind in ("op", "rule"):
            self._compute(line)
        elif line.kind == "grad":
            name = f"{self._object(given[0])}.grad"
            form = f"{name} = {name} + {{}}" if given[2] else f"{name} = {{}}"
            self._do(form, [given[1]], kind="effect" if given[2] else "grad")
        elif line.kind == "clear":
            names = ", ".join(map(self._object, given[0]))
            self._do(f"for p in ({names},): p.grad = None")
        elif line.kind == "keep":
            owner = self.names.bound(given[0], f"{line.op}_keeps")
            self._do(f"{owner}[{given[1]!r}] = {{}}", [given[2]], kind="keep")
        else:  # memory from outside is written into: a view of before is not one of now
            self.views.clear()
            if line.kind == "write":
                self._do(f"{self._object(given[0])}.assign_({{}})", [given[1]])
                return
            made = [self._make(value) for value in line.made if value is not None]
            name = self.names.bound(line.function, f"{line.op}_step")
            self._do(f"{name}(){'._data' * bool(made)}", made=made)

    def _compute(self, line: TapeLine) -> None:
        """The calls of a kernel or rule, or the one call of it whole."""
        given = self._read(line.given)
        sizes = None
        if line.kind == "rule":
            sizes = [None if v is None else (v.shape, v.dtype) for v in line.made]
        self.hint = next(v.name for v in line.made if v is not None)
        if line.effect or not self.take_apart(given, sizes):
            self._whole(line, given, sizes)

    def _whole(self, line: TapeLine, given: Any, sizes: Any) -> None:
        """The kernel or rule itself. What it gives may be, or show, what it was given."""
        name = f"d_{line.op}" if sizes else line.op
        form = f"{self.names.bound(line.function, name)}({', '.join(['{}'] * len(given))})"
        if sizes:
            form = f"{self.names.bound(fitted, 'fitted')}({form}, {{}}){'[0]' * (len(sizes) == 1)}"
            given = *given, sizes
        unused = Variable(self, (), np.dtype(bool), "unused")
        made = [self._make(v) if v else unused for v in line.made]
        self._do(form, given, made, "effect" if line.effect else "whole")
        bases = [base for v in self.calls[-1].reads for base in v.bases]
        for variable, value in zip(made, line.made, strict=True):
            if value is not None and value.fresh:
                variable.stays = False
            else:
                variable.bases = [*bases, variable]
                variable.stays = not bases

    # ------------------------------------------------------------------ what is read, and where

    def _needed(self) -> list[NumpyCall]:
        """The calls that have an effect, or make what another one reads; who reads what last."""
        calls: list[NumpyCall] = []
        for call in reversed(self.calls):
            is_used = any(v.readers for v in call.made)
            if call.kind in ("", "entrywise", "whole") and not is_used:
                continue
            calls.append(call)
            if call.kind == "grad" and not (call.reads[0].shape and call.reads[0].is_alone()):
                call.form = call.form.replace("{}", "np.array({})")
                call.kind = "effect"
            for variable in call.reads:
                variable.readers.append(call)
                for base in variable.bases:
                    base.last = base.last or call
                    base.stays = base.stays or call.kind in ("keep", "grad")
        return calls[::-1]

    def _place(self) -> None:
        """Which results go where an operand lay that nobody reads after them.

        Such a result shares its name, if they are of one stem.
        """
        for call in self.calls:
            is_masked = call.form.startswith("np.where({}, {}, ")
            for x in call.reads if call.kind == "entrywise" else call.reads[1:2] * is_masked:
                made = call.made[0]
                fits = (x.strides, x.dtype) == (made.strides, made.dtype) and x.shape == made.shape
                is_same = _stem(x) == _stem(made)
                if (
                    fits
                    and made.shape
                    and made.size
                    and is_same >= is_masked
                    and x.is_alone()
                    and x.bases[0].last is call
                ):
                    made.over = x
                    if is_same:
                        made.root = x.root
                        x.root.hint = min(x.root.hint, made.hint, key=len)
                    break

    # ------------------------------------------------------------------ text

    def _written(self, name: str) -> str:
        sections = [self._head]
        large: set[str] = set()
        moved: set[int] = set()  # Variables whose text stands for more than a view
        place = ""
        for call, following in zip(self.calls, [*self.calls[1:], None], strict=True):
            if _is_inlined(call, following, moved):
                call.made[0].text = call.form.format(*[v.root.text for v in call.reads])
                continue
            if (found := _place_of(call.line)) not in ("", place):
                place = found
                sections.append([f"# {place}"])
            for variable in call.made:
                root = variable.root
                root.text = root.text or self.names.fresh(root.hint)
                large.discard(root.text)
                if not variable.bases[-1].stays and variable.nbytes >= LIMITS.large_bytes:
                    large.add(root.text)
            sections[-1].append(_statement(call))
        for section in reversed(sections):  # a large array goes after its last use
            named = large & {*re.findall(r"\w+", " ".join(section[1:]))}
            if named and section is not sections[-1]:
                section.append(f"del {', '.join(sorted(named))}")
            large -= named
        lines = [f"        {line}" for section in sections for line in section]
        head = [f"def build({', '.join(self.names.objects)}):", f"    def {name}(args, kwargs):"]
        return "\n".join([*head, *lines, f"    return {name}", ""])


def _place_of(line: TapeLine) -> str:
    """Where in the step a line is."""
    about = f"{line.op}, back" if line.kind == "rule" else line.op
    return ABOUT.get(line.kind) or ": ".join(filter(None, (line.scope, about)))


def _is_inlined(call: NumpyCall, following: NumpyCall | None, moved: set[int]) -> bool:
    """Whether it needs no name: a view that is read once, or what the next call alone reads."""
    if call.kind or _over(call) is not None or len(call.made[0].readers) != 1:
        return False
    made = call.made[0]
    by = made.readers[0]
    if call.form[-1] not in ")T]" or " @ " in call.form or _over(by) is made:
        return False
    is_view = made.bases[0] is not made
    if is_view and by.line is call.line and not moved & {*map(id, call.reads)}:
        return True
    is_next = by is following and (is_view or by.form.startswith("{}."))
    moved.update([id(made)] * is_next)  # what it reads may be written over before another line
    return is_next


def _by_operator(call: NumpyCall) -> tuple[str, str]:
    """What a call reads with an operator of Python's between, and that; or the call itself."""
    name, _, inner = call.form[3:-1].partition("(")
    sign = INFIX.get(name, "") if call.kind == "entrywise" else ""
    return (inner.replace(", ", f" {sign} "), sign) if sign else (call.form, "")


def _statement(call: NumpyCall) -> str:
    texts = [v.root.text for v in call.reads]
    names = [v.root.text for v in call.made]
    over = _over(call)
    form, sign = _by_operator(call)
    if over is None:
        return f"{', '.join(names)} = " * bool(names) + form.format(*texts)
    place = over.root.text
    if call.kind != "entrywise":
        other = call.form[:-1].split(", ", 2)[2].format(*texts[2:])
        return f"np.copyto({place}, {other}, where=~{texts[0]})"
    if names == [place] and sign in AUGMENTED and form[:2] == "{}" and call.reads[0] is over:
        return form.replace(f" {sign} ", f" {sign}= ").format(*texts)
    text = f"{call.form[:-1]}, out={place})".format(*texts)
    return text if names == [place] else f"{names[0]} = {text}"


def _over(call: NumpyCall) -> Variable | None:
    """In whose place its result is written."""
    return call.made[0].over if call.made else None


def _stem(variable: Variable) -> tuple[bool, str]:
    """What names of one thing share: S_raw, S and S_masked are S."""
    hint = variable.hint
    return hint.startswith("d_"), hint.removeprefix("d_").partition("_")[0]

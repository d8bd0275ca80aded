"""The program as Python: the lines of a tape as NumPy calls, named, and written down.

What nobody reads is left out; what is read once, within its line, is written where it is read.
Large arrays are let go of after their last use. No statement writes over what another one made.
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
from .lines import Handed, Returned, TapeLine, Value, leaves_of, mapped, signed, view_of
from .statements import Names, Python, Statement
from .symbols import KernelCalls, Sample

__all__ = ["ProgramText"]


class ProgramText:
    """Python for the lines of a tape. `text` is the source, `names.objects` what it is handed."""

    def __init__(self, lines: Sequence[TapeLine], result: Any, name: str) -> None:
        self.names = Names([name, "args", "build", *dir(builtins), *kwlist])
        self._arguments: dict[str, str] = {}  # names of what is among them, by path
        self._statements: list[Statement] = []
        self._same: dict[Value, Value] = {}  # what stands for what a kernel gave
        self._traced: dict[Any, KernelCalls] = {}  # lines that are equal are taken apart once
        for line in lines:
            self._line = line
            given = mapped(line.given, self._read)
            if not isinstance(line.function, str):
                self._compute(given)
                continue
            self._add(line.function, given, line.made, True)
        self._line = TapeLine(None, (), op="result")
        self._add("return {0}", [mapped(result, self._read)], (), True)
        self._leave_out()
        self.text = self._written(name)

    def _add(self, form: str, args: Sequence[Any], made: Sequence[Any], effect: bool) -> None:
        self._statements.append(Statement(form, args, [*made], self._line, effect))

    # ------------------------------------------------------------------ variables

    def _read(self, x: Any) -> Any:
        """What stands for a part of what a line is given, or of what is returned."""
        if x.__class__ is Value:
            x = self._same.get(x, x)
            if x.source:
                x.text = self._object(x.source) + x.attribute
            return x
        if x.__class__ is Handed:
            return Python(self._object(x))
        return self._returned(x) if x.__class__ is Returned else x

    def _object(self, x: Handed) -> str:
        """The name of what the program is handed."""
        if not x.path:
            return self.names.bound(x.thing, x.name)
        if x.path not in self._arguments:
            self._arguments[x.path] = self.names.fresh(x.name)
        return self._arguments[x.path]

    def _returned(self, x: Returned) -> Value:
        """A new Tensor or an array; what others may hold is copied, and a number is an array."""
        variable: Value = self._read(x.value)
        form = "{0}" if variable.is_new and variable.shape else "np.array({0})"
        variable.is_new = False
        if x.is_tensor:
            form = f"{self.names.bound(Tensor, 'Tensor')}({form})"
        if form == "{0}":
            return variable
        return self._result(Statement(form, [variable], [], self._line), "copy", variable, False)

    # ------------------------------------------------------------------ lines to statements

    def _compute(self, given: Any) -> None:
        """The statements of a kernel or rule, or the one call of it whole."""
        line = self._line
        inputs = [*dict.fromkeys(x for _, x in leaves_of(given, "") if isinstance(x, Value))]
        forms = {x: (i, x.form) for i, x in enumerate(inputs)}
        key = mapped(given, lambda x: forms[x] if isinstance(x, Value) else x)
        key = signed([line.function, key, [v and v.form for v in line.made]])
        # no sample shows which indices are in range
        has_indices = line.function is not view_of and any(x.dtype.kind in "iu" for x in inputs)
        if key not in self._traced and not (line.effect or has_indices):
            self._traced[key] = KernelCalls(line, given)
        calls = self._traced.get(key)
        if calls is None or calls.results is None:
            self._call_whole(given)
            return
        variables = dict(zip(calls.inputs.values(), inputs, strict=True))
        own = lambda x: variables[x] if isinstance(x, Sample) else x  # noqa: E731
        for form, args, sample, is_entrywise, name in calls.calls:
            ufunc = name if is_entrywise else ""
            statement = Statement(form, mapped(args, own), [], line, ufunc=ufunc)
            variables[sample] = self._result(statement, name, sample, sample.shows)
        for sample, value in zip(calls.results, line.made, strict=True):
            if value is None:
                continue
            variable = self._same[value] = variables[sample]
            if variable not in inputs and not (sample.shows and value.name == line.op):
                variable.name = value.name

    def _result(self, statement: Statement, name: str, like: Any, shows: bool) -> Value:
        """What a statement makes, which lies as `like` does."""
        hint = f"{statement.reads[0].name if shows else self._line.op}_{name}"
        made = Value(0, hint, like.shape, like.dtype, like.strides, is_new=not shows)
        statement.made.append(made)
        self._statements.append(statement)
        return made

    def _call_whole(self, given: Sequence[Any]) -> None:
        """The kernel or rule itself. What it gives may be, or show, what it was given."""
        line = self._line
        function = self.names.bound(line.function, line.op)
        slots = ", ".join([f"{{{i}}}" for i in range(len(given))])
        made = [v or Value(0, "unused", (), np.dtype(bool), ()) for v in line.made]
        self._add(f"{function}({slots})", given, made, line.effect)

    def _leave_out(self) -> None:
        """Keep what has an effect, or makes what another one reads; note who reads what."""
        needed: list[Statement] = []
        for statement in reversed(self._statements):
            if statement.has_effect or any(x.readers for x in statement.made):
                needed.append(statement)
                for x in statement.reads:
                    x.readers.append(statement)
        self._statements = needed[::-1]

    # ------------------------------------------------------------------ text

    def _written(self, name: str) -> str:
        sections = [[f"{text} = {path}" for path, text in self._arguments.items()]]
        large: set[str] = set()
        written: set[Statement] = set()
        place = ""
        for statement in self._statements:
            if statement.is_inlined():
                statement.made[0].text = statement.text(self.names)
                continue
            line = statement.line
            title = ": ".join(filter(None, (line.scope, line.op)))
            if title != place:
                place = title
                sections.append([f"# {title}"])
            for x in statement.made:
                x.text = self.names.fresh(x.name)
                if x.nbytes >= LIMITS.large_bytes:
                    large.add(x.text)
            written.add(statement)
            sections[-1].append(statement.text(self.names, self._into(statement, written)))
        for section in reversed(sections):  # a large array goes after its last use
            named = large & {*re.findall(r"\w+", " ".join(section[1:]))}
            if named and section is not sections[-1]:
                section.append(f"del {', '.join(sorted(named))}")
            large -= named
        lines = [f"        {line}" for section in sections for line in section]
        head = [f"def build({', '.join(self.names.objects)}):", f"    def {name}(args):"]
        return "\n".join([*head, *lines, f"    return {name}", ""])

    def _into(self, statement: Statement, written: set[Statement]) -> Value | None:
        """What a ufunc reads, and may write over: a large array of its result's form that nobody
        else holds, and that no later statement reads.
        """
        if not statement.ufunc:
            return None
        for x in statement.reads:
            is_large = x.shape != () and x.nbytes >= max(LIMITS.large_bytes, 1)
            is_own = x.is_new and x.text.isidentifier() and x.form == statement.made[0].form
            if is_large and is_own and all(_is_done(reader, written) for reader in x.readers):
                return x
        return None


def _is_done(reader: Statement, written: set[Statement]) -> bool:
    """Whether a statement has read, and keeps no view of what it read."""
    has_view = not all(made.is_new for made in reader.made)
    return reader.place() in written and not has_view

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
from .lines import Returned, TapeLine, Value, signed
from .statements import Names, Python, Statement, Variable
from .symbols import ArrayForm, KernelCalls, NumpyCall, Sample, fitted

__all__ = ["ProgramText"]

ABOUT = {"grad": "gradients", "clear": "gradients", "keep": "what layers keep"}
SUFFIXES = {
    "T": "_T", "mT": "_T", "swapaxes": "_T", "transpose": "_T", "reshape": "_rows",
    "maximum": "_max", "add": "_sum", "sum": "_sum", "mean": "_mean",
}  # fmt: skip


class ProgramText:
    """Python for the lines of a tape. `text` is the source, `names.objects` what it is handed.

    Args: parameters: what the step calls its arguments, by path.
    """

    def __init__(
        self, lines: Sequence[TapeLine], result: Any, name: str, parameters: dict[str, str]
    ) -> None:
        self.names = Names([name, "args", "kwargs", "build", *dir(builtins), *kwlist])
        self._parameters = parameters
        self._head: list[str] = []
        self._statements: list[Statement] = []
        self._variables: dict[int, Variable] = {}  # by a Value's number
        self._views: dict[Any, Variable] = {}  # what was taken once is not taken again
        self._traced: dict[Any, KernelCalls] = {}  # lines that are equal are taken apart once
        for line in lines:
            self._line = line
            self._add_line()
        self._line = TapeLine("result", None, (), op="result")
        self._do("return {}", [result], kind="keep")
        self._leave_out()
        self._place()
        self.text = self._written(name)

    def _do(self, form: str, given: Any = (), made: Any = (), kind: str = "effect") -> None:
        """Add a statement of a form, with a place for each that it is given."""
        reads: list[Variable] = []
        form = form.format(*[self._argument(self._read(x), reads) for x in given])
        self._statements.append(Statement(form, reads, [*made], self._line, kind))

    # ------------------------------------------------------------------ variables

    def _variable(self, value: Value) -> Variable:
        if value.number in self._variables:
            return self._variables[value.number]
        variable = self._make(value)  # it comes from outside
        variable.is_callers = True
        if value.path:
            variable.hint = self._parameters.get(value.path, value.name)
            variable.text = self.names.fresh(variable.hint)
            self._head.append(f"{variable.text} = {value.path}")
        else:
            variable.text = self.names.bound(value.thing, value.name)
        if value.is_tensor:
            variable.text += "._data"
        return variable

    def _make(self, value: Value) -> Variable:
        variable = Variable(value.shape, value.dtype, value.strides, value.name)
        self._variables[value.number] = variable
        return variable

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
        """A Tensor, a gradient or an array as the step returns it."""
        variable = self._variable(x.value)
        form = "{}"
        if x.is_own and any(base.is_callers for base in variable.bases):
            form = "np.array({})"  # Tensors copy what they are made of
        elif not variable.shape:
            form = "np.asarray({})"
        if x.how == "grad":
            form = self._object(x.value) + ".grad"
        elif x.how == "itself":
            form = self._object(x.value)
        elif x.how == "tensor":
            form = f"{self.names.bound(Tensor, 'Tensor')}({form})"
        return self._result(Statement(form, [variable], [], self._line), variable, True)

    def _argument(self, x: Any, reads: list[Variable]) -> str:
        """Python for what is passed, with {} for Variables, which join `reads`."""

        def text(leaf: Any) -> Python:
            if isinstance(leaf, Variable):
                reads.append(leaf)
                return Python("\0")
            return Python(self.names.text(leaf))

        escaped = repr(mapped(x, text)).replace("{", "{{").replace("}", "}}")
        return escaped.replace("\0", "{}")

    # ------------------------------------------------------------------ lines to statements

    def _add_line(self) -> None:
        line = self._line
        given = line.given
        if line.kind in ("op", "rule", "sum"):
            self._compute()
        elif line.kind == "grad":
            name = f"{self._object(given[0])}.grad"
            if given[2]:
                self._do(f"{name} = {name} + {{}}", [given[1]])
            else:
                self._do(f"{name} = {{}}", [given[1]], kind="grad")
        elif line.kind == "clear":
            names = ", ".join(map(self._object, given[0]))
            self._do(f"for p in ({names},): p.grad = None")
        elif line.kind == "keep":
            owner = self.names.bound(given[0], f"{line.op}_keeps")
            self._do(f"{owner}[{given[1]!r}] = {{}}", [given[2]], kind="keep")
        else:  # memory from outside is written into: a view of before is not one of now
            self._views.clear()
            if line.kind == "write":
                self._do(f"{self._object(given[0])}.assign_({{}})", [given[1]])
                return
            name = self.names.bound(line.function, f"{line.op}_step")
            made = [self._make(value) for value in line.made if value is not None]
            self._do(f"{name}()._data" if made else f"{name}()", made=made)

    def _compute(self) -> None:
        """The statements of a kernel or rule, or the one call of it whole."""
        line = self._line
        given = self._read(line.given)
        numbers: dict[Variable, int] = {}

        def place(x: Any) -> Any:
            if not isinstance(x, Variable):
                return x
            return ArrayForm(numbers.setdefault(x, len(numbers)), x.shape, x.dtype, x.strides)

        places = mapped(given, place)
        made = [v if v is None else ArrayForm(0, v.shape, v.dtype, v.strides) for v in line.made]
        may_fail = line.whole is not None and any(x.dtype.kind in "iu" for x in numbers)
        if line.effect or may_fail:  # an index may be out of range, which the op explains
            self._call_whole(given)
            return
        key = signed([line.kind, line.function, places, made])
        if key not in self._traced:
            self._traced[key] = KernelCalls(line.function, places, made, line.kind == "rule")
        calls = self._traced[key]
        if calls.results is None:
            self._call_whole(given)
            return
        variables = {calls.inputs[n]: x for x, n in numbers.items()}
        outside = {*variables.values()}
        for call in calls.calls:
            variables[call.made] = self._called(call, variables)
        first = calls.results[0]
        if line.kind == "op" and isinstance(first, Sample) and first.is_number:
            makers = [x for x in self._statements if variables[first] in x.made]
            (statement,) = makers  # what an op gives is an array
            statement.form = f"np.asarray({statement.form})"
            statement.kind = ""
        for sample, value in zip(calls.results, line.made, strict=True):
            if value is None:
                continue
            variable = variables[sample]
            self._variables[value.number] = variable
            is_view = variable.bases[0] is not variable
            if variable not in outside and not (is_view and value.name == line.op):
                variable.hint = value.name

    def _called(self, call: NumpyCall, variables: dict[Sample, Variable]) -> Variable:
        """What a call of NumPy's makes, with a statement that makes it."""
        reads: list[Variable] = []
        own = lambda x: variables[x] if isinstance(x, Sample) else x  # noqa: E731
        args = [self._argument(mapped(x, own), reads) for x in call.args]
        if call.name == "getitem":
            args = [
                _index(x) if x.__class__ is slice else arg
                for x, arg in zip(call.args, args, strict=True)
            ]
        args += [
            f"{name}={self._argument(mapped(x, own), reads)}" for name, x in call.kwargs.items()
        ]
        form = call.form.format(*args, all=", ".join(args), rest=", ".join(args[1:]))
        kind = "entrywise" if call.entrywise else ""
        statement = Statement(form, reads, [], self._line, kind, call.name, args)
        return self._result(statement, call.made, call.shows)

    def _result(self, statement: Statement, form: Any, shows: bool) -> Variable:
        """What a statement makes, of the shape and layout of `form`; a view is made once."""
        reads = statement.reads
        key = (statement.form, *reads)
        if shows and key in self._views:
            return self._views[key]
        hint = reads[0].hint
        bases: list[Variable] = []
        if shows:
            bases = [*dict.fromkeys(base for x in reads for base in x.bases)]
        else:
            hint = next(v.name for v in self._line.made if v is not None)
        if statement.kind != "entrywise":
            hint += SUFFIXES.get(statement.name, "")
        made = Variable(form.shape, form.dtype, form.strides, hint, bases, shows)
        if shows:
            self._views[key] = made
        statement.made.append(made)
        self._statements.append(statement)
        return made

    def _call_whole(self, given: Any) -> None:
        """The kernel or rule itself. What it gives may be, or show, what it was given."""
        line = self._line
        name = f"d_{line.op}" if line.kind == "rule" else line.op
        function = self.names.bound(line.whole or line.function, name)
        form = f"{function}({', '.join(['{}'] * len(given))})"
        if line.kind == "rule":
            wanted = [None if v is None else (v.shape, v.dtype) for v in line.made]
            form = f"{self.names.bound(fitted, 'fitted')}({form}, {{}})"
            form = f"{form}[0]" if len(wanted) == 1 else form
            given = *given, wanted
        elif line.kind == "op" and [v and v.shape for v in line.made] == [()]:
            form = f"np.asarray({form})"  # what an op gives is an array
        unused = Variable((), np.dtype(bool), (), "unused")
        made = [self._make(v) if v else unused for v in line.made]
        self._do(form, given, made, "effect" if line.effect else "whole")
        bases = [base for x in self._statements[-1].reads for base in x.bases]
        for variable, value in zip(made, line.made, strict=True):
            if value is not None and value.fresh:
                variable.stays = False
            else:
                variable.bases = [*bases, variable]
                variable.stays = not bases

    # ------------------------------------------------------------------ what is read, and where

    def _leave_out(self) -> None:
        """Keep what has an effect, or makes what another one reads; note who reads what last."""
        needed: list[Statement] = []
        for statement in reversed(self._statements):
            is_read = any(x.readers for x in statement.made)
            if statement.kind in ("", "entrywise", "whole") and not is_read:
                continue
            needed.append(statement)
            if statement.kind == "grad":
                (gradient,) = statement.reads
                if not (gradient.shape and gradient.is_alone()):
                    statement.form = statement.form.replace("{}", "np.array({})")
                    statement.kind = "effect"
            for x in statement.reads:
                x.readers.append(statement)
                for base in x.bases:
                    base.last = base.last or statement
                    base.stays = base.stays or statement.kind in ("keep", "grad")
        self._statements = needed[::-1]

    def _place(self) -> None:
        """Which results go where an operand lay that nobody reads after them.

        Such a result shares its name, if they are of one stem.
        """
        for statement in self._statements:
            for x in statement.operands():
                made = statement.made[0]
                if made.can_go_over(x) and x.bases[0].last is statement:
                    made.over = x
                    if made.is_one_thing_with(x):
                        made.root = x.root
                        x.root.hint = min(x.root.hint, made.hint, key=len)
                    break

    # ------------------------------------------------------------------ text

    def _written(self, name: str) -> str:
        sections = [self._head]
        large: set[str] = set()
        moved: set[Variable] = set()
        place = ""
        following = [*self._statements[1:], None]
        for statement, after in zip(self._statements, following, strict=True):
            if statement.is_inlined(after, moved):
                texts = [x.root.text for x in statement.reads]
                statement.made[0].text = statement.form.format(*texts)
                continue
            title = _title_of(statement.line)
            if title not in ("", place):
                place = title
                sections.append([f"# {title}"])
            for x in statement.made:
                root = x.root
                root.text = root.text or self.names.fresh(root.hint)
                large.discard(root.text)
                size = x.size * x.dtype.itemsize
                if not x.bases[-1].stays and size >= LIMITS.large_bytes:
                    large.add(root.text)
            sections[-1].append(statement.text())
        for section in reversed(sections):  # a large array goes after its last use
            named = large & {*re.findall(r"\w+", " ".join(section[1:]))}
            if named and section is not sections[-1]:
                section.append(f"del {', '.join(sorted(named))}")
            large -= named
        lines = [f"        {line}" for section in sections for line in section]
        head = [f"def build({', '.join(self.names.objects)}):", f"    def {name}(args, kwargs):"]
        return "\n".join([*head, *lines, f"    return {name}", ""])


def _index(x: slice) -> str:
    parts = [x.start, x.stop] if x.step is None else [x.start, x.stop, x.step]
    return ":".join(["" if part is None else str(part) for part in parts])


def _title_of(line: TapeLine) -> str:
    """Where in the step a line is."""
    about = f"{line.op}, back" if line.kind == "rule" else line.op
    return ABOUT.get(line.kind) or ": ".join(filter(None, (line.scope, about)))

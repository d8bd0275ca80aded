"""The program as Python: the lines of a tape as NumPy calls, named, and written down.

What nobody reads is left out, a view is taken once, and a result goes where an operand lay that
nobody reads any more; large arrays are let go of after their last use.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...engine.tensor import Tensor
from ..limits import LIMITS
from .symbols import Call, Calls, Variable, fitted
from .tape import Returned, TapeLine, Value
from .text import Names

__all__ = ["ProgramText"]

ABOUT = {"grad": "gradients", "clear": "gradients", "keep": "what layers keep"}
AUGMENTED = {"+", "-", "*", "/", "&", "|"}  # as in `x += y`


class ProgramText:
    """Python for the lines of a tape. `text` is the source, `objects` what it is handed."""

    def __init__(
        self, lines: Sequence[TapeLine], result: Any, name: str, parameters: tuple[str, ...]
    ) -> None:
        self._names = Names([name, "args", "kwargs", "build", *dir(builtins)])
        self.objects = self._names.objects
        self._parameters = parameters
        self._variables: dict[int, Variable] = {}  # by a Value's number
        self._calls = Calls(self._names)
        self._head: list[str] = []
        for line in lines:
            self._add(line)
        self._calls.about = "result"
        reads: list[Variable] = []
        text = self._calls.written(self._read(result), reads)
        self._do(f"return {text}", reads, kind="keep")
        calls = self._needed()
        self._place(calls)
        self.text = self._written(calls, name)

    def _do(self, form: str, reads: Any = (), made: Any = (), kind: str = "effect") -> None:
        self._calls.append(Call(form, [*reads], [*made], kind, about=self._calls.about))

    # ------------------------------------------------------------------ variables

    def _variable(self, value: Value) -> Variable:
        found = self._variables.get(value.number)
        if found is None:
            found = self._make(value)
            place = self._place_of(value)
            found.text = place + "._data" * value.is_tensor
            found.hint = place if value.path and place.isidentifier() else value.name
        return found

    def _make(self, value: Value, bases: Any = ()) -> Variable:
        made = Variable(self._calls, value.shape, value.dtype, value.name, [*bases])
        self._variables[value.number] = made
        return made

    def _object(self, value: Value) -> str:
        return self._variable(value).text.removesuffix("._data")

    def _place_of(self, value: Value) -> str:
        """Where what came from outside is: an object by its name, an argument by the step's."""
        if not value.path:
            return self._names.bound(value.thing, value.name)
        match = re.fullmatch(r"args\[(\d+)\]|kwargs\['(\w+)'\]", value.path)
        if match is None:
            return value.path
        known = dict(enumerate(self._parameters))
        text = self._names.fresh(match[2] or known.get(int(match[1]), f"x_{match[1]}"))
        self._head.append(f"{text} = {value.path}")
        return text

    def _read(self, x: Any) -> Any:
        """An argument of a line, or what is returned, with Variables for its Values."""
        if x.__class__ is Value:
            return self._variable(x)
        if x.__class__ is Returned:
            return self._returned(x)
        if x.__class__ is dict:
            return {name: self._read(part) for name, part in x.items()}
        return x.__class__(map(self._read, x)) if x.__class__ in (tuple, list) else x

    def _returned(self, x: Returned) -> Variable:
        """A Tensor or a gradient as the step returns it."""
        variable = self._variable(x.value)
        form = "{0}" if variable.shape else "np.asarray({0})"
        if x.how in ("itself", "grad"):
            form = self._object(x.value) + ".grad" * (x.how == "grad")
        elif x.how == "tensor":
            form = f"{self._names.bound(Tensor, 'Tensor')}({form})"
        return self._calls.make(form, [variable], {}, variable.shape, variable.dtype, True)

    # ------------------------------------------------------------------ lines to calls

    def _add(self, line: TapeLine) -> None:
        """Add the calls of a line."""
        about = ABOUT.get(line.kind) or ": ".join(filter(None, (line.scope, line.op)))
        self._calls.about = about + ", back" * (line.kind == "rule")
        if line.kind in ("op", "rule", "add"):
            self._compute(line)
        elif line.kind == "grad":
            target, total, holds = line.given
            name = self._object(target)
            form = f"{name}.grad = {name}.grad + {{}}" if holds else f"{name}.grad = {{}}"
            self._do(form, [self._variable(total)], kind="effect" if holds else "grad")
        elif line.kind == "clear":
            names = ", ".join(map(self._object, line.given[0]))
            self._do(f"for p in ({names},): p.grad = None")
        elif line.kind == "write":
            self._do(f"{self._object(line.given[0])}.assign_({{}})", [self._read(line.given[1])])
            self._written_into()
        elif line.kind == "keep":
            attributes, name, kept = line.given
            owner = self._names.bound(attributes, f"{line.op}_keeps")
            form = f"{owner}[{name!r}] = {'None' if kept is None else '{}'}"
            self._do(form, [self._variable(kept)] if kept else [], kind="keep")
        else:
            form = f"{self._names.bound(line.function, f'{line.op}_step')}()"
            made = [self._make(value) for value in line.made if value is not None]
            self._do(form + "._data" * bool(made), made=made)
            self._written_into()

    def _written_into(self) -> None:
        """Memory from outside was: what was read before is not what it is now."""
        self._calls[-1].kind = "write"
        self._calls.views.clear()

    def _compute(self, line: TapeLine) -> None:
        """The calls of a kernel or rule, or the one call of it whole."""
        given = [self._read(x) for x in line.given]
        sizes = [None if v is None else (v.shape, v.dtype) for v in line.made]
        names = [v.name for v in line.made if v is not None]
        self._calls.hint = names[0] if names else "t"
        self._calls.op = line.op

        def run(*arrays: Any) -> Any:
            made = line.function(*arrays)
            return fitted(made, sizes) if line.kind == "rule" else made

        made = None
        if _is_ours(line.function) and not line.effect:
            made = self._calls.taken_apart(run, given, line.made)
        if made is None:
            made = self._whole(line, given, sizes)
        for variable, value in zip(made, line.made, strict=True):
            if value is not None:
                self._variables[value.number] = variable

    def _whole(self, line: TapeLine, given: Any, sizes: Any) -> list[Any]:
        """The kernel or rule itself. What it gives may be, or show, what it was given."""
        reads: list[Variable] = []
        name = line.op if line.kind == "op" else f"d_{line.op}"
        inner = ", ".join([self._calls.written(x, reads) for x in given])
        form = f"{self._names.bound(line.function, name)}({inner})"
        if line.kind == "rule":
            told = self._calls.written(sizes, reads)
            form = f"{self._names.bound(fitted, 'fitted')}({form}, {told})"
            form += "[0]" * (len(sizes) == 1)
        unused = Variable(self._calls, (), np.bool_, "unused")
        bases = [base for v in reads for base in v.bases]
        made = [unused if v is None else self._make(v, bases) for v in line.made]
        for variable in made:
            variable.bases.append(variable)
            variable.stays = not bases
        self._do(form, reads, made, "effect" if line.effect else "whole")
        return made

    # ------------------------------------------------------------------ what is read, and where

    def _needed(self) -> list[Call]:
        """The calls that have an effect, or make what another one reads; who reads what last."""
        calls: list[Call] = []
        writes = 0
        for call in reversed(self._calls):
            used = any(v.readers for v in call.made)
            if call.kind in ("", "entrywise", "whole") and not used:
                continue
            calls.append(call)
            writes += call.kind == "write"
            call.epoch = writes
            if call.kind == "grad" and not (call.reads[0].shape and call.reads[0].is_alone()):
                call.form = call.form.replace("{}", "np.array({})")
                call.kind = "effect"
            for variable in call.reads:
                variable.readers.append(call)
                for base in variable.bases:
                    base.last = base.last or call
                    base.stays = base.stays or call.kind in ("keep", "grad")
        return calls[::-1]

    def _place(self, calls: list[Call]) -> None:
        """Which results go where an operand lay that nobody reads after them.

        Such a result shares its name, if they are of one stem.
        """
        self._hints: dict[int, list[str]] = {}  # by id of a Variable, what is said of its name
        for call in calls:
            is_masked = call.form.startswith("np.where({}, {}, ")
            targets = call.reads if call.kind == "entrywise" else call.reads[1:2] * is_masked
            for made in call.made:
                hints = [""]
                for x in targets:
                    fits = (x.shape, x.dtype) == (made.shape, made.dtype) and made.shape
                    is_same = _stem(x) == _stem(made)
                    if fits and is_same >= is_masked and x.is_alone() and x.bases[0].last is call:
                        made.over = x
                        hints = self._hints[id(x)] if is_same else hints
                        break
                self._hints[id(made)] = hints
                hints[0] = min(hints[0] or made.hint, made.hint, key=len)

    # ------------------------------------------------------------------ text

    def _written(self, calls: list[Call], name: str) -> str:
        sections = [self._head]
        self._moved: set[int] = set()  # Variables whose text stands for more than a view
        large: set[str] = set()
        texts: dict[int, str] = {}  # by id of what is said of a name
        about = ""
        for call, following in zip(calls, [*calls[1:], None], strict=True):
            if self._is_inlined(call, following):
                call.made[0].text = call.form.format(*[v.text for v in call.reads])
                continue
            if call.about != about:
                about = call.about
                sections.append([f"# {about}"])
            for variable in call.made:
                hints = self._hints[id(variable)]
                if id(hints) not in texts:
                    texts[id(hints)] = self._names.fresh(hints[0])
                variable.text = texts[id(hints)]
                ends = not all(base.stays for base in variable.bases)
                if ends and variable.nbytes >= LIMITS.large_bytes:
                    large.add(variable.text)
            sections[-1].append(self._statement(call))
        for section in reversed(sections[:-1]):  # a large array goes after its last use
            named = large & {*re.findall(r"\w+", " ".join(section[1:]))}
            section += [f"del {', '.join(sorted(named))}"] if named else []
            large -= named
        lines = [f"        {line}" for section in sections for line in section]
        head = [f"def build({', '.join(self.objects)}):", f"    def {name}(args, kwargs):"]
        return "\n".join([*head, *lines, f"    return {name}", ""])

    def _is_inlined(self, call: Call, following: Call | None) -> bool:
        """Whether it needs no name: a view that is read once, a call that the next view reads."""
        if call.kind or len(call.made) != 1 or len(call.made[0].readers) != 1:
            return False
        made, by = call.made[0], call.made[0].readers[0]
        if call.form[-1] not in ")T]" or " @ " in call.form or _over(by) is made:
            return False
        if by.epoch != call.epoch:
            return False
        if made.bases[0] is not made and not self._moved & {*map(id, call.reads)}:
            return True
        self._moved.add(id(made))  # what it reads may be written over before another line
        return by is following and by.kind == "" and by.made[0].bases[0] is not by.made[0]

    def _statement(self, call: Call) -> str:
        texts = [v.text for v in call.reads]
        text = (call.infix or call.form).format(*texts)
        names = [v.text for v in call.made]
        over = _over(call)
        if over is None:
            return f"{', '.join(names)} = {text}" if names else text
        if call.kind != "entrywise":
            other = call.form[:-1].split(", ", 2)[2].format(*texts[2:])
            return f"np.copyto({over.text}, {other}, where=~{texts[0]})"
        sign = call.infix[3:].partition(" ")[0]
        if names == [over.text] and sign in AUGMENTED and call.reads[0] is over:
            return text.replace(f" {sign} ", f" {sign}= ", 1)
        text = f"{call.form[:-1]}, out={over.text})".format(*texts)
        return text if names == [over.text] else f"{names[0]} = {text}"


def _over(call: Call) -> Variable | None:
    """In whose place its result is written."""
    return call.made[0].over if call.made else None


def _stem(variable: Variable) -> tuple[bool, str]:
    """What names of one thing share: S_raw, S and S_masked are S."""
    hint = variable.hint
    return hint.startswith("d_"), hint.removeprefix("d_").partition("_")[0]


def _is_ours(function: Any) -> bool:
    module = str(getattr(function, "__module__", "numpy"))
    return isinstance(function, np.ufunc) or module.startswith("minigrad.")

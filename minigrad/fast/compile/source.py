"""The program as Python: lines taken apart into NumPy calls, named, and written down.

What nobody reads is left out, a view is taken once, and a result goes where an operand lay that
nobody reads any more; large arrays are let go of after their last use.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ...engine.tensor import Tensor
from .symbols import BY_INFIX, CHANGED_IN_PLACE, Symbol, Template, taken_apart
from .tape import Returned, Tape, TapeLine, Value
from .text import Names, fitted, grouped, stem, typed, window

__all__ = ["ProgramText"]

LET_GO_BYTES = 1 << 14  # bytes from which an array is let go of before the step ends
SUFFIXES = {"T": "T", "swapaxes": "T", "transpose": "T", "maximum": "max", "add": "sum"}


class Variable:
    """An array of the program.

    Attributes:
        hint: what to call it.  text: how it is written.
        bases: the variables whose memory it may show, itself among them if it has its own.
        fresh: whether a call made its memory for it alone.
        stays: whether its memory outlives the step.
        last: the last instruction that reads its memory.  uses: how often it is read itself.
    """

    __slots__ = (
        "bases",
        "dtype",
        "fresh",
        "hint",
        "last",
        "over",
        "shape",
        "stays",
        "text",
        "uses",
    )

    def __init__(self, shape: Any, dtype: Any, hint: str, shows: Any = ()) -> None:
        self.shape = shape
        self.dtype = dtype
        self.hint = hint
        self.text = ""
        self.bases: list[Variable] = list({id(b): b for v in shows for b in v.bases}.values()) or [
            self
        ]
        self.fresh = self.stays = False
        self.last = -1
        self.uses = 0
        self.over: Variable | None = None  # in whose place it is written

    def is_alone(self) -> bool:
        """Whether it shows all of one array that a call made, and that the step lets go of."""
        base = self.bases[0]
        return (
            len(self.bases) == 1
            and base.fresh
            and not base.stays
            and prod(base.shape) == prod(self.shape)
        )


class Instruction:
    """One statement: a form with {} for each of what it reads, and the variables that it makes."""

    __slots__ = ("about", "effect", "form", "inlined", "kind", "made", "operator", "reads")

    def __init__(
        self, form: str, reads: Any = (), made: Any = (), kind: str = "effect", about: str = "",
        effect: bool = False, operator: str = "",
    ) -> None:  # fmt: skip
        self.form = form
        self.reads = tuple(reads)
        self.made = list(made)
        self.kind = kind
        self.about = about
        self.effect = effect
        self.operator = operator
        self.inlined = False

    def variables(self) -> list[Variable]:
        return [*_variables(self.reads)]


class ProgramText:
    """Python for the lines of a tape. `text` is the source, `objects` what it is handed."""

    def __init__(self, tape: Tape, result: Any, name: str, parameters: tuple[str, ...]) -> None:
        self.names = Names({"np": np}, {name, "args", "kwargs", "build", *dir(builtins)})
        self.objects = self.names.objects
        self._parameters = parameters
        self._variables: dict[int, Variable] = {}  # by a Value's number
        self._views: dict[Any, Variable] = {}
        self._head: list[str] = []
        self.instructions: list[Instruction] = []
        for line in tape.lines:
            self._add(line)
        text, reads = self._returned(result)
        for base in (base for v in reads for base in v.bases):
            base.stays = True
        self._do(f"return {text}", reads, effect=True)
        self._drop_dead()
        self._count()
        self._place()
        self._inline()
        self.text = self._write(name)

    def _do(self, *instruction: Any, **more: Any) -> None:
        self.instructions.append(Instruction(*instruction, **more))

    # ------------------------------------------------------------------ variables

    def _variable(self, value: Value) -> Variable:
        found = self._variables.get(value.number)
        if found is None:
            found = self._variables[value.number] = Variable(value.shape, value.dtype, value.name)
            found.stays = True
            place = self._place_of(value)
            found.text = place + "._data" * isinstance(value.thing, Tensor)
            found.hint = place if value.path and place.isidentifier() else value.name
        return found

    def _object(self, value: Value) -> str:
        return self._variable(value).text.removesuffix("._data")

    def _place_of(self, value: Value) -> str:
        """Where what came from outside is: an object by its name, an argument by the step's."""
        if not value.path:
            return self.names.bound(value.thing, value.name)
        match = re.fullmatch(r"args\[(\d+)\]|kwargs\['(\w+)'\]", value.path)
        if match is None:
            return value.path
        hint = match[2] or f"x_{match[1]}"
        if match[1] and int(match[1]) < len(self._parameters):
            hint = self._parameters[int(match[1])]
        text = self.names.fresh(hint)
        self._head.append(f"{text} = {value.path}")
        return text

    def _read(self, x: Any) -> Any:
        """An argument of a line, with variables for its Values."""
        if x.__class__ is Value:
            return self._variable(x)
        return x.__class__(map(self._read, x)) if x.__class__ in (tuple, list) else x

    def _make(self, value: Value, shows: Any = ()) -> Variable:
        made = Variable(value.shape, value.dtype, value.name, shows)
        self._variables[value.number] = made
        return made

    # ------------------------------------------------------------------ lines to instructions

    def _add(self, line: TapeLine) -> None:
        if line.kind in ("op", "rule", "add"):
            self._compute(line)
        elif line.kind == "view":
            self._view(line)
        elif line.kind == "grad":
            target, total, holds = line.given
            name = self._object(target)
            kind = "add" if holds else "grad"
            form = f"{name}.grad = {name}.grad + {{}}" if holds else f"{name}.grad = {{}}"
            self._do(form, (self._variable(total),), (), kind, effect=True)
        elif line.kind == "clear":
            names = ", ".join(self._object(v) for v in line.given[0])
            self._do(f"for p in ({names},): p.grad = None", effect=True)
        elif line.kind == "write":
            target, new = line.given
            self._do(f"{self._object(target)}.assign_({{}})", (self._read(new),), effect=True)
        elif line.kind == "keep":
            self._keep(*line.given)
        else:
            form = f"{self.names.bound(line.function, f'{line.op}_step')}()"
            made = [self._make(value) for value in line.made if value is not None]
            for variable in made:
                variable.stays = True
                form += "._data" * (line.result == "tensor")
            self._do(form, (), made, effect=True)

    def _view(self, line: TapeLine) -> None:
        source = self._variable(line.given[0])
        value = line.made[0]
        assert value is not None
        if isinstance(line.function, str):  # a method of arrays
            inner = ", ".join(map(str, line.given[1:]))
            made = self._make(value, [source])
            self._do(f"{{}}.{line.function}({inner})", (source,), [made], "view")
            return
        if len(line.given) == 2:
            self._do(
                f"{{}}.astype({typed(line.given[1])})", (source,), [self._make(value)], "fresh"
            )
            return
        _, is_dense, start, shape, strides, dtype = line.given
        form = f"np.ndarray({shape}, {typed(dtype)}, {{}}, {start}, {strides})"
        if not is_dense:
            form = f"{self.names.bound(window, 'window')}({{}}, {start}, {shape}, {strides})"
        self._do(form, (source,), [self._make(value, [source])], "whole")

    def _keep(self, layer: Any, name: str, kept: Value | None) -> None:
        owner = self.names.bound(vars(layer), f"{type(layer).__name__}_keeps")
        if kept is None:
            self._do(f"{owner}[{name!r}] = None", effect=True)
            return
        variable = self._variable(kept)
        for base in variable.bases:
            base.stays = True
        self._do(f"{owner}[{name!r}] = {{}}", (variable,), effect=True)

    def _compute(self, line: TapeLine) -> None:
        """The calls of a kernel or rule, or the one call of it whole."""
        about = ": ".join(filter(None, (line.scope, line.op))) + ", back" * (line.kind == "rule")
        fit = None
        if line.kind == "rule":
            fit = tuple([None if v is None else (v.shape, v.dtype) for v in line.made])
        template = None
        ours = isinstance(line.function, np.ufunc) or _is_ours(line.function)
        if ours and not line.effect:
            forms = tuple([*_forms(line.given, {})])
            template = taken_apart(line.function, line.given, forms, fit)
        if template is None:
            self._whole(line, about, fit)
        else:
            self._instances(template, line, about)

    def _instances(self, template: Template, line: TapeLine, about: str) -> None:
        """The template's calls, on this line's variables."""
        values = {v.number: v for v in _values(line.given)}.values()
        of = {
            id(symbol): self._variable(value)
            for symbol, value in zip(template.inputs, values, strict=True)
        }
        results = list(zip(template.results, line.made, strict=True))
        hints = {id(s): v.name for s, v in results if s is not None and v is not None}
        hint = next((v.name for v in line.made if v is not None), "t")

        def read(x: Any) -> Any:
            if isinstance(x, Symbol):
                return of[id(x)]
            return x.__class__(map(read, x)) if x.__class__ in (tuple, list) else x

        for call in template.calls:
            reads = [read(x) for x in call.given]
            name = hints.get(id(call.made)) or _part_of(hint, call.form, call.kind, reads[0])
            shows = [*_variables(reads)] if call.kind == "view" else []
            key = call.form, *map(id, reads)
            if call.kind == "view" and key in self._views:
                of[id(call.made)] = self._views[key]
                continue
            made = Variable(call.made.shape, call.made.dtype, name, shows)
            made.fresh = not shows
            if shows:
                self._views[key] = made
            of[id(call.made)] = made
            self._do(call.form, reads, [made], call.kind, about, operator=call.operator)
        for symbol, value in results:
            if symbol is not None and value is not None:
                self._variables[value.number] = of[id(symbol)]

    def _whole(self, line: TapeLine, about: str, fit: Any) -> None:
        """The kernel or rule itself. What it gives may be, or show, what it was given."""
        name = line.op if line.kind == "op" else f"d_{line.op}"
        form = f"{self.names.bound(line.function, name)}({', '.join(['{}'] * len(line.given))})"
        reads = [self._read(x) for x in line.given]
        if fit is not None:
            told = ", ".join("None" if f is None else f"({f[0]}, {typed(f[1])})" for f in fit)
            form = f"{self.names.bound(fitted, 'fitted')}({form}, [{told}])"
        shows = [*_variables(reads)]
        made = [None if v is None else self._make(v, shows) for v in line.made]
        for variable in made:
            if variable is not None:
                variable.bases = [variable, *variable.bases]
        kind = "several" if fit is not None or len(made) > 1 else "whole"
        self._do(form, reads, made, kind, about, line.effect)

    def _returned(self, x: Any) -> tuple[str, list[Variable]]:
        """The expression that is returned, and what it reads."""
        if x.__class__ in (tuple, list, dict):
            parts = [self._returned(part) for part in (x.values() if x.__class__ is dict else x)]
            texts = [text for text, _ in parts]
            reads = [variable for _, more in parts for variable in more]
            if x.__class__ is dict:
                pairs = [f"{k!r}: {text}" for k, text in zip(x, texts, strict=True)]
                return f"{{{{{', '.join(pairs)}}}}}", reads
            inner = ", ".join(texts)
            if x.__class__ is list:
                return f"[{inner}]", reads
            return f"({inner}{',' * (len(x) == 1)})", reads
        if x.__class__ is not Returned:
            return self.names.text(x).replace("{", "{{").replace("}", "}}"), []
        if x.how in ("itself", "grad"):
            return self._object(x.value) + ".grad" * (x.how == "grad"), []
        variable = self._variable(x.value)
        form = "{}" if variable.shape or x.how == "number" else "np.asarray({})"
        if x.how == "tensor":
            form = f"{self.names.bound(Tensor, 'Tensor')}({form})"
        return form, [variable]

    # ------------------------------------------------------------------ what is read, and where

    def _drop_dead(self) -> None:
        needed: set[int] = set()
        alive = []
        for instruction in reversed(self.instructions):
            if instruction.effect or any(id(v) in needed for v in instruction.made):
                alive.append(instruction)
                needed.update(map(id, instruction.variables()))
        self.instructions = alive[::-1]

    def _count(self) -> None:
        """Uses and last reads; a gradient that has its memory for itself becomes the leaf's own."""
        for i, instruction in enumerate(self.instructions):
            for variable in instruction.variables():
                variable.uses += 1
                for base in variable.bases:
                    base.last = i
        for instruction in self.instructions:
            if instruction.kind == "grad":
                variable = instruction.reads[0]
                if not variable.shape:
                    instruction.form = instruction.form.replace("{}", "np.array({})")
                elif not variable.is_alone():
                    instruction.form += ".copy()"
                for base in variable.bases:
                    base.stays = True

    def _place(self) -> None:
        """Which results go where an operand lay that nobody reads after them."""
        for i, instruction in enumerate(self.instructions):
            if instruction.kind != "ufunc":
                continue
            made = instruction.made[0]
            for x in instruction.variables():
                ends = x.is_alone() and x.bases[0].last == i and x.bases[0].over is not x
                if ends and made.shape and (x.shape, x.dtype) == (made.shape, made.dtype):
                    made.over = x
                    break

    def _inline(self) -> None:
        """A view that is read once, and a call that only the next view reads, need no names."""
        reader: dict[int, int] = {}
        for i, instruction in enumerate(self.instructions):
            for variable in instruction.variables():
                reader[id(variable)] = i
        moved: set[int] = set()  # those whose text stands for more than a view
        for i, instruction in enumerate(self.instructions):
            made = instruction.made[0] if len(instruction.made) == 1 else None
            if made is None or made.uses != 1 or instruction.effect:
                continue
            by = self.instructions[reader[id(made)]]
            if by.made and by.made[0] is not None and by.made[0].over is made:
                continue
            computes = instruction.kind == "fresh" or any(id(x) in moved for x in instruction.reads)
            if computes and (by.kind != "view" or reader[id(made)] != i + 1):
                continue  # what it reads may be written over before
            if instruction.kind in ("view", "fresh") and instruction.form[-1:] in ")T]":
                instruction.inlined = " @ " not in instruction.form
                if computes and instruction.inlined:
                    moved.add(id(made))

    # ------------------------------------------------------------------ text

    def _write(self, name: str) -> str:
        body = []
        about = ""
        self._name_all()
        self._expressions: dict[int, str] = {}
        self._within: dict[int, Instruction] = {}  # by an inlined variable, what stands for it
        ends = self._last_reads()
        for i, instruction in enumerate(self.instructions):
            if instruction.inlined:
                self._expressions[id(instruction.made[0])] = self._expression(instruction)
                continue
            if instruction.about not in ("", about):
                about = instruction.about
                body.append(f"# {' '.join(about.split())}")
            body += self._statement(instruction)
            gone = sorted(text for text, last in ends.items() if last == i)
            if gone and not instruction.form.startswith("return"):
                body.append(f"del {', '.join(gone)}")
        lines = [f"def build({', '.join(self.objects)}):", f"    def {name}(args, kwargs):"]
        body = [*self._head, *body]
        return "\n".join([*lines, *[f"        {line}" for line in body], f"    return {name}", ""])

    def _name_all(self) -> None:
        """Names; what is written in another's place shares its name, if they are of one stem, and
        the last of them says what it is.
        """
        shared: dict[int, list[Variable]] = {}
        self._local: set[int] = set()
        for instruction in self.instructions:
            for made in filter(None, instruction.made):
                over = made.over
                group = shared.get(id(over), []) if over is not None else []
                if over is not None and stem(made.hint) == stem(over.hint) and group:
                    group.append(made)
                    shared[id(made)] = group
                elif not instruction.inlined:
                    shared[id(made)] = [made]
        for group in {id(g): g for g in shared.values()}.values():
            text = self.names.fresh(group[-1].hint)
            for variable in group:
                variable.text = text
                self._local.add(id(variable))

    def _expression(self, instruction: Instruction) -> str:
        return instruction.form.format(*map(self._text, instruction.reads))

    def _text(self, x: Any) -> str:
        if isinstance(x, Variable):
            return self._expressions.get(id(x)) or x.text
        if x.__class__ is tuple:
            return grouped([*map(self._text, x)])
        if x.__class__ is list:
            return f"[{', '.join(map(self._text, x))}]"
        return self.names.text(x)

    def _statement(self, instruction: Instruction) -> list[str]:
        if not instruction.made:
            return [self._expression(instruction)]
        made = instruction.made[0]
        if made is not None and made.over is not None:
            return [self._in_place(instruction, made, made.over)]
        names = ["_" if v is None else v.text for v in instruction.made]
        left = ", ".join(names) + "," * (instruction.kind == "several" and len(names) == 1)
        return [f"{left} = {self._expression(instruction)}"]

    def _in_place(self, instruction: Instruction, made: Variable, over: Variable) -> str:
        reads = [*map(self._text, instruction.reads)]
        operator = instruction.operator
        if made.text == over.text and operator in CHANGED_IN_PLACE and instruction.reads[0] is over:
            return f"{made.text} {operator}= {reads[1]}"
        if operator or instruction.form == "-{}":
            called = f"np.{BY_INFIX.get(operator, 'negative')}({', '.join(reads)})"
        else:
            called = instruction.form.format(*reads)
        called = f"{called[:-1]}, out={over.text})"
        return called if made.text == over.text else f"{made.text} = {called}"

    def _named(self, given: Any) -> Iterator[Variable]:
        """The variables whose names stand in the text of what is given."""
        for variable in _variables(given):
            inlined = self._within.get(id(variable))
            if inlined is None:
                yield variable
            else:
                yield from self._named(inlined.reads)

    def _last_reads(self) -> dict[str, int]:
        """Where each large array's name stands last."""
        found: dict[str, int] = {}
        for i, instruction in enumerate(self.instructions):
            if instruction.inlined:
                self._within[id(instruction.made[0])] = instruction
                continue
            for variable in (*self._named(instruction.reads), *filter(None, instruction.made)):
                if prod(variable.shape) * variable.dtype.itemsize >= LET_GO_BYTES:
                    if id(variable) in self._local:
                        found[variable.text] = i
        return found


def _is_ours(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith("minigrad.")


def _part_of(hint: str, form: str, kind: str, source: Any) -> str:
    """What to call what a kernel makes on the way to its result, or a view of its input."""
    found = re.search(r"(\w+)(?:\.reduce)?\(|\.(T)$", form)
    suffix = SUFFIXES.get((found[1] or found[2]) if found else "", "")
    if kind == "view":
        name = source.hint if isinstance(source, Variable) else hint
        return f"{name}_{suffix}" if suffix else f"{name}_rows" if "reshape" in form else name
    return f"{hint}_{suffix}" if ".reduce(" in form and suffix else f"{hint}_"


def _forms(given: Any, seen: dict[int, int]) -> Iterator[Any]:
    """What makes two calls alike: shapes and dtypes of arrays, and plain values."""
    for x in given:
        if x.__class__ is Value:
            yield seen.setdefault(x.number, len(seen)), x.shape, x.dtype
        elif x.__class__ in (tuple, list):
            yield (x.__class__, *_forms(x, seen))
        elif isinstance(x, slice | int | float | str | type(None)):
            yield x.__class__, repr(x)
        else:
            yield x.__class__, id(x)


def _values(given: Any) -> Iterator[Value]:
    for x in given:
        if x.__class__ is Value:
            yield x
        elif x.__class__ in (tuple, list):
            yield from _values(x)


def _variables(given: Any) -> Iterator[Variable]:
    for x in given:
        if isinstance(x, Variable):
            yield x
        elif x.__class__ in (tuple, list):
            yield from _variables(x)

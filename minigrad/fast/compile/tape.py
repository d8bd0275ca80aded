"""The tape: what one run of a step did, as lines, each of an op, of a rule, or of an effect.

It is an Observer. An op's line is its kernel on what it was given, a rule's line is the rule on the
gradient and on what it names; gradients that meet are added up by a line, and what reaches a leaf
is put into its `.grad` by one. What a line reads are Values: each knows where the program finds it.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

import numpy as np
from numpy import ndarray

from ...engine.backward import backpropagate
from ...engine.context import current
from ...engine.observer import Observer
from ...engine.tensor import Tensor
from .arguments import Watched, plain, watch
from .reach import PLAIN_KINDS, Reach

__all__ = ["Refused", "Returned", "Tape", "TapeLine", "Value"]


class Refused(Exception):
    """What no program could repeat. `remedy` says what to write."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy


class Value:
    """An array of the run.

    Attributes:
        number: in the order in which they came.
        thing: what the program is handed, a Tensor or an array; None if a line made the value.
        path: where it is among the arguments, if it is one.
        name: what to call it.  key: what two recordings know it by.
    """

    __slots__ = ("dtype", "key", "name", "number", "path", "shape", "thing")

    def __init__(self, number: int, array: Any, name: str, thing: Any = None, path: str = ""):
        self.number = number
        self.name = name
        self.thing = thing
        self.path = path
        self.shape = array.shape
        self.dtype = array.dtype
        self.key: Any = path or number

    def __repr__(self) -> str:
        return f"<{self.name} {self.number}>"


@dataclass(slots=True)
class Returned:
    """A part of what the step returns.

    Attributes: how: "tensor" (a new one), "array", "number", "itself" (the very Tensor), or "grad".
    """

    how: str
    value: Value


@dataclass(slots=True)
class TapeLine:
    """One thing that the run did.

    Attributes:
        kind: "op", "rule", "add", "view"; or of an effect: "grad", "clear", "call", "write".
        function: what is called.  given: with what, Values and plain values, in tuples and lists.
        made: the Values that come out.  wanted: by position, those that are used, None for all.
        op: its name.  scope: where in the model.  effect: whether it does more than compute.
    """

    kind: str
    function: Any
    given: tuple[Any, ...]
    made: tuple[Value | None, ...]
    op: str = ""
    scope: str = ""
    effect: bool = False
    result: str = ""  # of a call: what kind of thing comes out

    def signature(self) -> tuple[Any, ...]:
        """What must be the same in another recording."""
        made = tuple([None if v is None else (v.shape, v.dtype) for v in self.made])
        return self.kind, _called(self.function), _signed(self.given), made

    def __str__(self) -> str:
        return f"{self.op or self.kind}({', '.join(map(_shown, self.given))})"


def _signed(x: Any) -> Any:
    if x.__class__ is Value:
        return x.key
    if x.__class__ in (tuple, list):
        return (x.__class__, *map(_signed, x))
    if x.__class__ is dict:
        return (dict, *[(k, _signed(v)) for k, v in x.items()])
    if isinstance(x, PLAIN_KINDS):
        return (x.__class__, repr(x))
    return x if x.__class__.__eq__ is not object.__eq__ and x.__class__.__hash__ else id(x)


def _called(function: Any) -> Any:
    """What makes two functions one; an update comes as a new partial each time."""
    if isinstance(function, partial):
        return _called(function.func), *map(_signed, function.args)
    if isinstance(function, MethodType):
        return id(function.__func__), id(function.__self__)
    return function if function.__class__ is str else id(function)


def _shown(x: Any) -> str:
    if x.__class__ in (tuple, list):
        return "(" + ", ".join(map(_shown, x)) + ")"
    return x.name if x.__class__ is Value else repr(x)


class Tape(Observer):
    """The lines of one run.

    Args: given: the arrays and Tensors among the arguments, by path.  reach: what else the step
        reaches by name.
    """

    shows_inputs = False

    def __init__(self, given: Iterable[tuple[str, Any]], reach: Reach) -> None:
        self.reach = reach
        self.lines: list[TapeLine] = []
        self.reason: str | None = None
        self.remedy = ""
        self.leaves: dict[int, Tensor] = {}  # by id, those whose gradient or entries are used
        self.held: dict[int, tuple[Tensor, bool]] = {}  # leaf: whether it has to hold a gradient
        self.constants: list[tuple[Value, ndarray]] = []
        self.strides: list[tuple[str, tuple[int, ...]]] = []  # of arguments that views are taken of
        self.same_objects: list[tuple[str, Tensor]] = []  # arguments that go by other names too
        self.other_objects: list[str] = []  # the paths of those that do not
        self.results: dict[int, tuple[object, Value]] = {}  # numbers that updates gave
        self._errors = np.geterr()
        self._depth = 0  # of updates that run
        self._count = 0
        self._known: dict[int, tuple[Any, Value]] = {}  # by id of array
        self._tensors: dict[int, tuple[Tensor, Value]] = {}  # leaves from outside
        self._places: dict[Any, tuple[Any, Value]] = {}  # by what an array that is kept shows
        self._memory: dict[int, tuple[Any, Value]] = {}  # by id of what owns the memory
        self._nodes: dict[int, tuple[Any, dict[str, Any]]] = {}  # what each node's rules may name
        self._coming: dict[Any, list[Value]] = {}  # gradients on their way, by edge
        self._found: dict[Any, Value] | None = None  # gradients that mg.grad is to give
        self._own: dict[int, tuple[Tensor, Value]] = {}  # leaf that the step made: its gradient
        self._grads: dict[int, tuple[Tensor, Any]] = {}  # leaf: its `.grad`, as a line left it
        self._kept: list[Any] = []  # arrays whose ids must stay theirs
        self._entered = {id(x): x.grad is not None for x in reach.tensors()}
        self._touched: set[int] = set()  # leaves whose `.grad` a line has set
        for x in reach.tensors():
            self._watch(x)
        for path, x in given:
            array = x._data if isinstance(x, Tensor) else x
            if isinstance(x, Tensor) and (reach.name(x) or id(array) in self._known):
                self.same_objects.append((path, x))
            elif isinstance(x, Tensor):
                self.other_objects.append(path)
            value = self._value(array, path.strip("[]'"), x, path)
            self._kept.append(x)
            self._known[id(array)] = (lambda a=array: a), value
            if not isinstance(x, Tensor):
                self._memory[id(_owner(array))] = array, value
            if isinstance(x, Tensor):
                self._tensors[id(x)] = x, value
                self._entered[id(x)] = x.grad is not None
                self._watch(x)

    # ------------------------------------------------------------------ refusals

    def refuse(self, why: str, remedy: str = "") -> None:
        if self.reason is None:
            self.reason = f"{why} at {_place()}"
            self.remedy = remedy

    @property
    def _off(self) -> bool:
        return self._depth > 0 or self.reason is not None

    # ------------------------------------------------------------------ values

    def _value(self, array: Any, name: str, thing: Any = None, path: str = "") -> Value:
        self._count += 1
        return Value(self._count, array, name, thing, path)

    def _know(self, array: Any, value: Value) -> None:
        self._known[id(array)] = weakref.ref(array), value

    def _keep(self, array: Any, value: Value) -> None:
        """Know an array also by where it lies, for as long as the tape is there."""
        self._known[id(array)] = (lambda: array), value
        self._places[_lies(array)] = array, value

    def _line(self, kind: str, function: Any, given: Any, made: Any = (), **about: Any) -> TapeLine:
        line = TapeLine(kind, function, tuple(given), tuple(made), **about)
        self.lines.append(line)
        return line

    def value(self, x: Any) -> Any:
        """What a line says for an input or a setting: a Value for an array, or the thing itself."""
        if isinstance(x, Tensor):
            return self._of_tensor(x)
        if isinstance(x, ndarray):
            return self._of_array(x)
        if x.__class__ in (tuple, list):
            return x.__class__([self.value(part) for part in x])
        return x

    def _seen(self, array: Any) -> Value | None:
        found = self._known.get(id(array))
        return found[1] if found is not None and found[0]() is array else None

    def _of_tensor(self, x: Tensor) -> Value:
        found = self._tensors.get(id(x))
        value = found[1] if found is not None else self._seen(x._data)
        if value is not None:
            return value
        if x.node is not None:
            raise Refused("a Tensor comes with a graph from outside", "detach it before the step")
        name = self.reach.name(x)
        if name is None and not x.requires_grad:  # the engine may have made it of an array
            try:
                return self._of_array(x._data)
            except Refused:
                if x._data.base is None and np.isin(x._data, (0, 1)).all():
                    self._heard_constant(x._data)
                    return self._of_array(x._data)
        if name is None:
            raise Refused(
                "a Tensor is neither an argument nor named by the step's closure, its globals or "
                "its modules", "pass it as an argument",
            )  # fmt: skip
        value = self._value(x._data, x.name or name, x)
        value.key = id(x)
        self._tensors[id(x)] = x, value
        self._known[id(x._data)] = (lambda a=x._data: a), value
        self.leaves[id(x)] = x
        return value

    def _of_array(self, x: ndarray) -> Value:
        value = self._seen(x)
        if value is not None:
            return value
        for leaf, value in self._own.values():
            if leaf.grad is x:
                return value
        found = self._places.get(_lies(x))
        if found is not None:
            return found[1]
        base = x.base
        while isinstance(base, ndarray):
            value = self._seen(base)
            turned = None if value is None else self._turned(x, base, value)
            if turned is not None:
                return turned
            base = base.base
        holder = self.reach.owners.get(id(x))
        if holder is not None and holder._data is x:
            return self._of_tensor(holder)
        owner = _owner(x)
        if id(owner) in self._memory and self._memory[id(owner)][1].path:
            return self._view(x, *self._memory[id(owner)])
        name = self.reach.name(x) or self.reach.name(owner)
        if name is None and id(owner) in self._memory:
            name = self._memory[id(owner)][1].name
        if name is None:
            raise Refused(
                "an array is used that the step made by NumPy",
                "pass it as an argument, make it before the step, or compute it by ops of a Tensor",
            )
        value = self._value(x, name, x)
        value.key = _lies(x)
        self._kept.append(x)
        self._known[id(x)] = (lambda: x), value
        return value

    def _view(self, x: ndarray, array: ndarray, argument: Value) -> Value:
        """A view of an argument, as a line; its own place if it shows the same."""
        if _lies(x) == _lies(array):
            return argument
        start = _lies(x)[0] - _lies(array)[0]
        self.strides.append((argument.path, array.strides))
        value = self._value(x, argument.name)
        given = (argument, array.flags.c_contiguous, start, x.shape, x.strides, x.dtype)
        self._line("view", None, given, (value,))
        self._kept.append(x)
        self._known[id(x)] = (lambda: x), value
        return value

    def _turned(self, x: ndarray, base: ndarray, value: Value) -> Value | None:
        """A view with the axes in another order, or of another shape, or both; None for others."""
        if _lies(base) == _lies(x):
            return value
        if _lies(x)[0] != _lies(base)[0] or x.size != base.size or 0 in x.strides:
            return None
        order = [*np.argsort([-s for s in x.strides], kind="stable")]
        back = [int(i) for i in np.argsort(order)]
        whole = x.transpose(order)
        pairs = [*zip(base.shape, base.strides, strict=True)]
        turned = [pairs.index(p) for p in zip(x.shape, x.strides, strict=True) if p in pairs]
        if x.ndim == base.ndim and sorted(turned) == [*range(base.ndim)]:
            return self._method(value, x, "transpose", turned)
        if not (whole.flags.c_contiguous and base.flags.c_contiguous):
            return None
        value = self._method(value, whole, "reshape", whole.shape)
        return value if back == sorted(back) else self._method(value, x, "transpose", back)

    def _method(self, value: Value, x: ndarray, name: str, given: Any) -> Value:
        made = self._value(x, value.name)
        self._line("view", name, (value, *given), (made,))
        self._keep(x, made)
        return made

    # ------------------------------------------------------------------ forward

    def made(self, op: Any, inputs: Any, settings: Any, result: Tensor, seconds: float) -> None:
        if self._off:
            return
        try:
            self._record_op(op, inputs, settings, result)
        except Refused as error:
            self.refuse(f"{op.name}: {error}", error.remedy)

    def _record_op(self, op: Any, inputs: Any, settings: Any, result: Tensor) -> None:
        node = result.node
        if np.geterr() != self._errors:
            raise Refused("np.errstate is set within the step", "set it around the call")
        inputs = [x.item() if isinstance(x, np.generic) else x for x in inputs]
        given = [self.value(x) for x in inputs]
        chosen = self.value(tuple(settings))
        arrays = [x._data if isinstance(x, Tensor) else x for x in inputs]
        runs = _runs(op, arrays, settings)
        names = ("out", *runs.auxiliary)
        out = self._value(result._data, result.name or op.name)
        made = [out, *[self._value(result._data, f"{op.name}_{a}") for a in runs.auxiliary]]
        effect = any(isinstance(x, np.random.Generator) for x in settings) or not _is_pure(op)
        self._line(
            "op", runs.flat, (*given, *chosen), made,
            op=op.name, scope=current().scope, effect=effect,
        )  # fmt: skip
        self._know(result._data, out)
        if node is not None:
            known: dict[str, Any] = dict(zip(names, made, strict=True))
            known |= dict(zip(op.settings, chosen, strict=True))
            shapes = [np.shape(x) for x in arrays]
            if op.variadic:
                known |= {op.inputs[0]: tuple(given), f"{op.inputs[0]}_shape": tuple(shapes)}
            else:
                known |= dict(zip(op.inputs, given, strict=True))
                known |= {f"{n}_shape": s for n, s in zip(op.inputs, shapes, strict=True)}
            self._nodes[id(node)] = node, known

    def computed(self, ufunc: Any, inputs: Any, made: ndarray) -> None:
        """NumPy computed a function of each entry of arrays, one of them watched."""
        if self._off:
            return
        try:
            given = [x if isinstance(x, np.generic) else self.value(x) for x in inputs]
            value = self._value(made, ufunc.__name__)
            self._line("op", ufunc, given, (value,), op=ufunc.__name__, scope=current().scope)
            self._keep(made, value)
        except Refused as error:
            self.refuse(f"np.{ufunc.__name__}: {error}", error.remedy)

    def named(self, tensor: Tensor) -> None:
        value = None if self._off else self._seen(tensor._data)
        if value is not None and value.thing is None and tensor.name:
            value.name = tensor.name

    # ------------------------------------------------------------------ backward

    def sent(self, node: Any, gradient: Any, parts: list[Any], seconds: float) -> None:
        if self._off or isinstance(gradient, Tensor):  # its rules are recorded as ops
            return
        try:
            self._record_rules(node, parts)
        except Refused as error:
            self.refuse(f"backward of {node.path}: {error}", error.remedy)

    def _record_rules(self, node: Any, parts: list[Any]) -> None:
        known = self._nodes.get(id(node), (None, {}))
        if known[0] is not node:
            raise Refused("the graph was made outside the step", "make it within")
        if node.hooks:
            raise Refused("a hook was registered", "call the step itself to use hooks")
        g = self._arrive(node)
        out = known[1]["out"]
        g.name = f"d_{out.name}" if g.thing is None else g.name
        about = {"op": node.op.name, "scope": node.scope, "effect": not _is_pure(node.op)}
        joint: dict[Any, TapeLine] = {}
        for i, (name, rule, edge, part) in enumerate(
            zip(node.plan.names, node.plan.rules, node.edges, parts, strict=True)
        ):
            if part is None:
                continue
            if len(rule.inputs) == 1:
                at = _position(node, i, name)
                given = self._needs(node, rule, at, known[1])
                of = known[1][node.op.inputs[0]][at] if node.op.variadic else known[1][name]
                value = self._value(part, f"d_{getattr(of, 'name', name)}")
                self._line("rule", rule.function, (g, *given), (value,), **about)
            else:
                if rule.inputs not in joint:
                    wanted = [
                        n for n, p in zip(node.plan.names, parts, strict=True) if p is not None
                    ]
                    told = tuple([n in wanted for n in rule.inputs])
                    of = dict(zip(node.plan.names, parts, strict=True))
                    made = [
                        self._value(of[n], f"d_{getattr(known[1][n], 'name', n)}") if t else None
                        for n, t in zip(rule.inputs, told, strict=True)
                    ]
                    given = self._needs(node, rule, 0, known[1] | {"needed": told})
                    joint[rule.inputs] = self._line(
                        "rule", rule.function, (g, *given), made, **about
                    )
                value = joint[rule.inputs].made[rule.inputs.index(name)]
            self._coming.setdefault(edge, []).append(value)

    def _needs(self, node: Any, rule: Any, i: int, known: dict[str, Any]) -> list[Any]:
        """What a rule is given after the gradient."""
        op = node.op
        if op.variadic:
            every = known[op.inputs[0]]
            known = known | {"i": i, "others": (*every[:i], None, *every[i + 1 :])}
        needs = rule.needs
        if getattr(rule, "takes_needed", False):
            needs = (*needs, "needed")
        return [known[need] for need in needs]

    def _arrive(self, edge: Any) -> Value:
        """The whole gradient of a node or leaf: the sum of what came, in order."""
        parts = self._coming.pop(edge, [])
        if not parts:
            raise Refused("a gradient came from outside the step")
        total = parts[0]
        for part in parts[1:]:
            value = self._value(part, total.name)
            self._line("add", np.add, (total, part), (value,))
            total = value
        return total

    def arrived(self, leaf: Tensor, gradient: Any) -> None:
        if self._off or isinstance(gradient, Tensor):
            return
        try:
            if leaf.hooks:
                raise Refused("a hook was registered", "call the step itself to use hooks")
            total = self._arrive(leaf)
            if self._found is not None:
                self._found[leaf] = total
                return
            target = self._of_tensor(leaf)
            if target.thing is not leaf:
                self._hold(leaf, total)
                return
            holds = leaf.grad is not None
            if id(leaf) not in self._touched:
                self._touched.add(id(leaf))
                if self._entered.get(id(leaf), holds) != holds:  # set to None by hand
                    self._line("clear", None, ([target],), effect=True)
                else:
                    self.held.setdefault(id(leaf), (leaf, holds))
            self._line("grad", None, (target, total, holds), effect=True)
        except Refused as error:
            self.refuse(f"backward: {error}", error.remedy)

    def _hold(self, leaf: Tensor, total: Value) -> None:
        """The gradient of a leaf that the step made, which the step alone sees."""
        before = self._own.get(id(leaf))
        if before is not None:
            value = self._value(leaf, total.name)
            self._line("add", np.add, (before[1], total), (value,))
            total = value
        self._own[id(leaf)] = leaf, total

    # ------------------------------------------------------------------ what is said

    def said(self, kind: str, **facts: Any) -> Any:
        if kind == "update":
            return self._update()
        if kind == "updated":
            return self._updated(**facts)
        heard: Callable[..., Any] | None = getattr(self, f"_heard_{kind}", None)
        if heard is None or self._off:
            return None
        try:
            return heard(**facts)
        except Refused as error:
            self.refuse(str(error), error.remedy)
        return None

    def _heard_constant(self, array: ndarray) -> None:
        if isinstance(array, Watched):  # NumPy computed it of an argument
            return
        if self._seen(array) is None and id(_owner(array)) not in self._memory:
            value = self._value(array, "constant", array)
            self._is_constant(value, array)
            self._kept.append(array)
            self._known[id(array)] = (lambda: array), value
            self._memory[id(_owner(array))] = array, value

    def _is_constant(self, value: Value, array: ndarray) -> None:
        self.constants.append((value, array))

    def _heard_leaf(self, leaf: Tensor, data: Any) -> None:
        data = data._data if isinstance(data, Tensor) else data
        if isinstance(data, ndarray):
            value = self._of_array(data)
            if value.dtype != leaf.dtype:
                cast = self._value(leaf._data, value.name)
                self._line("view", None, (value, leaf.dtype), (cast,))
                value = cast
        else:
            value = self._value(leaf._data, leaf.name or "constant", leaf._data)
            self._is_constant(value, leaf._data)
        self._kept.append(leaf)
        self._known[id(leaf._data)] = (lambda: leaf._data), value

    def _heard_read(self, tensor: Tensor, array: Any) -> ndarray:
        value = self._of_tensor(tensor)
        if not _a_layer_keeps():
            array = watch(array, self)
        self._keep(array, value)
        return array

    def _heard_write(self, tensor: Tensor, array: Any) -> None:
        target = self._of_tensor(tensor)
        if target.thing is not tensor:
            raise Refused("a Tensor that the step made is written into", "write into a parameter")
        self._line("write", None, (target, self.value(array)), effect=True)

    def _heard_backward(self, output: Tensor, seed: Any, retain: bool) -> bool:
        """Run it here, and watch the gradients: what is done with them by hand is not repeated."""
        self._start(output, seed)
        start = np.array(getattr(seed, "_data", seed))
        found = backpropagate([(output.node or output, start)], retain=retain)
        for leaf, total in found.items():
            if leaf.grad is not None:
                total = np.asarray(plain(leaf.grad) + total)
            leaf.grad = total
            self._watch(leaf)
        return True

    def _watch(self, leaf: Tensor) -> None:
        """Notice what is done with a gradient by hand."""
        if leaf.grad is not None:
            leaf.grad = watch(plain(leaf.grad), self)
        self._grads[id(leaf)] = leaf, leaf.grad

    def _heard_grad(self, output: Tensor, seed: Any, wanted: Any, retain: bool) -> Any:
        if isinstance(seed, Tensor):
            raise Refused("mg.grad is given a gradient with a graph of its own")
        self._start(output, seed)
        self._found = {}
        edges = [x.node or x for x in wanted]
        found = backpropagate([(output.node or output, seed)], retain=retain, targets=edges)
        for edge in edges:
            if edge in found:
                value = self._found.get(edge) or self._arrive(edge)
                self._kept.append(found[edge])
                self._known[id(found[edge])] = (lambda a=found[edge]: a), value
        self._found = None
        return [found.get(edge) for edge in edges]

    def _start(self, output: Tensor, seed: Any) -> None:
        edge = output.node or output
        seed = getattr(seed, "_data", seed)
        try:
            value = self._of_array(seed)
        except Refused:
            if (seed != 1).any():  # it is not the engine's own
                raise
            value = self._value(seed, "one", seed)
            self._is_constant(value, seed)
            self._kept.append(seed)
        self._coming = {edge: [value]}

    def _heard_cleared(self, parameters: Iterable[Tensor]) -> None:
        targets = [self._of_tensor(p) for p in parameters]
        for p in parameters:
            self._touched.add(id(p))
            self._grads[id(p)] = p, None
        self._line("clear", None, (targets,), effect=True)

    def _update(self) -> bool:
        if self._depth == 0:
            self._check_gradients()
        self._depth += 1
        return self._depth == 1

    def _check_gradients(self) -> None:
        """Look whether `.grad` was set by hand after the last line that set it."""
        for leaf, gradient in self._grads.values():
            if leaf.grad is None and gradient is not None:
                self._line("clear", None, ([self._of_tensor(leaf)],), effect=True)
            elif leaf.grad is not gradient:
                name = leaf.name or "a leaf"
                self.refuse(f"the step sets .grad of {name} by hand", "clip by clip_grad_norm")
        self.release()

    def _updated(self, owner: Any, again: Any, result: Any) -> None:
        self._depth -= 1
        if self._off:
            return
        for leaf, _ in [*self._grads.values()]:
            self._watch(leaf)
        made = []
        if isinstance(result, Tensor):
            made = [self._value(result._data, "result")]
            self._know(result._data, made[0])
            self._kept.append(result)
        elif result is not None:
            made = [self._value(np.asarray(result), "result")]
            self.results[id(result)] = result, made[0]
        name = type(owner).__name__.lower() if owner is not None else "update"
        kind = "tensor" if isinstance(result, Tensor) else ""
        self._line("call", again, (), made, op=name, effect=True, result=kind)

    # ------------------------------------------------------------------ the end

    def returned(self, x: Any) -> Any:
        """What the step returned, with what the program returns in place of arrays and Tensors."""
        if x.__class__ in (tuple, list):
            return x.__class__([*map(self.returned, x)])
        if x.__class__ is dict:
            return {k: self.returned(v) for k, v in x.items()}
        if isinstance(x, Tensor):
            value = self._of_tensor(x)
            return Returned("itself" if value.thing is x else "tensor", value)
        if isinstance(x, ndarray):
            for leaf, _ in self._grads.values():
                if leaf.grad is x:
                    return Returned("grad", self._of_tensor(leaf))
            return Returned("array", self._of_array(x))
        if id(x) in self.results and self.results[id(x)][0] is x:
            return Returned("number", self.results[id(x)][1])
        if isinstance(x, PLAIN_KINDS):
            return x
        raise Refused(f"a {type(x).__name__} is returned", "return Tensors, in a tuple or a dict")

    def keep(self) -> None:
        """Note what layers keep as lines; refuse whatever else the step bound anew."""
        for place in self.reach.places:
            for name in place.differing():
                if not KEPT_NAMES.fullmatch(name) or not hasattr(place.owner, "__dict__"):
                    what = ".".join(filter(None, (place.title, name)))
                    raise Refused(
                        f"the step changes {what}, which a later call may read",
                        "pass it to the step and return it",
                    )
                kept = vars(place.owner).get(name)
                value = None if kept is None else self._of_array(kept)
                place.left_out.add(name)
                self._line("keep", None, (place.owner, name, value), effect=True)

    def release(self) -> None:
        """Gradients as they are without the tape."""
        for leaf, _ in [*self._grads.values()]:
            leaf.grad = plain(leaf.grad)
            self._grads[id(leaf)] = leaf, leaf.grad

    def close(self) -> None:
        """The step is over."""
        self._check_gradients()


def _place() -> str:
    """The file and line of the user's that runs."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__")).partition(".")[0]
        if module not in NOT_THE_USERS and frame.f_code.co_filename[:1] != "<":
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


NOT_THE_USERS = (
    "minigrad",
    "layers",
    "numpy",
    "contextlib",
)  # packages whose lines are never named
KEPT_NAMES = re.compile("attention_weights|kept_.*")  # attributes of layers


def _a_layer_keeps() -> bool:
    """Whether a layer notes what its last call made, in its method `keep`."""
    frame: Any = sys._getframe(3)
    for _ in range(8):
        if frame is None:
            return False
        if frame.f_code.co_name == "_plain_settings":
            return True
        if frame.f_code.co_name == "keep":
            return str(frame.f_globals.get("__name__")).startswith("layers.")
        frame = frame.f_back
    return False


def _lies(x: ndarray) -> tuple[Any, ...]:
    """Which entries an array shows."""
    return x.__array_interface__["data"][0], x.shape, x.strides, x.dtype


def _owner(array: Any) -> Any:
    """The array that owns the memory."""
    while isinstance(getattr(array, "base", None), ndarray):
        array = array.base
    return array


def _position(node: Any, k: int, name: str) -> int:
    """Where among the inputs the k-th of those is that need a gradient."""
    digits = name.removeprefix(node.op.inputs[0])
    if node.op.variadic and digits:
        return int(digits)
    return node.op.inputs.index(name)


def _runs(op: Any, arrays: list[Any], settings: Any) -> Any:
    """The op itself, or what runs in its place."""
    return op if op.faster is None else op.faster(arrays, settings) or op


def _is_pure(op: Any) -> bool:
    """Whether an op only computes; one of somebody else's, or a collective, may do more."""
    return str(op.kernel.__module__).startswith(("minigrad.ops.", "minigrad.fast."))

"""The tape: what one run of a step did, as lines, each of an op, of a rule, or of an effect.

It is an Observer. An op's line is its kernel on what it was given, a rule's line is the rule on the
gradient and on what it names; gradients that meet are added up by a line, and what reaches a leaf
is put into its `.grad` by one. What a line reads are Values: each knows where the program finds it.

Whatever the step is handed as an array is watched (see arguments.py), so that views become lines
and numbers that are taken out are noticed.
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
from .arguments import Watched, plain, view_of, watch
from .outside import Outside
from .reach import MANY, PLAIN_KINDS, Reach, owner_of

__all__ = ["Refused", "Returned", "Tape", "TapeLine", "Value", "signed"]


class Refused(Exception):
    """What no program could repeat. `remedy` says what to write."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy


class Value:
    """An array of the run.

    Attributes:
        number: in the order in which they came.  name: what to call it.
        path: where it is among the arguments.
        thing: what the program is handed, a Tensor or an array from elsewhere.
        is_tensor: whether a Tensor is there, whose array it is.
        key: what two recordings know it by.
        fresh: whether a line made it, and what the line was given has none of its memory.
    A line made it if it has neither path nor thing.
    """

    __slots__ = ("dtype", "fresh", "is_tensor", "key", "name", "number", "path", "shape", "thing")

    def __init__(self, number: int, array: Any, name: str, path: str = "", thing: Any = None):
        self.number = number
        self.name = name
        self.path = path
        self.thing = thing
        self.is_tensor = isinstance(thing, Tensor)
        self.shape = array.shape
        self.dtype = array.dtype
        self.key: Any = path or number
        self.fresh = False

    def __repr__(self) -> str:
        return self.name


@dataclass(slots=True)
class Returned:
    """A part of what the step returns.

    Attributes: how: "tensor" (a new one), "array", "itself" (the very Tensor), or "grad".
    """

    how: str
    value: Value


@dataclass(slots=True)
class TapeLine:
    """One thing that the run did.

    Attributes:
        kind: "op", "rule", "add"; or of an effect: "grad", "clear", "call", "write", "keep".
        function: what is called.  given: with what, Values and plain values, in tuples and lists.
        made: the Values that come out, None for one that nobody wants.
        op: its name.  scope: where in the model.  effect: whether it does more than compute.
    """

    kind: str
    function: Any
    given: tuple[Any, ...]
    made: tuple[Value | None, ...] = ()
    op: str = ""
    scope: str = ""
    effect: bool = False

    def signature(self) -> tuple[Any, ...]:
        """What must be the same in another recording."""
        made = tuple([None if v is None else (v.shape, v.dtype) for v in self.made])
        return self.kind, signed(self.function), signed(self.given), made

    def __str__(self) -> str:
        return f"{self.op or self.kind}({', '.join(map(repr, self.given))})"


def signed(x: Any) -> Any:
    """What must be the same of what a line names, or of a result."""
    if x.__class__ is Value:
        return x.key
    if x.__class__ is Returned:
        return x.how, x.value.key
    if x.__class__ in (tuple, list):
        return (x.__class__, *map(signed, x))
    if x.__class__ is dict:
        return (dict, *[(k, signed(v)) for k, v in x.items()])
    if isinstance(x, PLAIN_KINDS):
        return x.__class__, repr(x)
    if isinstance(x, partial):  # an update comes as a new one each time
        return signed(x.func), signed(x.args)
    if isinstance(x, MethodType):
        return id(x.__func__), id(x.__self__)
    return x if x.__class__.__eq__ is not object.__eq__ and x.__class__.__hash__ else id(x)


class Tape(Observer):
    """The lines of one run.

    Attributes:
        reason, remedy: why no program could repeat the run, and what to write; None if one could.
        leaves: by id, those from outside whose entries are used.
        held: leaves with whether they must hold a gradient when the step begins; None for either.
        constants: arrays that are the same at every call.
        read: ids of the arrays from elsewhere that lines read.
        fixed: arrays whose entries must stay as they are.
    """

    shows_inputs = False

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.lines: list[TapeLine] = []
        self.reason: str | None = None
        self.remedy = ""
        self.leaves: dict[int, Tensor] = {}
        self.held: dict[int, tuple[Tensor, bool | None]] = {}
        self.constants: list[tuple[Value, ndarray]] = []
        self.read: set[int] = set()
        self.fixed: list[ndarray] = []
        self.outside = Outside(reach.others)
        self._count = 0
        self._updating = False
        self._known: dict[Any, tuple[Any, Value]] = {}  # by what an array shows: see `_know`
        self._tensors: dict[int, tuple[Tensor, Value]] = {}  # from outside, by id
        self._nodes: dict[int, tuple[Any, Any, list[Value], Value]] = {}
        self._coming: dict[Any, list[Value]] = {}  # gradients on their way, by edge
        self._totals: dict[Any, Value] = {}  # and those that have arrived
        self._grads: dict[int, tuple[Tensor, Any]] = {}  # Tensor: its `.grad`, as a line left it

    def begin(self, given: Iterable[tuple[str, Any]]) -> None:
        """The step is about to run. given: its arguments, by path."""
        if self.reach.iterator:
            self.refuse(
                f"{self.reach.iterator} is an iterator, which each call moves on",
                "take from it outside the step",
            )
        for path, x in given:
            if isinstance(x, Tensor | Watched):
                array = x._data if isinstance(x, Tensor) else x
                value = self._value(array, path.strip("[]'"), path)
                if isinstance(x, Tensor):
                    value.is_tensor = True
                    self._tensors[id(x)] = x, value
                self._know(array, value)
        for x in (*self.reach.tensors, *(x for x, _ in self._tensors.values())):
            self._watch(x)

    # ------------------------------------------------------------------ refusals

    def refuse(self, why: str, remedy: str = "") -> None:
        if self.reason is None:
            self.reason = f"{why} at {_place()}"
            self.remedy = remedy

    def notice(self, what: str) -> None:
        """The step did something with an array that is no line."""
        if not self._updating:
            self.refuse(
                f"numbers are taken out of an array, by {what},",
                "do that outside the step, or compute by ops: mg.tensor(x) makes a Tensor of it",
            )

    def _hear(self, method: Callable[..., Any], *given: Any, **facts: Any) -> Any:
        """Write lines of what happened, unless that is over: within an update, or once refused."""
        if self._updating or self.reason is not None:
            return None
        try:
            return method(*given, **facts)
        except Refused as error:
            self.refuse(str(error), error.remedy)
            return None

    # ------------------------------------------------------------------ values

    def _value(self, array: Any, name: str, path: str = "", thing: Any = None) -> Value:
        self._count += 1
        return Value(self._count, array, name, path, thing)

    def _line(self, kind: str, function: Any, *given: Any, made: Any = (), **about: Any) -> None:
        self.lines.append(TapeLine(kind, function, given, tuple(made), **about))

    def _know(self, array: Any, value: Value) -> None:
        """Know an array by the entries that it shows, for as long as somebody holds its memory."""
        if self._seen(array) is None:
            self._known[_shown(array)] = weakref.ref(owner_of(array)), value

    def _seen(self, array: Any) -> Value | None:
        found = self._known.get(_shown(array))
        return found[1] if found is not None and found[0]() is not None else None

    def _of(self, x: Any) -> Any:
        """What a line says for an input or a setting: a Value for an array, or the thing itself."""
        if isinstance(x, Tensor):
            return self._of_tensor(x)
        if isinstance(x, ndarray):
            return self._of_array(x)
        return x.__class__([*map(self._of, x)]) if x.__class__ in (tuple, list) else x

    def _of_tensor(self, x: Tensor) -> Value:
        if id(x) in self._tensors:
            return self._tensors[id(x)][1]
        if id(x) not in self.reach.names or x.node is not None:
            if x.node is not None and self._seen(x._data) is None:
                raise Refused("a Tensor comes with a graph from outside", "detach it before")
            return self._of_array(x._data)
        value = self._value(x._data, x.name or self.reach.names[id(x)], thing=x)
        value.key = id(x)
        self._tensors[id(x)] = x, value
        self.leaves[id(x)] = x
        self._know(x._data, value)
        return value

    def _of_array(self, x: ndarray) -> Value:
        value = self._seen(x)
        if value is not None:
            return value
        name = self.reach.names.get(id(owner_of(x)))
        if name is None:
            raise Refused(
                "an array is used that the step made by NumPy, or that no name leads to",
                "pass it as an argument, make it before the step, or compute it by ops of a Tensor",
            )
        value = self._value(x, name, thing=plain(x))
        value.key = _shown(x)
        self._know(x, value)
        self.read.add(id(owner_of(x)))
        return value

    def viewed(self, x: Watched, made: Watched, name: str, given: tuple[Any, ...]) -> None:
        """The step took a view or a cast of an array that it was handed."""
        self._hear(self._viewed, x, made, name, given)

    def _viewed(self, x: Watched, made: Watched, name: str, given: tuple[Any, ...]) -> None:
        source = self._seen(x)
        if source is not None and self._seen(made) is None:
            value = self._value(made, source.name)
            self._line("op", view_of, source, name, *given, made=[value], op=name.strip("_"))
            self._know(made, value)

    def compared(self, ufunc: Any, inputs: tuple[Any, ...], made: Watched) -> None:
        """The step compared an array that it was handed, or combined truth values."""
        self._hear(self._compared, ufunc, inputs, made)

    def _compared(self, ufunc: Any, inputs: tuple[Any, ...], made: Watched) -> None:
        value = self._value(made, ufunc.__name__)
        self._line("op", ufunc, *map(self._of, inputs), made=[value], op=value.name)
        self._know(made, value)

    # ------------------------------------------------------------------ forward

    def before(self, op: Any, inputs: Any, settings: Any) -> None:
        if any(isinstance(x, np.random.Generator) for x in settings):
            self._hear(self._check_outside)

    def _check_outside(self) -> None:
        """Look whether the step itself wrote into an array or drew a random number."""
        if changed := self.outside.changed():
            raise Refused(f"the step changes {changed}", "do that outside the step")

    def _check_index(self, index: Any) -> None:
        """A boolean index picks as many entries as are True: it has to stay as it is."""
        for x in index if isinstance(index, tuple) else (index,):
            if isinstance(x, ndarray) and x.dtype == np.bool_:
                if self._of_array(x).thing is None:
                    raise Refused(
                        "a boolean index picks as many entries as are True",
                        "use mg.where, or multiply by it",
                    )
                self.fixed.append(x)

    def made(self, op: Any, inputs: Any, settings: Any, result: Tensor, seconds: float) -> None:
        self._hear(self._made, op, inputs, settings, result)

    def _made(self, op: Any, inputs: Any, settings: Any, result: Tensor) -> None:
        inputs = [x.item() if isinstance(x, np.generic) else x for x in inputs]
        arrays = [x._data if isinstance(x, Tensor) else x for x in inputs]
        runs = op if op.faster is None else op.faster(arrays, settings) or op
        given = [*map(self._of, inputs)]
        chosen = [*map(self._of, settings)]
        out = self._value(result._data, result.name or op.name)
        made = [out, *[self._value(result._data, f"{op.name}_{a}") for a in runs.auxiliary]]
        if op.name == "getitem":
            self._check_index(settings[0])
        draws = any(isinstance(x, np.random.Generator) for x in settings)
        if draws:
            self.outside.look(lambda x: any(x is one for one in settings))
        about = {"op": op.name, "scope": current().scope, "effect": draws or not _is_pure(op)}
        self._line("op", runs.flat, *given, *chosen, made=made, **about)
        self._know(result._data, out)
        out.fresh = _is_new(result._data, (*arrays, *getattr(result.node, "saved", ())))
        if result.node is not None:
            every = [given] if op.variadic else given
            saved = result.node.plan.take((*every, *chosen, *made))
            pairs = zip(inputs, given, strict=True)
            needing = [value for x, value in pairs if isinstance(x, Tensor) and x.needs]
            self._nodes[id(result.node)] = result.node, saved, needing, out

    def named(self, tensor: Tensor) -> None:
        value = self._seen(tensor._data)
        if value is not None and not value.path and value.thing is None and tensor.name:
            value.name = tensor.name

    # ------------------------------------------------------------------ backward

    def sent(self, node: Any, gradient: Any, parts: list[Any], seconds: float) -> None:
        if not isinstance(gradient, Tensor):  # of one with a graph, rules are recorded as ops
            self._hear(self._sent, node, gradient, parts)

    def _sent(self, node: Any, gradient: Any, parts: list[Any]) -> None:
        known = self._nodes.get(id(node))
        if known is None or known[0] is not node:
            raise Refused("the graph was made outside the step", "make it within")
        _, saved, inputs, out = known
        if node.hooks:
            raise Refused("a hook was registered", "call the step itself to use hooks")
        g = self._arrive(node)
        if not g.path and g.thing is None:
            g.name = f"d_{out.name}"
        names = node.plan.names
        values = {
            name: self._value(part, f"d_{x.name}")
            for name, x, part in zip(names, inputs, parts, strict=True)
            if part is not None
        }
        for name, part in zip(names, parts, strict=True):
            if name in values:
                values[name].fresh = _is_new(part, (gradient, *node.saved, *parts))
        about = {"op": node.op.name, "scope": node.scope, "effect": not _is_pure(node.op)}
        joint = False
        for name, rule, at in zip(names, node.plan.rules, node.plan.places, strict=True):
            if name not in values or (joint and len(rule.inputs) > 1):
                continue
            needs = [saved[k] for k in at]
            made: list[Any] = [values[name]]
            if len(rule.inputs) > 1:
                joint = True
                made = [values.get(n) for n in rule.inputs]
                needs += [tuple([n in values for n in rule.inputs])] * rule.takes_needed
            self._line("rule", rule.function, g, *needs, made=made, **about)
        for name, edge in zip(names, node.edges, strict=True):
            if name in values:
                self._coming.setdefault(edge, []).append(values[name])

    def arrived(self, leaf: Tensor, gradient: Any) -> None:
        if not isinstance(gradient, Tensor):
            self._hear(self._arrived, leaf)

    def _arrived(self, leaf: Tensor) -> None:
        if leaf.hooks:
            raise Refused("a hook was registered", "call the step itself to use hooks")
        self._arrive(leaf)

    def _arrive(self, edge: Any) -> Value:
        """The whole gradient of a node or leaf: the sum of what came, in order."""
        parts = self._coming.pop(edge, [])
        if not parts:
            raise Refused("a gradient came from outside the step")
        total = parts[0]
        for part in parts[1:]:
            total = self._sum(total, part)
        self._totals[edge] = total
        return total

    def _sum(self, total: Value, part: Value) -> Value:
        value = self._value(part, total.name)
        self._line("add", np.add, total, part, made=[value])
        return value

    def _start(self, output: Tensor, seed: Any) -> None:
        self._totals = {}
        self._coming = {output.node or output: [self._of(seed)]}

    # ------------------------------------------------------------------ what is said

    def said(self, kind: str, **facts: Any) -> Any:
        if kind == "update":
            return self._update()
        if kind == "updated":
            return self._updated(**facts)
        method = getattr(self, f"_heard_{kind}", None)
        return None if method is None else self._hear(method, **facts)

    def _heard_constant(self, array: ndarray) -> None:
        if self._seen(array) is None:
            value = self._value(array, "constant", thing=plain(array))
            self.constants.append((value, array))
            self._know(array, value)

    def _heard_leaf(self, leaf: Tensor, data: Any) -> None:
        data = data._data if isinstance(data, Tensor) else data
        if not isinstance(data, ndarray):
            self._heard_constant(leaf._data)
            return
        value = self._of_array(data)
        if value.dtype != leaf.dtype:
            cast = self._value(leaf._data, value.name)
            self._line("op", view_of, value, "astype", leaf.dtype, made=[cast], op="astype")
            value = cast
        self._know(leaf._data, value)

    def _heard_read(self, tensor: Tensor, array: Any) -> ndarray:
        self._know(array, self._of_tensor(tensor))
        array = array.view()
        array.flags.writeable = False
        return watch(array, self)

    def _heard_write(self, tensor: Tensor, array: Any) -> None:
        target = self._of_tensor(tensor)
        if id(tensor) not in self._tensors:
            raise Refused("a Tensor that the step made is written into", "write into a parameter")
        self._line("write", None, target, self._of(array), effect=True)

    def _heard_backward(self, output: Tensor, seed: Any, retain: bool) -> bool:
        """Run it here, so that what is done with gradients by hand is noticed."""
        self._look()
        self._start(output, seed)
        start = np.array(getattr(seed, "_data", seed))
        found = backpropagate([(output.node or output, start)], retain=retain)
        for leaf, array in found.items():
            before = leaf.grad
            leaf.grad = array if before is None else np.asarray(plain(before) + array)
            self._hear(self._put, leaf, before)
        return True

    def _put(self, leaf: Tensor, before: Any) -> None:
        """A gradient was put into a leaf."""
        total = self._totals[leaf]
        if id(leaf) in self._grads:
            self.held.setdefault(id(leaf), (leaf, before is not None))
            self._line("grad", None, self._of(leaf), total, before is not None, effect=True)
            self._watch(leaf)
            return
        if before is not None:  # of a leaf that the step made
            total = self._sum(self._of_array(before), total)
        self._know(leaf.grad, total)
        leaf.grad = watch(leaf.grad, self)

    def _watch(self, leaf: Tensor) -> None:
        """Notice what is done with a gradient by hand."""
        if leaf.grad is not None:
            leaf.grad = watch(plain(leaf.grad), self)
        self._grads[id(leaf)] = leaf, leaf.grad

    def _look(self) -> None:
        """Look whether `.grad` was set by hand after the last line that set it."""
        for leaf, gradient in [*self._grads.values()]:
            if leaf.grad is None and gradient is not None:
                self._heard_cleared([leaf])
            elif leaf.grad is not gradient:
                name = leaf.name or "a leaf"
                raise Refused(f"the step sets .grad of {name} by hand", "clip by clip_grad_norm")

    def _heard_cleared(self, parameters: Iterable[Tensor]) -> None:
        targets = [self._of_tensor(p) for p in parameters]
        for p in parameters:
            self.held.setdefault(id(p), (p, None))
            self._grads[id(p)] = p, None
        self._line("clear", None, targets, effect=True)

    def _heard_grad(self, output: Tensor, seed: Any, wanted: Any, retain: bool) -> Any:
        self._start(output, seed)
        edges = [x.node or x for x in wanted]
        start = output.node or output, np.array(seed)
        found = backpropagate([start], retain=retain, targets=edges)
        gradients = []
        for x, edge in zip(wanted, edges, strict=True):
            array = watch(np.array(found.get(edge, np.zeros(x.shape, x.dtype))), self)
            if edge not in found:
                self._heard_constant(array)
            elif self.reason is None:
                self._know(array, self._totals.get(edge) or self._arrive(edge))
            gradients.append(array)
        return gradients

    def _update(self) -> bool:
        """An update begins; whether it is within no other one."""
        if self._updating:
            return False
        self._hear(self._look)
        self._release()
        self._updating = True
        return True

    def _updated(self, owner: Any, again: Any, result: Any) -> None:
        self._updating = False
        self._hear(self._called, owner, again, result)

    def _called(self, owner: Any, again: Any, result: Tensor | None) -> None:
        for leaf, _ in [*self._grads.values()]:
            self._watch(leaf)
        made = [] if result is None else [self._value(result._data, "result")]
        name = type(owner).__name__.lower() if owner is not None else "update"
        self._line("call", again, made=made, op=name, effect=True)
        if result is not None:
            self._know(result._data, made[0])

    # ------------------------------------------------------------------ the end

    def _release(self) -> None:
        """Gradients as they are without the tape."""
        for leaf, _ in self._grads.values():
            leaf.grad = plain(leaf.grad)

    def end(self) -> None:
        """The step is over."""
        self._hear(self._look)
        self._hear(self._check_outside)
        self._release()
        for place in self.reach.places:
            attributes = getattr(place.owner, "__dict__", {})
            attributes |= {k: plain(x) for k, x in attributes.items() if isinstance(x, Watched)}

    def returned(self, x: Any) -> Any:
        """What the step returned, with what the program returns in place of arrays and Tensors."""
        if x.__class__ in (tuple, list):
            return x.__class__([*map(self.returned, x)])
        if x.__class__ is dict:
            return {k: self.returned(v) for k, v in x.items()}
        if isinstance(x, Tensor):
            value = self._of_tensor(x)
            return Returned("itself" if id(x) in self._tensors else "tensor", value)
        if isinstance(x, ndarray):
            for leaf, _ in self._grads.values():
                if leaf.grad is not None and _shown(leaf.grad) == _shown(x):
                    return Returned("grad", self._of_tensor(leaf))
            return Returned("array", self._of_array(x))
        if isinstance(x, PLAIN_KINDS):
            return x
        raise Refused(f"a {type(x).__name__} is returned", "return Tensors, in a tuple or a dict")

    def unchanging(self) -> list[ndarray]:
        """Arrays whose entries must stay: small ones that no line reads, of which the step may have
        taken numbers, and boolean indices.
        """
        arrays = [x for x in self.reach.arrays() if id(owner_of(x)) not in self.read]
        return [*self.fixed, *(x for x in arrays if x.size <= MANY and not x.dtype.hasobject)]

    def keep(self) -> None:
        """Note what layers keep as lines; refuse whatever else the step bound anew."""
        for place in self.reach.places:
            for name in place.changed():
                attributes = getattr(place.owner, "__dict__", {})
                if not KEPT_NAMES.fullmatch(str(name)) or name not in attributes:
                    what = ".".join(filter(None, (place.title, str(name))))
                    raise Refused(
                        f"the step changes {what}, which a later call may read",
                        "pass it to the step and return it",
                    )
                place.kept.add(name)
                of = place.title.rpartition(".")[2]
                kept = self._of(attributes[name])
                self._line("keep", None, attributes, name, kept, op=of, effect=True)


NOT_THE_USERS = ("minigrad", "layers", "numpy", "contextlib")  # packages whose lines are not named
KEPT_NAMES = re.compile("attention_weights|kept_.*")  # attributes of layers


def _shown(x: ndarray) -> tuple[Any, ...]:
    """Which entries an array shows."""
    return x.__array_interface__["data"][0], x.shape, x.strides, x.dtype


def _place() -> str:
    """The file and line of the user's that runs."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__")).partition(".")[0]
        if module not in NOT_THE_USERS and frame.f_code.co_filename[:1] != "<":
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_new(made: ndarray, others: Iterable[Any]) -> bool:
    """Whether an array shares no memory with others."""
    owners = [owner_of(x) for x in others if isinstance(x, ndarray) and x is not made]
    return not any(owner is owner_of(made) for owner in owners)


def _is_pure(op: Any) -> bool:
    """Whether an op only computes; one of somebody else's, or a collective, may do more."""
    return str(op.kernel.__module__).startswith(("minigrad.ops.", "minigrad.fast."))

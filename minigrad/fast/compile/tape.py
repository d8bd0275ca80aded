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
from typing import Any

import numpy as np
from numpy import ndarray

from ...engine.context import current
from ...engine.observer import Observer
from ...engine.tensor import Tensor
from .arguments import Watched, Watching, leaves_of, mapped, plain, view_of, watch
from .lines import Returned, TapeLine, Value
from .reach import PLAIN_KINDS, Holder, Reach, owner_of

__all__ = ["Refused", "Tape"]


class Refused(Exception):
    """What no program could repeat. `remedy` says what to write."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy


def heard(method: Callable[..., Any]) -> Callable[..., Any]:
    """Writes lines of what happened, unless that is over: within an update, or once refused."""

    def hear(tape: Tape, *given: Any, **facts: Any) -> Any:
        if tape.updating or tape.reason is not None:
            return None
        try:
            return method(tape, *given, **facts)
        except Refused as error:
            tape.refuse(str(error), error.remedy)
            return None

    return hear


class Tape(Observer):
    """The lines of one run.

    Attributes:
        args, kwargs: what the step is called with; what it does with arrays among them is noticed.
        result: what it returned, with Returned in place of arrays and Tensors.
        reason, remedy: why no program could repeat the run, and what to write; None if one could.
        tensors: those from outside, with their Values.
        held: leaves with whether they must hold a gradient when the step begins; None for either.
        constants: arrays that are the same at every call.
        updating: whether an optimizer or the like runs.
    """

    shows_inputs = False

    def __init__(self, step: Any, args: Any, kwargs: Any) -> None:
        given = [*leaves_of(args, "args"), *leaves_of(kwargs, "kwargs")]
        self.reach = Reach(step, [(p, x) for p, x in given if not isinstance(x, ndarray | Tensor)])
        self.lines: list[TapeLine] = []
        self.result: Any = None
        self.reason: str | None = None
        self.remedy = ""
        self.tensors: dict[Tensor, Value] = {}
        self.held: dict[Tensor, bool | None] = {}
        self.constants: list[tuple[Value, ndarray]] = []
        self.updating = False
        self._count = 0
        self._known: dict[Any, tuple[Any, Value]] = {}  # by what an array shows: see `_know`
        self._results: dict[Any, dict[str, Value]] = {}  # by node, and by name
        self._coming: dict[Any, list[Value]] = {}  # gradients on their way, by edge
        self._totals: dict[Any, Value] = {}  # and those that have arrived
        self._drawn: set[int] = set()  # ids of generators that ops drew from
        self._own: dict[Tensor, Value] = {}  # gradients of leaves that the step made
        self._changed: list[tuple[Holder, Any]] = []

        tensors = [*self.reach.tensors, *(x for _, x in given if isinstance(x, Tensor))]
        self._grads = {x: x.grad for x in tensors}  # as a line left them
        self._watch_gradients()
        taken = {*self.reach.names, *(id(owner_of(x._data)) for x in tensors)}
        self._watching = Watching(self, taken)
        self.args = self._watching.of(args)
        self.kwargs = self._watching.of(kwargs)
        for path, x in (*leaves_of(self.args, "args"), *leaves_of(self.kwargs, "kwargs")):
            name = path.strip("[]'")
            if isinstance(x, Tensor):
                self.tensors[x] = self._new(x._data, name, path=path, is_tensor=True)
            elif isinstance(x, Watched):
                self._new(x, name, path=path)
        self.reach.holders += self._watching.holders

    # ------------------------------------------------------------------ refusals

    def refuse(self, why: str, remedy: str = "") -> None:
        if self.reason is None:
            self.reason = f"{why} at {_place()}"
            self.remedy = remedy

    def notice(self, what: str) -> None:
        """The step did something with an array that is no line."""
        if not self.updating:
            self.refuse(
                f"numbers are taken out of an array, by {what},",
                "do that outside the step, or compute by ops: mg.tensor(x) makes a Tensor of it",
            )

    # ------------------------------------------------------------------ values

    def _value(self, array: Any, name: str, **about: Any) -> Value:
        self._count += 1
        return Value(self._count, name, array.shape, array.dtype, array.strides, **about)

    def _new(self, array: Any, name: str, **about: Any) -> Value:
        """A Value, by which the array is known from here on."""
        value = self._value(array, name, **about)
        self._know(array, value)
        return value

    def _line(self, kind: str, function: Any, *given: Any, made: Any = (), **about: Any) -> None:
        self.lines.append(TapeLine(kind, function, given, tuple(made), **about))

    def _know(self, array: Any, value: Value) -> None:
        """Know an array by the entries that it shows, for as long as somebody holds its memory."""
        if self._seen(array) is None:
            self._known[_shown(array)] = weakref.ref(owner_of(array)), value

    def _seen(self, array: Any) -> Value | None:
        owner, value = self._known.get(_shown(array), (lambda: None, None))
        return value if owner() is not None else None

    def _of(self, x: Any) -> Any:
        """What a line says of what it is given: a Value for an array, or the thing itself."""
        return mapped(x, self._of_one)

    def _of_one(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            if x not in self.tensors and x.node is None and id(x) in self.reach.names:
                name = x.name or self.reach.names[id(x)]
                self.tensors[x] = self._new(x._data, name, thing=x, is_tensor=True, key=id(x))
            if x in self.tensors:
                return self.tensors[x]
            if x.node is not None and self._seen(x._data) is None:
                raise Refused("a Tensor comes with a graph from outside", "detach it before")
            x = x._data
        if not isinstance(x, ndarray):
            return x
        found = self._seen(x)
        if found is None:
            name = self.reach.names.get(id(owner_of(x)), "")
            if not name:
                raise Refused(
                    "an array is used that the step made by NumPy, or that no name leads to",
                    "pass it as an argument, make it before, or compute it by ops of a Tensor",
                )
            found = self._new(x, name, thing=plain(x), key=_shown(x))
        return found

    @heard
    def computed(self, function: Any, given: tuple[Any, ...], made: Watched) -> None:
        """The step took a view or a cast of an array that it was handed, or compared it."""
        name = given[1].strip("_") if function is view_of else function.__name__
        given = self._of(given)
        self._line("op", function, *given, made=[self._new(made, name)], op=name)

    # ------------------------------------------------------------------ forward

    @heard
    def made(self, op: Any, inputs: Any, settings: Any, result: Tensor, seconds: float) -> None:
        inputs = [x.item() if isinstance(x, np.generic) else x for x in inputs]
        arrays = [x._data if isinstance(x, Tensor) else plain(x) for x in inputs]
        runs = op.choose(arrays, settings)
        given = self._of([*inputs, *settings])
        out = self._new(result._data, result.name or op.name)
        out.fresh = _is_fresh(result._data, (*arrays, *settings))
        node = result.node
        saved = dict(zip(node.plan.saves, node.saved, strict=True)) if node else {}
        made = [out]
        for a in runs.auxiliary:  # of the others nobody reads any
            array = saved.get(a)
            made.append(None if array is None else self._value(array, f"{op.name}_{a}"))
        if op.name == "getitem":
            self._check_index(settings[0])
        drawn = [id(x) for x in settings if isinstance(x, np.random.Generator)]
        self._drawn.update(drawn)
        effect = bool(drawn) or not _is_pure(op)
        about = {"op": op.name, "scope": current().scope, "effect": effect}
        self._line("op", runs.flat, *given, made=made, **about)
        if node is not None:
            names = ("out", *runs.auxiliary)
            self._results[node] = dict(zip(names, made, strict=True))

    def _check_index(self, index: Any) -> None:
        """What is True of a boolean index has to stay: so many entries are picked."""
        for _, x in leaves_of(index, ""):
            if isinstance(x, ndarray) and x.dtype == np.bool_:
                value = self._of(x)
                if value.thing is None:
                    why = "a boolean index picks as many entries as are True"
                    raise Refused(why, "use mg.where, or multiply by it")
                self.reach.hold_entries(value.name, value.thing)

    def named(self, tensor: Tensor) -> None:
        value = self._seen(tensor._data)
        if value is not None and not value.path and value.thing is None and tensor.name:
            value.name = tensor.name

    # ------------------------------------------------------------------ backward

    @heard
    def sent(self, node: Any, gradient: Any, parts: list[Any], seconds: float) -> None:
        if isinstance(gradient, Tensor):  # the rules of one with a graph are recorded as ops
            return
        results = self._results.get(node)
        if results is None:
            raise Refused("the graph was made outside the step", "make it within")
        g = self._arrive(node)
        if not g.path and g.thing is None:
            g.name = f"d_{results['out'].name}"
        wanted: dict[str, Value] = {}
        for i, (name, edge, part) in enumerate(
            zip(node.plan.names, node.edges, parts, strict=True)
        ):
            if part is not None:
                of = self._results[edge]["out"] if edge in self._results else self._of(edge)
                fresh = _is_fresh(part, (gradient, *node.saved, *parts[:i], *parts[i + 1 :]))
                wanted[name] = self._value(part, f"d_{of.name}", fresh=fresh)
                self._coming.setdefault(edge, []).append(wanted[name])
        about = {"op": node.op.name, "scope": node.scope, "effect": not _is_pure(node.op)}
        for name, rule, at in zip(node.plan.names, node.plan.rules, node.plan.places, strict=True):
            if name not in wanted:  # or made by a rule of several inputs
                continue
            given = [results.get(node.plan.saves[k]) or self._of(node.saved[k]) for k in at]
            if rule.takes_needed:
                given.append(tuple([n in wanted for n in rule.inputs]))
            names = rule.inputs if len(rule.inputs) > 1 else [name]
            made = [wanted.pop(n, None) for n in names]
            self._line("rule", rule.function, g, *given, made=made, **about)

    @heard
    def arrived(self, leaf: Tensor, gradient: Any) -> None:
        if not isinstance(gradient, Tensor):
            self._arrive(leaf)

    def _arrive(self, edge: Any) -> Value:
        """The whole gradient of a node or leaf: the sum of what came, in order."""
        if edge.hooks:
            raise Refused("a hook was registered", "call the step itself to use hooks")
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
        self._line("op", np.add, total, part, made=[value], op="add")
        return value

    # ------------------------------------------------------------------ what is said

    def said(self, kind: str, **facts: Any) -> Any:
        if kind == "update":
            return self._update()
        if kind == "updated":
            self.updating = False
        method = getattr(self, f"_heard_{kind}", None)
        return None if method is None else method(**facts)

    @heard
    def _heard_constant(self, array: ndarray) -> None:
        if self._seen(array) is None:
            self.constants.append((self._new(array, "constant", thing=array), array))

    @heard
    def _heard_leaf(self, leaf: Tensor, data: Any) -> None:
        data = data._data if isinstance(data, Tensor) else data
        if not isinstance(data, ndarray):
            self._heard_constant(leaf._data)
        elif data.dtype != leaf.dtype:
            self.computed(view_of, (data, "astype", leaf.dtype), leaf._data)
        else:
            self._know(leaf._data, self._of(data))

    @heard
    def _heard_read(self, tensor: Tensor, array: Any) -> ndarray:
        self._know(array, self._of(tensor))
        array = array.view()
        array.flags.writeable = False
        return watch(array, self)

    @heard
    def _heard_write(self, tensor: Tensor, array: Any) -> None:
        target = self._of(tensor)
        if tensor not in self.tensors:
            raise Refused("a Tensor that the step made is written into", "write into a parameter")
        self._line("write", None, target, self._of(array), effect=True)

    @heard
    def _heard_backward(self, output: Tensor, seed: Any) -> None:
        self._take_back()
        self._heard_grad(output, seed)

    @heard
    def _heard_added(self, gradients: dict[Tensor, ndarray]) -> None:
        for leaf, array in gradients.items():
            total = self._totals[leaf]
            holds = leaf.grad is not array
            if leaf in self._grads:
                self.held.setdefault(leaf, holds)
                self._line("grad", None, self._of(leaf), total, holds, effect=True)
                continue
            if holds:  # of a leaf that the step made
                total = self._sum(self._own[leaf], total)
            self._own[leaf] = total
            self._know(leaf.grad, total)
            leaf.grad = watch(leaf.grad, self)
        self._watch_gradients()

    def _watch_gradients(self) -> None:
        """Notice what is done with gradients by hand."""
        for leaf in self._grads:
            if leaf.grad is not None:
                leaf.grad = watch(plain(leaf.grad), self)
            self._grads[leaf] = leaf.grad

    @heard
    def _look(self) -> None:
        """Look whether `.grad` was set by hand after the last line that set it."""
        for leaf, gradient in [*self._grads.items()]:
            if leaf.grad is None and gradient is not None:
                self._heard_cleared([leaf])
            elif leaf.grad is not gradient:
                name = leaf.name or "a leaf"
                raise Refused(f"the step sets .grad of {name} by hand", "clip by clip_grad_norm")

    def _take_back(self) -> None:
        """Gradients as they are without the tape, after a look whether they were set by hand."""
        self._look()
        for leaf in (*self._grads, *self._own):
            leaf.grad = plain(leaf.grad)

    @heard
    def _heard_cleared(self, parameters: Iterable[Tensor]) -> None:
        self._line("clear", None, [*map(self._of, parameters)], effect=True)
        for p in parameters:
            self.held.setdefault(p, None)
            self._grads[p] = None

    @heard
    def _heard_grad(self, output: Tensor, seed: Any) -> None:
        self._totals = {}
        self._coming = {output.node or output: [self._of(seed)]}

    @heard
    def _heard_found(self, wanted: list[Tensor], gradients: list[Any]) -> list[Any]:
        for x, array in zip(wanted, gradients, strict=True):
            edge = x.node or x
            if edge in self._totals or edge in self._coming:  # else it is of zeros
                self._know(array, self._totals.get(edge) or self._arrive(edge))
        return [watch(array, self) for array in gradients]

    def _update(self) -> bool:
        """An update begins; whether it is within no other one."""
        if self.updating:
            return False
        self._take_back()
        self.updating = True
        return True

    @heard
    def _heard_updated(self, owner: Any, again: Any, result: Tensor | None) -> None:
        self._watch_gradients()
        made = [] if result is None else [self._new(result._data, "result")]
        name = type(owner).__name__.lower() if owner is not None else "update"
        self._line("call", again, made=made, op=name, effect=True)

    # ------------------------------------------------------------------ the end

    def end(self) -> None:
        """The step is over, or has failed: all is as it is without a tape."""
        self._take_back()
        holders = [x for x in self.reach.holders if id(x.owner) not in self._drawn]
        self._changed = [(holder, name) for holder in holders for name in holder.changed()]
        self._watching.end()
        for holder in self.reach.holders:
            attributes = getattr(holder.owner, "__dict__", {})
            attributes |= {k: plain(x) for k, x in attributes.items() if isinstance(x, Watched)}

    def finish(self, result: Any) -> Any:
        """The step's result as a later call gives it."""
        self._finish(result)
        self._grads.clear()
        return mapped(result, self._plain)

    @heard
    def _finish(self, result: Any) -> None:
        self.result = mapped(result, self._returned)
        for holder, name in self._changed:
            self._keep(holder, name)

    def _plain(self, x: Any) -> Any:
        if isinstance(x, Tensor) and x.node is not None and self.reason is None:
            return x.detach()
        return self._watching.own(x)

    def _returned(self, x: Any) -> Any:
        """What a program returns in place of an array or a Tensor that the step returned."""
        if isinstance(x, Tensor):
            value = self._of(x)
            return Returned("itself" if x in self.tensors else "tensor", value)
        if isinstance(x, ndarray):
            for leaf in self._grads:
                if leaf.grad is not None and _shown(leaf.grad) == _shown(x):
                    return Returned("grad", self._of(leaf))
            return Returned("array", self._of(x))
        if isinstance(x, PLAIN_KINDS):
            return x
        raise Refused(f"a {type(x).__name__} is returned", "return Tensors, in a tuple or a dict")

    def _keep(self, holder: Holder, name: Any) -> None:
        """Note what a layer keeps as a line; refuse whatever else the step changed."""
        attributes = getattr(holder.owner, "__dict__", {})
        if name not in attributes or not KEPT_NAMES.fullmatch(name):
            what = ".".join(filter(None, (holder.title, str(name))))
            raise Refused(
                f"the step changes {what}, which a later call may read",
                "pass it to the step and return it",
            )
        holder.kept.add(name)
        of = holder.title.rpartition(".")[2]
        kept = self._of(attributes[name])
        self._line("keep", None, attributes, name, kept, op=of, effect=True)


NOT_THE_USERS = ("minigrad", "layers", "numpy", "contextlib")  # packages whose lines are not named
KEPT_NAMES = re.compile("attention_weights|kept_.*")  # attributes of layers


def _shown(x: ndarray) -> tuple[Any, ...]:
    """Which entries an array shows."""
    return x.__array_interface__["data"][0], x.shape, x.strides, x.dtype


def _is_fresh(made: Any, given: Any) -> bool:
    """Whether an array shares no memory with those that were given."""
    arrays = [plain(x) for _, x in leaves_of(given, "") if isinstance(x, ndarray)]
    return not any(np.may_share_memory(made, x) for x in arrays)


def _place() -> str:
    """The file and line of the user's that runs."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__")).partition(".")[0]
        if module not in NOT_THE_USERS and frame.f_code.co_filename[:1] != "<":
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_pure(op: Any) -> bool:
    """Whether an op only computes; one of somebody else's, or a collective, may do more."""
    return str(op.kernel.__module__).startswith(("minigrad.ops.", "minigrad.fast."))

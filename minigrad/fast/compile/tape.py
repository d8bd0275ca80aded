"""The tape: what one run of a step did, as lines, each of an op, of a rule, or of an effect.

It is an Observer. An op's line is its kernel on what it was given, a rule's line is the rule on the
gradient and on what it names; gradients that meet are added up by a line, and what reaches a leaf
is put into its `.grad` by one. What a line reads are Values: each knows where the program finds it.

Whatever the step is handed as an array is watched (see watched.py), so that views become lines
and numbers that are taken out are noticed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
from numpy import ndarray

from ...engine.context import current, observe
from ...engine.declaration import Shaped
from ...engine.observer import Observer
from ...engine.op import array_of, owner_of, view_key
from ...engine.tensor import Tensor
from .bindings import FEW, PLAIN_KINDS, Binding, Bindings, is_library
from .lines import (
    Handed,
    KnownArrays,
    Returned,
    TapeLine,
    Value,
    added,
    explained,
    fitted,
    leaves_of,
    mapped,
    signed,
    view_of,
)
from .watched import Watched, laid_out, plain, watch

__all__ = ["Tape"]

PURE = ("minigrad.ops.", "minigrad.fast.")  # packages whose kernels only compute


class Refused(Exception):
    """Why no program could repeat the run, and what to write instead."""


def heard(method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tape, *given: tape._hear(partial(method, tape), *given)


class Tape(Observer):
    """The lines of one run.

    Args: given: the positional arguments, and a dict of those by keyword.
    Attributes:
        arguments: the Tensors among the arguments.
        keeps: lines of what layers keep of their last call.
        result: what the step returned, with Returned in place of arrays and Tensors.
        refusal: why no program could repeat the run, and what to write; None if one could.
        tensors: those from outside, with their Values.
        held: leaves with whether they must hold a gradient when the step begins; None for either.
        updating: whether an optimizer or the like runs.
    """

    shows_inputs = False
    takes_sparse = True

    def __init__(self, step: Any, given: tuple[Any, ...]) -> None:
        arguments = [*leaves_of(given, "args")]
        others = [(path, x) for path, x in arguments if not isinstance(x, ndarray | Tensor)]
        self.bindings = Bindings(step, others)
        self.arguments = dict.fromkeys(x for _, x in arguments if isinstance(x, Tensor))
        self.lines: list[TapeLine] = []
        self.keeps: list[TapeLine] = []
        self.refusal: tuple[str, str] | None = None
        self.tensors: dict[Tensor, Value] = {}
        self.held: dict[Tensor, bool | None] = {}
        self.updating = False
        self.arrays = KnownArrays()
        self._outputs: dict[Any, Value] = {}  # by node
        self._coming: dict[Any, list[Any]] = {}  # gradients, by edge; one once it has arrived
        self._read: set[int] = set()  # ids of memory from elsewhere that lines read
        tensors = *self.bindings.tensors, *self.arguments
        self._grads = {x: x.grad for x in tensors}  # as a line left them
        self._outside = {*self.bindings.names, *(id(owner_of(x._data)) for x in tensors)}

    def run(self, step: Any, given: tuple[Any, ...]) -> Any:
        """Run the step, and give its result as a later call gives it."""
        names = {f"args[{i}]": name for i, name in enumerate(inspect.signature(step).parameters)}
        self._watch_gradients()
        handed = mapped(given, self._watched)
        before = signed(handed)
        *args, kwargs = handed
        for path, x in leaves_of(handed, "args"):
            name = names.get(path, path)
            source = Handed(name, None, path)
            if isinstance(x, Tensor):
                self.tensors[x] = self.arrays.new(x._data, name, source, "._data")
            elif isinstance(x, Watched):
                self.arrays.new(x, name, source)
        try:
            with observe(self):
                result = step(*args, **kwargs)
        finally:
            changed = self._end()
        if signed(handed) != before:
            why = "the step changes a list or a dict among its arguments"
            self.refuse(why, "return what it makes: it was handed a copy, which is lost")
        self._hear(self._finish, result, changed)
        self._grads.clear()
        return mapped(result, self._plain)

    def _watched(self, x: Any) -> Any:
        """What the step is handed in the place of an argument: of an array, one that is watched.

        Of an array that shares memory with another it is a copy, for lines to tell the two apart.
        """
        if x.__class__ is not ndarray:
            return x
        array = x
        if id(owner_of(x)) in self._outside:
            array = laid_out(x, partial(np.empty, dtype=x.dtype))
            array[...] = x
        self._outside.add(id(owner_of(x)))
        return watch(array, self)

    # ------------------------------------------------------------------ refusals

    def _hear(self, method: Callable[..., Any], *given: Any, **facts: Any) -> Any:
        """Write lines of what happened, unless that is over: within an update, or once refused."""
        if not (self.updating or self.refusal):
            try:
                return method(*given, **facts)
            except Refused as error:
                self.refuse(*error.args)
        return None

    def refuse(self, why: str, remedy: str) -> None:
        if not self.updating:
            self.refusal = self.refusal or (f"{why} at {_place()}", remedy)

    def notice(self, what: str) -> None:
        """The step did something with an array that is no line."""
        self.refuse(
            f"numbers are taken out of an array, by {what},",
            "do that outside the step, or by ops of mg.tensor(x)",
        )

    # ------------------------------------------------------------------ values

    def _line(self, function: Any, *given: Any, made: Any = (), **about: Any) -> None:
        self.lines.append(TapeLine(function, given, made, **about))

    def _of(self, x: Any) -> Any:
        """What a line says of what it is given: a Value for an array, or the thing itself."""
        return mapped(x, self._of_one)

    def _of_one(self, x: Any) -> Any:
        names = self.bindings.names
        if isinstance(x, Tensor):
            if x not in self.tensors and x.node is None and id(x) in names:
                name = x.name or names[id(x)]
                self.tensors[x] = self.arrays.new(x._data, name, Handed(name, x), "._data")
            if x in self.tensors:
                return self.tensors[x]
            if x.node is not None and self.arrays.seen(x._data) is None:
                raise Refused("a Tensor comes with a graph from outside", "detach it before")
            x = x._data
        value = self.arrays.seen(x)
        if not isinstance(x, ndarray):
            return value or x
        memory = id(owner_of(x))
        if value is None:
            if memory not in names:
                raise Refused(
                    "an array is used that the step made by NumPy",
                    "pass it as an argument, or compute it by ops",
                )
            name = names[memory]
            value = self.arrays.new(x, name, Handed(name, plain(x), key=view_key(x)))
        if value.source:
            self._read.add(memory)
        return value

    @heard
    def computed(self, function: Any, given: tuple[Any, ...], result: Watched) -> None:
        """The step took a view or a cast of an array that it was handed, or compared it."""
        name = function.__name__
        self._line(function, *self._of(given), made=[self.arrays.new(result, name)], op=name)

    # ------------------------------------------------------------------ forward

    @heard
    def made(self, op: Any, inputs: Any, settings: Any, result: Tensor, seconds: float) -> None:
        inputs = [x.item() if isinstance(x, np.generic) else x for x in inputs]
        runs = op.choose([plain(array_of(x)) for x in inputs], settings)
        given = self._of([*inputs, *settings])
        out = self.arrays.new(result._data, result.name or op.name)
        made: list[Value | None] = [out]
        node = result.node
        saved: dict[str, Any] = {}
        if node is not None:
            self._outputs[node] = out
            saved = dict(zip(node.plan.saves, node.saved or (), strict=True))
        for name in runs.auxiliary:  # of the others nobody reads any
            array = saved.get(name)
            made.append(None if array is None else self.arrays.new(array, f"{op.name}_{name}"))
        if op.name == "getitem":
            self._hold_boolean_indices(given[1:])
        drawn = {id(x) for x in settings if isinstance(x, np.random.Generator)}
        if drawn:
            self.bindings.all = [x for x in self.bindings.all if id(x.owner) not in drawn]
        function = partial(explained, op, runs.flat)
        about = {"op": op.name, "scope": current().scope, "effect": bool(drawn) or _may_do_more(op)}
        self._line(function, *given, made=made, **about)

    def _hold_boolean_indices(self, given: Any) -> None:
        for _, x in leaves_of(given, ""):
            if isinstance(x, Value) and x.dtype == np.bool_:
                if x.source is None or x.source.thing is None:
                    why = "a boolean index picks as many entries as are True"
                    raise Refused(why, "use mg.where, or multiply by it")
                self.bindings.hold(x.name, x, x.source.thing.tobytes)

    def named(self, tensor: Tensor) -> None:
        value = self.arrays.seen(tensor._data)
        if value is not None and not value.source and tensor.name:
            value.name = tensor.name

    # ------------------------------------------------------------------ backward

    @heard
    def sent(self, node: Any, gradient: Any, parts: list[Any], seconds: float) -> None:
        if isinstance(gradient, Tensor):  # the rules of one with a graph are recorded as ops
            return
        if node not in self._outputs:
            raise Refused("the graph was made outside the step", "make it within")
        g = self._arrive(node, gradient)
        if not g.source:
            g.name = f"d_{self._outputs[node].name}"
        plan = node.plan
        wanted: dict[str, Value] = {}
        for name, edge, part in zip(plan.names, node.edges, parts, strict=True):
            if part is not None:
                of = self._outputs.get(edge) or self._of(edge)
                wanted[name] = self.arrays.value(part, f"d_{of.name}")
                self._coming.setdefault(edge, []).append(wanted[name])
        op = node.op
        about = {"op": f"{op.name}, back", "scope": node.scope, "effect": _may_do_more(op)}
        for name, rule, places in zip(plan.names, plan.rules, plan.places, strict=True):
            if name not in wanted:  # or made by a rule of several inputs
                continue
            given = [self._of(node.saved[k]) for k in places]
            if rule.takes_needed:
                given.append(tuple([n in wanted for n in rule.inputs]))
            names = rule.inputs if len(rule.inputs) > 1 else [name]
            made = [wanted.pop(n, None) for n in names]
            forms = [None if v is None else Shaped(v.shape, v.dtype) for v in made]
            self._line(partial(fitted, rule.function, forms), g, *given, made=made, **about)

    def _arrive(self, edge: Any, gradient: Any) -> Value:
        """The whole gradient of a node or leaf: the sum of what came, in order."""
        if edge.hooks:
            raise Refused("a hook was registered", "call the step itself to use hooks")
        parts = self._coming[edge]
        total: Any = None if parts[0].strides is None else parts.pop(0)
        for part in parts:  # the first sum is a new array, which later ones are written into
            before = total
            total = self.arrays.value(gradient, part.name)
            self._line(added, before, part, made=[total], op="add")
        self._coming[edge] = [total]
        return total

    # ------------------------------------------------------------------ what is said

    def said(self, kind: str, **facts: Any) -> Any:
        if kind == "update":
            is_inner = self.updating
            self._take_back()
            self.updating = True
            return not is_inner
        if kind == "updated":
            self.updating = False
        method = getattr(self, f"_heard_{kind}", None)
        return method and self._hear(method, **facts)

    def _heard_constant(self, array: ndarray) -> None:
        key = array.dtype, crc32(array.tobytes())
        self.arrays.new(array, "constant", Handed("constant", array, key=key))

    def _heard_leaf(self, leaf: Tensor, data: Any) -> None:
        if not isinstance(data, ndarray):
            self._heard_constant(leaf._data)
            return
        value = self._of(data)
        is_unwritten = value.source and not value.attribute  # an array, and not that of a Tensor
        if is_unwritten and (data.dtype, data.strides) == (leaf.dtype, leaf._data.strides):
            self.arrays.know(leaf._data, value)
        else:
            self.computed(view_of, (data, "astype", (leaf.dtype,), {}), leaf._data)

    def _heard_read(self, tensor: Tensor, array: Any) -> ndarray:
        self._of(tensor)  # from now on its array is known
        array = array.view()
        array.flags.writeable = False
        return watch(array, self)

    def _heard_write(self, tensor: Tensor, array: Any) -> None:
        target = self._of(tensor)
        if tensor not in self.tensors:
            raise Refused("a Tensor that the step made is written into", "write into a parameter")
        self._line("{0}.assign_({1})", target.source, self._of(array), op="assign_")

    def _heard_backward(self, output: Tensor, seed: Any) -> None:
        self._take_back()
        self._heard_grad(output, seed)

    def _heard_added(self, gradients: dict[Tensor, ndarray]) -> None:
        for leaf, array in gradients.items():
            total = self._arrive(leaf, array)
            source = self._of(leaf).source if leaf in self.tensors else None
            is_added = leaf.grad is not array
            if is_added:
                before = self._grads[leaf]
                first = self.arrays.value(before, "grad", source, ".grad")
                self._coming[leaf] = [first if source else self._of(before), total]
                total = self._arrive(leaf, leaf.grad)
            if source:
                self.held.setdefault(leaf, is_added)
                self._line("{0}.grad = {1}", source, Returned(total, False), op="gradients")
            else:  # of a leaf that the step made
                self._grads[leaf] = leaf.grad
                self.arrays.know(leaf.grad, total)
        self._watch_gradients()

    def _watch_gradients(self) -> None:
        """Notice what is done with gradients by hand."""
        for leaf in self._grads:
            if leaf.grad is not None:
                leaf.grad = watch(plain(leaf.grad), self)
            self._grads[leaf] = leaf.grad

    def _take_back(self) -> None:
        """Gradients as they are without the tape, after a look whether they were set by hand."""
        for leaf, gradient in [*self._grads.items()]:
            if leaf.grad is None and gradient is not None:
                self._hear(self._heard_cleared, [leaf])
            elif leaf.grad is not gradient:
                name = leaf.name or "a leaf"
                self.refuse(f"the step sets .grad of {name} by hand", "clip by clip_grad_norm")
            leaf.grad = plain(leaf.grad)

    def _heard_cleared(self, parameters: Iterable[Tensor]) -> None:
        for leaf in parameters:
            source = self._of(leaf).source
            self._grads[leaf] = None
            if leaf in self.tensors:  # else it is a leaf that the step made
                self.held.setdefault(leaf, None)
                self._line("{0}.grad = None", source, op="gradients")

    def _heard_grad(self, output: Tensor, seed: Any) -> None:
        self._coming = {output.node or output: [self._of(seed)]}

    def _heard_found(self, wanted: list[Tensor], gradients: list[Any]) -> list[Any]:
        for x, array in zip(wanted, gradients, strict=True):
            edge = x.node or x
            if edge in self._coming:  # else it is of zeros
                self.arrays.know(array, self._arrive(edge, array))
        return [watch(array, self) for array in gradients]

    def _heard_updated(self, owner: Any, again: Any, result: Tensor | None) -> None:
        self._watch_gradients()
        made = [] if result is None else [self.arrays.new(result._data, "result")]
        name = type(owner).__name__.lower() if owner else "update"
        form = "{0}()._data" if made else "{0}()"
        update = Handed(f"{name}_step", again, key=signed(again))
        self._line(form, update, made=made, op=name)

    # ------------------------------------------------------------------ the end

    def _end(self) -> list[tuple[Binding, Any]]:
        """The step is over, or has failed: all is as it is without a tape.

        Returns: the names that it bound to something else.
        """
        self._take_back()
        changed = [(x, name) for x in self.bindings.all for name in x.changed()]
        for binding in self.bindings.all:
            attributes = getattr(binding.owner, "__dict__", {})
            attributes |= {k: plain(x) for k, x in attributes.items() if isinstance(x, Watched)}
        return changed

    def _finish(self, result: Any, changed: list[tuple[Binding, Any]]) -> None:
        for leaf, value in self.tensors.items():
            if leaf.grad is not None:
                gradient = self.arrays.value(leaf.grad, "grad", value.source, ".grad")
                self.arrays.know(leaf.grad, gradient)
        self.result = mapped(result, self._returned)
        for binding, name in changed:
            self._keep(binding, name)
        self._hold_what_python_read()

    def _plain(self, x: Any) -> Any:
        if isinstance(x, Tensor) and x.node is not None and self.refusal is None:
            return x.detach()
        return plain(x)

    def _returned(self, x: Any) -> Any:
        """What a program returns in place of an array or a Tensor that the step returned."""
        if isinstance(x, Tensor):
            value = self._of(x)
            return value.source if x in self.tensors else Returned(value, True)
        if isinstance(x, ndarray):
            return Returned(self._of(x), False)
        if isinstance(x, PLAIN_KINDS):
            return x
        raise Refused(f"a {type(x).__name__} is returned", "return Tensors, in a tuple or a dict")

    def _keep(self, binding: Binding, name: Any) -> None:
        """Note what a layer keeps as a line; refuse whatever else the step changed."""
        owner = binding.owner
        if binding.changes is None or owner._changes != binding.changes:
            why = f"the step changes {binding.called(name)}, which a later call may read"
            raise Refused(why, "pass it to the step and return it")
        binding.kept.add(name)
        attributes = vars(owner)
        layer = Handed(f"{binding.title}_keeps", attributes)
        given = layer, name, self._of(attributes[name])
        self.keeps.append(TapeLine("{0}[{1}] = {2}", given, op="what layers keep"))

    def _hold_what_python_read(self) -> None:
        """Of an array that no line reads, though the step's code names it, Python took numbers."""
        for title, array in self.bindings.read_by_python().items():
            if id(owner_of(array)) in self._read:
                continue
            if array.size > FEW:
                why = f"Python reads {title}, which has {array.size} entries, and no op does"
                raise Refused(why, "pass what it takes of it as an argument")
            self.bindings.hold(title, array, array.tobytes)


def _may_do_more(op: Any) -> bool:
    """Whether its kernel and rules may do more than compute."""
    return not op.kernel.__module__.startswith(PURE)


def _place() -> str:
    """The file and line of the user's that runs, who called layers of ours or NumPy."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and is_library(frame.f_globals.get("__name__", "minigrad")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"

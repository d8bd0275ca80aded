"""Recorder: listens to one run of a step, and writes its program.

The run itself is an ordinary eager run with the engine's own kernels, rules and traversal; beside
each of them the same kernel or rule runs on Symbols. What cannot be known from outside makes the
recorder refuse, and then the step is simply run eagerly, now and from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...engine.graph import Node, backpropagate, caller, order
from ...engine.op import Op
from ...engine.sparse import dense
from ...engine.tensor import Tensor
from .find_dependencies import Survey
from .numeric_check import all_agree
from .program import Known, Program, Step, Value, Wrapped, flat, substitute
from .symbol import Symbol
from .value_map import Arrays
from .watched import Watched, Watcher, plain

__all__ = ["Recorder"]


class Recorder(Listener, Watcher):
    """The program of one run.

    Args:
        found: what the step can reach.
        fresh: Tensors and arrays among the arguments: expression, name and thing.
    Attributes:
        reason, remedy: why the step must run eagerly, or None, and what to do about it.
        entry_grads: leaves whose .grad at the start matters: the leaf, and what it was like.
    """

    def __init__(self, found: Dependencies, fresh: list[tuple[str, str, Any]]) -> None:
        self.program = Program()
        self.reason: str | None = None
        self.remedy = ""
        names = found.names | {id(thing): name for _, name, thing in fresh if name}
        places = {id(thing): (place, thing) for place, _, thing in reversed(fresh)}
        places = {key: pair for key, pair in places.items() if key not in found.things}
        self.values = ValueMap(self.program, found, places, names, self.refuse)
        self.entry_grads: dict[int, tuple[Tensor, Any]] = {}
        self.quiet = False  # within an op: what it does with arrays is known
        self._generators = {id(g): (g, g.bit_generator.state) for g in found.of(np.random.Generator)}
        self._nodes: dict[Node, dict[str, Any]] = {}
        self._names: list[tuple[Any, str, Value]] = []
        self._grads: dict[int, _Gradient] = {}
        self._scalars: set[int] = set()  # arrays that stand for NumPy's scalars
        if found.iterator:
            self.refuse("the step reaches an iterator", "pass what it gives as an argument")
        for tensor in self.values.tensors():
            self._gradient_of(tensor)

    def refuse(self, why: str, remedy: str = "") -> None:
        if self.reason is None:
            self.reason, self.remedy = f"{why}, at {caller()}", remedy

    # ------------------------------------------------------------------ forward

    def enter(self, op: Op, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> None:
        if self.quiet:
            self.refuse("an op failed")
        self.quiet = True
        for setting in settings:
            if isinstance(setting, np.random.Generator):
                known = self._generators.get(id(setting))
                if known is not None and known[1] != setting.bit_generator.state:
                    self.refuse("random numbers are drawn outside the ops")
                if known is None and id(setting) not in self.values.fixed:
                    self.refuse("a random generator is made within the step")

    def forward(self, op: Op, inputs: Any, settings: Any, output: Any, seconds: float) -> None:
        try:
            if self.reason is None:
                self._forward(op, inputs, settings, output)
        except Exception as error:
            self.refuse(f"{op.name} cannot be recorded: {error!r}")
        finally:
            self.quiet = False

    def _forward(self, op: Op, inputs: Any, settings: Any, output: Tensor) -> None:
        array, node, program = output._data, output._node, self.program
        program.op, program.path = op.name, node.scope if node is not None else ""
        symbols = [self.values.symbol_of(item) for item in inputs]
        plainly = [self.values.symbol_of(item) for item in settings]
        given = (*symbols, *plainly)
        generators = [s for s in settings if isinstance(s, np.random.Generator)]
        made = None
        if generators:
            program.draws = True
            self._generators |= {id(g): (g, g.bit_generator.state) for g in generators}
        else:
            made = self._followed(op.forward, given, (array,), len(op.auxiliary))
        if made is None:
            saved = node.saved or () if node is not None else ()
            held = dict(zip(node.plan.names, saved, strict=False)) if node is not None else {}
            made = self._whole(
                op.name,
                op.forward,
                given,
                [array, *map(held.get, op.auxiliary)],
                bool(op.auxiliary),
            )
        known = self.values.known(array)  # an op may answer with the very array it was given
        value = known or self.values.know(array, made[0].value)
        if node is not None:
            many = op.inputs[0] if op.variadic else None
            names = op.inputs if many is None else [f"{many}{i}" for i in range(len(inputs))]
            held = {
                **dict(zip(names, symbols, strict=True)),
                **dict(zip(op.settings, plainly, strict=True)),
                **dict(zip(op.auxiliary, made[1:], strict=False)),
                "out": Symbol(program, value, array),
            }
            saved = node.plan.names  # nothing else is kept until the backward
            self._nodes[node] = {name: held[name] for name in saved if name in held}
        self._names.append((node if node is not None else output, "", value))

    def _followed(
        self, function: Any, args: tuple[Any, ...], wanted: tuple[Any, ...], more: int = 0
    ) -> list[Any] | None:
        """The results of a kernel or rule on Symbols, None where it cannot be followed or gives
        something else.
        """
        before = len(self.program.steps)
        given = {s.value: s.a for s in flat(args) if s.__class__ is Symbol}
        try:
            made = function(*args)
        except Exception:
            made = ()
        results = list(made) if isinstance(made, tuple) else [made]
        steps = self.program.steps[before:]
        if len(results) < len(wanted) + more or not all_agree(results, wanted, steps, given):
            del self.program.steps[before:]
            return None
        return results

    def _whole(
        self, name: str, function: Any, args: Any, arrays: list[Any], several: bool
    ) -> list[Any]:
        """A kernel or rule as one call, which answers with one array or a tuple of them."""
        step = Step("kernel", name, function, substitute(tuple(args), _value), {})
        forms = [(a.shape, a.dtype) if isinstance(a, np.ndarray) else ((), object) for a in arrays]
        values = self.program.add(step, *forms)
        step.kind = "kernel" if several else "kernel1"
        given = [s.a for s in flat(args) if s.__class__ is Symbol and isinstance(s.a, np.ndarray)]
        for value, made in zip(values, arrays, strict=True):
            value.strides = made.strides if isinstance(made, np.ndarray) else ()
            if isinstance(made, np.ndarray) and any(np.may_share_memory(a, made) for a in given):
                step.shares = True
        return [Symbol(self.program, v, a) for v, a in zip(values, arrays, strict=True)]

    # ------------------------------------------------------------------ backward

    def intercept_backward(self, output: Tensor, seed: Any, retain: bool) -> bool:
        """Run backward with Symbols for gradients, so that the rules write themselves down."""
        if self.reason is not None:
            return False
        nodes = order([output._node] if output._node is not None else [])
        if any(node not in self._nodes for node in nodes):
            self.refuse("backward leaves the step")
        if any(node.hooks or node.after for node in nodes):
            self.refuse("a tensor has hooks")
        if seed.__class__ is Tensor:
            self.refuse("backward is given a Tensor")
        if self.reason is None:
            self._sync_grads()
            if seed.size == 1 and seed.flat[0] == 1 and seed.base is None:
                known = self.values.known(seed) is not None or self.values.is_outside(seed)
                if not known:  # where a backward without a gradient starts
                    self.values.constant(seed).name = "one"
            start = Symbol(self.program, self.values.value_of(seed), seed)
        if self.reason is not None:
            return False
        self.quiet = True
        try:
            take = self._nodes.__getitem__ if retain else self._nodes.pop
            run = partial(self._run, take)
            results = backpropagate([(output._node or output, start)], retain=retain, run=run)
        finally:
            self.quiet = False
        for leaf, total in results.items():
            self._arrive(leaf, total)
        return True

    def _run(
        self,
        take: Callable[[Node], dict[str, Any]],
        node: Node,
        rules: Callable[..., Any],
        gradient: Any,
        saved: tuple[Any, ...],
    ) -> Any:
        """A node's rules on arrays, and the same on Symbols."""
        arrays = tuple([dense(part) for part in rules(gradient.a, saved)])
        self._names.append((node, "d_", gradient.value))
        known, names = take(node), node.plan.names
        handed = tuple(known.get(name, v) for name, v in zip(names, saved, strict=True))
        self.program.op, self.program.path = f"d_{node.op.name}", f"backward of {node.path}"
        symbols = self._followed(rules, (gradient, handed), arrays)
        if symbols is None:
            shown = [a for a in arrays if a is not None]
            args = (gradient, handed)
            symbols = self._whole(f"{node.op.name}_backward", rules, args, shown, True)
        return symbols

    def backward(self, node: Any, gradient: Any, contributions: Any, seconds: float) -> None:
        if gradient.__class__ is not Symbol:
            self.refuse("gradients are taken with mg.grad, not with backward()")

    def _arrive(self, leaf: Tensor, total: Symbol) -> None:
        """A leaf's gradient: write `.grad`, and note that the program must."""
        value = self.values.value_of(leaf)
        self._names.append((leaf, "d_", total.value))
        first = leaf.grad is None
        if value.kind not in ("leaf", "argument"):  # it lives within the step only
            leaf.grad = np.array(total.a) if first else leaf.grad + total.a
            return
        if id(leaf) not in self.entry_grads:
            self.entry_grads[id(leaf)] = first
        self._add_effect("grad", leaf, total.value, "set" if first else "add")
        array = np.array(total.a) if first else np.asarray(plain(leaf.grad) + total.a)
        leaf.grad = array.view(Watched)
        self._grads[id(leaf)] = (leaf, leaf.grad)
        if first:
            self.values.know(leaf.grad, total.value)

    def _add_effect(self, kind: str, leaf: Tensor, *args: Any) -> None:
        self.values.leaves[id(leaf)] = leaf
        step = Step(kind, kind, None, (leaf, self.values.place(leaf), *args))
        self.program.steps.append(step)

    def _sync_grads(self) -> None:
        """Notice what the step did to `.grad` by itself: None is understood, others not."""
        for key, (tensor, known) in self._grads.items():
            now = tensor.grad
            if now is known:
                continue
            if now is not None:
                self.refuse("the step writes a .grad itself")
            else:
                self.entry_grads.setdefault(key, False)
                self._add_effect("clear", tensor)
            self._grads[key] = (tensor, now)

    # ------------------------------------------------------------------ what else may happen

    def made(self, leaf: Tensor, data: Any) -> None:
        """tensor(data) within the step: a copy of something known, or a constant."""
        array = leaf._data
        if isinstance(data, np.ndarray):
            step = Step("copy", "copy", np.array, (self.values.value_of(data),))
            (value,) = self.program.add(step, (array.shape, array.dtype))
            self.values.know(array, value)
        elif isinstance(data, np.generic):
            self.refuse("a tensor is made of a number that was computed outside the ops")
        else:
            self.values.know(array, Value("constant", np.array(array), array.shape, array.dtype))

    def mark_constant(self, array: Any) -> None:
        self.values.constant(array)

    def read(self, tensor: Tensor, array: Any, whole: bool) -> Any:
        if self.quiet:
            return array
        if whole:
            self.refuse("a tensor is read as an array")
        if self.values.known(tensor._data) is None and not self.values.is_outside(tensor):
            self.refuse("a tensor that the step did not make is read")
            return array
        watched = array.view(Watched)
        self.values.know(watched, self.values.value_of(tensor))
        return watched

    def looked_at(self, use: str) -> None:
        if not self.quiet:
            self.refuse(f"an array is used outside the ops ({use})")

    def assigned(self, tensor: Tensor, array: Any) -> None:
        value = self.values.value_of(tensor)
        if value.kind not in ("leaf", "argument"):
            self.refuse("assign_ writes a tensor made within the step")
        self._add_effect("assign", tensor, value, self.values.value_of(array))

    def updating(self, optimiser: Any, again: Any) -> None:
        if optimiser is None:
            self.refuse("gradients are clipped")
            return
        if id(optimiser) not in self.values.fixed:
            self.refuse("an optimiser is made within the step")
        self._sync_grads()
        for key, (tensor, grad) in self._grads.items():
            if isinstance(grad, Watched):
                tensor.grad = plain(grad)
                self._grads[key] = (tensor, tensor.grad)
                known = self.values.known(grad)
                if known is not None:
                    self.values.know(tensor.grad, known)
        self.program.steps.append(Step("update", "update", None, (optimiser,)))

    # ------------------------------------------------------------------ the end

    def finish(self, result: Any) -> Any:
        """Note what is returned; the result as the caller may have it."""
        if self.quiet:
            self.refuse("an op failed")
        self._sync_grads()
        for tensor, grad in self._grads.values():
            if isinstance(grad, Watched) and tensor.grad is grad:
                tensor.grad = plain(grad)
        for generator, state in self._generators.values():
            if generator.bit_generator.state != state:
                self.refuse("random numbers are drawn outside the ops")
        for owner, prefix, value in self._names:
            name = owner.name or (self.values.names.get(id(owner)) if prefix else None)
            if value.name is None and value.kind == "step" and name:
                value.name = prefix + name
        if self.reason is None:
            self.program.result = substitute(result, self._returned)
        return substitute(result, plain)

    def _returned(self, item: Any) -> Any:
        if item.__class__ is Tensor:
            if self.values.is_outside(item):
                return Known(self.values.place(item), item)
            node = item._node
            if node is not None and not (node.saved is None and node.source is None):
                self.refuse("a returned tensor still waits for its backward")
            if node is None and item._needs:
                self.refuse("a leaf made within the step is returned")
            return Wrapped(self.values.value_of(item), item._name or item.name)
        if isinstance(item, np.ndarray):
            return self.values.value_of(item)
        if item is None or isinstance(item, bool | int | float | str):
            return item
        self.refuse(f"a {type(item).__name__} is returned")
        return None


def _value(item: Any) -> Any:
    return item.value if item.__class__ is Symbol else item

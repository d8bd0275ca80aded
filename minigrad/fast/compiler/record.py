"""ProgramRecorder: listens to one run of a step, and writes its program.

The run itself is an ordinary eager run with the engine's own kernels, rules and traversal; beside
each of them the same kernel or rule runs on Symbols. What cannot be known from outside makes the
recorder refuse, and then the step is simply run eagerly, now and from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from ...engine.followed import Followed, plain
from ...engine.listener import Listener
from ...engine.op import Op
from ...engine.sparse import dense
from ...engine.tensor import Node, Tensor, TensorOrArray, backpropagate, order
from ...engine.types import Arguments, Array, Kernel
from ...engine.writes import caller
from .compare import difference
from .dependencies import GENERATORS, Dependencies, generator_state, shared_states
from .program import (
    NewTensor,
    Program,
    ProgramStep,
    Value,
    data_parts,
    flat,
    is_dataclass,
    is_whole,
    made_of,
    nbytes,
    root,
    substitute,
    transposed_name,
)
from .symbol import Symbol
from .values import Gradients, OutsideOps, ValueMap, is_same_view

__all__ = ["ProgramRecorder"]


class ProgramRecorder(OutsideOps, Listener):
    """The program of one run.

    Args:
        found: what the step can reach.
        fresh: Tensors and arrays among the arguments: expression, name and thing.
        originals: the arguments, by the ids of what the step is given in their place.
    Attributes:
        reason, remedy: why the step must run eagerly, or None, and what to do about it.
    """

    shows_inputs = False

    def __init__(
        self,
        found: Dependencies,
        fresh: list[tuple[str, str, Tensor | Array]],
        originals: dict[int, Any],
    ) -> None:
        super().__init__()
        self._originals = originals
        self.program = Program()
        self._found = found
        self.remedy = ""
        names = found.names | {id(thing): name for _, name, thing in fresh if name}
        places = {id(thing): (place, thing) for place, _, thing in reversed(fresh)}
        places = {key: pair for key, pair in places.items() if key not in found.things}
        self.values = ValueMap(self.program, found, places, names, self.refuse)
        self._drawn = {id(g): (g, generator_state(g)) for g in found.of(GENERATORS)}
        self._shared = shared_states()
        self._nodes: dict[Node, dict[str, Any]] = {}
        self._names: list[tuple[Any, str, Value]] = []
        self.gradients = Gradients(self.values)
        self.values.entry_of = self.gradients.entry
        if found.iterator:
            self.refuse("the step reaches an iterator", "pass what it gives as an argument")

    def refuse(self, why: str, remedy: str = "") -> None:
        if self.reason is None:
            self.reason, self.remedy = f"{why}, at {caller()}", remedy

    # ------------------------------------------------------------------ forward

    def enter(self, op: Op, inputs: Arguments, settings: Arguments) -> None:
        if self.quiet:
            self.refuse("an op failed")
        self.quiet = True
        for setting in settings:
            if isinstance(setting, np.random.Generator):
                known = self._drawn.get(id(setting))
                if known is None:
                    self.refuse("a random generator is made within the step", "make it outside")
                elif known[1] != generator_state(setting):
                    self._refuse_draws()

    def forward(
        self, op: Op, inputs: Arguments, settings: Arguments, output: Tensor, seconds: float
    ) -> None:
        try:
            if self.reason is None:
                self._forward(op, inputs, settings, output)
        except Exception as error:
            self.refuse(f"{op.name} cannot be recorded: {error!r}")
        finally:
            self.quiet = False

    def _forward(self, op: Op, inputs: Arguments, settings: Arguments, output: Tensor) -> None:
        array, node = output._data, output._node
        self.program.op, self.program.path = op.name, node.scope if node is not None else ""
        kernel, auxiliary = _what_ran(op, node, inputs, settings)
        given = tuple(map(self.values.symbol_of, (*inputs, *settings)))
        generators = [s for s in settings if isinstance(s, np.random.Generator)]
        self._drawn |= {id(g): (g, generator_state(g)) for g in generators}
        once = bool(op.effect or generators)
        self.program.once |= once
        made = None if once else self._followed(kernel, given, [array], len(auxiliary))
        if made is None:
            saved: dict[str, Any] = {}
            if node is not None:
                saved.update(zip(node.plan.saves, node.saved or (), strict=False))
            arrays = [array, *map(saved.get, auxiliary)]
            step = ProgramStep("kernel", op.name, kernel, given, several=bool(auxiliary))
            made = self._record_whole(op, step, arrays)
        known = self.values.known(array)  # an op may answer with the very array it was given
        value = known or self.values.know(array, made[0].value)
        if node is not None:
            many = [f"{op.inputs[0]}{i}" for i in range(len(inputs))]
            names = (*(many if op.variadic else op.inputs), *op.settings)
            held = dict(zip(names, given, strict=True))
            held["out"] = Symbol(self.program, value, array)
            held |= dict(zip(auxiliary, made[1:], strict=False))
            kept = node.plan.saves  # nothing else is kept until the backward
            self._nodes[node] = {name: held[name] for name in kept if name in held}
        self._names.append((node if node is not None else output, "", value))

    def _followed(
        self, function: Kernel, args: Arguments, wanted: list[Array], more: int = 0
    ) -> list[Symbol] | None:
        """The results of a kernel or rule on Symbols but for None; None where it cannot be followed
        or gives other results.

        Args: wanted: the arrays that it must give first.  more: how many results follow them.
        """
        before = len(self.program.steps)
        results: list[Symbol] = []
        with suppress(Exception):  # it cannot be followed
            made = function(*args)
            given = made if isinstance(made, tuple) else (made,)
            results = [dense(x) for x in given if x is not None]
        if results and len(results) >= len(wanted) + more and _agree(results, wanted, args):
            return results
        self.program.forget(before)
        return None

    def _record_whole(self, op: Op, step: ProgramStep, arrays: Sequence[Any]) -> list[Symbol]:
        """A kernel or rule on Symbols as one call, which makes one array or a tuple of them."""
        given = [x.array for x in flat(step.args) if x.__class__ is Symbol]
        given = [x for x in given if isinstance(x, np.ndarray)]
        step.kind = "effect" if op.effect else "kernel"
        step.args = substitute(step.args, _value)
        forms = [(a.shape, a.dtype) if isinstance(a, np.ndarray) else ((), object) for a in arrays]
        values = self.program.add(step, *forms)
        for value, made in zip(values, arrays, strict=True):
            value.strides = made.strides if isinstance(made, np.ndarray) else ()
            if isinstance(made, np.ndarray) and any(np.may_share_memory(a, made) for a in given):
                step.shares = True
        return [Symbol(self.program, v, a) for v, a in zip(values, arrays, strict=True)]

    # ------------------------------------------------------------------ backward

    def intercept_backward(self, output: Tensor, seed: TensorOrArray, retain: bool) -> bool:
        """Run backward with Symbols for gradients, so that the rules write themselves down."""
        results = self._run_backward("backward", output, seed, retain)
        if results is None:
            return False
        for leaf, total in results.items():
            self._names.append((leaf, "d_", total.value))
            self.gradients.arrive(leaf, total)
        return True

    def intercept_grad(
        self, output: Tensor, seed: TensorOrArray, wanted: list[Tensor], retain: bool
    ) -> list[Array] | None:
        """The same for mg.grad: the gradients of what is wanted, as followed arrays."""
        targets = [x._node or x for x in wanted]
        results = self._run_backward("mg.grad", output, seed, retain, targets)
        if results is None:
            return None
        found = []
        for x, target in zip(wanted, targets, strict=True):
            total = results.get(target)
            gradient = np.zeros(x.shape, x.dtype)  # where nothing arrives, at any call
            if total is not None:
                gradient = np.array(total.array).view(Followed)
                self.values.know(gradient, total.value)
                self._names.append((target, "d_", total.value))
            found.append(gradient)
        return found

    def _run_backward(
        self, call: str, output: Tensor, seed: Any, retain: bool, targets: Any = None
    ) -> dict[Any, Symbol] | None:
        """What arrives at leaves and targets; None where it cannot be followed."""
        if self.quiet or self.reason is not None:
            return None
        nodes = order([output._node] if output._node is not None else [])
        if any(node not in self._nodes for node in nodes):
            self.refuse(f"{call} leaves the step", "call the forward within it too")
        leaves = {edge for node in nodes for edge in node.edges if edge.__class__ is Tensor}
        if any(node.hooks or node.after for node in nodes) or any(x._hooks for x in leaves):
            self.refuse("a tensor has hooks", "remove them, or call the step without mg.compile")
        if seed.__class__ is Tensor:
            self.refuse(f"{call} is given a Tensor")
        if self.reason is None:
            if seed.size == 1 and seed.flat[0] == 1 and seed.base is None:
                known = self.values.known(seed) is not None or self.values.is_outside(seed)
                if not known:  # where a backward without a gradient starts
                    self.values.constant(seed).name = "one"
            start = Symbol(self.program, self.values.value_of(seed), seed)
        if self.reason is not None:
            return None
        self.quiet = True
        try:
            take = self._nodes.__getitem__ if retain else self._nodes.pop
            run = partial(self._run_rules, take)
            seeds = [(output._node or output, start)]
            return backpropagate(seeds, retain=retain, targets=targets, run=run)
        finally:
            self.quiet = False

    def _run_rules(
        self,
        take: Callable[[Node], dict[str, Any]],
        node: Node,
        rules: Kernel,
        gradient: Symbol,
        saved: Arguments,
    ) -> list[Symbol | None]:
        """A node's rules on arrays, and the same on Symbols."""
        self._names.append((node, "d_", gradient.value))
        known, names = take(node), node.plan.saves
        arguments = tuple(known.get(name, v) for name, v in zip(names, saved, strict=True))
        self.program.op, self.program.path = f"d_{node.op.name}", f"backward of {node.path}"
        args, op = (gradient, arguments), node.op
        self.program.once |= op.effect
        arrays = [dense(part) for part in rules(gradient.array, saved)]
        shown = [a for a in arrays if a is not None]
        symbols = None if op.effect else self._followed(rules, args, shown)
        if symbols is None:
            name = f"{op.name}_backward"
            step = ProgramStep("kernel", name, _needed_of(rules), args, several=True)
            symbols = self._record_whole(op, step, shown)
        found = iter(symbols)
        return [None if a is None else next(found) for a in arrays]

    def backward(
        self, node: Node, gradient: object, contributions: list[Any], seconds: float
    ) -> None:
        if gradient.__class__ is not Symbol:
            self.refuse("mg.grad records a graph of its own (create_graph=True)")

    # ------------------------------------------------------------------ what else may happen

    def leaf_created(self, leaf: Tensor, data: Any) -> None:
        """tensor(data) within the step: a copy of something known, or a constant."""
        array = leaf._data
        if isinstance(data, list | tuple) and any(isinstance(x, np.ndarray) for x in flat(data)):
            self.refuse("a tensor is made of a list of arrays", "stack them: mg.stack")
        if isinstance(data, np.ndarray):
            value = self.values.value_of(data)
            step = ProgramStep("copy", "copy", np.array, (value,), key=("copy", id(value)))
            (value,) = self.program.add(step, (array.shape, array.dtype))
            self.values.know(array, value)
        else:
            self.values.know(array, Value("constant", np.array(array), array.shape, array.dtype))

    def mark_constant(self, array: Array) -> None:
        if self.values.known(array) is None:
            self.values.constant(array)

    def data_read(self, tensor: Tensor, array: Array, whole: bool) -> Array:
        if self.quiet or self.reason is not None:
            return array
        if whole:
            self.looked_at("np.asarray of a tensor")
        followed = array.view(Followed)
        self.values.know(followed, self.values.value_of(tensor))
        self.of_tensors[id(followed)] = followed
        return followed

    def tensor_assigned(self, tensor: Tensor, array: Array, index: Any = ...) -> None:
        if self.reason is not None:
            return
        value = self.values.value_of(tensor)
        if value.kind not in ("leaf", "argument"):
            self.refuse("assign_ writes a tensor made within the step", "make a new one")
        elif index is not ... or not is_same_view(array, tensor._data):  # x.data -= y ends so
            if np.may_share_memory(array, tensor._data):
                self.refuse("a tensor is written in part", "assign_ all of it")
            self.assign(tensor, value, self.values.value_of(array), index)

    def setting_read(self, owner: object, name: str, value: object) -> None:
        """An attribute of an optimizer or a schedule was read."""
        if not self.quiet:
            self._found.add_setting(owner, name, value)

    def setting_written(self, owner: object, name: str, value: object) -> None:
        if not self.quiet and name not in ("groups", "parameters"):
            self.refuse(
                f"the step sets {name} of {type(owner).__name__}",
                "set it outside, or step a schedule of minigrad.optim within",
            )

    def gradients_cleared(self, parameters: Sequence[Tensor]) -> None:
        if not self.quiet:
            self.gradients.cleared(parameters)

    def update_started(self, owner: object, again: Callable[[], object]) -> bool:
        """An update of weights, gradients or settings: the program calls it again."""
        if self.quiet:  # a part of another
            return False
        self.gradients.record()
        self.gradients.make_plain()
        self.quiet = True
        return True

    def update_finished(self, owner: object, again: Callable[[], object], result: object) -> None:
        step = self.program.write("update", owner, again)
        self.quiet = False
        self.gradients.make_followed()
        if isinstance(result, Tensor):
            array = result._data
            step.outs = [Value("result", step, array.shape, array.dtype)]
            self.values.know(array, step.out)

    # ------------------------------------------------------------------ the end

    def finish(self, result: Any) -> Any:
        """Note what is returned; the result as the caller may have it."""
        if self.quiet:
            self.refuse("an op failed")
        if self.reason is None:
            self.gradients.record()
        self.gradients.release()
        moved = any(generator_state(g) != state for g, state in self._drawn.values())
        if moved or shared_states() != self._shared:
            self._refuse_draws()
        if self.values.written():
            self.refuse("the step writes into an array that it did not make", "use assign_")
        self._name_values()
        if self.reason is None:
            self.program.result = self._described(result)
        return self.as_eagerly(result)

    def clear(self) -> None:
        """Cut the cycles that would keep the run's arrays until Python collects its garbage."""
        for part in (self.gradients, self.values, self):
            vars(part).clear()

    def _name_values(self) -> None:
        """Values bear the names of tensors; a gradient's is `d_` and its own."""
        for owner, prefix, value in self._names:
            named = getattr(owner, "name", None)
            name = named or (self.values.names.get(id(owner)) if prefix else None)
            if value.name is None and value.kind == "step" and name:
                value.name = prefix + name
                base = root(value)  # which bears the symbol in another shape, or turned
                if base.name is None and base.step is not None and nbytes(base) == nbytes(value):
                    base.name = value.name if is_whole(value) else transposed_name(value.name)

    def _refuse_draws(self) -> None:
        remedy = "draw before the call and pass the numbers, or use mg.dropout(x, p, rng)"
        self.refuse("random numbers are drawn outside the ops", remedy)

    def as_eagerly(self, item: Any) -> Any:
        """What a step holds or returns, as an eager run has it: a container in which nothing
        differs is itself.
        """
        if id(item) in self._originals:
            return self._originals[id(item)]
        parts = data_parts(item)
        if parts is None:
            return plain(item)[()] if id(item) in self.scalars else plain(item)
        made = {key: self.as_eagerly(part) for key, part in parts.items()}
        alike = all(made[key] is part for key, part in parts.items())
        return item if alike else made_of(item.__class__, made)

    def _described(self, item: Any) -> Any:
        """What is returned, with Values in place of arrays."""
        parts = data_parts(item)
        if parts is None or (is_dataclass(item) and self.values.is_outside(item)):
            return self.returned(item)
        made = {key: self._described(part) for key, part in parts.items()}
        return made_of(item.__class__, made)

    def returned(self, item: Any) -> Any:
        """What the program hands out: a tensor, an array or a plain value."""
        if item.__class__ is Tensor:
            if self.values.is_outside(item):
                return self.values.existing(item)
            node = item._node
            if node is not None and node.saved is not None:
                why = "a returned tensor still waits for its backward"
                self.refuse(why, "call backward within the step, or return x.detach()")
            if node is None and item._needs:
                self.refuse("a leaf made within the step is returned", "return x.detach()")
            return NewTensor(self.values.value_of(item), item._name or item.name)
        if isinstance(item, np.ndarray):
            value = self.values.value_of(item)
            return NewTensor(value, None, True) if id(item) in self.scalars else value
        if item is None or isinstance(item, bool | int | float | str | np.generic):
            return item
        self.refuse(f"a {type(item).__name__} is returned", "return tensors, arrays or numbers")
        return None


def _needed_of(rules: Kernel) -> Kernel:
    """The rules' gradients as arrays, without those that are not needed."""
    return lambda g, saved: tuple([dense(x) for x in rules(g, saved) if x is not None])


def _what_ran(
    op: Op, node: Node | None, inputs: Arguments, settings: Arguments
) -> tuple[Kernel, tuple[str, ...]]:
    """The kernel of a call, taking inputs and settings in order, and what else it gives."""
    arrays = [x._data if isinstance(x, Tensor) else x for x in inputs]
    plan: Any = node.plan if node is not None else op.chosen(arrays, settings) or op
    return op.flat(plan.kernel), plan.auxiliary


def _agree(results: list[Symbol], wanted: list[Array], given: Arguments) -> bool:
    """Whether all are Symbols, and those that are known hold what they should."""
    if not all(r.__class__ is Symbol for r in results):
        return False
    apart = [(r.array, a) for r, a in zip(results, wanted, strict=False) if difference(r.array, a)]
    if not apart:
        return True
    inputs = [s.array for s in flat(given) if s.__class__ is Symbol and s.array.dtype.kind in "fc"]
    with np.errstate(all="ignore"):
        terms = max((float(np.abs(x).max(initial=0.0)) * x.size for x in inputs), default=0.0)
    of = min((x.dtype for x in inputs), key=lambda dtype: np.finfo(dtype).bits, default=None)
    return not any(
        difference(found, array, terms / max(array.size, 1), of) for found, array in apart
    )


def _value(item: Any) -> Any:
    return item.value if item.__class__ is Symbol else item

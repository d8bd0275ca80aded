"""Recorder: listens to one run of a step, and writes its program.

The run itself is an ordinary eager run with the engine's own kernels, rules and traversal; beside
each of them the
same kernel or rule runs on Symbols. What cannot be known from outside makes the recorder refuse,
and then the step
is simply run eagerly, now and from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph import Node, backpropagate, caller, order
from ..op import Op
from ..tensor import Tensor
from .program import Program, Step, Value, substitute
from .state import Survey
from .symbol import Symbol
from .watched import Watched, Watcher, plain

__all__ = ["Known", "Recorder", "Wrapped", "cut"]


class Recorder(Watcher):
    """The program of one run.

    Args:
        found: what the step can reach, and its arguments.
    Attributes: reason: why the step must run eagerly, or None.
    """

    def __init__(self, found: Survey) -> None:
        self.program = Program()
        self.reason: str | None = None
        self.fixed, self.fresh = fixed, fresh = found.fixed, found.fresh
        self.captured: list[Any] = []  # arrays the step reaches by itself and reads
        self.quiet = False  # within an op: what it does with arrays is known
        self.entry_grads: dict[
            int, bool
        ] = {}  # leaves whose .grad at the start matters: was it None?
        self.leaves: dict[int, Tensor] = {}  # every leaf and argument the program reads or writes
        self.generators: dict[int, tuple[Any, Any]] = {}
        self._arrays: dict[int, tuple[Any, Value]] = {}  # by id of the array, which is kept alive
        self._nodes: dict[Node, dict[str, Any]] = {}
        self._names: list[tuple[Any, Value]] = []
        self._grads: dict[int, tuple[Tensor, Any]] = {}
        tensors = [t for t in fixed.values() if isinstance(t, Tensor)]
        tensors += [t for _, t in fresh.values() if isinstance(t, Tensor)]
        self._datas: dict[int, Tensor] = {}  # the Tensor that an array is the whole of
        for tensor in tensors:
            other = self._datas.setdefault(id(tensor._data), tensor)
            if other is not tensor and (id(tensor) in fresh or id(other) in fresh):
                self.refuse("two tensors share one array")
            self._grads[id(tensor)] = (tensor, tensor.grad)
            if tensor._node is not None and tensor._needs:
                self.refuse("a tensor with a graph of its own comes from outside")
            if tensor._hooks:
                self.refuse("a tensor has hooks")
        if found.iterator:
            self.refuse("the step reaches an iterator")
        for _, argument in fresh.values():
            if isinstance(argument, np.ndarray) and argument.__class__ is not np.ndarray:
                self.refuse(f"an argument is a {type(argument).__name__}")

    def refuse(self, why: str) -> None:
        if self.reason is None:
            self.reason = f"{why}, at {caller()}"

    # ------------------------------------------------------------------ what is what

    def know(self, array: Any, value: Value) -> Value:
        if value.kind != "step":
            value.strides = array.strides
        self._arrays[id(array)] = (array, value)
        return value

    def value_of(self, item: Any) -> Any:
        """The Value of a Tensor or array; anything else as it is."""
        if item.__class__ is Tensor:
            return self._value_of_tensor(item)
        return self._value_of_array(item) if isinstance(item, np.ndarray) else item

    def _value_of_tensor(self, tensor: Tensor) -> Value:
        known = self._arrays.get(id(tensor._data))
        if known is not None:
            if id(tensor) in self.fixed or id(tensor) in self.fresh:
                self.leaves[id(tensor)] = tensor
            return known[1]
        array = tensor._data
        if id(tensor) in self.fixed:
            value = Value("leaf", tensor, array.shape, array.dtype)
        elif id(tensor) in self.fresh:
            value = Value(
                "argument", self.fresh[id(tensor)][0] + "._data", array.shape, array.dtype
            )
        else:
            return self._value_of_array(array)
        value.name = tensor.name
        self.leaves[id(tensor)] = tensor
        return self.know(array, value)

    def _value_of_array(self, array: Any) -> Value:
        known = self._arrays.get(id(array))
        if known is not None:
            return known[1]
        if id(array) in self._datas:
            return self._value_of_tensor(self._datas[id(array)])
        if id(array) in self.fixed:
            self.captured.append(array)
            return self.know(array, Value("captured", array, array.shape, array.dtype))
        if id(array) in self.fresh:
            value = Value("argument", self.fresh[id(array)][0], array.shape, array.dtype)
            return self.know(array, value)
        return self._as_view(array)

    def _as_view(self, array: Any) -> Value:
        """An array cut from one that is known: the same cut, whatever that one then holds."""
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
            if (
                id(owner) in self._arrays
                or id(owner) in self._datas
                or id(owner) in self.fixed | self.fresh
            ):
                break
        else:
            self.refuse("an op is given an array that was computed outside the ops")
            return self.know(array, Value("constant", array, array.shape, array.dtype))
        base = self._value_of_array(owner)
        offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        if (
            not owner.flags.c_contiguous
            or not 0 <= offset <= owner.nbytes
            or array.dtype != owner.dtype
        ):
            self.refuse("an array is cut from another that is not contiguous")
        if array.shape == owner.shape and array.strides == owner.strides:
            return self.know(array, base)
        step = Step("view", "cut", cut, (base, array.shape, array.strides, offset), {})
        (value,) = self.program.add(step, (array.shape, array.dtype))
        value.strides, value.offset = array.strides, base.offset + offset
        return self.know(array, value)

    def value_if_known(self, item: Any) -> Value | None:
        """The Value of a computed array, of whatever class; None for anything else."""
        array = item._data if item.__class__ is Tensor else item
        known = self._arrays.get(id(array))
        return known[1] if known is not None and isinstance(item, np.ndarray) else None

    def _symbol(self, item: Any) -> Any:
        """What a kernel is handed in place of a Tensor or array."""
        if item.__class__ is Tensor:
            return Symbol(self.program, self.value_of(item), item._data)
        if isinstance(item, np.ndarray):
            value = self._value_of_array(item)
            return (
                plain(item)
                if value.kind == "constant"
                else Symbol(self.program, value, plain(item))
            )
        return substitute(item, self._symbol) if isinstance(item, tuple | list) else item

    # ------------------------------------------------------------------ what the engine announces

    def enter(self, op: Op, inputs: tuple[Any, ...], settings: tuple[Any, ...]) -> None:
        if self.quiet:
            self.refuse("an op failed")
        self.quiet = True
        for setting in settings:
            if isinstance(setting, np.random.Generator):
                known = self.generators.get(id(setting))
                if known is None:
                    if id(setting) not in self.fixed:
                        self.refuse("a random generator is made within the step")
                    continue
                if known[1] != setting.bit_generator.state:
                    self.refuse("random numbers are drawn outside the ops")

    def forward(self, op: Op, inputs: Any, settings: Any, output: Any, seconds: float) -> None:
        if self.reason is not None:
            self.quiet = False
            return
        try:
            self._forward(op, inputs, settings, output)
        except Exception as error:
            self.refuse(f"{op.name} cannot be recorded: {error!r}")
        finally:
            self.quiet = False

    def _forward(self, op: Op, inputs: Any, settings: Any, output: Tensor) -> None:
        array, node = output._data, output._node
        symbols = [self._symbol(item) for item in inputs]
        plainly = [self._symbol(item) for item in settings]
        random = any(isinstance(s, np.random.Generator) for s in settings)
        saved = (
            dict(zip(node.plan.names, node.saved or (), strict=False)) if node is not None else {}
        )
        made = (
            None if random else self._inlined(op.forward, (*symbols, *plainly), (array,), op.also)
        )
        if made is None:
            made = self._whole(op, (*symbols, *plainly), array, saved)
        names = [f"{op.inputs[0]}{i}" for i in range(len(inputs))] if op.many else list(op.inputs)
        for setting in settings:
            if isinstance(setting, np.random.Generator):
                self.generators[id(setting)] = (setting, setting.bit_generator.state)
        known = self._arrays.get(id(array))  # an op may answer with the very array it was given
        value = known[1] if known is not None else self.know(array, made[0].value)
        if node is not None:
            parts = dict(zip(names, symbols, strict=True))
            parts |= dict(zip(op.settings, plainly, strict=True)) | dict(
                zip(op.also, made[1:], strict=False)
            )
            self._nodes[node] = {**parts, "out": Symbol(self.program, value, array)}
        self._names.append((node if node is not None else output, value))

    def _inlined(
        self, function: Any, args: tuple[Any, ...], wanted: tuple[Any, ...], also: Any = ()
    ) -> list[Any] | None:
        """The results of a kernel or rule on Symbols, None where it cannot be followed or gives
        something else.
        """
        before = len(self.program.steps)
        results: list[Any] | None
        try:
            made = function(*args)
        except Exception:
            results = None
        else:
            results = list(made) if isinstance(made, tuple) else [made]
        if results is None or len(results) < len(wanted) or not _all_agree(results, wanted):
            del self.program.steps[before:]
            return None
        return results

    def _whole(self, op: Op, args: Any, array: Any, saved: dict[str, Any]) -> list[Symbol]:
        """A kernel as one call."""
        arrays = [array, *(saved.get(name) for name in op.also)]  # by-products may be anything
        step = Step("kernel", op.name, op.forward, substitute(tuple(args), _value), {})
        forms = [(a.shape, a.dtype) if isinstance(a, np.ndarray) else ((), object) for a in arrays]
        values = self.program.add(step, *forms)
        if not op.also:
            step.kind = "kernel1"
        for value, made in zip(values, arrays, strict=True):
            value.strides = made.strides if isinstance(made, np.ndarray) else ()
        self._note_sharing(step, arrays[0], args)
        return [Symbol(self.program, v, a) for v, a in zip(values, arrays, strict=True)]

    def _note_sharing(self, step: Step, out: Any, args: Any) -> None:
        """A kernel that answers with memory it was given: never written to, never reused."""
        for item in _symbols(args):
            if isinstance(item.a, np.ndarray) and np.may_share_memory(item.a, out):
                step.note = "shares"

    # ------------------------------------------------------------------ backward

    def take_backward(self, output: Tensor, seed: Any, retain: bool) -> bool:
        """Run backward with Symbols for gradients, so that the rules write themselves down."""
        if self.reason is not None:
            return False
        nodes = order([output._node] if output._node is not None else [])
        if any(node not in self._nodes for node in nodes):
            self.refuse("backward leaves the step")
        if any(node.hooks or node.after for node in nodes):
            self.refuse("a tensor has hooks")
        if seed.__class__ is Tensor or self.reason is not None:
            self.refuse("backward is given a Tensor")
            return False
        self.sync_grads()
        seed_value = self._seed_value(output, seed)
        if self.reason is not None:
            return False
        start = Symbol(self.program, seed_value, seed)
        edge = output._node or output
        self.quiet = True
        try:
            results = backpropagate([(edge, start)], retain=retain, run=self._run)
        finally:
            self.quiet = False
        for leaf, total in results.items():
            self._arrive(leaf, total)
        return True

    def _seed_value(self, output: Tensor, seed: Any) -> Value:
        known = self._arrays.get(id(seed))
        if known is not None or id(seed) in self.fixed or id(seed) in self.fresh:
            return self._value_of_array(seed)
        if isinstance(seed.base, np.ndarray):
            return self._as_view(seed)
        if seed.size == 1 and seed.flat[0] == 1:
            return Value("constant", seed, seed.shape, seed.dtype)
        self.refuse("backward is given an array that was computed outside the ops")
        return Value("constant", seed, seed.shape, seed.dtype)

    def _run(
        self, node: Node, rules: Callable[..., Any], gradient: Any, saved: tuple[Any, ...]
    ) -> Any:
        """A node's rules on arrays, and the same on Symbols."""
        arrays = rules(gradient.a, saved)
        self._names.append((_Gradient(node), gradient.value))
        known = self._nodes[node]
        handed = tuple(
            known[name] if name in known else value
            for name, value in zip(node.plan.names, saved, strict=True)
        )
        before = len(self.program.steps)
        symbols = self._inlined(rules, (gradient, handed), arrays)
        if symbols is None:
            step = Step(
                "kernel",
                f"{node.op.name}_backward",
                rules,
                substitute((gradient, handed), _value),
                {},
            )
            shown = [a for a in arrays if a is not None]
            values = self.program.add(step, *((a.shape, a.dtype) for a in shown))
            for value, array in zip(values, shown, strict=True):
                value.strides = array.strides
                self._note_sharing(step, array, (gradient, handed))
            symbols = [Symbol(self.program, v, a) for v, a in zip(values, shown, strict=True)]
        for step in self.program.steps[before:]:
            step.note = step.note or f"backward of {node.path}"
        return symbols

    def backward(self, node: Any, gradient: Any, contributions: Any, seconds: float) -> None:
        if gradient.__class__ is not Symbol:
            self.refuse("gradients are taken with mg.grad, not with backward()")

    def _arrive(self, leaf: Tensor, total: Symbol) -> None:
        """A leaf's gradient: write `.grad`, and note that the program must."""
        value = self._value_of_tensor(leaf)
        self._names.append((_Gradient(leaf), total.value))
        if value.kind not in ("leaf", "argument"):
            return self._arrive_inside(leaf, total)
        mode = "set" if leaf.grad is None else "add"
        if not any(s.kind in ("grad", "clear") and s.args[0] is leaf for s in self.program.steps):
            self.entry_grads[id(leaf)] = leaf.grad is None
        self.leaves[id(leaf)] = leaf
        self.program.steps.append(
            Step("grad", mode, None, (leaf, total.value, self._place(leaf)), {})
        )
        array = np.array(total.a) if mode == "set" else np.asarray(plain(leaf.grad) + total.a)
        leaf.grad = array.view(Watched)
        self._grads[id(leaf)] = (leaf, leaf.grad)
        if mode == "set":
            self.know(leaf.grad, total.value)
        return None

    def _arrive_inside(self, leaf: Tensor, total: Symbol) -> None:
        """A leaf that lives within the step only."""
        leaf.grad = np.array(total.a) if leaf.grad is None else leaf.grad + total.a

    def _place(self, tensor: Tensor) -> str | None:
        """The expression of an argument, None for a fixed leaf."""
        return self.fresh[id(tensor)][0] if id(tensor) in self.fresh else None

    def sync_grads(self, last: bool = False) -> None:
        """Notice what the step did to `.grad` by itself: None is understood, others not."""
        for key, (tensor, known) in list(self._grads.items()):
            now = tensor.grad
            if now is not known:
                if now is not None:
                    self.refuse("the step writes a .grad itself")
                else:
                    self.program.steps.append(
                        Step("clear", "clear", None, (tensor, self._place(tensor)), {})
                    )
                    self.leaves[id(tensor)] = tensor
                self._grads[key] = (tensor, now)

    # ------------------------------------------------------------------ what else may happen

    def made(self, leaf: Tensor, data: Any) -> None:
        """tensor(data) within the step: a copy of something known, or a constant."""
        array = leaf._data
        if isinstance(data, np.ndarray):
            step = Step("copy", "copy", np.array, (self._value_of_array(data),), {})
            (value,) = self.program.add(step, (array.shape, array.dtype))
            self.know(array, value)
        elif isinstance(data, np.generic):
            self.refuse("a tensor is made of a number that was computed outside the ops")
        else:
            self.know(array, Value("constant", np.array(array), array.shape, array.dtype))

    def constant(self, array: Any) -> None:
        self.know(array, Value("constant", array, array.shape, array.dtype))

    def read(self, tensor: Tensor, array: Any, whole: bool) -> Any:
        if self.quiet:
            return array
        if whole:
            self.refuse("a tensor is read as an array")
        if id(tensor._data) not in self._arrays and id(tensor) not in self.fixed | self.fresh:
            self.refuse("a tensor that the step did not make is read")
            return array
        watched = array.view(Watched)
        self.know(watched, self._value_of_tensor(tensor))
        return watched

    def looked_at(self, use: str) -> None:
        if not self.quiet:
            self.refuse(f"an array is used outside the ops ({use})")

    def assigned(self, tensor: Tensor, array: Any) -> None:
        value = self._value_of_tensor(tensor)
        self.leaves[id(tensor)] = tensor
        if value.kind not in ("leaf", "argument"):
            self.refuse("assign_ writes a tensor made within the step")
        new = self._value_of_array(array) if isinstance(array, np.ndarray) else None
        if new is None:
            self.refuse("assign_ is given something computed outside the ops")
            return
        self.program.steps.append(Step("assign", "assign", None, (value, new, tensor), {}))

    def updating(self, optimiser: Any) -> None:
        if id(optimiser) not in self.fixed:
            self.refuse("an optimiser is made within the step")
        self.sync_grads()
        for key, (tensor, grad) in list(self._grads.items()):
            if isinstance(grad, Watched):
                tensor.grad = plain(grad)
                self._grads[key] = (tensor, tensor.grad)
                known = self._arrays.get(id(grad))
                if known is not None:
                    self.know(tensor.grad, known[1])
        self.program.steps.append(Step("update", "update", None, (optimiser,), {}))

    # ------------------------------------------------------------------ the end

    def finish(self, result: Any) -> Any:
        """Note what is returned; the result as the caller may have it."""
        if self.quiet:
            self.refuse("an op failed")
        self.sync_grads()
        for tensor, grad in self._grads.values():
            if isinstance(grad, Watched) and tensor.grad is grad:
                tensor.grad = plain(grad)
        for generator, state in self.generators.values():
            if generator.bit_generator.state != state:
                self.refuse("random numbers are drawn outside the ops")
        for owner, value in self._names:
            if value.name is None and value.kind == "step" and owner.name:
                value.name = owner.name
            value.path = value.path or getattr(owner, "scope", "")
        if self.reason is None:
            self.program.result = substitute(result, self._returned)
        return substitute(result, plain)

    def _returned(self, item: Any) -> Any:
        if item.__class__ is Tensor:
            if id(item) in self.fixed or id(item) in self.fresh:
                return Known(self.fresh[id(item)][0] if id(item) in self.fresh else None, item)
            node = item._node
            if node is not None and not (node.saved is None and node.source is None):
                self.refuse("a returned tensor still waits for its backward")
            if node is None and item._needs:
                self.refuse("a leaf made within the step is returned")
            return Wrapped(self._value_of_tensor(item), item._name or item.name)
        if isinstance(item, np.ndarray):
            return self._value_of_array(item)
        if item is None or isinstance(item, bool | int | float | str):
            return item
        self.refuse(f"a {type(item).__name__} is returned")
        return None


class _Gradient:
    """Names a gradient by what it is the gradient of."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    @property
    def name(self) -> str | None:
        return f"d_{self.of.name}" if self.of.name else None


class Known:
    """A returned Tensor that was there before."""

    __slots__ = ("expression", "tensor")

    def __init__(self, expression: str | None, tensor: Tensor) -> None:
        self.expression, self.tensor = expression, tensor


class Wrapped:
    """A returned Tensor that the step made."""

    __slots__ = ("name", "value")

    def __init__(self, value: Value, name: str | None) -> None:
        self.value, self.name = value, name


def cut(array: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    """Part of a contiguous array."""
    return np.ndarray(shape, array.dtype, array, offset, strides)


def _value(item: Any) -> Any:
    return item.value if item.__class__ is Symbol else item


def _all_agree(results: list[Any], wanted: tuple[Any, ...]) -> bool:
    """Whether all are Symbols, and those that are known hold what they should."""
    pairs = zip(results, wanted, strict=False)
    return all(r.__class__ is Symbol for r in results) and all(_agrees(r, w) for r, w in pairs)


def _agrees(symbol: Any, array: Any) -> bool:
    return (
        symbol.__class__ is Symbol
        and symbol.shape == array.shape
        and symbol.dtype == array.dtype
        and bool(_close(symbol.a, array))
    )


def _close(a: Any, b: Any) -> bool:
    if np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
        return True
    eps = 64 * float(np.finfo(a.dtype).eps) if a.dtype.kind in "fc" else 0.0
    with np.errstate(all="ignore"):
        top = np.abs(b[np.isfinite(b)]).max(initial=0.0) if b.size else 0.0
        return bool(np.allclose(a, b, rtol=eps, atol=eps * top, equal_nan=True))


def _symbols(item: Any) -> list[Symbol]:
    if item.__class__ is Symbol:
        return [item]
    return [s for entry in item for s in _symbols(entry)] if isinstance(item, tuple | list) else []

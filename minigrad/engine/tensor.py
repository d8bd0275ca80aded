"""Tensor, the Node of the op that made it, and the traversal that `loss.backward()` runs.

`Tensor.__apply__` runs an op on Tensors: it calls the kernel on their arrays and, if any of them
needs a gradient, records one Node. `backpropagate` is the traversal. A node's number is larger than
those of everything it was computed from, so descending numbers are a valid reverse order: collect
what the output depends on with a stack, sort, walk, all of it without recursion.

Operators and methods are attached by `minigrad.ops`; what else Python and NumPy need of an array is
in array_protocol.py, what users' hooks do in hooks.py.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from threading import Lock
from time import perf_counter
from types import CodeType
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from .arguments import NUMERIC, refuse_masked
from .array_protocol import ArrayProtocol, EntryCount, data_of
from .context import current
from .errors import ArgumentError, DTypeError, FreedGraphError, GradientError, ShapeError
from .hooks import RETAIN_GRAD, Handle, Hook, NodeHook, like_gradient, read_only, run_hooks
from .listener import Listener, notify
from .op import PYTHON_NUMBERS, Op
from .plan import FasterKernel, Plan
from .refusals import EXPLAINED
from .sparse import dense
from .types import Arguments, Array, DType, Gradient
from .writes import OUR_PACKAGES, SourceLocation, next_number, writes

__all__ = [
    "Edge",
    "Node",
    "Operand",
    "SameArray",
    "Tensor",
    "TensorOrArray",
    "add_gradients",
    "backpropagate",
    "is_marked_parameter",
    "mark_parameter",
    "order",
    "seed_of",
    "unbroadcast",
]

_ndarray = np.ndarray
_frame = sys._getframe
ON_DEMAND = 2  # of `_needs`: a gradient is computed only where `grad` names the tensor
COPIED = 512  # entries up to which a copy takes less time than finding out who holds an array

_by_number = attrgetter("seq")

Operand: TypeAlias = "Tensor | ArrayLike"  # what an op takes
TensorOrArray: TypeAlias = "Tensor | Array"
SameArray = TypeVar("SameArray", bound=TensorOrArray)  # a Tensor for a Tensor, else an array
Edge: TypeAlias = "Node | Tensor"  # what an input was: the Node that made it, or a leaf
Rules: TypeAlias = Callable[[Gradient, Arguments], Sequence[Gradient]]
RunRules: TypeAlias = "Callable[[Node, Rules, Gradient, Arguments], Sequence[Gradient]]"
_RuleCall: TypeAlias = tuple[Gradient, Arguments, Sequence[Gradient]]  # and what it gave


class Tensor(ArrayProtocol):
    """An array that remembers how it was computed. `tensor(...)` makes one, ops make the others.

    Attributes:
        data: the NumPy array, as a view through which writing counts as `assign_`.
        grad: the gradient that `backward` left here, or None.
        node: the Node that made it, None for a leaf.  name: shown in every view.
    """

    # _shape and _dtype: of a leaf that needs a gradient, for the traversal; properties are slow
    __slots__ = (
        "__weakref__", "_data", "_dtype", "_hooks", "_is_parameter", "_name", "_needs", "_node",
        "_shape", "grad",
    )  # fmt: skip

    _is_parameter: bool  # see is_marked_parameter; of most tensors it is never set

    def __init__(self, data: Array, node: Node | None = None, needs: int = 0) -> None:
        if data.__class__ is not _ndarray and not isinstance(data, _ndarray):
            raise DTypeError(
                f"Tensor(data): takes an array, got {type(data).__name__}; write mg.tensor(data)"
            )
        self._data = data
        self._node = node
        self._needs = needs
        if needs and node is None:
            self._shape, self._dtype = data.shape, data.dtype
        self.grad: Array | None = None
        self._name: str | None = None
        self._hooks: dict[int, Hook] | None = None

    # ------------------------------------------------------------------ an op runs on Tensors

    @staticmethod
    def __apply__(op: Op, inputs: Arguments, settings: Arguments) -> Tensor:
        """Run `op`, and record a node if an input needs a gradient."""
        context = current()
        if context.listeners:
            notify(Listener.tensor_used, inputs)
            inputs, settings = _changed_arguments(context.listeners, op, inputs, settings)
        recording = context.recording
        key = 1  # of the plan: then two bits for each input, whose `_needs` they are
        arrays = []
        edges: list[Edge] = []
        for value in inputs:
            key *= 4
            if value.__class__ is Tensor:
                if recording and value._needs:
                    key += value._needs
                    edges.append(value._node or value)
                value = value._data
            elif value.__class__ is _ndarray:
                if value.dtype.kind not in NUMERIC:
                    op.array(value)  # raises
            elif value.__class__ not in PYTHON_NUMBERS:
                return _apply_to_arrays(op, inputs, settings)
            arrays.append(value)
        for value in settings:
            if value.__class__ is Tensor:
                settings = _plain_settings(op, settings)
                break
        if context.listeners:
            for listener in context.listeners:
                listener.enter(op, inputs, settings)
            start = perf_counter()
        chosen: Op | FasterKernel = op
        overlay = op.overlay
        try:
            if overlay is not None and arrays and arrays[0].__class__ is _ndarray:
                when = overlay.when
                if arrays[0].size > overlay.above and (when is None or when(*arrays, *settings)):
                    chosen = overlay
            plan = chosen.plans.get(key) or chosen.plan(key)
            out, saved = plan.forward(*arrays, *settings)
        except EXPLAINED as error:
            raise op.explain(error, inputs, settings) from op.cause(error)
        if edges:
            frame = _frame(2)  # as caller() does, here without the call
            while frame.f_globals.get("__package__") in OUR_PACKAGES and frame.f_back is not None:
                frame = frame.f_back
            node = Node()
            node.seq = seq = next_number()
            node.edges = edges if seq * 2654435761 & 0xF0000000 else DeferredEdges(edges)
            node.plan, node.settings = plan, settings
            node.saved = saved
            node._shape = out.shape
            node._dtype = out.dtype
            node.scope = context.scope
            node.code, node.offset = frame.f_code, frame.f_lasti
            node.name = node.hooks = node.after = None
            result = Tensor(out, node, plan.needs)
        else:
            result = Tensor(out)
        if context.listeners:
            seconds = perf_counter() - start
            for listener in context.listeners:
                other = listener.forward(op, inputs, settings, result, seconds)
                result = result if other is None else other
        return result

    # ------------------------------------------------------------------ attributes

    @property
    def requires_grad(self) -> bool:
        return bool(self._needs)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self._node is not None and not value:
            raise GradientError(
                f"requires_grad: {self.path} was computed by {self._node.op.name}; use detach()"
            )
        if value and self._data.dtype.kind != "f":
            raise DTypeError(
                f"requires_grad: only real floating tensors have gradients, got {self.dtype}"
            )
        self._needs = int(bool(value))
        self._shape, self._dtype = self._data.shape, self._data.dtype
        if not value:  # or an optimizer would go on moving it
            self.grad = None

    def requires_grad_(self, flag: bool = True) -> Tensor:
        """Set `requires_grad` of a leaf, and return it."""
        self.requires_grad = flag
        return self

    node = property(attrgetter("_node"), doc="The Node that made it, None for a leaf.")
    needs = property(attrgetter("_needs"), doc="0 if it needs no gradient, 2 if only on demand.")
    hooks = property(attrgetter("_hooks"), doc="What was registered, or None.")
    shape = property(attrgetter("_data.shape"), doc="The array's shape.")
    dtype = property(attrgetter("_data.dtype"), doc="The array's dtype.")
    ndim = property(attrgetter("_data.ndim"), doc="Number of axes.")
    size = property(lambda self: EntryCount(self._data.size), doc="Number of entries.")

    @property
    def is_leaf(self) -> bool:
        return self._node is None

    @property
    def name(self) -> str | None:
        return self._node.name if self._node is not None else self._name

    @name.setter
    def name(self, name: str | None) -> None:
        if name is not None:
            self.named(name)
            return
        self._name = None
        if self._node is not None:
            self._node.name = None

    def named(self, name: str) -> Tensor:
        """Give this tensor the name that views show, and return it.

        >>> import minigrad as mg
        >>> mg.tensor([1.0]).named("w").name
        'w'
        """
        if name.__class__ is not str or not name:
            raise ArgumentError(f"named(name): a name is a non-empty string, got {name!r}")
        self._name = name
        if self._node is not None:
            self._node.name = name
        named = self
        for listener in current().listeners:
            other = listener.tensor_named(named)
            named = named if other is None else other
        return named

    @property
    def path(self) -> str:
        """Scope and name, for errors and views."""
        return self._node.path if self._node is not None else self._name or ""

    def detach(self) -> Tensor:
        """The same array, cut from the graph: no gradient flows back through the result."""
        notify(Listener.tensor_used, (self,))
        cut = Tensor(self._data)
        cut._name = self.name
        notify(Listener.tensor_detached, cut)
        return cut

    # ------------------------------------------------------------------ gradients

    def backward(self, gradient: Operand | None = None, retain_graph: bool = False) -> None:
        """Add ∂L/∂leaf to `.grad` of every leaf this tensor depends on.

        Args:
            gradient: ∂L/∂self, of self's shape; may be left out when self has one entry (it is then
                1).
            retain_graph: keep the saved arrays, so that backward can run again.
        Raises: GradientError without a graph; ShapeError for a gradient of another shape;
            FreedGraphError the second time.

        >>> import minigrad as mg
        >>> x = mg.tensor(3.0, requires_grad=True)
        >>> (x * x).backward()
        >>> float(x.grad)
        6.0
        """
        seed = seed_of("backward", self, gradient)
        listeners = current().listeners
        if listeners and any(notify(Listener.intercept_backward, self, seed, retain_graph)):
            return
        seed = getattr(seed, "_data", seed)
        seed = np.array(seed) if listeners else np.asarray(seed)  # a listener may keep it
        results = backpropagate([(self._node or self, seed)], retain=retain_graph)
        add_gradients(results)

    def retain_grad(self) -> None:
        """Keep this tensor's gradient in `.grad`, as a leaf's is."""
        self._refuse_without_gradient("retain_grad")
        if self._node is None:
            return
        kept = weakref.ref(self)

        def keep(gradient: TensorOrArray) -> None:
            owner = kept()
            if owner is not None:
                add_gradients({owner: np.array(getattr(gradient, "_data", gradient))})

        self._own_hooks()[RETAIN_GRAD] = keep

    def register_hook(self, hook: Hook) -> Handle:
        """Call `hook(gradient)` when the whole gradient is known; an array returned replaces it.

        The gradient is read-only: others may share its memory.
        """
        self._refuse_without_gradient("register_hook")
        return Handle(self._own_hooks(), hook)

    def _own_hooks(self) -> dict[int, Hook]:
        """The hooks of its gradient, of a computed tensor in its node, which may outlive it."""
        if self._node is None:
            self._hooks = {} if self._hooks is None else self._hooks
            return self._hooks
        self._node.hooks = {} if self._node.hooks is None else self._node.hooks
        return self._node.hooks

    def _refuse_without_gradient(self, call: str) -> None:
        if not self._needs:
            raise GradientError(f"{call}: {self.path or 'this tensor'} does not require a gradient")


_TAKEN = {Tensor, _ndarray, *PYTHON_NUMBERS}


def _apply_to_arrays(op: Op, inputs: Arguments, settings: Arguments) -> Tensor:
    """Run the op, on arrays in place of lists and of numbers that are not Python's own."""
    arrays = tuple([x if x.__class__ in _TAKEN else op.array(x) for x in inputs])
    return Tensor.__apply__(op, arrays, settings)


def _changed_arguments(
    listeners: Sequence[Listener], op: Op, inputs: Arguments, settings: Arguments
) -> tuple[Arguments, Arguments]:
    """The arguments that listeners with `changes_values` put in place of those of the call."""
    for listener in listeners:
        if listener.changes_values and all(x.__class__ in _TAKEN for x in inputs):
            inputs, settings = listener.change_arguments(op, inputs, settings)
    return inputs, settings


def _plain_settings(op: Op, settings: Arguments) -> Arguments:
    """Settings without Tensors. Raises GradientError for a Tensor that requires a gradient."""
    for name, value in zip(op.settings, settings, strict=True):
        if isinstance(value, Tensor) and value._needs:
            raise GradientError(f"{op.name}: no gradient flows into {name}; pass {name}.detach()")
    return tuple(data_of(value) for value in settings)


def mark_parameter(tensor: Tensor, held: bool = True) -> None:
    """Say that a module or an optimizer holds this leaf, so that views call it a parameter.

    Args: held: False for what is given to a module: data, unless something holds it already.
    """
    tensor._is_parameter = held or is_marked_parameter(tensor)


def is_marked_parameter(tensor: Tensor, otherwise: bool = False) -> bool:
    """Whether `mark_parameter` was called on it; `otherwise` where nothing is known.

    A leaf with a gradient may be data, and what was given to a module is.
    """
    return getattr(tensor, "_is_parameter", otherwise)


# ------------------------------------------------------------------ where gradients begin and end


def seed_of(call: str, output: Tensor, gradient: Operand | None) -> TensorOrArray:
    """The gradient that starts a backward pass, checked; a Tensor only if one was given."""
    if current().listeners:
        notify(Listener.tensor_used, (output,))
    if not isinstance(output, Tensor) or not output._needs:
        raise GradientError(
            f"{call}: the output requires no gradient: nothing it depends on has requires_grad=True"
        )
    if gradient is None:
        if output._data.size != 1:
            remedy = "out.sum().backward() or out.mean().backward(), or give one: "
            remedy += "out.backward(gradient)" if call == "backward" else "grad_output="
            raise ShapeError(
                f"{call}: an output of shape {output.shape} needs a gradient of that shape; write "
                f"{remedy}"
            )
        return _unit_gradient(output._data.shape, output._data.dtype)
    if isinstance(gradient, np.ma.MaskedArray):
        refuse_masked(f"{call}(gradient)", gradient)
    if np.shape(gradient) != output.shape:
        raise ShapeError(
            f"{call}: the gradient's shape {np.shape(gradient)} is not the output's {output.shape}"
        )
    if isinstance(gradient, Tensor):
        return gradient if gradient.dtype == output.dtype else gradient.astype(output.dtype)
    return np.asarray(gradient, output.dtype)


@lru_cache(maxsize=64)
def _unit_gradient(shape: tuple[int, ...], dtype: DType) -> Array:
    """The gradient of an output of one entry with respect to itself; read-only, as it is shared."""
    gradient = np.ones(shape, dtype)
    gradient.flags.writeable = False
    return gradient


_ADDING = Lock()


def add_gradients(results: dict[Tensor, Gradient]) -> None:
    """Add each gradient to its leaf's `.grad`, one thread at a time; `results` is empty then."""
    with _ADDING:
        while results:
            leaf, total = results.popitem()
            leaf.grad = total if leaf.grad is None else np.asarray(leaf.grad + total)


# ------------------------------------------------------------------ nodes


class Node:
    """One op that ran, and what its backward needs. `Tensor.__apply__` fills it in.

    Attributes:
        edges: for each input that needs a gradient, the Node that made it or the leaf Tensor that
            it is.
        saved: what the rules named; None once backward has used it.
        seq: number in the order of creation.  scope, name: its place in the model, and its name.
    """

    __slots__ = (
        "__weakref__", "_dtype", "_shape", "after", "code", "edges", "hooks", "name", "offset",
        "plan", "saved", "scope", "seq", "settings",
    )  # fmt: skip

    plan: Plan
    edges: Sequence[Edge]
    saved: Arguments | None
    settings: Arguments
    _shape: tuple[int, ...]  # of the result
    _dtype: DType
    scope: str
    code: CodeType
    offset: int
    seq: int
    name: str | None
    hooks: dict[int, Hook] | None  # of the result's gradient
    after: dict[int, NodeHook] | None  # hooks that run after the rules

    shape = property(attrgetter("_shape"), doc="The result's shape.")
    dtype = property(attrgetter("_dtype"), doc="The result's dtype.")
    op = property(attrgetter("plan.op"), doc="The Op that ran.")
    number = property(attrgetter("seq"), doc="In the order of creation.")

    @property
    def path(self) -> str:
        """Scope and name, as in `encoder/attn/Q`; an unnamed node goes by its op."""
        own = self.name or self.op.name
        return f"{self.scope}/{own}" if self.scope else own

    @property
    def place(self) -> SourceLocation:
        """File and line that made it."""
        return SourceLocation(self.code, self.offset)

    def register_hook(self, hook: NodeHook) -> Handle:
        """Call `hook(contributions, gradient)` after the rules ran; a list replaces the first.

        The arrays are read-only: other edges may share them.
        """
        self.after = {} if self.after is None else self.after
        return Handle(self.after, hook)

    def __repr__(self) -> str:
        return f"<Node {self.seq} {self.path} {self.shape} {self.place}>"


_waiting: list[list[Edge]] = []
_draining: list[bool] = []


class DeferredEdges(list[Edge]):
    """The edges of one node in sixteen, which are freed only after the node itself is.

    Python 3.13 frees a long chain of nodes by recursion, one level for each node, and would
    overflow the stack; 3.11, 3.12 and 3.14 would not. So every sixteenth node puts its edges into a
    queue, which is emptied once the recursion has come back. A hash of the node's number decides
    which nodes do it, because a program that repeats every sixteen ops could otherwise build a
    chain without any.
    """

    def __del__(
        self, waiting: list[list[Edge]] = _waiting, draining: list[bool] = _draining
    ) -> None:
        waiting.append(self[:])
        self.clear()
        while waiting and not draining:
            draining.append(True)
            try:
                while waiting:
                    waiting.pop()
            finally:
                draining.clear()


# ------------------------------------------------------------------ the traversal


def backpropagate(
    seeds: Sequence[tuple[Edge, Gradient]],
    *,
    retain: bool = False,
    targets: Iterable[Edge] | None = None,
    run: RunRules | None = None,
    textbook: bool = False,
) -> dict[Any, Gradient]:
    """Send the seeds' gradients back along every edge; return that of each leaf and target reached.

    Nobody else holds the arrays that are returned.

    Args:
        seeds: pairs of an edge (a Node or a leaf) and the gradient that arrives there.
        retain: keep what the nodes saved, for another backward.
        targets: only these edges are wanted; nodes and rules that do not lead to one are skipped.
        run: calls a node's rules in place of `rules(gradient, saved)`, for gradients that are not
            arrays: with Tensors the rules record themselves.
        textbook: take the ops' own rules, not those of overlays.
    """
    gradients: dict[Edge, Gradient] = {}  # what has come so far to nodes and leaves
    wanted = None if targets is None else frozenset(targets)
    sweep = _Sweep(gradients, retain, wanted, run, textbook)
    for edge, gradient in seeds:
        sweep.accumulate(edge, gradient)
    for node in sweep.useful_of(order(gradients)):  # newest first: whatever used a node has run
        gradient = gradients.pop(node, None)
        parts, rule_call = sweep.run_rules(node, gradient)
        for edge, part in zip(node.edges, parts):  # noqa: B905, the keyword costs 0.2 µs a node
            if part is not None:  # as it is where no gradient is wanted
                if getattr(part, "shape", None) != edge._shape or part.dtype is not edge._dtype:
                    part = unbroadcast(part, edge, node)
                sweep.accumulate(edge, part, rule_call)
        del rule_call  # what the node saved is free before the next one runs
    return sweep.arrived()


def order(roots: Iterable[Edge]) -> list[Node]:
    """Every node the roots depend on, newest first."""
    seen = {root for root in roots if isinstance(root, Node)}
    stack = list(seen)
    while stack:
        for edge in stack.pop().edges:
            if edge.__class__ is Node and edge not in seen:
                seen.add(edge)
                stack.append(edge)
    return sorted(seen, key=_by_number, reverse=True)


def unbroadcast(gradient: Gradient, edge: Edge, node: Node) -> Gradient:
    """The edge rule: sum over exactly the axes that were broadcast, cast to the input's dtype."""
    shape = edge.shape
    if not hasattr(gradient, "shape"):
        raise _misfit(f"a {type(gradient).__name__}, and a gradient is an array", edge, node)
    if gradient.shape != shape:
        axes = _broadcast_axes(shape, gradient.shape)
        if axes is None:
            what = f"shape {gradient.shape}, which does not reduce to the input's {shape}"
            raise _misfit(what, edge, node)
        gradient = sum_over(dense(gradient), axes)
        gradient = gradient if gradient.shape == shape else gradient.reshape(shape)
    if gradient.dtype == edge.dtype:
        return gradient
    if gradient.dtype.kind == "c":
        raise GradientError(
            f"{node.op.name}: a complex gradient came to a real input; gradients of complex values "
            f"are not defined here\n  at {node.path}, {node.place}"
        )
    return dense(gradient).astype(edge.dtype)


def _misfit(gave: str, edge: Edge, node: Node) -> GradientError:
    """The error of a rule that gave what is no gradient of its input."""
    position = node.plan.needed[[e is edge for e in node.edges].index(True)]
    rule = f"{node.op.name}: the rule for {node.op.input_name(position)}"
    return GradientError(f"{rule} gave {gave}\n  at {node.path}, {node.place}")


def sum_over(x: TensorOrArray, axes: tuple[int, ...]) -> TensorOrArray:
    """The sum over some axes, added up in a wider dtype. minigrad/fast puts a quicker one here."""
    wide = {"e": np.float32, "f": np.float64}.get(x.dtype.char)
    return x.sum(axis=axes, dtype=wide) if wide and x.__class__ is _ndarray else x.sum(axis=axes)


@lru_cache(maxsize=1024)
def _broadcast_axes(shape: tuple[int, ...], wide: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes along which `shape` was repeated to make `wide`, None if it does not broadcast."""
    extra = len(wide) - len(shape)
    if extra < 0 or any(n not in (1, m) for n, m in zip(shape, wide[extra:], strict=True)):
        return None
    repeated = (i for i, n in enumerate(shape, extra) if n == 1 != wide[i])
    return (*range(extra), *repeated)


@dataclass(slots=True)
class _Sweep:
    """What a traversal does beside visiting nodes: it adds gradients up, in place where nobody else
    holds the array, refuses freed graphs, and calls hooks and listeners.
    """

    gradients: dict[Edge, Gradient]  # what has come so far to nodes and leaves
    retain: bool
    targets: frozenset[Edge] | None
    run: RunRules | None
    textbook: bool
    owned: set[Edge] = field(default_factory=set)  # whose gradient is an array nobody else holds
    useful: set[Edge] = field(default_factory=set)  # from which a target is reached
    results: dict[Any, Gradient] = field(default_factory=dict)  # the gradients of targets
    listeners: tuple[Listener, ...] = field(default_factory=lambda: current().listeners)

    def useful_of(self, nodes: list[Node]) -> list[Node]:
        """The nodes that lead to a target. Raises FreedGraphError if one of them ran before."""
        useful = self.useful
        if self.targets is not None:
            useful |= self.targets
            for node in reversed(nodes):
                if not useful.isdisjoint(node.edges):
                    useful.add(node)
            nodes = [node for node in nodes if node in useful]
        for node in nodes:
            if node.saved is None:
                if self.targets is not None and useful.isdisjoint(node.edges):
                    continue  # a target itself, whose rules do not run
                raise FreedGraphError(
                    f"backward through {node.path} ({node.op.name}, made at {node.place}): "
                    "its saved arrays were freed by an earlier backward; "
                    "pass retain_graph=True to that one to go through twice"
                )
        return nodes

    def run_rules(
        self, node: Node, gradient: Gradient
    ) -> tuple[Sequence[Gradient], _RuleCall | None]:
        """What a node sends along its edges, and its rules' call if that may hold the arrays."""
        rules: Rules | None = node.plan.backward
        if gradient is not None and node.hooks:
            gradient = self.after_hooks(node, node.hooks, gradient)
        targets = self.targets
        if targets is not None:
            if gradient is not None and node in targets:
                self.results[node] = gradient if self.run else np.array(gradient)
            wanted = tuple([edge in self.useful for edge in node.edges])
            rules = node.plan.partial(wanted, self.textbook) if any(wanted) else None
        if gradient is None or rules is None:
            if not self.retain and targets is None:
                node.saved = None
            return (), None
        saved = node.saved
        assert saved is not None  # see useful_of
        if writes.latest > node.seq:
            writes.check(node, saved)
        start = perf_counter() if self.listeners else 0.0
        run = self.run
        parts = rules(gradient, saved) if run is None else run(node, rules, gradient, saved)
        if not self.retain:
            node.saved = None
        if self.listeners or node.after:
            return self.announced(node, gradient, parts, perf_counter() - start), None
        return parts, None if run is not None else (gradient, saved, parts)

    def accumulate(self, edge: Edge, part: Gradient, rule_call: _RuleCall | None = None) -> None:
        """Add a gradient: the first is borrowed, the second makes a new array, later ones go there.

        rule_call: the gradient and the arrays that a rule was given, and all that it gave.
        """
        gradients, owned = self.gradients, self.owned
        if hasattr(part, "onto"):
            gradients[edge] = part.onto(gradients.get(edge), in_place=edge in owned)
            owned.add(edge)
        elif edge not in gradients:
            gradients[edge] = part
            if rule_call is not None and part.size > COPIED and edge.__class__ is not Node:
                if _is_new(part, *rule_call):
                    owned.add(edge)
        elif edge in owned:
            gradients[edge] += part
        else:
            total = gradients[edge] = gradients[edge] + part
            if total.__class__ is _ndarray:
                owned.add(edge)

    def after_hooks(self, edge: Edge, hooks: dict[int, Hook], gradient: Gradient) -> Gradient:
        """The gradient of a node or a leaf after its hooks ran, which may keep its array."""
        self.owned.discard(edge)
        return run_hooks(hooks, gradient, retain_grad=self.targets is None)

    def announced(
        self, node: Node, gradient: Gradient, parts: Sequence[Gradient], seconds: float
    ) -> list[Gradient]:
        """Show the node's own hooks and the listeners what it sends along each edge."""

        def fitted(parts: Sequence[Gradient]) -> list[Gradient]:
            pairs = zip(parts, node.edges, strict=True)
            return [part if part is None else unbroadcast(part, edge, node) for part, edge in pairs]

        sent = fitted(parts)
        shown = [dense(part) for part in sent]
        for hook in list((node.after or {}).values()):
            new = hook([read_only(part) for part in shown], read_only(gradient))
            if new is not None:
                arrays = [part if part is None else like_gradient(part, gradient) for part in new]
                shown = sent = fitted(arrays)
        for listener in self.listeners:
            listener.backward(node, gradient, shown, seconds)
        return sent

    def arrived(self) -> dict[Any, Gradient]:
        """The gradients of leaves and targets, after hooks; copies where others hold the array."""
        results = self.results
        for leaf, gradient in self.gradients.items():
            if isinstance(leaf, Node):  # an output that leads to no target
                continue
            if leaf._hooks:
                gradient = self.after_hooks(leaf, leaf._hooks, gradient)
            for listener in self.listeners:
                listener.arrived(leaf, gradient)
            borrowed = self.run is None and (self.listeners or leaf not in self.owned)
            results[leaf] = np.array(gradient) if borrowed else gradient
        return results


def _is_new(
    part: Gradient, gradient: Gradient, saved: Arguments, parts: Sequence[Gradient]
) -> bool:
    """Whether a rule made this array, so that nobody else holds it: see the top of op.py."""
    if part is gradient or part.__class__ is not _ndarray or part.base.__class__ is _ndarray:
        return False
    is_given_once = sum([other is part for other in parts]) == 1
    return is_given_once and not any([value is part for value in saved])

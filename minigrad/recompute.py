"""checkpoint: a function whose activations are not kept, as backward runs it a second time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary, ref

import numpy as np

from .engine.context import Context, current, use_context
from .engine.errors import GradientError
from .engine.listener import Listener, notify
from .engine.op import Op
from .engine.refusals import explained
from .engine.tensor import Node, Tensor, TensorOrArray
from .engine.types import Arguments, Array, Index
from .engine.writes import next_number, writes

__all__ = ["checkpoint"]

T = TypeVar("T")
Sums: TypeAlias = list[tuple[float, float]]


class _FirstRun(Listener, Generic[T]):
    """Listens to the first run of a checkpointed function, and drops what its nodes saved.

    When backward reaches one of them, the function runs again in the same surroundings with the
    same random state, and every node gets back what its twin in the second run saved.
    """

    def __init__(self, f: Callable[..., T], inputs: Arguments, context: Context) -> None:
        self.f = f
        self.inputs = inputs
        self.context = context
        self.began = next_number()
        self.nodes: list[ref[Node]] = []  # weak: the graph owns its nodes
        self.leaves: WeakValueDictionary[int, Tensor] = WeakValueDictionary()  # by id
        self.generators: list[tuple[np.random.Generator, Mapping[str, Any]]] = []  # their states
        self.written: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        self.effects: list[object] = []  # their results, which the second run takes from here
        self.sums: Sums = []
        self.name = getattr(f, "__name__", "f")

    def run(self) -> T:
        """The first run. This listener is the first, so the others see nodes that saved nothing."""
        with use_context(Context(True, self.context.scope, (self, *self.context.listeners))):
            output = self.f(*self.inputs)
        self.sums = _sums(output)
        return output

    def intercept_backward(self, output: Tensor, seed: TensorOrArray, retain: bool) -> bool:
        raise GradientError(
            f"checkpoint: {self.name} calls backward(), which would add its gradients twice: "
            "backward runs it again"
        )

    def update_started(self, owner: object, again: Callable[[], object]) -> None:
        raise GradientError(
            f"checkpoint: {self.name} updates weights or gradients, which would happen twice: "
            "backward runs it again"
        )

    def tensor_assigned(self, tensor: Tensor, array: Array, index: Index = ...) -> None:
        self.written[id(tensor)] = tensor

    def effect_finished(self, result: object) -> None:
        self.effects.append(result)

    def enter(self, op: Op, inputs: Arguments, settings: Arguments) -> None:
        for value in inputs:
            if isinstance(value, Tensor) and value.is_leaf:
                self.leaves[id(value)] = value
        for value in settings:
            known = any(value is generator for generator, _ in self.generators)
            if isinstance(value, np.random.Generator) and not known:
                self.generators.append((value, deepcopy(value.bit_generator.state)))

    def forward(
        self, op: Op, inputs: Arguments, settings: Arguments, output: Tensor, seconds: float
    ) -> None:
        if output.node is not None:
            self.nodes.append(ref(output.node))
            if output.node.source is None:  # else it belongs to a checkpoint within this one
                output.node.saved, output.node.source = None, self

    def recover(self, wanted: Node) -> Arguments:
        """Run again, give every node what its twin saved, and return what `wanted` had saved."""
        for leaf in self.leaves.values():
            if id(leaf) in self.written:  # by f itself, as running averages are
                continue
            writes.check_since(self.began, wanted, leaf.path or "an input", leaf._data)
        twins, sums = self._run_again()
        nodes = [reference() for reference in self.nodes]
        same = len(nodes) == len(twins) and all(
            node is None or (node.op, node.shape) == (twin.op, twin.shape)
            for node, twin in zip(nodes, twins, strict=True)
        )
        if not same:
            raise GradientError(
                f"checkpoint: {self.name} took other steps when backward ran it again"
            )
        if not _agree(sums, self.sums):
            raise GradientError(
                f"checkpoint: {self.name} gave other numbers when backward ran it again; "
                "give the generator it draws from to an op, and let it change no state"
            )
        for node, twin in zip(nodes, twins, strict=True):
            if node is not None and node.source is self:
                node.saved, node.source = twin.saved, None
        return wanted.saved  # type: ignore[return-value]

    def _run_again(self) -> tuple[list[Node], Sums]:
        """Nodes and sums of a second run, after which all that it wrote is as it was."""
        second = _SecondRun(self.effects)
        leaves = [*self.written.values()]
        arrays = [leaf._data.copy() for leaf in leaves]
        now = [deepcopy(generator.bit_generator.state) for generator, _ in self.generators]
        try:
            for generator, state in self.generators:
                generator.bit_generator.state = state
            changing = [other for other in self.context.listeners if other.changes_values]
            with use_context(Context(True, self.context.scope, (second, *changing))):
                sums = _sums(self.f(*self.inputs))
        finally:
            for (generator, _), state in zip(self.generators, now, strict=True):
                generator.bit_generator.state = state
            with use_context(Context(True, self.context.scope, ())):  # of which nobody is told
                for leaf, array in zip(leaves, arrays, strict=True):
                    leaf.assign_(array)
        return second.nodes, sums


def _sums(output: object) -> Sums:
    """Σ |y| and Σ i yᵢ / n of each Tensor that a function returned, to compare two runs by."""
    arrays = [y._data.reshape(-1) for y in _tensors(output)]
    return [
        (float(np.abs(y).sum(dtype=float)), float(y.real @ np.linspace(0.0, 1.0, y.size)))
        for y in arrays
    ]


def _tensors(output: object) -> Iterator[Tensor]:
    """The Tensors in what a function returned: in lists, tuples and dicts too."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, list | tuple | dict):
        for part in output.values() if isinstance(output, dict) else output:
            yield from _tensors(part)


def _agree(first: Sums, second: Sums) -> bool:
    """Whether the sums of two runs are the same but for rounding."""
    return len(first) == len(second) and all(
        np.allclose(mine, theirs, rtol=0.0, atol=np.nan_to_num(1e-5 * mine[0]), equal_nan=True)
        for mine, theirs in zip(first, second, strict=True)
    )


class _SecondRun(Listener):
    """Listens to the second run: keeps its nodes, and gives effects their results in the first."""

    def __init__(self, effects: list[object]) -> None:
        self.nodes: list[Node] = []
        self.effects = iter(effects)

    def effect_repeated(self) -> tuple[object]:
        for result in self.effects:
            return (result,)
        raise GradientError("checkpoint: more was sent when backward ran the function again")

    def forward(
        self, op: Op, inputs: Arguments, settings: Arguments, output: Tensor, seconds: float
    ) -> None:
        if output.node is not None:
            self.nodes.append(output.node)


def run_once(effect: Callable[[], T]) -> T:
    """The result of `effect`; in the second run of a checkpoint, its result in the first."""
    answers = [answer for answer in notify(Listener.effect_repeated) if answer is not None]
    result = answers[0][0] if answers else effect()
    notify(Listener.effect_finished, result)
    return result


@explained
def checkpoint(f: Callable[..., T], *inputs: object) -> T:
    """f(*inputs), keeping none of its activations: backward runs f again to get them.

    The graph, its scopes and its random draws are those of a plain call; only memory and time
    differ. What f writes by `assign_` is written once, and what it sends to other ranks is sent
    once: what collectives give is kept. A generator that f draws from must be an
    argument of an op, as dropout's is.
    Raises: GradientError if f runs backward or updates weights; in backward if f takes other steps
        the second time, or gives other numbers.
    Source: Chen et al. 2016, arXiv:1604.06174.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> mg.checkpoint(lambda x: mg.exp(x * x).sum(), x).backward()
    >>> (x.grad / (2 * x.data * np.exp(x.data**2))).tolist()
    [1.0, 1.0]
    """
    context = current()
    return _FirstRun(f, inputs, context).run() if context.recording else f(*inputs)

"""Reaching into a run by path: other values in place of its tensors, or copies of its tensors.

A tensor is found by its path at its first use by an op, by a backward or by whoever reads its
entries, since by then it has its name. What is put in its place is computed by ordinary ops, in the
scope in which the tensor was made; so gradients, traces and checks need no code for it.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from .engine.context import Context, current, use_context
from .engine.errors import ArgumentError, DTypeError, ShapeError
from .engine.listener import Listener, listen, notify
from .engine.op import Op
from .engine.tensor import Operand, Tensor
from .engine.types import Arguments, Array, Gradient, Index
from .ops import astype, broadcast_to, getitem, ravel, take, where
from .paths import is_pattern, matches, nearest

__all__ = ["ablate", "capture", "record", "replace"]

NewValue: TypeAlias = "Operand | Callable[[Tensor], Operand | None]"

MEAN = object()  # of the examples, as a value


@contextmanager
def _where_made(made: Context) -> Iterator[None]:
    """Within, ops run in the context in which a tensor was made; no intervention acts on them."""
    others = tuple(x for x in current().listeners if not isinstance(x, PathIntervention))
    with use_context(Context(made.recording, made.scope, others)):
        notify(Listener.context_resumed, current(), made)
        yield


class PathIntervention(Listener):
    """Within `with`, calls `first_use` for each tensor of the run whose path matches."""

    shows_inputs = False
    wanted = "tensor"  # what a path names

    def __init__(self, call: str, path: str) -> None:
        if not isinstance(path, str) or not path:
            raise ArgumentError(f"{call}(path): a path is a non-empty string, got {path!r}")
        self.path, self.shown = path, f"{call}({path!r})"
        self._listening: listen | None = None

    def __enter__(self) -> Self:
        if self._listening is not None:
            raise ArgumentError(f"{self.shown}: it is entered already; make another")
        notify(Listener.refuse, f"{self.shown} is used within the step", "use it around the step")
        self._unused: dict[int, tuple[Tensor, Context, Op]] = {}  # and alive, so that no id returns
        self._counts: Counter[str] = Counter()  # uses of each path that matches
        self._leaves: set[str] = set()  # paths of all named leaves
        # tensors whose path does not match
        self._passed: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        self._others: set[str] = set()  # paths that do not match
        self._last: Context | None = None  # the call in which a path matched last
        self._listening = listen(self)
        self._listening.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            if kind is None:
                self.tensor_used([tensor for tensor, *_ in self._unused.values()])
        finally:
            listening, self._listening = self._listening, None
            listening.__exit__()  # type: ignore[union-attr]
        if kind is None:
            self._refuse_unused_path()

    def _refuse_unused_path(self) -> None:
        if self._counts:
            return
        if any(matches(self.path, leaf) for leaf in self._leaves):
            raise ArgumentError(
                f"{self.shown}: that is a leaf, which no op made; write to it by assign_, or call "
                "the model with another"
            )
        why = nearest(self.path, self._others) if self._others else "; no op ran within"
        raise ArgumentError(f"{self.shown}: no {self.wanted} of the run has this path{why}")

    def forward(
        self, op: Op, inputs: Arguments, settings: Arguments, output: Tensor, seconds: float
    ) -> None:
        self._unused[id(output)] = output, current(), op

    def tensor_used(self, values: Sequence[object]) -> None:
        for value in values:
            known = self._unused.pop(id(value), None)
            if known is not None:
                self._name_is_final(*known)
            elif value.__class__ is Tensor and value.is_leaf and value.name:
                self.use_leaf(value, _path(current().scope, value.name))

    def use_leaf(self, leaf: Tensor, path: str) -> None:
        """A tensor that no op made, and that has a name, is used."""
        self._leaves.add(path)

    def _name_is_final(self, tensor: Tensor, made: Context, op: Op) -> None:
        path = _path(made.scope, tensor.name or op.name)
        if matches(self.path, path):
            self.first_use(tensor, path, made)
        else:
            self._others.add(path)
            self._passed[id(tensor)] = tensor

    def tensor_named(self, tensor: Tensor) -> None:
        """Raise ArgumentError for a name of this path that comes after the tensor was used."""
        if self._passed.get(id(tensor)) is tensor:
            path = tensor.path if tensor.node is not None else _path(current().scope, tensor.path)
            if matches(self.path, path):
                raise ArgumentError(
                    f"{self.shown}: {path} was used before it got this name; "
                    "name it where it is made"
                )

    def first_use(self, tensor: Tensor, path: str, made: Context) -> None:
        """A tensor of this path is used for the first time; it was made in the context `made`."""
        raise NotImplementedError


def _path(scope: str, name: str) -> str:
    return f"{scope}/{name}" if scope else name


# ---------------------------------------------------------------- other values


def _become(tensor: Tensor, other: Tensor) -> None:
    """Give a tensor, for all who hold it, the entries and the node of another one."""
    name, node = tensor.name, tensor._node
    tensor._data = other._data
    tensor._node = other._node
    tensor._needs = other._needs
    if node is not None and other._node is not None:
        other._node.hooks = node.hooks
        node.hooks = None
        node.name = None
    tensor._name = name  # the name it had: no listener hears of a new one
    if tensor._node is not None:
        tensor._node.name = name


class Replacement(PathIntervention):
    """Within, other values stand where the run made the tensors of a path; see `replace`."""

    changes_values = True

    def __init__(
        self,
        call: str,
        path: str,
        value: Any,  # a NewValue, or MEAN
        index: Index = None,
        which: int | None = None,
        of: str | None = None,
    ) -> None:
        super().__init__(call, path)
        self.value = value
        self.index = index
        self.which = which
        self.of = of
        self.wanted = "tensor" if of is None else "op"
        self._held: list[tuple[Tensor, Array]] = []  # leaves, and the arrays they had before

    def __enter__(self) -> Self:
        self._used: dict[int, Tensor] = {}  # leaves, alive so that no id returns
        self._made: WeakValueDictionary[int, Tensor] = WeakValueDictionary()  # no leaves
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            super().__exit__(kind, *exception)
        finally:
            for leaf, array in reversed(self._held):
                leaf._data = array
            self._held.clear()

    def use_leaf(self, leaf: Tensor, path: str) -> None:
        """Put the value into a leaf of this path, until the block ends."""
        if id(leaf) in self._used or self._made.get(id(leaf)) is leaf:
            return
        self._used[id(leaf)] = leaf
        if not matches(self.path, path):
            self._others.add(path)
        elif self._is_chosen(path):
            array = leaf._data
            with _where_made(current()):
                new = self._other_array(array)
            if new is not None:
                self._held.append((leaf, array))
                leaf._data = new

    def _is_chosen(self, path: str) -> bool:
        """Count a use of this path; whether it is one that the caller chose."""
        number = self._counts[path]
        self._counts[path] += 1
        return self.which in (None, number)

    def change_arguments(
        self, op: Op, inputs: Arguments, settings: Arguments
    ) -> tuple[Arguments, Arguments]:
        """The arguments of an op of this path, with another value for the one named `of`."""
        if self.of is None:
            return inputs, settings
        made = current()
        path = _path(made.scope, op.name)
        if not matches(self.path, path):
            self._others.add(path)
            return inputs, settings
        names = [*op.input_names(len(inputs)), *op.settings]
        if self.of not in names:
            said = f"{self.shown}: {op.name} has no argument {self.of!r}; it has {', '.join(names)}"
            raise ArgumentError(said)
        self._refuse_second(path, made)
        if not self._is_chosen(path):
            return inputs, settings
        values = [*inputs, *settings]
        place = names.index(self.of)
        with _where_made(made):
            new = self._other_argument(values[place])
        if new is not None:
            values[place] = new
            notify(Listener.argument_replaced)
        return tuple(values[: len(inputs)]), tuple(values[len(inputs) :])

    def _other_argument(self, old: Any) -> Any:
        """What an op gets in place of one argument; None if it stays as it is."""
        if isinstance(old, Tensor):
            return self._instead(old)
        if isinstance(old, np.ndarray):
            return self._other_array(old)
        value = self.value(old) if callable(self.value) else self.value
        if self.index is not None or (old is not None and np.ndim(value)):
            raise ArgumentError(f"{self.shown}: {self.of} is {old!r}, which has no entries")
        return value

    def _other_array(self, array: Array) -> Array | None:
        """A copy of an array with the value in its place; None if it stays as it is."""
        index = () if self.index is None else self.index
        old = np.asarray(array[index])
        value = self._mean(Tensor(array))[index] if self.value is MEAN else self.value
        if callable(value):
            value = value(Tensor(np.array(old)))
            if value is None:
                return None
        new = np.array(array)
        new[index] = np.asarray(self._fitted(value, old)._data)
        return new

    def forward(
        self, op: Op, inputs: Arguments, settings: Arguments, output: Tensor, seconds: float
    ) -> None:
        if self.of is None:
            super().forward(op, inputs, settings, output, seconds)
            self.tensor_detached(output)

    def tensor_detached(self, tensor: Tensor) -> None:
        """Remember that it is no leaf, though it has no node."""
        if tensor.node is None:
            self._made[id(tensor)] = tensor

    def tensor_used(self, values: Sequence[object]) -> None:
        if self.of is None:
            super().tensor_used(values)

    def first_use(self, tensor: Tensor, path: str, made: Context) -> None:
        self._refuse_second(path, made)
        if not self._is_chosen(path):
            return
        with _where_made(made):
            new = self._instead(tensor)
        if new is not None:
            notify(Listener.tensor_replaced, tensor, new)
            _become(tensor, new)

    def _refuse_unused_path(self) -> None:
        super()._refuse_unused_path()
        met = max(self._counts.values())
        if self.which is not None and not 0 <= self.which < met:
            raise ArgumentError(f"{self.shown}: call={self.which}, but it was met {met} times")

    def _refuse_second(self, path: str, made: Context) -> None:
        """Raise ArgumentError where a path that is no pattern means two tensors."""
        while made.outer is not None and made.outer.scope == made.scope:
            made = made.outer
        if is_pattern(self.path):
            return
        if self._counts and path not in self._counts:
            raise ArgumentError(
                f"{self.shown}: the run has {next(iter(self._counts))} and {path}; write more of "
                f"the path, or '*/{self.path}' for all of them"
            )
        if made.scope and made is self._last and self.which is None:
            raise ArgumentError(
                f"{self.shown}: two tensors of one call of {made.scope} have this path; "
                "say which: call=0 is the first"
            )
        self._last = made

    def _instead(self, tensor: Tensor) -> Tensor | None:
        """The tensor that takes its place, computed by ops; None if it stays as it is."""
        index = () if self.index is None else self.index
        value, old = self.value, np.asarray(getitem(tensor._data, index))
        if callable(value):
            part = tensor if self.index is None else tensor[index]
            value = value(part)
            if value is None or value is part:
                return None
        value = self._mean(tensor)[index] if value is MEAN else value
        fitted = self._fitted(value, old)
        if self.index is None:
            return broadcast_to(fitted, old.shape)
        chosen = np.zeros(tensor.shape, bool)
        chosen[index] = True
        if isinstance(value, Tensor):
            places = np.zeros(tensor.shape, int)
            places[index] = np.arange(old.size).reshape(old.shape)
            spread = take(ravel(broadcast_to(fitted, old.shape)), places)
        else:
            spread = np.zeros(tensor.shape, old.dtype)
            spread[index] = fitted._data
        return where(chosen, spread, tensor)

    def _mean(self, tensor: Tensor) -> Array:
        """The mean over the first axis, as a constant."""
        if tensor.ndim < 1 or len(tensor) < 2:
            raise ArgumentError(
                f'{self.shown}: to="mean" is over the first axis, of examples, and shape '
                f"{tensor.shape} has fewer than two; give the mean as an array"
            )
        return np.broadcast_to(tensor._data.mean(axis=0, keepdims=True), tensor.shape)

    def _fitted(self, value: Operand, part: Array) -> Tensor:
        """The value as a Tensor that fits the part it replaces; of an array, a copy."""
        given = value if isinstance(value, Tensor) else Tensor(np.array(value))
        shape, dtype = given.shape, given.dtype
        try:
            np.broadcast_to(given._data, part.shape)
        except ValueError:
            said = f"{self.shown}: the value must broadcast to {part.shape}, got shape {shape}"
            raise ShapeError(said) from None
        whole = part.dtype.kind == "f" or dtype.kind != "f" or bool((given._data % 1 == 0).all())
        if dtype.kind not in "biuf" + part.dtype.kind or not whole:
            raise DTypeError(f"{self.shown}: a value of {dtype} cannot stand for {part.dtype}")
        return given if dtype == part.dtype else astype(given, part.dtype)


def replace(
    path: str,
    value: NewValue,
    *,
    index: Index = None,
    call: int | None = None,
    of: str | None = None,
) -> Replacement:
    """Within `with`, put another value in place of each tensor of the run that has this path.

    A path is as a trace has it, whole or from one of its scopes on; `*` in it stands for any
    characters of one name, so that it may mean several tensors. Without one, two tensors of one
    call are an error; a layer that runs again meets it again. Gradients flow into the value if it
    is a Tensor, and through the function if it is one; none to what was overwritten. Compiled
    steps run eagerly within. Of nested ones, the inner has the last word. The name that counts is
    the one that a tensor has when it is first used; without one, it goes by its op.

    A leaf, which no op made, stays a leaf: it holds the value until the block ends, and its
    gradient is the one at that value; what is written to it within is lost with the block.

    Args:
        value: an array or Tensor that broadcasts to the tensor, or a function of the old value that
            gives one; None from the function leaves it as it is, so that it can just look on.
        index: replace only these entries, as NumPy indexes: `np.s_[:, 2]` is the third head of
            (B, h, n, m). A function gets these entries alone.
        call: of a path that is met again and again, only this time, from 0.
        of: the path is that of an op, such as "attention/scale", and what is replaced is this one
            of its arguments, an input or a setting, at this use alone.
    Raises: ArgumentError on leaving if no tensor was met, with the nearest paths; on meeting a
        second tensor; for an argument that the op has not. ShapeError or DTypeError for a value
        that does not fit.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    >>> with mg.replace("h", lambda h: 10 * h, index=0):
    ...     y = mg.sum((x * x).named("h"))
    >>> y.backward()
    >>> y.item(), x.grad
    (14.0, array([20.,  4.]))
    >>> with mg.replace("x", 5.0, index=0), mg.replace("scale", 0.5, of="factor"):
    ...     mg.scale(x, 3.0).numpy()
    array([2.5, 1. ])
    """
    return Replacement("replace", path, value, index, call, of)


def ablate(
    path: str,
    *,
    to: Operand = 0.0,
    index: Index = None,
    call: int | None = None,
    of: str | None = None,
) -> Replacement:
    """Within `with`, take what a tensor of the run says out of it: see `replace`.

    Args:
        to: what stands there instead, 0; or "mean", the mean over the first axis, that of the
            examples, as a constant; or an array, such as a mean over other data.
        of: an argument of the op of this path: the one edge of the graph that leads there is cut.

    >>> import minigrad as mg
    >>> with mg.ablate("h", index=1):
    ...     mg.exp(mg.tensor([0.0, 5.0])).named("h").numpy()
    array([1., 0.])
    """
    if isinstance(to, str) and to != "mean":
        raise ArgumentError(f'ablate(to=...): to must be "mean" or a value, got {to!r}')
    return Replacement("ablate", path, MEAN if isinstance(to, str) else to, index, call, of)


# ---------------------------------------------------------------- copies of values and gradients


@dataclass
class CapturedTensor:
    """A tensor of the run: its value, and its gradient, None before a backward."""

    path: str
    value: Array
    gradient: Array | None = None

    def add(self, gradient: Gradient) -> None:
        array = np.asarray(getattr(gradient, "_data", gradient))
        self.gradient = np.array(array) if self.gradient is None else self.gradient + array


class Capture(PathIntervention):
    """Values and gradients of the tensors of a path, in the order of their use; see `capture`."""

    def __init__(self, path: str) -> None:
        super().__init__("capture", path)
        self._tensors: list[CapturedTensor] = []

    def first_use(self, tensor: Tensor, path: str, made: Context) -> None:
        self._counts[path] += 1
        captured = CapturedTensor(path, np.array(tensor._data))
        self._tensors.append(captured)
        self._latest = tensor
        if tensor.requires_grad:
            tensor.register_hook(captured.add)

    def tensor_replaced(self, tensor: Tensor, new: Tensor) -> None:
        if self._tensors and tensor is self._latest:  # an inner replacement came after
            self._tensors[-1].value = np.array(new._data)

    def __iter__(self) -> Iterator[CapturedTensor]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, path: str) -> CapturedTensor:
        """The one tensor of this path. Raises: ArgumentError if there is none, or several."""
        found = [captured for captured in self._tensors if matches(path, captured.path)]
        if len(found) != 1:
            near = nearest(path, (captured.path for captured in self._tensors))
            raise ArgumentError(f"{self.shown}[{path!r}]: {len(found)} have this path{near}")
        return found[0]


def capture(path: str) -> Capture:
    """Within `with`, keep value and gradient of each tensor of the run that has this path.

    What is kept is what the rest of the run got, so with other values in its place, those. The
    gradient comes with any backward, also after the block.

    Args: path: as in `replace`.
    Returns: the tensors in the order they were met, each with `path`, `value` and `gradient`;
        `found[path]` is the only one of a path.
    Raises: ArgumentError on leaving if none was met.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> with mg.capture("h") as found:
    ...     y = mg.sum((x * x).named("h") ** 2)
    >>> y.backward()
    >>> found["h"].value, found["h"].gradient
    (array([1., 4.]), array([2., 8.]))
    """
    return Capture(path)


def record(path: str) -> Capture:
    """The old name of `capture`."""
    warnings.warn("mg.record is called mg.capture", DeprecationWarning, stacklevel=2)
    return capture(path)

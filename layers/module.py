"""Module: a layer, whose parameters are found by attribute, and which remembers its last call."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from inspect import signature
from typing import Any, ClassVar, Self, TypeAlias, TypeVar
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, GradientError, MissingNameError
from minigrad.habits import missing

__all__ = ["Module"]

Array: TypeAlias = mg.Tensor | NDArray[Any]
"""An array, or a Tensor whose gradient is recorded."""

SameArray = TypeVar("SameArray", bound=Array)
"""What a function returns is of the kind that it takes."""


class Module:
    """A layer assigns Tensors and Modules to attributes and writes `forward`; the rest is here.

    Its parameters are the leaves it holds, as attributes or in lists, tuples and dicts of them:
    `blocks.0`. An array given to a call becomes a leaf (integers stay, unless the layer has a
    dtype), and `backward(grad_output)` then sets every parameter's gradient and returns the
    input's. Called with a Tensor, a layer keeps no graph alive. An array assigned over a parameter
    is written into it.

    Attributes:
        training: what `train()` and `eval()` set.
        dtype: what arrays are cast to on their way in; None leaves them as they are.
        buffers: names of Tensors that are saved with the parameters, and never trained.
        grad_<name>: short for `<name>.grad`.

    >>> class Twice(Module):
    ...     def __init__(self):
    ...         self.w = mg.tensor([2.0, 3.0], requires_grad=True)
    ...     def forward(self, x):
    ...         return x * self.w
    >>> layer = Twice()
    >>> layer(np.array([5.0, 7.0])).numpy(), layer.backward(np.ones(2)), layer.grad_w
    (array([10., 21.]), array([2., 3.]), array([5., 7.]))
    >>> layer
    Twice: 2 parameters
      w (2,)
    """

    # In slots, so that vars(self) holds what the layer is made of and nothing else.
    __slots__ = ("__dict__", "__weakref__", "_changes", "_given_array", "_last", "_scope")
    _given_array: bool | None  # while forward runs: whether the call was given an array
    _last: tuple[Any, mg.Tensor] | None  # input and output of the last call on an array
    _scope: mg.scope  # what its calls are made in
    _changes: int  # how often an attribute was set

    _name: str | None = None
    training: bool = True
    dtype: np.dtype[Any] | None = None
    buffers: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        layer = super().__new__(cls)
        _set_given_array(layer, None)
        _set_last(layer, None)
        _set_changes(layer, 0)
        _set_scope(layer, mg.scope("module", ref(layer)))
        return layer

    # ---------------------------------------------------------------- calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward`, in the layer's scope."""
        kind, first = _described(type(self))  # type: ignore[arg-type]
        for given in (*args, *kwargs.values()):
            if isinstance(given, mg.Tensor):
                if given.node is None and (given.needs or mg.listening()):
                    mg.mark_parameter(given, held=False)  # data, unless a layer holds it
                    mg.mark_input(given)
            elif given.__class__ is not np.ndarray or given.dtype.kind not in "biuf":
                self._refuse_foreign(given)
        is_array = bool(args) and not isinstance(args[0], mg.Tensor)
        if is_array:
            X = self._received(args[0], first)
            is_array = isinstance(X, mg.Tensor | np.ndarray)
            args = (X, *args[1:])
        outer = self._given_array
        _set_given_array(self, is_array)
        _set_last(self, None)
        try:
            self._scope.name = self._name or kind
            with self._scope:
                found = self.forward(*args, **kwargs)
        finally:
            _set_given_array(self, outer)
        out = found[0] if found.__class__ is tuple else found  # (output, weights)
        if is_array and isinstance(out, mg.Tensor) and out.requires_grad:
            _set_last(self, (args[0], out))
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer computes; each layer writes its own."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def backward(
        self, grad_output: Array | ArrayLike, retain_graph: bool = False
    ) -> NDArray[Any] | None:
        """From ∂L/∂out to ∂L/∂X, which it returns; each parameter's `.grad` is set.

        Returns: None where X needs no gradient, as token ids.
        Raises:  GradientError unless the last call was given an array and recorded a graph;
                 FreedGraphError the second time, unless retain_graph.
        """
        if self._last is None:
            raise GradientError(
                f"{type(self).__name__}.backward(grad_output): the last call kept no graph; call "
                "the layer on an array, or go back from its output: out.backward(grad_output)"
            )
        X, out = self._last
        inputs = [X] if isinstance(X, mg.Tensor) else []
        trained = [p for p in self.parameters() if p.requires_grad]
        gradients = mg.grad(out, inputs + trained, grad_output, retain_graph=retain_graph)
        for p, gradient in zip(trained, gradients[len(inputs) :], strict=True):
            p.grad = gradient
        return gradients[0] if inputs else None

    def _received(self, X: Any, name: str) -> Any:
        """An array of numbers as a leaf, or token ids as an array; anything else as it is."""
        array = X if isinstance(X, np.ndarray) else np.asarray(X) if _is_numbers(X) else None
        if array is None:
            return X
        if self.dtype is not None and array.dtype.kind not in "biuf":
            raise DTypeError(
                f"{type(self).__name__}: {name} must be real numbers, got {array.dtype}"
            )
        if self.dtype is None and array.dtype.kind != "f":
            return array
        dtype = array.dtype if self.dtype is None else self.dtype
        leaf = mg.tensor(array.astype(dtype, copy=False), requires_grad="on demand", name=name)
        mg.mark_parameter(leaf, held=False)
        mg.mark_input(leaf)
        return leaf

    def _refuse_foreign(self, given: Any) -> None:
        """Raise DTypeError for what would lose its gradient, its mask or its meaning here."""
        call = type(self).__name__
        if isinstance(given, np.ma.MaskedArray):
            raise DTypeError(f"{call}: got a masked array, whose mask would be lost; x.filled(0.0)")
        if isinstance(given, np.ndarray):
            if given.dtype.kind in "OMm":
                raise DTypeError(f"{call}: not an array of numbers: its entries are {given.dtype}")
        elif hasattr(given, "__dlpack__"):
            kind = f"{type(given).__module__}.{type(given).__name__}"
            raise DTypeError(f"{call}: got a {kind}; write mg.tensor(x), a copy")

    # ---------------------------------------------------------------- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        held: Any = vars(self).get(name)
        is_buffer = name in self.buffers and isinstance(held, mg.Tensor)
        if is_buffer and isinstance(value, mg.Tensor):
            value = value if value.is_leaf else value.detach()
        elif is_buffer or _is_parameter(held):
            learns = isinstance(value, mg.Tensor) and value.is_leaf and value.requires_grad
            if isinstance(value, mg.Tensor) and held.requires_grad and not learns:
                raise GradientError(
                    f"{type(self).__name__}.{name}: a Tensor that is computed, or needs no "
                    "gradient, cannot take a trained parameter's place; write "
                    f"layer.{name}.assign_(array), or layer.freeze({name!r})"
                )
            if isinstance(value, np.ndarray) or _is_numbers(value):
                held.assign_(np.asarray(value).astype(held.dtype, casting="same_kind"))
                return
        if isinstance(value, set | frozenset | deque) and any(isinstance(x, Module) for x in value):
            raise DTypeError(
                f"{type(self).__name__}.{name}: layers in a {type(value).__name__} are not found; "
                "hold them in a list, a tuple or a dict"
            )
        for path, found in _held(name, value):
            if isinstance(found, Module):
                vars(found).setdefault("_name", path)
            elif found.is_leaf and self._given_array is None:
                mg.mark_parameter(found)
                found.name = found.name or path
        vars(self)[name] = value
        _set_changes(self, self._changes + 1)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        _set_changes(self, self._changes + 1)

    def __getattr__(self, name: str) -> Any:
        owner = vars(self).get(name.removeprefix("grad_"), self)
        if name.startswith("grad_") and (owner is None or isinstance(owner, mg.Tensor)):
            return None if owner is None else owner.grad
        known = [*dir(type(self)), *vars(self)]
        raise MissingNameError(missing(f"{type(self).__name__!r} object", name, known))

    def __getstate__(self) -> dict[str, Any]:
        """What a copy has of this layer: all but the graph of what forward computed and kept."""
        return {
            key: x.detach() if isinstance(x, mg.Tensor) and not x.is_leaf else x
            for key, x in vars(self).items()
        }

    # ---------------------------------------------------------------- what is in it

    def named_modules(self) -> Iterator[tuple[str, Module]]:
        """This module (its path is "") and all below it, each once, with dotted paths."""
        seen: set[int] = set()
        below: list[tuple[str, Module]] = [("", self)]
        while below:
            path, module = below.pop()
            if id(module) not in seen:
                seen.add(id(module))
                yield path, module
                found = [(key, x) for key, x in module._contents() if isinstance(x, Module)]
                below += [(f"{path}.{key}".strip("."), x) for key, x in reversed(found)]

    def named_parameters(self, buffers: bool = False) -> Iterator[tuple[str, mg.Tensor]]:
        """Every parameter with its dotted path, a shared one once; with `buffers` those too."""
        seen: set[int] = set()
        for path, module in self.named_modules():
            for name, leaf in module._contents():
                is_buffer = name in module.buffers
                if isinstance(leaf, Module) or id(leaf) in seen or is_buffer > buffers:
                    continue
                if is_buffer or _is_parameter(leaf):
                    seen.add(id(leaf))
                    mg.mark_parameter(leaf)  # so that it stays one when it is frozen
                    yield f"{path}.{name}".strip("."), leaf

    def _contents(self) -> Iterator[tuple[str, Module | mg.Tensor]]:
        for name, value in vars(self).items():
            yield from _held(name, value)

    def modules(self) -> list[Module]:
        return [module for _, module in self.named_modules()]

    def parameters(self) -> list[mg.Tensor]:
        """Every parameter, once: what an optimizer takes."""
        return [p for _, p in self.named_parameters()]

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """A copy of every parameter and buffer, by path."""
        leaves = self.named_parameters(buffers=True)
        return {path: np.array(leaf.numpy(), order="C") for path, leaf in leaves}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> list[str]:
        """Write arrays into the parameters of these paths; all fit, or nothing is written.

        Args:    strict: False passes over paths that are missing or unexpected, if one fits.
        Returns: those paths, each with what it is.
        Raises:  ArgumentError that lists everything that does not fit.

        >>> from layers import Linear
        >>> state = {"W": np.zeros((3, 2)), "c": np.zeros(2)}
        >>> Linear(3, 2).load_state_dict(state, strict=False)
        ['b: missing', 'c: unexpected']
        """
        leaves = dict(self.named_parameters(buffers=True))
        skipped = [f"{path}: missing" for path in leaves if path not in state]
        skipped += [f"{path}: unexpected" for path in state if path not in leaves]
        new = {path: np.array(state[path]) for path in leaves if path in state}
        wrong = skipped if strict or not new else []
        wrong = wrong + [
            f"{path}: must be {leaf.shape} {leaf.dtype}, got {new[path].shape} {new[path].dtype}"
            for path, leaf in leaves.items()
            if path in new and (leaf.shape, leaf.dtype) != (new[path].shape, new[path].dtype)
        ]
        if wrong:
            call = f"{type(self).__name__}.load_state_dict: nothing was written"
            raise ArgumentError("\n  ".join([call, *wrong]))
        for path, array in new.items():
            leaves[path].assign_(array)
        return skipped

    # ---------------------------------------------------------------- changed as a whole

    def train(self, mode: bool = True) -> Self:
        """Set `training` here and below; returns this module."""
        for module in self.modules():
            module.training = bool(mode)
        return self

    def eval(self) -> Self:
        """The same as `train(False)`."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forget every parameter's gradient."""
        mg.clear_gradients(self.parameters())

    def freeze(self, *patterns: str) -> Self:
        """Train none of these parameters from here on; all of them without a pattern.

        Args:   patterns: names along the paths: "blocks.0" is all of that block, "W_[QV]" two
                matrices of every attention; * stands for anything.
        Raises: ArgumentError for a pattern that no parameter has.

        >>> from layers import Linear, Sequential
        >>> model = Sequential(Linear(3, 5), mg.tanh, Linear(5, 2)).freeze("layers.0")
        >>> [path for path, p in model.named_parameters() if p.requires_grad]
        ['layers.2.W', 'layers.2.b']
        """
        return self._train(patterns, False)

    def unfreeze(self, *patterns: str) -> Self:
        """Train these parameters again; all of them without a pattern. See `freeze`."""
        return self._train(patterns, True)

    def _train(self, patterns: tuple[str, ...], flag: bool) -> Self:
        leaves = dict(self.named_parameters())
        for pattern in patterns or ("*",):
            found = [p for path, p in leaves.items() if fnmatchcase(f".{path}.", f"*.{pattern}.*")]
            if not found and patterns:
                raise ArgumentError(f"freeze: no path has {pattern!r}; there are {[*leaves][:20]}")
            for p in found:
                p.requires_grad = flag
        return self

    def to(self, dtype: DTypeLike) -> Self:
        """Cast every floating parameter and buffer in place, and what layers cast inputs to.

        Args:   dtype: float16, float32 or float64.  Gradients are dropped.
        Raises: DTypeError for any other.

        >>> from layers import Linear
        >>> Linear(3, 2).to(np.float32)(np.ones(3)).dtype
        dtype('float32')
        """
        floats = ("float16", "float32", "float64")
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
        if dtype is None or name not in floats:
            raise DTypeError(f"to(dtype): must be float16, float32 or float64, got {dtype!r}")
        for _, leaf in self.named_parameters(buffers=True):
            if leaf.dtype.kind == "f":
                leaf.cast_(dtype)
        for module in self.modules():
            if module.dtype is not None:
                module.dtype = np.dtype(dtype)
        return self

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}: {sum(p.size for p in self.parameters()):,} parameters"]
        for path, p in self.named_parameters():
            note = "" if p.dtype == np.float64 else f" {p.dtype}"
            lines.append(f"  {path} {p.shape}{note}{'' if p.requires_grad else ' frozen'}")
        return "\n".join(lines)


_set_given_array = Module.__dict__["_given_array"].__set__  # past __setattr__
_set_last = Module.__dict__["_last"].__set__
_set_changes = Module.__dict__["_changes"].__set__
_set_scope = Module.__dict__["_scope"].__set__


@cache
def _described(kind: type[Module]) -> tuple[str, str]:
    """A kind of layer in a path (`self_attention`), and the name of forward's first argument."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind.__name__)
    return words.lower(), next(iter([*signature(kind.forward).parameters][1:]), "")


def scope_of(layer: Module) -> mg.scope:
    """What its calls are made in."""
    layer._scope.name = layer._name or _described(type(layer))[0]  # type: ignore[arg-type]
    return layer._scope


def _held(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The Modules and Tensors in an attribute's value, each with its path."""
    if isinstance(value, Module | mg.Tensor):
        yield name, value
    elif isinstance(value, list | tuple | dict):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _held(f"{name}.{key}", entry)


def _is_parameter(value: Any) -> bool:
    return (
        isinstance(value, mg.Tensor)
        and value.is_leaf
        and mg.is_marked_parameter(value, value.requires_grad)
    )


def _is_numbers(X: Any) -> bool:
    """Whether it is a number, or a list of numbers, of lists of them, and so on."""
    if isinstance(X, list | tuple):
        return all(map(_is_numbers, X))
    return isinstance(X, int | float | np.number)


def named(symbol: str, x: Any) -> Any:
    """The Tensor with its symbol; an array has no name."""
    return x.named(symbol) if isinstance(x, mg.Tensor) else x


def as_array(x: Any, dtype: DTypeLike | None = None) -> Any:
    """A Tensor as it is; anything else as an array."""
    return x if isinstance(x, mg.Tensor) else np.asanyarray(x, dtype)

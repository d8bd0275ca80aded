"""A call of a layer: what it is given, the scope it runs in, and what `backward` goes back from.

`LayerCall.__call__` makes a leaf of an array that it is given (`_received`), so that `backward` has
something to give a gradient to; it enters the layer's scope, by which what is recorded has its
path; and it calls `forward`. Of an array, the layer keeps the result for `layer.backward`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import Any, ClassVar, Self, TypeAlias, TypeVar
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import DTypeError, GradientError, refuse_foreign
from minigrad.habits import instead_of_keywords

__all__ = ["LayerCall"]

Array: TypeAlias = NDArray[Any]

# An array, or a Tensor whose gradient is recorded.
ArrayOrTensor: TypeAlias = mg.Tensor | Array

# What a function returns is of the kind that it takes.
SameArray = TypeVar("SameArray", bound=ArrayOrTensor)


class LayerCall:
    """What a Module does when it is called; what a Module holds is in module.py."""

    # In slots, so that vars(self) holds what the layer is made of and nothing else.
    __slots__ = ("__dict__", "__weakref__", "_changes", "_given_array", "_last", "_scope")
    _given_array: bool | None  # while forward runs: whether the call was given an array
    _last: tuple[Any, mg.Tensor] | None  # input and output of the last call on an array
    _scope: mg.scope  # its calls are made in it; its name is the layer's
    _changes: int  # how often an attribute was set

    _kind: ClassVar[str] = "module"  # its name until a module holds it
    _first: ClassVar[str] = ""  # what forward calls its first argument
    _pair: ClassVar[str] = ""  # the argument of forward by which two are returned
    _keywords: ClassVar[frozenset[str] | None] = None  # the names of all; None if it takes any

    dtype: np.dtype[Any] | None = None
    parameters: Callable[[], list[mg.Tensor]]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward`, in the layer's scope."""
        if kwargs and self._keywords is not None and not kwargs.keys() <= self._keywords:
            _check_arguments(type(self).__name__, self.forward, args, kwargs)
        for value in (*args, *kwargs.values()):
            if isinstance(value, mg.Tensor):
                if value.node is None and (value.needs or mg.listening()):
                    mg.mark_parameter(value, held=False)  # data, unless a layer holds it
                    mg.mark_input(value)
            elif value.__class__ is not np.ndarray:
                refuse_foreign(type(self).__name__, value)
        is_array = bool(args) and (isinstance(args[0], np.ndarray) or is_numbers(args[0]))
        if is_array:
            args = (self._received(np.asarray(args[0])), *args[1:])
        outer = self._given_array
        _set_given_array(self, is_array)
        _set_last(self, None)
        try:
            with self._scope:
                result = self.forward(*args, **kwargs)
        finally:
            _set_given_array(self, outer)
        out = result[0] if result.__class__ is tuple else result  # (output, weights)
        if is_array and isinstance(out, mg.Tensor) and out.requires_grad:
            _set_last(self, (args[0], out))
        if self._pair and isinstance(result, mg.Tensor):
            result.undivided = self._pair
        return result

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer computes; each layer writes its own. Called by its name it is the call."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def backward(
        self, grad_output: ArrayOrTensor | ArrayLike, retain_graph: bool = False
    ) -> Array | None:
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

    def _received(self, array: Array) -> ArrayOrTensor:
        """An array as a leaf; token ids, of a layer without a dtype, as they are."""
        if self.dtype is None and array.dtype.kind != "f":
            return array
        if array.dtype.kind not in "biuf":
            raise DTypeError(
                f"{type(self).__name__}: {self._first} must be real numbers, got {array.dtype}"
            )
        if self.dtype is not None:
            array = array.astype(self.dtype, copy=False)
        leaf = mg.leaf_on_demand(array, self._first)
        mg.mark_parameter(leaf, held=False)
        mg.mark_input(leaf)
        return leaf

    # ---------------------------------------------------------------- how a layer is made

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Make `forward`, called by its name, the call."""
        super().__init_subclass__(**keywords)
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__)
        cls._kind = words.lower()
        arguments = [*signature(cls.forward).parameters.values()][1:]
        names = [argument.name for argument in arguments]
        takes_any = any(argument.kind is argument.VAR_KEYWORD for argument in arguments)
        cls._first = names[0] if names else ""
        cls._pair = next((name for name in names if name.startswith("return_")), "")
        cls._keywords = None if takes_any else frozenset(names)
        forward = vars(cls).get("forward")
        if isinstance(forward, FunctionType):
            cls.forward = _called_by_name(forward)  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        _check_arguments(cls.__name__, cls.__init__, (None, *args), kwargs)
        layer: Self = _empty(cls)
        return layer

    def __reduce__(self) -> tuple[Any, ...]:
        return _empty, (type(self),), self.__getstate__()

    def __init__(self) -> None:
        """A layer without settings; others write their own."""


_set_given_array = LayerCall.__dict__["_given_array"].__set__  # past Module.__setattr__
_set_last = LayerCall.__dict__["_last"].__set__
_set_scope = LayerCall.__dict__["_scope"].__set__
set_changes = LayerCall.__dict__["_changes"].__set__


def _empty(kind: type[LayerCall]) -> Any:
    """A layer that holds nothing yet, as a copy begins."""
    layer = object.__new__(kind)
    _set_given_array(layer, None)
    _set_last(layer, None)
    set_changes(layer, 0)
    _set_scope(layer, mg.scope(kind._kind, ref(layer)))
    return layer


def _called_by_name(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The call of a layer, for whoever writes layer.forward(x); within one, `forward` itself."""

    @wraps(forward)
    def by_name(self: LayerCall, *args: Any, **kwargs: Any) -> Any:
        if self._given_array is None:
            return self(*args, **kwargs)
        return forward(self, *args, **kwargs)

    return by_name


def _check_arguments(
    call: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise DTypeError for arguments that a function does not take, with what stands for them."""
    takes = signature(function)
    try:
        takes.bind(*args, **kwargs)
    except TypeError as error:
        remedy = instead_of_keywords(call, kwargs, takes.parameters)
        raise DTypeError(f"{call}: {error}{remedy}") from None


def is_numbers(X: Any) -> bool:
    """Whether it is a number, or a list of numbers, of lists of them, and so on."""
    if isinstance(X, list | tuple):
        return all(map(is_numbers, X))
    return isinstance(X, int | float | np.number)


def named(symbol: str, x: Any) -> Any:
    """The Tensor with its symbol; an array has no name."""
    return x.named(symbol) if isinstance(x, mg.Tensor) else x


def array_or_tensor(x: Any, dtype: DTypeLike | None = None) -> Any:
    """A Tensor as it is; anything else as an array."""
    return x if isinstance(x, mg.Tensor) else np.asanyarray(x, dtype)

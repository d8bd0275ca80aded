"""Module: a layer with parameters and children, which remembers its last forward.

A layer assigns Tensors and Modules to attributes and writes `forward`; the rest is here.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, wraps
from inspect import signature
from typing import Any, NoReturn, Self, Unpack, get_args, get_origin, get_type_hints
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import (
    ArgumentError,
    DTypeError,
    GradientError,
    MinigradError,
    MissingNameError,
    ShapeError,
    checked_keywords,
    explained,
    without_our_frames,
)
from minigrad.extend import mark_parameter

from .arrays import Array, SameArray
from .parameters import DATA_VIEW, Parameters, held_in, is_parameter, modules_in
from .renamed import old_names

__all__ = ["Module"]


class Module(Parameters):
    """A layer: its parameters are its leaf Tensors, its children the Modules it holds.

    Both are found by attribute, in order of assignment; those in lists, tuples and dicts count too,
    as `blocks.0`, of Tensors the leaves that need a gradient. What forward itself assigns is a
    parameter only if it is a leaf that needs a gradient, or a buffer: not what it keeps to look at,
    nor what it was given. Assigning names what has no name yet. An array or a number assigned
    over a parameter, or a Tensor that needs no gradient, is written into it; a computed one is
    refused. A call opens the scope of the layer's name and runs `forward`. Modules can be copied
    and pickled; a copy has detached what forward computed and kept.

    An array given to `forward` becomes a leaf (integers, such as token ids, stay as they are), and
    `backward` returns its gradient, which is computed only then. The graph of the last forward is
    kept for it only then: called with a Tensor, a layer keeps nothing alive.

    Attributes:
        training: what `train()` and `eval()` set.
        dtype: what arrays are cast to on their way in; None leaves them as they are.
        version: how often an attribute was set or deleted; `mg.compile` compares it.
        buffers: names of the Tensors that are saved with the parameters and are none of them; what
            is assigned to one is detached.
        grad_<name>: short for `<name>.grad`.

    >>> class Twice(Module):
    ...     def __init__(self):
    ...         self.w = mg.tensor([2.0, 3.0], requires_grad=True)
    ...     def forward(self, x):
    ...         return x * self.w
    >>> layer = Twice()
    >>> layer.forward(np.array([5.0, 7.0])).numpy()
    array([10., 21.])
    >>> layer.backward(np.ones(2)), layer.grad_w
    (array([2., 3.]), array([5., 7.]))
    >>> layer
    Twice: 2 parameters
      w (2,)
    """

    # In slots, so that vars(self) holds what the layer itself assigned and nothing else.
    __slots__ = (
        "__dict__", "__weakref__", "_given_array", "_kept", "_last", "_name", "_sessions",
        "training", "version",
    )  # fmt: skip
    _scope = "module"
    _given_array: bool | None  # whether the forward that runs was called on an array, if one runs
    # what attention keeps of a forward on an array
    _kept: dict[str, NDArray[np.generic] | None] | None
    _last: tuple[Callable[[], Any], Callable[[], Any], Any] | None  # input, output, what is held
    _name: str | None
    _sessions: dict[str, Any]  # what `generate` left behind
    dtype: np.dtype[Any] | None = None
    version: int

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if kwargs:
            offered, others = keywords_of(cls)  # type: ignore[arg-type]
            if not others or cls.__module__.startswith("layers."):
                new = {k: v for k, v in kwargs.items() if k not in old_names(cls.__init__)}
                checked_keywords(cls.__name__, new, offered, others)
        layer = super().__new__(cls)
        _set_version(layer, 0)
        layer._given_array, layer._kept = None, None
        layer._last, layer._name = None, None
        layer._sessions, layer.training = {}, True
        return layer

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._scope = re.sub(
            r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__
        ).lower()
        if "version" in vars(cls):
            _refuse_version(cls)
        if "forward" in vars(cls):
            cls.forward = _remembering(cls.forward)  # type: ignore[method-assign]
        if "__init__" in vars(cls) and cls.__module__.startswith("layers."):
            cls.__init__ = explained(cls.__init__)  # type: ignore[method-assign]

    # ------------------------------------------------------------------ calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with _scope(self._name or self._scope):
                return self.forward(*args, **kwargs)
        except MinigradError as error:
            raise without_our_frames(error) from error.__cause__
        except TypeError:
            offered = signature(self.forward).parameters
            if not any(p.kind is p.VAR_KEYWORD for p in offered.values()):
                call = f"{type(self).__name__}({', '.join(offered)})"
                checked_keywords(call, kwargs, offered)
            raise

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer computes; each layer writes its own."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    @explained
    def backward(
        self, grad_output: Array | ArrayLike, retain_graph: bool = False
    ) -> NDArray[np.floating] | None:
        """Go back through the last forward: set each parameter's `.grad`, return X's gradient.

        Args:    grad_output: ∂L/∂out, of the output's shape.
                 retain_graph: keep the graph, so that backward can run again.
        Returns: ∂L/∂X as an array; None if X needs no gradient (token ids, a Tensor without one).
        Raises:  GradientError before any forward, or when input or output was a Tensor and is gone;
                 FreedGraphError the second time, unless the graph was kept.
        """
        X, out = self._recall()
        inputs = [X] if isinstance(X, mg.Tensor) and X.requires_grad else []
        parameters = [p for p in self.parameters() if p.requires_grad]
        gradients = mg.grad(out, inputs + parameters, grad_output, retain_graph=retain_graph)
        for parameter, gradient in zip(parameters, gradients[len(inputs) :], strict=True):
            parameter.grad = gradient
        return gradients[0] if inputs else None

    def _recall(self) -> tuple[Any, Any]:
        """Input and output of the last forward."""
        call = f"{type(self).__name__}.backward(grad_output)"
        if self._last is None:
            raise GradientError(f"{call}: no forward has recorded a graph yet")
        X, out = self._last[0](), self._last[1]()
        if X is None or out is None:
            gone = "output" if out is None else "input"
            given, remedy = "a Tensor", "hold on to both, or pass an array"
            if X is not None and not isinstance(X, mg.Tensor):
                given = "what is no array of floats, as token ids are,"
                remedy = "hold on to the output, out = layer.forward(x)"
            raise GradientError(
                f"{call}: the last forward's {gone} is gone; a layer called with {given} does not "
                f"keep its graph alive: {remedy}"
            )
        return X, out

    def _received(self, X: Any, name: str) -> Any:
        """forward's input: an array of floats as a leaf, anything else as it is.

        The leaf's gradient is computed only if `backward` needs it.
        """
        self._refuse_foreign(X)
        try:
            array = np.asanyarray(X)
            if array.dtype.kind not in "biufc":  # None in a list is not NaN, nor "1.5" a number
                return X
            keeps_dtype = self.dtype is None or array.dtype.kind == "c"
            cast = array if keeps_dtype else array.astype(self.dtype, copy=False)
        except (TypeError, ValueError):
            return X
        self.check_real(array, name)
        if cast.dtype.kind != "f":
            return X
        return mg.tensor(cast, requires_grad="on demand", name=name)

    def _refuse_foreign(self, value: Any) -> None:
        """Raise DTypeError for what would lose its gradient, its mask or its meaning here.

        That is: another library's array, a masked array, an array of dates or objects.
        """
        call = type(self).__name__
        if isinstance(value, np.ndarray):
            if isinstance(value, np.ma.MaskedArray):
                raise DTypeError(
                    f"{call}: got a masked array, whose mask would be lost; write x.filled(0.0), "
                    "or what the masked entries are to be"
                )
            if value.dtype.kind in "OMm":
                raise DTypeError(
                    f"{call}: not an array of numbers: its entries are {value.dtype}; write "
                    "x.astype(float), if numbers are meant"
                )
        elif hasattr(value, "__dlpack__") and not isinstance(value, _ARRAYS):
            kind = f"{type(value).__module__}.{type(value).__name__}"
            raise DTypeError(f"{call}: got a {kind}; write mg.tensor(x), a copy")

    def check_real(self, array: NDArray[np.generic], name: str) -> None:
        """Raise DTypeError for complex entries in a layer of real ones, which would drop half."""
        if array.dtype.kind == "c" and self.dtype is not None and np.dtype(self.dtype).kind == "f":
            raise DTypeError(
                f"{type(self).__name__}({name}): {name} must be real, got {array.dtype}; "
                f"pass {name}.real, or real and imaginary parts side by side"
            )

    # ------------------------------------------------------------------ attributes

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "version":
            _refuse_version(type(self))
        held: Any = self.__dict__.get(name)
        is_held = is_parameter(held) or (name in self.buffers and isinstance(held, mg.Tensor))
        if is_held and _is_written_into(held, name, value, self):
            assigned(held, value)
            return
        if isinstance(value, mg.Tensor):
            if name in self.buffers:
                value = value if value.is_leaf else value.detach()
            elif self._given_array is None:
                mark_parameter(value)
            if value.name is None:
                value.name = name
        elif isinstance(value, _HOLDERS):
            for path, entry in held_in(name, value):
                if isinstance(entry, Module):
                    entry._name = entry._name or path
                elif self._given_array is None and entry.is_leaf and entry.requires_grad:
                    mark_parameter(entry)
                    entry.name = entry.name or path
        elif isinstance(value, _NOT_WALKED) and any(isinstance(x, Module) for x in value):
            raise DTypeError(
                f"{type(self).__name__}.{name}: layers in a {type(value).__name__} are not found, "
                "so they would not be trained; hold them in a list, a tuple or a dict"
            )
        super().__setattr__(name, value)
        _set_version(self, self.version + 1)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        _set_version(self, self.version + 1)

    def __getattr__(self, name: str) -> Any:
        owner = vars(self).get(name.removeprefix("grad_"), self)
        if name.startswith("grad_") and (owner is None or isinstance(owner, mg.Tensor)):
            return None if owner is None else owner.grad
        attributes = [*dir(type(self)), *vars(self)]
        raise MissingNameError(f"{type(self).__name__!r} object", name, "LAYER_HABITS", attributes)

    # ------------------------------------------------------------------ copies

    def __getstate__(self) -> tuple[dict[str, Any], str | None, bool]:
        """What a copy has of this module: everything but the graph of the last forward."""
        held = {name: _without_graph(value) for name, value in vars(self).items()}
        return held, self._name, self.training

    def __setstate__(self, state: tuple[dict[str, Any], str | None, bool]) -> None:
        vars(self).update(state[0])
        self._name, self.training = state[1:]


def named(symbol: str, x: SameArray) -> SameArray:
    """The Tensor with its symbol; an array has no name."""
    if isinstance(x, mg.Tensor):
        x.named(symbol)
    return x


def as_array(x: Any, dtype: DTypeLike | None = None) -> Array:
    """A Tensor, or a shape in its place, as it is; anything else as an array, cast if a dtype."""
    return x if hasattr(x, "__apply__") else np.asanyarray(x, dtype)


def matrices(call: str, **arrays: Array) -> list[Any]:
    """Everything as an array or a Tensor.  Raises: ShapeError for fewer than two axes."""
    converted = {name: as_array(x) for name, x in arrays.items()}
    for name, x in converted.items():
        if x.ndim < 2:
            rule = f"{call}: {name} needs at least two axes, got {x.ndim}"
            raise ShapeError(with_shapes(rule, **{name: x}))
    return list(converted.values())


def with_shapes(text: str, **arrays: Array) -> str:
    """The text of an error, and below it each array's shape and path."""
    lines = [f"  {s}: {np.shape(x)}   {getattr(x, 'path', '')}".rstrip() for s, x in arrays.items()]
    return "\n".join([text, *lines])


def as_named_tensor(x: Array, symbol: str, array: NDArray[np.generic]) -> Array:
    """An array that goes into an op together with x: a Tensor with a symbol if x is a Tensor."""
    return mg.tensor(array, name=symbol) if isinstance(x, mg.Tensor) else array


def _remembering(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A layer's forward that takes arrays too, and keeps input and output for `backward`."""
    first = next(iter(list(signature(forward).parameters)[1:]), "")
    forward = explained(forward)

    @wraps(forward)
    def remembering(self: Module, *args: Any, **kwargs: Any) -> Any:
        if not args:
            if first not in kwargs:
                return forward(self, **kwargs)
            args = (kwargs.pop(first),)
        value, *rest = args
        X = value if isinstance(value, mg.Tensor) else self._received(value, first)
        others = (*rest, *kwargs.values())
        for other in others:
            self._refuse_foreign(other)
        mg.mark_input(X, *others)
        for given in (X, *others):
            if isinstance(given, mg.Tensor) and given.is_leaf:
                mark_parameter(given, held=False)
        outer = self._given_array  # of a subclass's forward that called this one
        _set_given_array(self, X is not value and value.__class__ in _ARRAY_KINDS)
        try:
            returned = forward(self, X, *rest, **kwargs)
        finally:
            _set_given_array(self, outer)
        out = returned[0] if returned.__class__ is tuple else returned  # (output, weights)
        if isinstance(out, mg.Tensor) and out.requires_grad:
            input_of = ref(X) if isinstance(X, mg.Tensor) else lambda: X
            _set_last(self, (input_of, ref(out), None if X is value else (X, out)))
        else:
            _set_last(self, None)
        return returned

    return remembering


@cache
def keywords_of(kind: type[Module]) -> tuple[tuple[str, ...], bool]:
    """The keywords that a layer is made with, and whether its `**` may take others."""
    parameters = [*signature(kind.__init__).parameters.values()][1:]
    names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    if len(names) < len(parameters):
        try:
            options = get_type_hints(kind.__init__).get(parameters[-1].name)
        except NameError:  # imported for type checkers alone
            return tuple(names), True
        if get_origin(options) is not Unpack:
            return tuple(names), True
        names += get_type_hints(get_args(options)[0])
    return tuple(names), False


_set_last = Module.__dict__["_last"].__set__  # past __setattr__, which is for what layers assign
_set_given_array = Module.__dict__["_given_array"].__set__
_set_version = Module.__dict__["version"].__set__
_scope = lru_cache(mg.scope)  # a scope keeps no state, so the same one may be entered again

_ARRAYS = (mg.Tensor, np.ndarray)
# by class: a tracer is none of these
_ARRAY_KINDS = (np.ndarray, list, tuple, DATA_VIEW)
_HOLDERS = (Module, list, tuple, dict)  # of Modules and parameters
# Layers in these would have no paths, or could not be copied.
_NOT_WALKED: tuple[type[Iterable[Any]], ...] = (set, frozenset, deque, type({}.values()))


def _without_graph(value: Any) -> Any:
    """An attribute's value, or what a list, tuple or dict holds; computed Tensors detached."""
    if isinstance(value, mg.Tensor):
        return value if value.is_leaf else value.detach()
    if value.__class__ in (list, tuple):
        held = [_without_graph(entry) for entry in value]
        changed = any(new is not old for new, old in zip(held, value, strict=True))
        return value.__class__(held) if changed else value
    if value.__class__ is dict:
        entries = {key: _without_graph(entry) for key, entry in value.items()}
        return entries if any(entries[key] is not value[key] for key in value) else value
    return value


def _refuse_version(kind: type[Module]) -> NoReturn:
    raise ArgumentError(
        f"{kind.__name__}.version: Module counts there how often an attribute was set, as "
        "mg.compile needs; give yours another name"
    )


@explained
def assigned(parameter: mg.Tensor, value: Any) -> None:
    """Write a value assigned over a parameter into it, cast to its dtype."""
    parameter.assign_(np.asarray(value).astype(parameter.dtype, casting="same_kind", copy=False))


def _is_written_into(held: mg.Tensor, name: str, value: Any, layer: Module) -> bool:
    """Whether a value assigned over a parameter is written into it; else it takes its place.

    Raises: GradientError for a Tensor that was computed: in a parameter's place it would be gone
            from the layer's parameters.
    """
    if isinstance(value, np.ndarray | np.generic):  # arithmetic gives an np.float64 for 0-d arrays
        return True
    if isinstance(value, int | float | list | tuple):
        return held.requires_grad and not any(modules_in(name, value))
    if not isinstance(value, mg.Tensor):
        return False
    if held.requires_grad and not value.is_leaf:
        path = f"{type(layer).__name__}.{name}"
        raise GradientError(
            f"{path}: a parameter cannot be replaced by a Tensor computed by "
            f"{value.node.op.name if value.node else 'an op'}, or the layer would lose it; write "
            f"its new values into it: layer.{name}.assign_(array), with arrays as "
            f"layer.{name}.numpy() and layer.grad_{name} are"
        )
    alike = (value.shape, value.dtype) == (held.shape, held.dtype)
    frozen = np.shares_memory(value.numpy(), held.numpy())  # layer.W = layer.W.detach()
    return held.requires_grad and not value.requires_grad and alike and not frozen

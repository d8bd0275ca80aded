"""Op: what a declaration becomes, which is called as NumPy is; and the registry of all ops.

An op is declared by `@op` and its rules, as the example of `op` shows; what a rule may name, and
what formulas may, declaration.py says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property, update_wrapper
from types import FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeAlias

import numpy as np

from ..habits import instead_of_keywords
from .declaration import Arguments, Array, Declaration, DType, Kernel
from .errors import DeclarationError, DTypeError, GradientError, MinigradError
from .plan import evaluated, tuple_of

__all__ = [
    "FASTER",
    "Array",
    "Axes",
    "DType",
    "Op",
    "array_of",
    "checked_array",
    "is_tensor",
    "op",
    "owner_of",
    "refuse_foreign",
    "registry",
    "users_frame",
    "view_key",
]

P = ParamSpec("P")
Axes: TypeAlias = int | tuple[int, ...] | None

FASTER: dict[str, Callable[..., bool]] = {}
"""What may do the work of a function that is no op, by its name; it answers whether it did."""

NUMBERS = {float, int, bool, complex, type(None)}  # which kernels take as they are
PLAIN = NUMBERS | {str, tuple, slice, np.ndarray}  # what most settings are
NUMERIC = "biufc"  # kinds of dtypes
# Packages of whose frames none is where a user made something.
OUR_PACKAGES = {"minigrad"} | {
    f"minigrad.{room}"
    for room in ("engine", "ops", "optim", "record", "fast", "fast.compile", "distributed")
}
EXPLAINED = (MinigradError, ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError)

registry: dict[str, Op] = {}


def op(**declaration: Any) -> Declare:
    r"""Declare an op: the decorated function is its kernel. Of its rules see declaration.py.

    Args:
        tex: LaTeX of the result; `<x>` stands for the input or setting x. It may be a function of
            the call, whose parameters name inputs and `out` (as shape and dtype) and settings.
        vjp_tex: for each input, LaTeX of its gradient, or such a function, which may name `i` too;
            `<g>` is the output's gradient, `<out>` the output.
        flops: such a function, to how many operations.
        samples: function of a Generator to calls that exercise the op, edge cases included.
        requires: function of the arguments to the rule they break, or None; asked after a failure.
        auxiliary: names of by-products, constants, that the kernel returns after the result.
        variadic: the one input is a sequence of any length.
        analytic: whether the kernel is complex-analytic, so that the complex step may check it.
        kinks: where the rule is a convention, as there is no derivative, so that checks leave it
            out: function of inputs, settings and `out` to a truth value for each entry, or for all.
        saturates: what to call entries that hardly change with the inputs, as "units dead", and a
            function of `out` and settings to a truth value for each.
        time_axis: of the first input, where the op computes one step after the other along it.
    Raises: DeclarationError for names that are no parameters, or an op of another file's name.

    >>> import minigrad as mg
    >>> @mg.op(tex=r"<x>^3", vjp_tex={"x": r"3 <g> \odot <x>^2"})
    ... def cube(x):
    ...     return x**3
    >>> @cube.vjp("x")
    ... def _(g, x):
    ...     return 3 * g * x**2
    >>> mg.grad(cube(x := mg.tensor(2.0, requires_grad=True)), x)
    array(12.)
    """

    def declare(kernel: Callable[P, Any]) -> DeclaredOp[P]:
        before = registry.get(kernel.__name__)
        first = kernel.__module__ if before is None else before.kernel.__module__
        if first != kernel.__module__:
            raise DeclarationError(f"op {kernel.__name__}: declared twice, first in {first}")
        new = registry[kernel.__name__] = Op(kernel, **declaration)  # a notebook's cell runs twice
        return new  # type: ignore[return-value]

    return declare


class Declare(Protocol):
    """A decorator that makes an op of a kernel; the op takes the kernel's parameters."""

    def __call__(self, kernel: Callable[P, Any], /) -> DeclaredOp[P]: ...


class Op(Declaration):
    """An operation. Called on plain arrays it is its NumPy kernel; with a Tensor it is recorded.

    Attributes: those of its Declaration, and
        flat: the kernel, as a function of inputs and settings one after the other.
        faster: from arrays and settings, an Op to run in place of this one, or None: see fast; it
            is asked where the first input has more than `above` entries.
    """

    def __post_init__(self) -> None:
        update_wrapper(self, self.kernel)
        super().__post_init__()
        parameters = self.signature.parameters
        self.defaults = tuple(parameters[name].default for name in self.settings)
        self.faster: Callable[[Sequence[Any], Arguments], Op | None] | None = None
        self.above = 0
        in_order = tuple(parameters) == self.inputs + self.settings and not self.variadic
        has_all = inspect.Parameter.empty not in self.defaults
        self.arity = len(self.inputs) if in_order and has_all else -1  # so many need no binding
        self.flat = self._flattened()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != self.arity:
            inputs, settings = self.bound(args, kwargs)
        else:
            inputs, settings = args, self.defaults
        for x in inputs:
            apply = getattr(x, "__apply__", None)  # a Tensor has it
            if apply is not None:
                return apply(self, inputs, settings)
        inputs = tuple([x if x.__class__ in NUMBERS else checked_array(self, x) for x in inputs])
        try:
            chosen = self.choose(inputs, settings)
            result = chosen.flat(*inputs, *settings)
        except EXPLAINED as error:
            raise self.explain(error, inputs, settings) from self.cause(error)
        return result[0] if chosen.auxiliary else result

    def bound(self, args: Arguments, kwargs: dict[str, Any]) -> tuple[Arguments, Arguments]:
        """The inputs and the settings of a call; a Tensor among the settings as its array.

        Raises: DTypeError for what does not fit; GradientError for a setting that requires one.
        """
        try:
            inputs, settings = self._bind(*args, **kwargs)
        except TypeError as error:
            message = str(error).removeprefix("<lambda>() ")
            remedy = instead_of_keywords(self.name, kwargs, self.signature.parameters)
            raise DTypeError(f"{self}: {message}{remedy}") from None
        for value in settings:
            if value.__class__ not in PLAIN:
                return inputs, tuple(map(self._plain, self.settings, settings))
        return inputs, settings

    def _plain(self, name: str, value: Any) -> Any:
        """A setting; of a Tensor its array."""
        if is_tensor(value):
            if value.requires_grad:
                raise GradientError(f"{self}: no gradient flows into {name}; pass {name}.detach()")
            value = value.numpy()
        is_array = hasattr(value, "__dlpack__") and not isinstance(value, np.generic)
        return checked_array(self, value) if is_array else value  # of a subclass, the plain array

    @cached_property
    def _bind(self) -> Callable[..., tuple[Arguments, Arguments]]:
        """(inputs, settings) from the arguments of a call.

        Python itself binds them to the parameters of a function that is written for it:
        `signature.bind` takes 2 µs more.
        """
        parameters = self.signature.parameters.values()
        bare = [p.replace(annotation=p.empty, default=p.empty) for p in parameters]
        inputs = f"tuple({self.inputs[0]})" if self.variadic else tuple_of(self.inputs)
        names = str(inspect.Signature(bare))[1:-1]
        bind: FunctionType = evaluated(f"lambda {names}: ({inputs}, {tuple_of(self.settings)})")
        kernel: Any = inspect.unwrap(self.kernel)
        bind.__defaults__ = kernel.__defaults__
        bind.__kwdefaults__ = kernel.__kwdefaults__
        return bind

    def _flattened(self) -> Kernel:
        """The kernel, as a function of inputs and settings one after the other.

        It is the kernel itself where that takes them so; else it is written, since passing them on
        by a loop takes 1 µs more.
        """
        names = (*self.inputs, *self.settings)
        head, value = ", ".join(names), {name: name for name in names}
        if self.variadic:  # the settings come last
            n = len(self.settings)
            head, value = "*v", {name: f"v[{k - n}]" for k, name in enumerate(self.settings)}
            value[self.inputs[0]] = f"v[:-{n}]" if n else "v"
        passed = []
        for name, parameter in self.signature.parameters.items():
            by_name = f"{name}=" if parameter.kind is parameter.KEYWORD_ONLY else ""
            many = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
            passed.append(many + by_name + value[name])
        if ", ".join(passed) == head:
            return self.kernel
        flat: Kernel = evaluated(
            f"lambda {head}: _kernel({', '.join(passed)})", _kernel=self.kernel
        )
        return flat

    def choose(self, arrays: Sequence[Any], settings: Arguments) -> Op:
        """What runs on these: itself, or a faster op."""
        if self.faster is None or getattr(arrays[0], "size", 0) <= self.above:
            return self
        return self.faster(arrays, settings) or self

    def __get__(self, instance: object, owner: type) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        return self.name  # copied and pickled by name, as functions are

    def __repr__(self) -> str:
        return f"<op {self}>"


if TYPE_CHECKING:

    class DeclaredOp(Op, Generic[P]):
        """An op, called with its kernel's parameters: so type checkers see them."""

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


# ---------------------------------------------------------------- frames, Tensors and arrays


def users_frame(frame: FrameType) -> FrameType:
    """The innermost frame, from this one outwards, that is not of our packages."""
    while frame.f_globals.get("__package__") in OUR_PACKAGES and frame.f_back is not None:
        frame = frame.f_back
    return frame


def is_tensor(x: object) -> bool:
    """Whether x is a Tensor: kernels and rules ask, whose own file may not import Tensor."""
    return hasattr(x, "__apply__")


def array_of(x: Any) -> Any:
    """The array of a Tensor; anything else as it is."""
    return x._data if is_tensor(x) else x


def owner_of(array: Array) -> Array:
    """The array whose memory this one shows."""
    base = array.base
    while base is not None:
        array = base if isinstance(base, np.ndarray) else array
        base = getattr(base, "base", None)  # of what as_strided puts between two arrays, too
    return array


def view_key(array: Array) -> tuple[Any, ...]:
    """Equal for two arrays that show the same entries of the same memory in the same way."""
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype


def checked_array(what: object, x: Any) -> Any:
    """An argument as an array of numbers; `what` is what it is an argument of.

    Raises: DTypeError for a list of Tensors, an array of another library, a masked array, and
        entries that are no numbers.
    """
    _refuse_others(what, x)
    try:
        array = np.asarray(x)
    except (ValueError, TypeError) as error:
        raise DTypeError(f"{what}: not an array of numbers: {error}") from None
    if array.dtype.kind not in NUMERIC:
        raise DTypeError(f"{what}: not an array of numbers, but of {array.dtype}")
    return array


def _refuse_others(what: object, x: Any) -> None:
    """Raise DTypeError for what NumPy would take for an array, and lose a part of it."""
    if x.__class__ in (list, tuple):
        for entry in x:
            _refuse_others(what, entry)
    elif is_tensor(x):
        raise DTypeError(f"{what}: got a list of Tensors; write mg.stack([a, b])")
    else:
        refuse_foreign(what, x)


def refuse_foreign(what: object, x: Any) -> None:
    """Raise DTypeError for a masked array, or an array of another library."""
    if isinstance(x, np.ma.MaskedArray):
        raise DTypeError(f"{what}: got a masked array, whose mask would be lost; x.filled(0.0)")
    if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray | np.generic):
        kind = f"{type(x).__module__}.{type(x).__name__}"
        raise DTypeError(f"{what}: got a {kind}; write mg.tensor(x.numpy()), which copies it")

r"""Op: one declaration per operation, and the registry of them all.

A declaration holds the forward kernel (plain arrays in, plain array out), a backward rule for each
input, both formulas in LaTeX, the cost, and samples that exercise it. The rest of the project reads
the registry.

    @op(
        tex=r"<a> \odot <b>",                                      # <name>: an input or a setting
        vjp_tex={"a": r"<g> \odot <b>", "b": r"<g> \odot <a>"},     # its keys are the op's inputs
        flops=lambda out: out.size,
        samples=pairs,
    )
    def multiply(a, b): ...

    @multiply.vjp("a")
    def _(g, b):                                                # names b, so b is saved for a
        return g * b

A rule's first parameter is `g`, the gradient of the output. The others say what it needs: an input,
a setting, `out`, an input's shape as `<input>_shape`, or a by-product of the kernel (`auxiliary=`);
a rule for several inputs may take `needed`, one truth value each; a rule of an op with any number
of inputs may take `i`, the position of the wanted one, and `others`, every input but that one. The
engine saves exactly what is named. A rule must not write to its arguments, nor keep an array that
it returns; it returns an array, or a `SparseGradient` where most of it is zeros.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, ParamSpec, Protocol, TypeAlias

import numpy as np

from .arguments import NUMERIC, is_foreign, is_masked, operand
from .errors import DeclarationError, DTypeError, MinigradError, ShapeError
from .plan import FasterKernel, Plan, Rule, declare_rule, parameters_of, tuple_of
from .refusals import EXPLAINED, kind_of, unknown_keyword, without_our_frames
from .types import Arguments, DType, Function, Kernel, Tex

__all__ = [
    "Axes",
    "Call",
    "Declare",
    "Op",
    "Plan",
    "Shaped",
    "call",
    "op",
    "registry",
]


P = ParamSpec("P")
Axes: TypeAlias = int | tuple[int, ...] | None

_KNOWN = {np.ndarray, float, int, bool, str, tuple, slice, type(None)}  # settings to take as is
PYTHON_NUMBERS = {float, int, bool, complex, type(None)}  # which kernels take as they are


class Declare(Protocol):
    """A decorator that makes an op of a kernel; the op takes the kernel's parameters."""

    def __call__(self, kernel: Callable[P, Any], /) -> DeclaredOp[P]: ...


class Call(NamedTuple):
    """One sample call of an op."""

    args: Arguments
    kwargs: dict[str, Any]


def call(*args: Any, **kwargs: Any) -> Call:
    """A sample call, written as the call itself: `call(x, axis=0)`."""
    return Call(args, kwargs)


class Shaped(NamedTuple):
    """Shape and dtype of an array: all that formulas and costs may depend on."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    @classmethod
    def of(cls, value: Any) -> Any:
        """Shape and dtype of an array or a number; None stays None."""
        if value is None or value.__class__ is cls:
            return value
        return cls(np.shape(value), getattr(value, "dtype", np.dtype(type(value))))


@dataclass(eq=False, repr=False)
class Op:
    """An operation. Called on plain arrays it is its NumPy kernel; with a Tensor it is recorded.

    Attributes: the arguments of `op`, and
        name: of the kernel.  inputs, settings: names of its parameters.  rules: by input.
        overlay: a faster kernel that runs on some arrays in place of this one, or None.
    """

    fast: ClassVar[Any]  # declares an overlay; minigrad/fast attaches it

    kernel: Kernel
    _: KW_ONLY
    tex: Tex
    vjp_tex: dict[str, Tex]
    flops: Callable[..., float] | None = None
    samples: Callable[[np.random.Generator], Iterable[Call]] = lambda rng: ()
    analytic: bool = True
    auxiliary: tuple[str, ...] = ()
    variadic: bool = False
    requires: Callable[..., str | None] | None = None
    effect: bool = False
    saturates: tuple[str, Kernel] | None = None
    kinks: Kernel | None = None

    def __post_init__(self) -> None:
        update_wrapper(self, self.kernel)
        self.name = self.kernel.__name__
        self.signature = inspect.signature(self.kernel)
        parameters = self.signature.parameters
        self.inputs = tuple(name for name in parameters if name in self.vjp_tex)
        self.settings = tuple(name for name in parameters if name not in self.vjp_tex)
        self._refuse_strange_names()
        self.rules: dict[str, Rule] = {}
        self.plans: dict[int, Plan] = {}
        self.overlay: FasterKernel | None = None  # it runs instead on some arrays
        self.defaults = tuple(parameters[name].default for name in self.settings)
        in_order = tuple(parameters) == self.inputs + self.settings and not self.variadic
        needs_binding = not in_order or inspect.Parameter.empty in self.defaults
        self.arity = -1 if needs_binding else len(self.inputs)  # so many need no binding

    def vjp(self, *inputs: str) -> Callable[[Function], Function]:
        """Declare the backward rule of one input, or of several at once, which gives a tuple."""
        if self.overlay is not None:
            self.overlay.plans.clear()
        return declare_rule(self, self.rules, self.plans, self.auxiliary, inputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != self.arity:
            inputs, settings = self._bound(args, kwargs)
        else:
            inputs, settings = args, self.defaults
        for values in (inputs, settings):
            for value in values:
                apply = getattr(value, "__apply__", None)  # a Tensor has it
                if apply is not None:
                    try:
                        return apply(self, inputs, settings)
                    except MinigradError as error:
                        raise without_our_frames(error) from error.__cause__
        inputs = tuple([x if x.__class__ in PYTHON_NUMBERS else self.checked(x) for x in inputs])
        apply = next((x.__apply__ for x in inputs if hasattr(x, "__apply__")), None)
        if apply is not None:  # a list of Tensors
            return apply(self, inputs, settings)
        try:
            chosen = self.chosen(inputs, settings) or self
            result = chosen.forward(*inputs, *settings)
        except EXPLAINED as error:
            raise self.explain(error, inputs, settings) from self.cause(error)
        return result[0] if chosen.auxiliary else result

    def _bound(self, args: Arguments, kwargs: dict[str, Any]) -> tuple[Arguments, Arguments]:
        """The inputs and the settings of a call. Raises: DTypeError for what cannot be either."""
        try:
            inputs, settings = self.bind(*args, **kwargs)
        except TypeError as error:
            text = str(error).replace("<lambda>()", self.name).replace("<lambda>", self.name)
            unknown = unknown_keyword(self._called, kwargs, self.signature.parameters)
            raise unknown or DTypeError(f"{self._called}: {text}") from None
        if self.variadic and any(value is None for value in inputs):
            raise DTypeError(f"{self._called}: one of {self.inputs[0]} is None")
        for value in settings:
            if value.__class__ not in _KNOWN and (is_foreign(value) or is_masked(value)):
                self.array(value)  # raises
        return inputs, settings

    def array(self, value: Any) -> Any:
        """An input as an array; a list of Tensors as the Tensor that stacks them: see `operand`."""
        return operand(self._called, value, registry.get("stack"))

    def checked(self, value: Any) -> Any:
        """An input as the kernel takes it: lists become arrays, all else is left as it is."""
        if isinstance(value, np.ndarray | np.generic):
            is_taken = value.dtype.kind in NUMERIC and not is_masked(value)
        else:
            is_taken = value.__class__ not in (list, tuple) and not is_foreign(value)
        return value if is_taken else self.array(value)

    def cause(self, error: Exception) -> Exception | None:
        """The kernel's error as the cause of a failed call, if a user wrote the kernel."""
        return None if self.kernel.__module__.startswith("minigrad.") else error

    @property
    def _called(self) -> str:
        return f"{self.name}({', '.join(self.signature.parameters)})"

    def input_name(self, i: int) -> str:
        """The name of the input at position i."""
        return self.inputs[0 if self.variadic else i]

    def rule_for(self, name: str) -> Rule:
        """The rule of an input."""
        if name not in self.rules:
            raise DeclarationError(f"op {self.name}: no backward rule for input {name!r}")
        return self.rules[name]

    def plan(self, key: int) -> Plan:
        """Make the plan of a key: see `Plan`."""
        self.plans[key] = plan = Plan(self, key)
        return plan

    def chosen(self, inputs: Sequence[object], settings: Sequence[object]) -> FasterKernel | None:
        """The overlay, if it runs on these plain arrays in place of the kernel."""
        overlay = self.overlay
        return overlay if overlay is not None and overlay.takes(inputs, settings) else None

    # Generated on first use, so that Python itself binds and checks the arguments.

    @cached_property
    def bind(self) -> Callable[..., tuple[Arguments, Arguments]]:
        """(inputs, settings) from the arguments of a call."""
        namespace: dict[str, Any] = {}
        parameters: list[str] = []
        star = False
        for name, parameter in self.signature.parameters.items():
            is_star = parameter.kind is parameter.VAR_POSITIONAL
            is_keyword = parameter.kind is parameter.KEYWORD_ONLY
            if is_keyword and not star:
                parameters.append("*")
            star = star or is_star or is_keyword
            default = "" if parameter.default is parameter.empty else f"=default_{name}"
            namespace[f"default_{name}"] = parameter.default
            parameters.append(f"*{name}" if is_star else f"{name}{default}")
        first = self.inputs[0]
        inputs = f"tuple({first})" if self.variadic else tuple_of([*self.inputs])
        body = f"({inputs}, {tuple_of([*self.settings])})"
        return eval(f"lambda {', '.join(parameters)}: {body}", namespace)

    @cached_property
    def forward(self) -> Kernel:
        """The kernel, called with inputs and settings one after the other."""
        return self.flat(self.kernel)

    def flat(self, kernel: Kernel) -> Kernel:
        """A kernel of this op's signature as a function of inputs and settings, in order."""
        order, called = ", ".join(self.inputs + self.settings), self.arguments({})
        if called == order and not self.variadic:
            return kernel
        flat: Kernel = eval(f"lambda {order}: _kernel({called})", {"_kernel": kernel})
        if not self.variadic:
            return flat

        def of_any_number(*values: Any) -> Any:
            count = len(values) - len(self.settings)
            return flat(values[:count], *values[count:])

        return of_any_number

    def arguments(self, given: dict[str, str]) -> str:
        """The source of a call's arguments: an expression of `given`, or the parameter's name."""
        passed = []
        for name, parameter in self.signature.parameters.items():
            is_star = parameter.kind is parameter.VAR_POSITIONAL
            is_keyword = parameter.kind is parameter.KEYWORD_ONLY
            passed.append(f"{'*' * is_star}{f'{name}=' * is_keyword}{given.get(name, name)}")
        return ", ".join(passed)

    def input_names(self, count: int) -> list[str]:
        """The inputs' names, `arrays0`, `arrays1` … where there may be any number."""
        return [f"{self.inputs[0]}{j}" for j in range(count)] if self.variadic else [*self.inputs]

    # ------------------------------------------------------------------ a call's formulas and cost

    def call_by_name(self, function: Callable[..., Any], **known: Any) -> Any:
        """Call `function` with those of `known` that its parameters name."""
        return function(*(known[name] for name in parameters_of(function)))

    def _named_values(
        self, inputs: Sequence[object], settings: Sequence[object], out: object
    ) -> dict[str, Any]:
        """What formulas and costs may name: shapes and dtypes of arrays, values of settings."""
        shaped = tuple([Shaped.of(x) for x in inputs])
        named = (
            {self.inputs[0]: shaped}
            if self.variadic
            else dict(zip(self.inputs, shaped, strict=True))
        )
        return named | dict(zip(self.settings, settings, strict=True)) | {"out": Shaped.of(out)}

    def count_flops(
        self, inputs: Sequence[object], settings: Sequence[object], out: object
    ) -> int | None:
        """Floating-point operations of one forward call, None where no cost is declared."""
        if self.flops is None:
            return None
        return int(self.call_by_name(self.flops, **self._named_values(inputs, settings, out)))

    def formulas(
        self, inputs: Sequence[object], settings: Sequence[object], out: object
    ) -> tuple[str, dict[str, str]]:
        """A call's formula, and those of its rules, without the terms of inputs that are None."""
        known = self._named_values(inputs, settings, out)
        names = self.input_names(len(inputs))
        values = dict(zip(names, inputs, strict=True)) | known
        given = {"g", "out"} | {name for name, value in values.items() if value is not None}

        def formula(declared: Tex, i: int) -> str:
            text = declared
            if not isinstance(text, str):
                text = self.call_by_name(text, **{"i": i} | known)
            for name in set(re.findall(r"<(\w+)>", text)) - given:
                text = re.sub(rf" (\+|\\odot) <{name}>", "", text)
            return text

        rules = {n: formula(self.vjp_tex[self.input_name(i)], i) for i, n in enumerate(names)}
        return formula(self.tex, 0), rules

    def explain(self, error: Exception, inputs: Arguments, settings: Arguments) -> MinigradError:
        """The error of a failed call: the call, the rule it broke, each input's shape and path."""
        broken = self.requires(*inputs, *settings) if self.requires else None
        if isinstance(error, MinigradError):
            kind = type(error)
        else:
            kind = ShapeError if broken else kind_of(error)
        lines = [f"{self._called}: {broken or error}"]
        names = (
            [f"{self.inputs[0]}[{i}]" for i in range(len(inputs))] if self.variadic else self.inputs
        )
        for name, value in zip(names, inputs, strict=True):
            shape, dtype = np.shape(value), getattr(value, "dtype", type(value).__name__)
            lines.append(f"  {name}: {shape} {dtype}   {getattr(value, 'path', '')}".rstrip())
        for name, value in zip(self.settings, settings, strict=True):
            shown = f"array {value.shape}" if isinstance(value, np.ndarray) else repr(value)
            lines.append(f"  {name} = {shown[:80]}")
        return kind("\n".join(lines))

    def _refuse_strange_names(self) -> None:
        known = {*self.signature.parameters}
        of_a_call = {"out", *known, *(("i",) if self.variadic else ())}
        if "out" in known:
            raise DeclarationError(f"op {self.name}: out is the result, and no parameter's name")
        declared = [("vjp_tex", known, tuple(self.vjp_tex))]
        if self.flops:
            declared.append(("flops", of_a_call, parameters_of(self.flops)))
        for name, formula in {**self.vjp_tex, "tex": self.tex}.items():
            if callable(formula):
                declared.append((f"the formula of {name}", of_a_call, parameters_of(formula)))
        for what, allowed, names in declared:
            if strange := [name for name in names if name not in allowed]:
                raise DeclarationError(
                    f"op {self.name}: {what} names {strange}, which are no parameters"
                )
        if not self.inputs or (self.variadic and len(self.inputs) != 1):
            rule = "variadic=True takes one input" if self.variadic else "vjp_tex names no input"
            raise DeclarationError(f"op {self.name}: {rule}, got {self.inputs}")

    def __reduce__(self) -> str:
        return self.name  # copied and pickled by name, as functions are

    def __repr__(self) -> str:
        return f"<op {self._called}>"

    def __get__(self, instance: object, owner: type) -> Op | MethodType:
        return self if instance is None else MethodType(self, instance)


registry: dict[str, Op] = {}


if TYPE_CHECKING:

    class DeclaredOp(Op, Generic[P]):
        """An op, called with its kernel's parameters: so type checkers see them."""

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


def op(**declaration: Any) -> Declare:
    r"""Declare an op: the decorated function is its kernel. See the top of this file.

    Args:
        tex: LaTeX of the result; `<x>` stands for the input or setting x. It may be a function of
            the call, whose parameters name inputs (as shape and dtype), settings
            and `out`.
        vjp_tex: for each input, LaTeX of its gradient, or such a function, which may name `i` too,
            the position of one of many inputs; `<g>` is the output's gradient, `<out>` the output.
        flops: function of any of the inputs, settings and `out` (shapes and dtypes, no entries) to
            operations; without it the cost is not known, and no view claims one. What a rule costs
            is counted by running it (minigrad/recording/shapes.py).
        samples: function of a Generator to calls that exercise the op, edge cases included.
        analytic: whether the kernel is complex-analytic, so that the complex step may check it.
        auxiliary: names of by-products, constant to differentiation, that the kernel returns after
            the result.
        variadic: the one input is a sequence of any length.
        requires: function of the arguments to the rule they break, or None; it is called only when
            the kernel failed.
        effect: whether kernel or rules do more than give a result, such as to send it: no call of
            theirs is dropped, merged with another or moved past another that has an effect.
        saturates: where the result hardly changes with the inputs: what to call such entries, as
            "units dead", and a function of `out` and settings to one truth value for each.
        kinks: where the op has no derivative, so that the rule is a convention: a function of any
            of the inputs, settings and `out` to one truth value for each entry of `out`, or for
            all. Checks leave these out.
    Raises: DeclarationError for names that are no parameters, or an op of another file's name.

    >>> import numpy as np, minigrad as mg
    >>> @mg.op(tex=r"<x>^3", vjp_tex={"x": r"3 <g> \odot <x>^2"})
    ... def cube(x):
    ...     return x**3
    >>> @cube.vjp("x")
    ... def _(g, x):
    ...     return 3 * g * x**2
    >>> mg.grad(cube(x := mg.tensor(2.0, requires_grad=True)), x)
    array(12.)
    >>> del mg.registry["cube"]
    """

    def declare(kernel: Callable[P, Any]) -> DeclaredOp[P]:
        before = registry.get(kernel.__name__)
        if before is not None and before.kernel.__module__ != kernel.__module__:
            raise DeclarationError(
                f"op {kernel.__name__}: declared twice, first in {before.kernel.__module__}"
            )
        if not {"tex", "vjp_tex"} <= declaration.keys():
            raise DeclarationError(
                f"op {kernel.__name__}: formulas are missing; write "
                '@mg.op(tex=r"<x>^2", vjp_tex={"x": r"2 <g> <x>"}), with those of your function'
            )
        made = registry[kernel.__name__] = Op(kernel, **declaration)  # a cell may run twice
        return made  # type: ignore[return-value]

    return declare

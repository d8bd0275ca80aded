r"""What an op declares: its kernel, its rules, and what views and errors read from both.

A declaration holds the forward kernel (plain arrays in, plain array out), a backward rule for each
input, both formulas in LaTeX, the cost, and samples that exercise it: see `op`, which shows one.

A rule's first parameter is `g`, the gradient of the output. The others say what it needs, and the
engine saves exactly that: an input, a setting, `out`, the shape of an input as `<input>_shape`, or
a by-product of the kernel (`auxiliary=`). Where the one input is any number of arrays, a rule may
also take `i`, the position of the one whose gradient is wanted, and `others`, all but that one. A
rule for several inputs gives a tuple, and may take, last, `needed`, one truth value each; there is
one such rule an op. A rule must not write to what it is given, nor keep what it returns.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from .errors import DeclarationError, MinigradError, ShapeError, kind_of

__all__ = [
    "Arguments", "Array", "Call", "DType", "Declaration", "Gradient", "Kernel", "Rule", "Shaped",
    "call", "call_by_name", "may_name", "parameters_of", "values_of",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])
Array: TypeAlias = NDArray[Any]
DType: TypeAlias = np.dtype[Any]
Tex: TypeAlias = str | Callable[..., str]  # LaTeX, or a function of the call to it
Arguments: TypeAlias = tuple[Any, ...]  # inputs or settings of an op: whatever it takes
Gradient: TypeAlias = Any  # an array; in rules that run on Tensors, a Tensor
Kernel: TypeAlias = Callable[..., Any]


class Rule(NamedTuple):
    """A backward rule: of an input, or of several at once.

    function: called with the output's gradient, and with what `needs` names, in this order.
    inputs: those that it serves; of several, it gives a tuple.
    takes_needed: whether it is told, last, of which of them a gradient is wanted.
    """

    function: Kernel
    needs: tuple[str, ...]
    inputs: tuple[str, ...]
    takes_needed: bool


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
    def of(cls, x: Any) -> Any:
        """Of an array, or of a number; of a tuple of them, each; None stays None."""
        if x is None or x.__class__ is cls:
            return x
        if x.__class__ is tuple:
            return tuple(map(cls.of, x))
        return cls(np.shape(x), getattr(x, "dtype", np.dtype(type(x))))


@dataclass(eq=False, repr=False)
class Declaration:
    """An op as it was declared. Its calls are in op.py.

    Attributes: the arguments of `op`, and
        name: of the kernel.  inputs, settings: names of its parameters.
        rules: by the name of an input.  plans: by which inputs need a gradient: see plan.py.
    """

    kernel: Kernel
    _: KW_ONLY
    tex: Tex
    vjp_tex: dict[str, Tex]
    flops: Callable[..., float] | None = None
    samples: Callable[[np.random.Generator], Iterable[Call]] = lambda rng: ()
    requires: Callable[..., str | None] | None = None
    auxiliary: tuple[str, ...] = ()
    variadic: bool = False
    analytic: bool = True
    kinks: Kernel | None = None
    saturates: tuple[str, Kernel] | None = None
    time_axis: int | None = None

    def __post_init__(self) -> None:
        self.name = self.kernel.__name__
        self.signature = inspect.signature(self.kernel)
        self.inputs = tuple(name for name in self.signature.parameters if name in self.vjp_tex)
        self.settings = tuple(x for x in self.signature.parameters if x not in self.vjp_tex)
        self.rules: dict[str, Rule] = {}
        self.plans: dict[int, Any] = {}
        self._refuse_strange_names()

    def vjp(self, *inputs: str) -> Callable[[F], F]:
        """Declare the backward rule of one input, or of several at once."""

        def declare(function: F) -> F:
            first, *needs = parameters_of(function) or ("",)
            takes_needed = len(inputs) > 1 and needs[-1:] == ["needed"]
            if takes_needed:
                needs.pop()
            known = may_name(self, inputs, 0)
            is_known = {*needs} <= known.keys() and {*inputs} <= {*self.inputs}
            if first != "g" or not inputs or not is_known:
                raise DeclarationError(
                    f"op {self.name}, rule for {inputs}: a rule takes g first and then only what "
                    f"the op has ({', '.join(known)}); got {parameters_of(function)}"
                )
            self.rules |= dict.fromkeys(inputs, Rule(function, tuple(needs), inputs, takes_needed))
            self.plans.clear()
            return function

        return declare

    def input_name(self, i: int) -> str:
        """The name of the input at position i; of any number of them, with the position."""
        return f"{self.inputs[0]}{i}" if self.variadic else self.inputs[i]

    # ------------------------------------------------------------------ what views ask of a call

    def count_flops(self, inputs: Sequence[Any], settings: Sequence[Any], out: Any) -> int | None:
        """Floating-point operations of one forward call, None where no cost is declared."""
        if self.flops is None:
            return None
        return int(call_by_name(self.flops, self._facts(inputs, settings, out)))

    def formulas(
        self, inputs: Sequence[Any], settings: Sequence[Any], out: Any
    ) -> tuple[str, dict[str, str]]:
        """A call's formula, and those of its rules, without the terms of inputs that are None."""
        facts = self._facts(inputs, settings, out)
        absent = "|".join([name for name, value in facts.items() if value is None])

        def formula(declared: Tex, i: int) -> str:
            text = call_by_name(declared, {"i": i} | facts) if callable(declared) else declared
            return re.sub(rf" (\+|\\odot) <({absent})>", "", text)

        of = [self.vjp_tex[self.inputs[0 if self.variadic else i]] for i in range(len(inputs))]
        return formula(self.tex, 0), {self.input_name(i): formula(t, i) for i, t in enumerate(of)}

    def _facts(self, inputs: Sequence[Any], settings: Sequence[Any], out: Any) -> dict[str, Any]:
        """What formulas and costs may name: shapes and dtypes of arrays, values of settings."""
        shaped = Shaped.of(tuple(inputs))
        return self.by_name(shaped, settings, Shaped.of(out))

    def by_name(self, inputs: Sequence[Any], settings: Sequence[Any], out: Any) -> dict[str, Any]:
        """What a call was given and gave, by the names of the kernel's parameters and `out`."""
        values = [inputs] if self.variadic else inputs
        names = (*self.inputs, *self.settings, "out")
        return dict(zip(names, (*values, *settings, out), strict=True))

    # ------------------------------------------------------------------ what errors say of it

    def explain(self, error: Exception, inputs: Arguments, settings: Arguments) -> MinigradError:
        """The error of a failed call: the call, the rule it broke, each input's shape and path."""
        broken = self.requires(*inputs, *settings) if self.requires else None
        kind = ShapeError if broken and not isinstance(error, MinigradError) else kind_of(error)
        lines = [f"{self}: {broken or error}"]
        for i, x in enumerate(inputs):
            of_x = np.shape(x), getattr(x, "dtype", type(x).__name__), getattr(x, "path", "")
            lines.append("  {}: {} {}   {}".format(self.input_name(i), *of_x).rstrip())
        for name, value in zip(self.settings, settings, strict=True):
            shown = f"array {value.shape}" if isinstance(value, np.ndarray) else repr(value)
            lines.append(f"  {name} = {shown[:80]}")
        return kind("\n".join(lines))

    def cause(self, error: Exception) -> Exception | None:
        """The kernel's error, as the cause of ours, if a user wrote the kernel."""
        return None if self.kernel.__module__.startswith("minigrad.") else error

    def _refuse_strange_names(self) -> None:
        parameters = {*self.signature.parameters}
        strange = {*self.vjp_tex} - parameters | parameters & {"out"}
        for formula in (*self.vjp_tex.values(), self.tex, self.flops):
            if callable(formula):
                strange |= {*parameters_of(formula)} - parameters - {"out", "i"}
        if strange or not self.inputs or (self.variadic and len(self.inputs) != 1):
            raise DeclarationError(
                f"op {self.name}: vjp_tex must name its inputs (one, if variadic), and formulas "
                f"and costs its parameters or out; got {', '.join(sorted(strange)) or self.inputs}"
            )

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.signature.parameters)})"


def may_name(op: Declaration, own: tuple[str, ...], i: int) -> dict[str, str]:
    """What a rule may name that serves the inputs `own`, each with the expression that takes it.

    Args: i: the position of the input, where there is any number of them.
    """
    takes = {name: name for name in values_of(op)}
    if op.variadic:
        arrays = op.inputs[0]
        takes[f"{arrays}_shape"] = f"_shapes({arrays})"
        return takes | {"i": str(i), "others": f"(*{arrays}[:{i}], None, *{arrays}[{i + 1}:])"}
    for name in op.inputs:  # of others than its own, it may be a number
        takes[f"{name}_shape"] = f"{name}.shape" if name in own else f"_shape({name})"
    return takes


def values_of(op: Declaration) -> tuple[str, ...]:
    """Names of all that is there to be saved, once the op has run."""
    return (*op.inputs, *op.settings, "out", *op.auxiliary)


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters; `inspect.signature` takes ten times as long."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def call_by_name(function: Callable[..., Any], known: dict[str, Any]) -> Any:
    """Call `function` with those of `known` that its parameters name."""
    return function(*[known[name] for name in parameters_of(function)])

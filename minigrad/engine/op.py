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
of inputs may take `i`, the position it is asked for, and `others`, every input but that one. The
engine saves exactly what is named. A rule gives an array, or a `SparseGradient` where most of it is
zeros.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cached_property, update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import DeclarationError, DTypeError, MinigradError, OutOfRangeError, ShapeError

if TYPE_CHECKING:
    from .tensor import Tensor

__all__ = ["Call", "Op", "Plan", "call", "op", "registry"]


class Call(NamedTuple):
    """One sample call of an op."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(*args: Any, **kwargs: Any) -> Call:
    """A sample call, written as the call itself: `call(x, axis=0)`."""
    return Call(args, kwargs)


class Rule(NamedTuple):
    """A backward rule: the inputs it serves, the function, what its parameters name after `g`."""

    inputs: tuple[str, ...]
    function: Callable[..., Any]
    needs: tuple[str, ...]


class Plan:
    """How an op runs, forward and back, for inputs of these kinds.

    `kinds` holds for each input 0 if it is a plain value, 1 if a Tensor, 2 if one that needs a
    gradient. `forward(*inputs, *settings)` makes the result, the tuple that a node keeps, and an
    edge for each input that needs a gradient; `backward(g, saved)` makes their gradients, in order.
    Both are generated, once, from what the rules name; `source` shows them.
    """

    __slots__ = (
        "_partial",
        "_rules",
        "backward",
        "forward",
        "kinds",
        "names",
        "needed",
        "op",
        "source",
    )

    def __init__(self, op: Op, kinds: tuple[int, ...]) -> None:
        self.op, self.kinds = op, kinds
        self.needed = needed = tuple(i for i, kind in enumerate(kinds) if kind == 2)
        self._rules = [op.rule_for(i) for i in needed]
        wanted = [self._saved_names(r, i) for r, i in zip(self._rules, needed, strict=True)]
        self.names: tuple[str, ...] = tuple(dict.fromkeys(sum(wanted, ())))
        self._partial: dict[tuple[bool, ...], Callable[..., tuple[Any, ...]]] = {}
        self.source = ""
        self.forward: Callable[..., tuple[Any, tuple[Any, ...], list[Any]]] = (
            self._generate_forward()
        )
        self.backward = self.partial((True,) * len(needed))

    def partial(
        self, wanted: tuple[bool, ...]
    ) -> Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]:
        """The backward that runs only the wanted rules; the other gradients are None."""
        if wanted not in self._partial:
            self._partial[wanted] = self._generate_backward(wanted)
        return self._partial[wanted]

    def _generate_forward(self) -> Callable[..., Any]:
        op, first = self.op, self.op.inputs[0]
        inputs = [f"{first}{j}" for j in range(len(self.kinds))] if op.variadic else [*op.inputs]
        kinds = zip(inputs, self.kinds, strict=True)
        arrays = {name: f"{name}._data" if kind else name for name, kind in kinds}
        called = op.arguments({first: _tuple_of([*arrays.values()])} if op.variadic else arrays)
        saved = [self._origin(name, arrays) for name in self.names]
        edges = [f"{inputs[i]}._node or {inputs[i]}" for i in self.needed]
        body = [
            f"{', '.join(['out', *op.auxiliary])} = kernel({called})",
            "if out.__class__ is not ndarray:",
            "    out = asarray(out)",
            f"return out, {_tuple_of(saved)}, [{', '.join(edges)}]",
        ]
        known = {"ndarray": np.ndarray, "asarray": np.asarray, "np_shape": np.shape}
        known["kernel"] = op.kernel
        return self._defined("forward", [*inputs, *op.settings], body, known)

    def _generate_backward(self, wanted: tuple[bool, ...]) -> Callable[..., tuple[Any, ...]]:
        namespace: dict[str, Any] = {}
        lines, results = [], []
        asked = [i for i, want in zip(self.needed, wanted, strict=True) if want]
        for rule, i, want in zip(self._rules, self.needed, wanted, strict=True):
            if not want:
                results.append("None")
                continue
            name = f"rule_{rule.inputs[0]}"
            namespace[name] = rule.function
            arguments = ", ".join(["g", *(self._argument(n, rule, i, asked) for n in rule.needs)])
            if len(rule.inputs) == 1:
                results.append(f"{name}({arguments})")
            else:
                line = f"{', '.join('d_' + n for n in rule.inputs)} = {name}({arguments})"
                lines += [] if line in lines else [line]
                results.append(f"d_{self.op.inputs[i]}")
        unpack = [f"({', '.join(self.names)},) = saved"] if self.names else []
        body = [*unpack, *lines, f"return {_tuple_of(results)}"]
        return self._defined("backward", ["g", "saved"], body, namespace)

    def _defined(
        self, name: str, parameters: list[str], body: list[str], namespace: dict[str, Any]
    ) -> Callable[..., Any]:
        source = f"def {name}({', '.join(parameters)}):\n    " + "\n    ".join(body)
        self.source += source + "\n"
        namespace["__package__"] = __package__  # no frame that a user wrote
        exec(source, namespace)
        return namespace[name]  # type: ignore[no-any-return]

    def _saved_names(self, rule: Rule, i: int) -> tuple[str, ...]:
        many = self.op.inputs[0] if self.op.variadic else None
        names: list[str] = []
        for need in rule.needs:
            if need == "others":
                names += [f"{many}{j}" for j in range(len(self.kinds)) if j != i]
            elif need == many:
                names += [f"{many}{j}" for j in range(len(self.kinds))]
            elif need not in ("i", "needed"):
                names.append(need)
        return tuple(names)

    def _argument(self, need: str, rule: Rule, i: int, asked: list[int]) -> str:
        many = self.op.inputs[0] if self.op.variadic else None
        if need in ("others", many):
            named = ((j, f"{many}{j}") for j in range(len(self.kinds)))
            return _tuple_of([name if j != i or need == many else "None" for j, name in named])
        if need == "i":
            return str(i)
        if need == "needed":
            return repr(tuple(self.op.inputs.index(name) in asked for name in rule.inputs))
        return need

    def _origin(self, name: str, arrays: dict[str, str]) -> str:
        """Where a saved name comes from, as an expression of what forward knows."""
        if name in ("out", *arrays, *self.op.settings, *self.op.auxiliary):
            return arrays.get(name, name)
        shapes = {x: f"{a}.shape" if a != x else f"np_shape({x})" for x, a in arrays.items()}
        return _tuple_of([*shapes.values()]) if self.op.variadic else shapes[name[: -len("_shape")]]

    def input_of(self, name: str) -> int | None:
        """The position of the input that was saved under `name`, None if it is no input."""
        op = self.op
        if op.variadic:
            position = name.removeprefix(op.inputs[0])
            return int(position) if position.isdigit() else None
        return op.inputs.index(name) if name in op.inputs else None


class Op:
    """An operation. Called on plain arrays it is its NumPy kernel; with a Tensor it is recorded.

    Attributes: name, inputs and settings (parameter names), kernel, tex, vjp_tex, flops, samples,
        analytic.
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        *,
        tex: str,
        vjp_tex: dict[str, str],
        flops: Callable[..., Any],
        samples: Callable[[np.random.Generator], Iterable[Call]],
        analytic: bool = True,
        auxiliary: tuple[str, ...] = (),
        variadic: bool = False,
        requires: Callable[..., str | None] | None = None,
        threaded: Callable[..., bool] | None = None,
    ) -> None:
        update_wrapper(self, kernel)
        self.__wrapped__ = kernel
        self.name = kernel.__name__
        self.kernel = kernel
        self.tex, self.vjp_tex, self.flops, self.samples = tex, vjp_tex, flops, samples
        self.analytic, self.auxiliary, self.variadic, self.requires = (
            analytic,
            auxiliary,
            variadic,
            requires,
        )
        self.threaded = threaded
        self.signature = inspect.signature(kernel)
        parameters = self.signature.parameters
        if missing := [name for name in vjp_tex if name not in parameters]:
            raise DeclarationError(
                f"op {self.name}: vjp_tex names {missing}, which are no parameters"
            )
        self.inputs = tuple(name for name in parameters if name in vjp_tex)
        self.settings = tuple(name for name in parameters if name not in vjp_tex)
        counted = {"out", *parameters}
        if strange := [n for n in _parameters(flops) if n not in counted]:
            raise DeclarationError(
                f"op {self.name}: flops names {strange}, which are no parameters"
            )
        if variadic and len(self.inputs) != 1:
            raise DeclarationError(
                f"op {self.name}: variadic=True takes one input, got {self.inputs}"
            )
        self.rules: dict[str, Rule] = {}
        self.plans: dict[int, Plan] = {}
        plain = tuple(parameters) == self.inputs + self.settings and not variadic
        defaults = tuple(parameters[name].default for name in self.settings)
        ready = plain and inspect.Parameter.empty not in defaults
        self.arity = len(self.inputs) if ready else -1  # so many arguments need no binding
        self.defaults = defaults

    # Generated on first use, so that Python itself binds and checks the arguments.

    @cached_property
    def bind(self) -> Callable[..., tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """(inputs, settings) from arguments given as the kernel's own signature wants them."""
        namespace: dict[str, Any] = {}
        heads, star = [], False
        for name, parameter in self.signature.parameters.items():
            various = parameter.kind is parameter.VAR_POSITIONAL
            if parameter.kind is parameter.KEYWORD_ONLY and not star:
                heads.append("*")
            star = star or various or parameter.kind is parameter.KEYWORD_ONLY
            default = "" if parameter.default is parameter.empty else f"=default_{name}"
            namespace[f"default_{name}"] = parameter.default
            heads.append(f"*{name}" if various else f"{name}{default}")
        first = self.inputs[0]
        inputs = (
            f"tuple({first})" if self.variadic else f"({''.join(n + ', ' for n in self.inputs)})"
        )
        settings = "".join(f"{name}, " for name in self.settings)
        return _generated(f"lambda {', '.join(heads)}: ({inputs}, ({settings}))", namespace)

    @cached_property
    def forward(self) -> Callable[..., Any]:
        """The kernel, called with inputs and settings one after the other."""
        order, called = ", ".join(self.inputs + self.settings), self.arguments({})
        if called == order and not self.variadic:
            return self.kernel
        namespace: dict[str, Any] = {"kernel": self.kernel}
        collected = _generated(f"lambda {order}: kernel({called})", namespace)
        if not self.variadic:
            return collected
        namespace["collected"], k = collected, len(self.settings)  # however many inputs
        ends = [f"{name}=flat[len(flat) - {k - j}]" for j, name in enumerate(self.settings)]
        return _generated(
            f"lambda *flat: collected(flat[: len(flat) - {k}], {', '.join(ends)})", namespace
        )

    def arguments(self, given: dict[str, str]) -> str:
        """How the kernel is called: each parameter by what is given for it, or by its own name."""
        passed = []
        for name, parameter in self.signature.parameters.items():
            various = parameter.kind is parameter.VAR_POSITIONAL
            by_name = parameter.kind is parameter.KEYWORD_ONLY
            passed.append(f"{'*' * various}{f'{name}=' * by_name}{given.get(name, name)}")
        return ", ".join(passed)

    def __repr__(self) -> str:
        return f"<op {self.name}({', '.join(self.signature.parameters)})>"

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        if kwargs or len(args) != self.arity:
            try:
                inputs, settings = self.bind(*args, **kwargs)
            except TypeError as error:
                text = str(error).replace("<lambda>()", self.name).replace("<lambda>", self.name)
                raise DTypeError(f"{self}: {text}") from None
        else:
            inputs, settings = args, self.defaults
        for values in (inputs, settings):
            for value in values:
                apply = getattr(value, "__apply__", None)  # what a Tensor answers
                if apply is not None:
                    return apply(self, inputs, settings)  # type: ignore[no-any-return]
        inputs = tuple([self.array(x) if x.__class__ in (list, tuple) else x for x in inputs])
        try:
            result = self.forward(*inputs, *settings)
        except (ValueError, TypeError, IndexError) as error:
            raise self.explain(error, inputs, settings) from error
        return result[0] if self.auxiliary else result  # type: ignore[no-any-return]

    def array(self, value: Any) -> Any:
        """An input as an array; the error of one that makes none names the call."""
        try:
            return np.asarray(value)
        except (ValueError, TypeError) as error:
            called = f"{self.name}({', '.join(self.signature.parameters)})"
            raise DTypeError(f"{called}: not an array of numbers: {error}") from None

    def vjp(self, *inputs: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare the backward rule of one input, or of several at once, which gives a tuple."""

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            names = _parameters(function)
            known = {"out", *self.inputs, *self.settings, *self.auxiliary}
            known |= {f"{name}_shape" for name in self.inputs}
            known |= {"i", "others"} if self.variadic else set()
            known |= {"needed"} if len(inputs) > 1 else set()
            unknown = [name for name in names[1:] if name not in known]
            strangers = [name for name in inputs if name not in self.inputs]
            if names[:1] != ("g",) or unknown or strangers or not inputs:
                raise DeclarationError(
                    f"op {self.name}, rule for {inputs}: a rule takes g first "
                    "and then only what the op has "
                    f"({', '.join(sorted(known))}); got ({', '.join(names)})"
                )
            for name in inputs:
                self.rules[name] = Rule(inputs, function, names[1:])
            self.plans.clear()
            return function

        return declare

    def rule_for(self, i: int) -> Rule:
        """The rule of the input at position i."""
        name = self.inputs[0 if self.variadic else i]
        if name not in self.rules:
            raise DeclarationError(f"op {self.name}: no backward rule for input {name!r}")
        return self.rules[name]

    def plan(self, key: int) -> Plan:
        """The plan whose inputs' kinds are the octal digits of `key`, after a 1."""
        plan = self.plans[key] = Plan(self, tuple(map(int, f"{key:o}"[1:])))
        return plan

    def ask(self, function: Callable[..., Any], **known: Any) -> Any:
        """Call `function` with those of `known` that its parameters name."""
        return function(*(known[name] for name in _parameters(function)))

    def count_flops(self, inputs: tuple[Any, ...], settings: tuple[Any, ...], out: Any) -> int:
        """Floating-point operations of one forward call; only shapes are read."""
        named: dict[str, Any] = {self.inputs[0]: inputs} if self.variadic else {}
        named = named or dict(zip(self.inputs, inputs, strict=True))
        return int(
            self.ask(
                self.flops, out=out, **named, **dict(zip(self.settings, settings, strict=True))
            )
        )

    def explain(
        self, error: Exception, inputs: tuple[Any, ...], settings: tuple[Any, ...]
    ) -> MinigradError:
        """The error of a failed call: the call, the rule it broke, each input's shape and path."""
        names = (
            [f"{self.inputs[0]}[{i}]" for i in range(len(inputs))] if self.variadic else self.inputs
        )
        broken = self.requires(*inputs, *settings) if self.requires else None
        kinds = ((IndexError, OutOfRangeError), (TypeError, DTypeError), (ValueError, ShapeError))
        kind: type[MinigradError] = next(o for theirs, o in kinds if isinstance(error, theirs))
        if isinstance(error, np.exceptions.AxisError) or broken:
            kind = ShapeError
        if isinstance(error, MinigradError):
            kind = type(error)
        lines = [f"{self.name}({', '.join(self.signature.parameters)}): {broken or error}"]
        for name, value in zip(names, inputs, strict=True):
            shape, dtype = np.shape(value), getattr(value, "dtype", type(value).__name__)
            lines.append(f"  {name}: {shape} {dtype}   {getattr(value, 'path', '')}".rstrip())
        for name, value in zip(self.settings, settings, strict=True):
            shown = f"array {value.shape}" if isinstance(value, np.ndarray) else repr(value)
            lines.append(f"  {name} = {shown[:80]}")
        return kind("\n".join(lines))


def _generated(source: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    return eval(source, namespace)  # type: ignore[no-any-return]


def _tuple_of(expressions: list[str]) -> str:
    """The source of a tuple."""
    return f"({', '.join(expressions)},)" if expressions else "()"


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters; `inspect.signature` takes ten times as long."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


registry: dict[str, Op] = {}


def op(**declaration: Any) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op: the decorated function is its kernel. See the top of this file.

    Args:
        tex: LaTeX of the result; `<x>` stands for the input or setting x.
        vjp_tex: for each input, LaTeX of its gradient; `<g>` is the output's gradient, `<out>` the
            output.
        flops: function of any of the inputs, settings and `out` (shapes are enough) to operations.
        samples: function of a Generator to calls that exercise the op, edge cases included.
        analytic: whether the kernel is complex-analytic, so that the complex step may check it.
        auxiliary: names of by-products, constant to differentiation, that the kernel returns after
            the result.
        variadic: the one input is a sequence of any length.
        requires: function of the call to the rule it breaks, or None; asked only when the kernel
            failed.
        threaded: function of the inputs to whether the kernel shares its work among threads of its
            own, which those of BLAS, as they wait for more, would slow down.
    """

    def declare(kernel: Callable[..., Any]) -> Op:
        if kernel.__name__ in registry:
            raise DeclarationError(f"op {kernel.__name__}: declared twice")
        made = registry[kernel.__name__] = Op(kernel, **declaration)
        return made

    return declare

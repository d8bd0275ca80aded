"""Trials: calls of a function at several sizes and with other values, which are then compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from ..engine.context import no_grad
from ..engine.errors import ArgumentError, ShapeError
from ..engine.listener import listen
from ..engine.tensor import Tensor, TensorOrArray
from ..engine.types import Array
from ..ops.attention import METHODS
from .program import check_same_steps
from .run import CallRecorder, Constant, RecordedCall, Reference
from .sizes import AxisSymbols, Sizes

__all__ = ["ExportedInputs", "Trials", "named_inputs"]

ExportedInputs: TypeAlias = "TensorOrArray | Sequence[TensorOrArray] | dict[str, TensorOrArray]"

MOST_ENTRIES_TRIED = 1 << 22  # entries of an input that is made only to try a size


def named_inputs(function: Callable[..., Any], inputs: ExportedInputs) -> dict[str, TensorOrArray]:
    """The inputs by name: those of a dict, or the names of the function's parameters in order.

    Raises: ArgumentError for anything but arrays and Tensors.
    """
    if not isinstance(inputs, dict):
        listed: Sequence[Any] = inputs if isinstance(inputs, tuple | list) else [inputs]
        try:
            parameters = [*signature(getattr(function, "forward", function)).parameters.values()]
        except (TypeError, ValueError):
            parameters = []
        names = [
            p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        names += [f"input_{k}" for k in range(len(names), len(listed))]
        inputs = dict(zip(names, listed, strict=False))
    for name, x in inputs.items():
        array = _array_of(x)
        numeric = isinstance(array, np.ndarray) and array.dtype.kind in "biuf"
        if not numeric or array.itemsize > 8:  # ONNX has no longdouble
            raise ArgumentError(
                f"export_onnx(function, inputs): {name} must be an array or a Tensor of numbers, "
                f"got {getattr(array, 'dtype', type(x).__name__)}; fix other arguments by a lambda"
            )
    return dict(inputs)


class Trials:
    """Calls of one function.

    Args: by_name: whether the inputs are passed by keyword.
        dynamic: by input, by axis, the symbol of its length; None finds them.
        longest: the largest size to try.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: dict[str, TensorOrArray],
        by_name: bool,
        dynamic: AxisSymbols | None,
        longest: int,
    ) -> None:
        self.function = function
        self.inputs = inputs
        self.by_name = by_name
        self.longest = longest
        self.error: Exception | None = None
        self._copies: dict[object, Array] = {}
        if dynamic is not None:
            self.axes = self._positions(dynamic)
            self.runs = self._tried(required=True)
            return
        for axes in self._guesses():
            self.axes = axes
            self.runs = self._tried()
            if self.runs:
                break
        self._free_lengths()

    # ------------------------------------------------------------------ which axes may change

    def _guesses(self) -> Iterator[AxisSymbols]:
        """The first axis as "batch" and the second as "length", as far as the function takes it.

        Other inputs' first axis is the batch if it is as long, and any other the length.
        """
        lead = next(iter(self.inputs), "")
        first = np.shape(self.inputs[lead]) if lead else ()
        choices: list[dict[int, str]] = [{0: "batch", 1: "length"}, {0: "batch"}, {1: "length"}, {}]
        if len(first) < 2:
            choices = [{0: "length"}, {}] if first else [{}]

        for symbols in choices:
            found: AxisSymbols = {name: {} for name in self.inputs}
            for name, x in self.inputs.items():
                for k, n in enumerate(np.shape(x)):
                    for axis, symbol in symbols.items():
                        alike = n == first[axis] and (k == 0 or symbol == "length")
                        if k == axis if name == lead else alike:
                            found[name].setdefault(k, symbol)
            yield found

    def _free_lengths(self) -> None:
        """Give a further input's second axis a symbol of its own, where it may be longer alone.

        The input must have the first one's kind, dimensions and batch: the tokens that a
        TextToText writes, beside those it reads; a decoder's context.
        """
        lead, *others = self.inputs or [""]
        symbols = self.axes.get(lead, {})
        if 0 not in symbols or np.ndim(self.inputs[lead]) < 2:
            return
        first = self.inputs[lead]
        for name in others:
            x, shared = self.inputs[name], self.axes
            alike = np.ndim(x) == np.ndim(first) and x.dtype.kind == first.dtype.kind
            if not alike or shared[name].get(0) != symbols[0]:
                continue
            own = f"{name}_length"
            self.axes = shared | {name: shared[name] | {1: own}}
            given = self._given()
            longer = [given | {own: given[own] + k} for k in (1, 2)]
            longer += [{symbol: n + 1 + (symbol == own) for symbol, n in given.items()}]
            runs = all(map(self.attempt, longer)) and self._tried()
            if runs:
                self.runs = runs
            else:
                self.axes = shared

    def _positions(self, dynamic: AxisSymbols) -> AxisSymbols:
        found: AxisSymbols = {}
        for name, axes in dynamic.items():
            if name not in self.inputs:
                raise ArgumentError(
                    f"export_onnx: dynamic= names {name!r}; the inputs are {', '.join(self.inputs)}"
                )
            ndim = np.ndim(self.inputs[name])
            if any(not -ndim <= axis < ndim for axis in axes):
                raise ShapeError(
                    f"export_onnx: dynamic= names axes {[*axes]} of {name}, which has {ndim}"
                )
            found[name] = {axis % ndim: symbol for axis, symbol in axes.items()}
        return found

    def _given(self) -> Sizes:
        """The sizes of the inputs as they were given."""
        sizes: Sizes = {}
        for name, axes in self.axes.items():
            for axis, symbol in axes.items():
                n = int(np.shape(self.inputs[name])[axis])
                if sizes.setdefault(symbol, n) != n:
                    raise ShapeError(
                        f"export_onnx: dynamic= calls two lengths {symbol!r}, {sizes[symbol]} and "
                        f"{n} (axis {axis} of {name})"
                    )
        return sizes

    # ------------------------------------------------------------------ runs

    def groups(self) -> Iterator[list[RecordedCall]]:
        """Groups of runs with the same steps: those of the first run, then those of the longest.

        A model of one group may be right at the other sizes too. If it is not, the next group is
        tried.
        Raises: ArgumentError if the steps depend on what the inputs hold.
        """
        for run in self.runs[1:]:
            if run.sizes == self.runs[0].sizes:
                check_same_steps(self.runs[0], run)
        yield self._like(self.runs)
        for symbol in self.runs[0].sizes:
            top = max(self.runs, key=lambda run: run.sizes[symbol]).sizes
            near = [top | {symbol: top[symbol] - k} for k in (0, 1, 3)]
            near += [top | {other: n + 1} for other, n in top.items() if other != symbol]
            found = [run for run in map(self.attempt, near) if run is not None]
            if found:
                yield self._like(found)

    def at_one(self) -> list[RecordedCall]:
        """Runs with one length at 1: at which a function may drop an axis, or choose another way.

        They are compared with the model, which is made without them.
        """
        given = self.runs[0].sizes
        runs = [self._quiet_attempt(given | {symbol: 1}) for symbol in given]
        return [run for run in runs if run is not None]

    def _like(self, runs: list[RecordedCall]) -> list[RecordedCall]:
        """The runs with the steps of the first one; why another run differs is kept in `error`."""
        alike = runs[:1]
        for run in runs[1:]:
            try:
                check_same_steps(runs[0], run)
                alike.append(run)
            except ArgumentError as error:
                self.error = error
        return alike

    def _tried(self, required: bool = False) -> list[RecordedCall]:
        """Runs at the given sizes, with other values, and at other sizes.

        An empty list if the function takes no other size for a symbol; with `required` an error.
        """
        given = self._given()
        other = self.attempt(given, bold=True) or self.attempt(given)
        first = self.run(given)
        runs = [first, other, self._padded(first)]
        together = dict(given)
        for symbol, n in given.items():
            near = [n + 1, n + 4, n + 2, n + 3, *range(n - 1, 0, -1)]
            made = self._first(given, symbol, near, 2)
            if not made:
                if not required:
                    return []
                raise ArgumentError(
                    f"export_onnx: dynamic= says that {symbol!r} may change, but the function "
                    f"takes no other size than {n}: {self.error}"
                ) from self.error
            together[symbol] = made[0].sizes[symbol]
            runs += made
            if len(given) == 1 or not self._is_batch(symbol):
                runs += self._first(given, symbol, self._longer(n), 1)
        if len(given) > 1:
            joint = self.attempt(together)
            if joint is None and not required:
                return []
            runs.append(joint)
        return [run for run in runs if run is not None]

    def _padded(self, first: RecordedCall) -> RecordedCall | None:
        """A run with zeros among integers that hold none, as padding is: a mask that NumPy makes of
        them is another one then.

        None if there is no such input, or if the function takes no zeros: if it fails, runs other
        steps or answers with NaN and infinities.
        """
        integers = [_array_of(x) for x in self.inputs.values() if _array_of(x).dtype.kind in "iu"]
        if not any(x.size > 1 and x.all() for x in integers):
            return None
        run = self._quiet_attempt(first.sizes, zeros=True)
        if run is None:
            return None
        try:
            check_same_steps(first, run)
        except ArgumentError:
            return None
        return run

    def _quiet_attempt(self, sizes: Sizes, zeros: bool = False) -> RecordedCall | None:
        """A run that nobody asked for: None too if it answers with NaN, infinities or nothing."""
        error = self.error
        with np.errstate(all="ignore"):
            run = self.attempt(sizes, zeros=zeros)
        self.error = error
        if run is None or any(0 in step.out.shape for step in run.steps):
            return None
        return run if all(np.isfinite(x).all() for x in run.values.values()) else None

    def _is_batch(self, symbol: str) -> bool:
        """Whether it is the first axis of inputs, and of nothing else."""
        places = [(axis, name) for axes in self.axes.values() for axis, name in axes.items()]
        return all(axis == 0 for axis, name in places if name == symbol)

    def _longer(self, n: int) -> Iterator[int]:
        """Sizes from the longest down, without those that make too large inputs."""
        size = self.longest
        while size > n + 4:
            entries = [
                np.size(x) // max(1, n) * size for k, x in self.inputs.items() if k in self.axes
            ]
            if max(entries) <= MOST_ENTRIES_TRIED:
                yield size
            size //= 2

    def _first(
        self, given: Sizes, symbol: str, sizes: Iterable[int], count: int
    ) -> list[RecordedCall]:
        """The first runs that the function takes, of one symbol at these sizes."""
        tried = (self.attempt(given | {symbol: size}) for size in sizes)
        return [*islice((run for run in tried if run is not None), count)]

    def attempt(self, sizes: Sizes, bold: bool = False, zeros: bool = False) -> RecordedCall | None:
        """A run at these sizes and with other values; None where the function raises an error."""
        try:
            return self.run(sizes, np.random.default_rng(0), bold, zeros)
        except ArgumentError as error:
            if str(error).startswith("export_onnx"):
                raise
            self.error = error
        except Exception as error:
            self.error = error
        return None

    def call(self, inputs: dict[str, TensorOrArray]) -> Any:
        return self.function(**inputs) if self.by_name else self.function(*inputs.values())

    def run(
        self,
        sizes: Sizes,
        rng: np.random.Generator | None = None,
        bold: bool = False,
        zeros: bool = False,
    ) -> RecordedCall:
        """One call at these sizes: with the given values, or with others, drawn by `rng`."""
        recorder = CallRecorder(keeps_tensors=rng is None, copies=self._copies)
        arrays = {name: self._array(name, sizes, rng, bold, zeros) for name in self.inputs}
        arguments = {name: self._argument(name, array, recorder) for name, array in arrays.items()}
        with _one_method_of_attention():
            with no_grad(), listen(recorder):
                result = self.call(arguments)
            outputs = _named_outputs(result)
            references = {name: recorder.reference(x) for name, x in outputs.items()}
        for step in recorder.steps:
            step.name, step.tensor = getattr(step.tensor, "name", None), None
        values = {name: np.array(_array_of(x)) for name, x in outputs.items()}
        for name, made in references.items():
            if isinstance(made, Constant):
                raise ArgumentError(
                    f"export_onnx: the output {name} is made of no input by ops of minigrad"
                )
        return RecordedCall(sizes, arrays, recorder.steps, references, values)

    def _array(
        self, name: str, sizes: Sizes, rng: np.random.Generator | None, bold: bool, zeros: bool
    ) -> Array:
        """The entries of an input at these sizes: the given ones, or others."""
        array = _array_of(self.inputs[name])
        if rng is None:
            return np.array(array)
        shape = list(array.shape)
        for axis, symbol in self.axes.get(name, {}).items():
            shape[axis] = sizes[symbol]
        made = _others(array, tuple(shape), rng, bold)
        if zeros and made.dtype.kind in "iu" and made.size > 1:
            made[rng.random(made.shape) < 0.5] = 0
        return made

    def _argument(self, name: str, array: Array, recorder: CallRecorder) -> TensorOrArray:
        """The argument with these entries, noted by the recorder."""
        given = self.inputs[name]
        recorder.remember(array, Reference(name))
        if not isinstance(given, Tensor):
            return recorder.traced(array, Reference(name))
        return Tensor(array).named(given.name or name)


@contextmanager
def _one_method_of_attention() -> Iterator[None]:
    """Within, attention by method="auto" has the same steps at all sizes."""
    methods = dict(METHODS)
    for name, method in methods.items():
        METHODS[name] = method._replace(is_faster=lambda scores: False)
    try:
        yield
    finally:
        METHODS.update(methods)


def _array_of(x: TensorOrArray) -> Array:
    return x._data if isinstance(x, Tensor) else x


def _others(array: Array, shape: tuple[int, ...], rng: np.random.Generator, bold: bool) -> Array:
    """Other entries of the same kind: drawn from the given ones, floats changed by up to 10 %.

    bold: also where all given entries are equal, others differ from them.
    """
    if not array.size:
        return np.zeros(shape, array.dtype)
    drawn = rng.choice(array.ravel(), shape)
    if bold and np.all(array == array.flat[0]):
        more = rng.random(shape) if array.dtype.kind == "f" else rng.random(shape) < 0.5
        return (drawn ^ more if array.dtype == bool else drawn + more).astype(array.dtype)
    if array.dtype.kind != "f":
        return drawn
    return (drawn * rng.uniform(0.9, 1.1, shape)).astype(array.dtype)


def _named_outputs(result: object) -> dict[str, TensorOrArray]:
    """What was returned, by name: a dict's keys, or the tensors' names, numbered if they repeat."""
    if isinstance(result, dict):
        outputs = {str(name): x for name, x in result.items()}
    else:
        flat: list[object] = []
        stack = [result]
        while stack:
            item = stack.pop(0)
            if isinstance(item, tuple | list):
                stack = [*item, *stack]
            elif item is not None:
                flat.append(item)
        names = [getattr(x, "name", None) or "output" for x in flat]
        unique = len(set(names)) == len(names)
        outputs = {
            n if unique else f"{n}_{k}": x for k, (n, x) in enumerate(zip(names, flat, strict=True))
        }
    for name, x in outputs.items():
        if not isinstance(x, Tensor | np.ndarray):
            raise ArgumentError(
                f"export_onnx: the function must return tensors, got {type(x).__name__} as {name}"
            )
    return outputs

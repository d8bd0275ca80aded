"""Children, parameters and buffers of a Module by path: listed, saved, loaded, frozen and cast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, explained
from minigrad.extend import clear_gradients, is_marked_parameter, mark_parameter

__all__ = [
    "DATA_VIEW",
    "Parameters",
    "held_in",
    "is_parameter",
    "modules_in",
    "own_array",
    "own_parameters",
    "paths_matching",
    "write_state",
]


class Parameters:
    """The part of Module that lists and changes its children, parameters and buffers."""

    __slots__ = ()
    buffers: ClassVar[tuple[str, ...]] = ()
    training: bool

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The Modules this one holds, each with its name."""
        for name, value in vars(self).items():
            yield from modules_in(name, value)

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """This module (its path is "") and all below it, each once, with dotted paths."""
        seen: set[int] = set()  # by id: a dataclass has no hash, and may equal another
        stack: list[tuple[str, Any]] = [("", self)]
        while stack:
            path, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield path, module
            children = [(join_path(path, name), child) for name, child in module.named_children()]
            stack.extend(reversed(children))

    def modules(self) -> Iterator[Any]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_parameters(self) -> Iterator[tuple[str, mg.Tensor]]:
        """Every parameter with its dotted path; a shared one comes once, by its first path."""
        return self._named_leaves(buffers=False)

    def _named_leaves(self, buffers: bool) -> Iterator[tuple[str, mg.Tensor]]:
        """The parameters, and with `buffers` the buffers too."""
        seen: set[int] = set()
        for path, module in self.named_modules():
            for name, value in own_parameters(module):
                is_listed = buffers or name not in module.buffers
                if is_listed and id(value) not in seen:
                    seen.add(id(value))
                    yield join_path(path, name), value

    def named_buffers(self) -> Iterator[tuple[str, mg.Tensor]]:
        """Every buffer with its dotted path: it is saved with the parameters, and never trained."""
        trained = {id(p) for p in self.parameters()}
        return (pair for pair in self._named_leaves(buffers=True) if id(pair[1]) not in trained)

    def parameters(self) -> list[mg.Tensor]:
        """Every parameter, once: what an optimizer takes."""
        return ParameterList(parameter for _, parameter in self.named_parameters())

    # ------------------------------------------------------------------ state

    @explained
    def state_dict(self) -> dict[str, NDArray[Any]]:
        """A copy of every parameter's and buffer's array, by path, in C order."""
        leaves = self._named_leaves(buffers=True)
        return {path: np.array(leaf.numpy(), order="C") for path, leaf in leaves}

    @explained
    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Write arrays into the parameters of these paths; all fit, or nothing is written.

        Args:   strict: False allows paths to be missing or unexpected, if one at least is there;
                shapes and dtypes must fit.
        Raises: ArgumentError that lists everything that does not fit.

        >>> from layers import Linear
        >>> Linear(3, 2).load_state_dict({"W": np.zeros((2, 3)), "c": np.zeros(2)})
        Traceback (most recent call last):
        minigrad.errors.ArgumentError: load_state_dict(state): nothing was written, for Linear
          b: missing
          c: unexpected
          W: shape must be (3, 2), got (2, 3)
        """
        leaves = dict(self._named_leaves(buffers=True))
        write_state(type(self).__name__, leaves, state, strict)

    @explained
    def train(self, mode: bool = True) -> Self:
        """Set `training` here and below; returns this module.

        Raises: DTypeError for anything but a bool.
        """
        if not isinstance(mode, bool | int | np.bool_):
            raise DTypeError(
                f"{type(self).__name__}.train(mode): mode must be a bool, got "
                f"{type(mode).__name__}; it only says how layers run, a loop of your own trains"
            )
        for module in self.modules():
            module.training = mode
        return self

    @explained
    def eval(self) -> Self:
        """The same as `train(False)`."""
        return self.train(False)

    @explained
    def zero_grad(self) -> None:
        """Forget every parameter's gradient."""
        clear_gradients(self.parameters())

    # ------------------------------------------------------------------ frozen and cast

    @explained
    def freeze(self, *patterns: str) -> Self:
        """Train none of these parameters from here on; all of them without a pattern.

        Frozen parameters keep their place in `parameters()` and `state_dict`, lose their gradient,
        and a forward keeps no array that only they would need. An optimizer passes them over, and
        one made later refuses them. A BatchNorm's running averages go on moving until `eval()`.

        Args:   patterns: names along the paths, one after another: "blocks.0" is all of that block,
                "attention.W_[QV]" two matrices of every attention; * stands for anything.
        Raises: ArgumentError for a pattern that no parameter has.

        >>> from layers import Linear, Sequential
        >>> model = Sequential(Linear(3, 5), mg.tanh, Linear(5, 2)).freeze("layers.0")
        >>> [path for path, p in model.named_parameters() if p.requires_grad]
        ['layers.2.W', 'layers.2.b']
        """
        return self._train("freeze", patterns, False)

    @explained
    def unfreeze(self, *patterns: str) -> Self:
        """Train these parameters again; all of them without a pattern. See `freeze`."""
        return self._train("unfreeze", patterns, True)

    @explained
    def requires_grad_(self, flag: bool = True) -> Self:
        """Set `requires_grad` of every parameter; returns this module."""
        return self._train("requires_grad_", (), flag)

    def _train(self, call: str, patterns: tuple[str, ...], flag: bool) -> Self:
        parameters = dict(self.named_parameters())
        call = f"{type(self).__name__}.{call}"
        for path in paths_matching(call, patterns, parameters) if patterns else parameters:
            parameters[path].requires_grad_(flag)
        return self

    @explained
    def to(self, dtype: DTypeLike) -> Self:
        """Cast every floating parameter and buffer in place, and what layers cast their inputs to.

        The Tensors stay the same objects, so an optimizer made before continues, with what it keeps
        cast too at its next step; gradients are dropped. A compiled step is recorded anew. Views of
        the arrays taken before (`W.numpy()`) keep the old ones, and caches are refused until reset.
        A file of another dtype is refused: cast the model before `load` or `load_state_dict`.

        Args:   dtype: float16, float32 or float64.
        Raises: DTypeError for any other.

        >>> from layers import Linear
        >>> Linear(3, 2).to(np.float32)(np.ones(3)).dtype
        dtype('float32')
        """
        target = _floating(f"{type(self).__name__}.to(dtype)", dtype)
        for _, leaf in self._named_leaves(buffers=True):
            if leaf.dtype.kind == "f":
                leaf.cast_(target)
        for module in self.modules():
            if module.dtype is not None and np.dtype(module.dtype).kind == "f":
                module.dtype = target
            for name, value in vars(module).items():
                if value.__class__ is np.ndarray and value.dtype.kind == "f":  # random features
                    setattr(module, name, value.astype(target))
        return self

    # ------------------------------------------------------------------ shown

    def __repr__(self) -> str:
        lines: list[str] = []
        shown: set[int] = set()
        stack: list[tuple[str, str, Any]] = [("", "", self)]  # indentation, name, module
        while stack:
            indent, name, module = stack.pop()
            count = sum(parameter.size for parameter in module.parameters())
            lines.append(f"{indent}{name}{type(module).__name__}: {count:,} parameters")
            if id(module) in shown:
                lines[-1] += " (shown above)"
                continue
            shown.add(id(module))
            for key, value in own_parameters(module):
                note = "" if value.dtype == np.float64 else f" {value.dtype}"
                note += "" if value.requires_grad or key in module.buffers else " frozen"
                lines.append(f"{indent}  {key} {value.shape}{note}")
            below = [(f"{indent}  ", f"{key}: ", child) for key, child in module.named_children()]
            stack.extend(reversed(below))
        return "\n".join(lines)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return mg.module_bundle(self)


class ParameterList(list[mg.Tensor]):
    """A list that a notebook shows as a table."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return mg.parameters_bundle(self)


def is_parameter(value: Any) -> bool:
    """Whether an attribute's value is a parameter, frozen ones too."""
    return (
        isinstance(value, mg.Tensor)
        and value.is_leaf
        and is_marked_parameter(value, otherwise=value.requires_grad)
    )


def modules_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The Modules in an attribute's value, each with its path."""
    return ((path, held) for path, held in held_in(name, value) if isinstance(held, Parameters))


def held_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The Modules and Tensors in an attribute's value: itself, or what a list, tuple or dict holds.

    Each has its path: blocks.0 is the first entry of `blocks`.
    """
    if isinstance(value, _HELD):
        yield name, value
    elif isinstance(value, _CONTAINERS):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in pairs:
            if isinstance(entry, _HELD + _CONTAINERS):  # most entries of a long list are numbers
                yield from held_in(f"{name}.{key}", entry)


_HELD = (Parameters, mg.Tensor)
_CONTAINERS = (list, tuple, dict)


def own_parameters(module: Parameters) -> Iterator[tuple[str, mg.Tensor]]:
    """The parameters and buffers of a module itself, by attribute.

    Those in a list, tuple or dict count too, unless it, or a layer below, has them as an attribute.
    """
    listed: list[tuple[str, mg.Tensor]] = []
    for name, value in vars(module).items():
        if name in module.buffers and isinstance(value, mg.Tensor):
            yield name, value
        elif is_parameter(value):
            mark_parameter(value)  # so that it stays one when it is frozen
            yield name, value
        elif isinstance(value, _CONTAINERS):
            listed += [pair for pair in held_in(name, value) if is_parameter(pair[1])]
    if listed:
        named = {id(value) for below in module.modules() for value in vars(below).values()}
        for path, value in listed:
            if id(value) not in named:
                mark_parameter(value)
                yield path, value


def write_state(
    kind: str, leaves: Mapping[str, mg.Tensor], state: Mapping[str, Any], strict: bool = True
) -> None:
    """Write a state's arrays into the leaves of the same paths; all fit, or nothing is written."""
    wrong = [f"{path}: missing" for path in leaves if path not in state] if strict else []
    wrong += [f"{path}: unexpected" for path in state if path not in leaves] if strict else []
    fitting = {path: own_array(state[path]) for path in leaves if path in state}
    if not strict and leaves and not fitting and len(state):
        first = next(iter(state))
        wrong.append(f"none of its paths, such as {first}, is one of {_some_of(leaves)}")
    for path, array in fitting.items():
        for what in ("shape", "dtype"):
            expected, got = getattr(leaves[path], what), getattr(array, what)
            if got != expected:
                wrong.append(f"{path}: {what} must be {expected}, got {got}")
    if wrong:
        if any(": dtype must be" in line for line in wrong):
            wrong.append("a model of another dtype is made by model.to(dtype)")
        first = f"load_state_dict(state): nothing was written, for {kind}"
        raise ArgumentError("\n  ".join([first, *wrong]))
    for path, array in fitting.items():
        leaves[path].assign_(array)


DATA_VIEW = type(mg.tensor([0.0]).numpy())
"""What a tensor's `numpy()` is: a view of its data."""


def own_array(x: Any) -> NDArray[Any]:
    """An array; of a tensor's `numpy()` a copy: the tensor may be written before that is read."""
    return np.array(x) if isinstance(x, DATA_VIEW) else np.asarray(x)


def paths_matching(call: str, patterns: tuple[str, ...], paths: Mapping[str, Any]) -> list[str]:
    """The paths that hold one of the patterns as whole names, between dots.

    Raises: ArgumentError for a pattern that no path holds.
    """
    found: set[str] = set()
    for pattern in patterns:
        matching = {path for path in paths if fnmatchcase(f".{path}.", f"*.{pattern}.*")}
        if not matching:
            raise ArgumentError(f"{call}: no path has {pattern!r}; there are {_some_of(paths)}")
        found |= matching
    return [path for path in paths if path in found]


def _some_of(paths: Mapping[str, Any]) -> str:
    return ", ".join([*paths][:20]) + (", …" if len(paths) > 20 else "")


def _floating(call: str, dtype: DTypeLike) -> np.dtype[Any]:
    """float16, float32 or float64. Raises: DTypeError for any other."""
    try:
        floating = np.dtype(dtype)
    except TypeError:
        floating = np.dtype(object)
    if dtype is None or floating not in (np.float16, np.float32, np.float64):
        raise DTypeError(f"{call}: dtype must be float16, float32 or float64, got {dtype!r}")
    return floating


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name

"""Module: a layer. What it holds is found by attribute; saved, loaded and changed as a whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, GradientError, MissingNameError
from minigrad.habits import missing

from .call import LayerCall, is_numbers, set_changes

__all__ = ["Module"]


class Module(LayerCall):
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
        products: names of matrices that rows are multiplied by; see `quantize`.
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

    __slots__ = ()

    training: bool = True
    buffers: ClassVar[tuple[str, ...]] = ()
    products: ClassVar[tuple[str, ...]] = ()

    # ---------------------------------------------------------------- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("requires_grad", "trainable"):
            raise ArgumentError(
                f"{type(self).__name__}.{name}: a flag of a layer would reach no parameter; write "
                "layer.freeze(), or layer.unfreeze()"
            )
        before: Any = vars(self).get(name)
        is_buffer = name in self.buffers and isinstance(before, mg.Tensor)
        if is_buffer and isinstance(value, mg.Tensor):
            value = value if value.is_leaf else value.detach()
        elif is_buffer or _is_parameter(before):
            if isinstance(value, mg.Tensor):
                if before.requires_grad and not (value.is_leaf and value.requires_grad):
                    raise GradientError(
                        f"{type(self).__name__}.{name}: a Tensor that is computed, or needs no "
                        "gradient, cannot take a trained parameter's place; write "
                        f"layer.{name}.assign_(array), or layer.freeze({name!r})"
                    )
            elif isinstance(value, np.ndarray) or is_numbers(value):
                before.assign_(np.asarray(value).astype(before.dtype, casting="same_kind"))
                return
        if isinstance(value, set | frozenset | deque) and any(isinstance(x, Module) for x in value):
            raise DTypeError(
                f"{type(self).__name__}.{name}: layers in a {type(value).__name__} are not found; "
                "hold them in a list, a tuple or a dict"
            )
        for path, part in _held(name, value):
            if isinstance(part, Module):
                part._take_name(path)
            elif part.is_leaf and self._given_array is None:
                mg.mark_parameter(part)
                part.name = part.name or path
        vars(self)[name] = value
        set_changes(self, self._changes + 1)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        set_changes(self, self._changes + 1)

    def __getattr__(self, name: str) -> Any:
        owner = vars(self).get(name.removeprefix("grad_"), self)
        if name.startswith("grad_") and (owner is None or isinstance(owner, mg.Tensor)):
            return None if owner is None else owner.grad
        known = [*dir(type(self)), *vars(self)]
        raise MissingNameError(missing(f"{type(self).__name__!r} object", name, known))

    def _take_name(self, path: str) -> None:
        """The name of its calls is its place in the first module that holds it."""
        if "_name" not in vars(self):
            vars(self)["_name"] = self._scope.name = path

    def __getstate__(self) -> dict[str, Any]:
        """What a copy has of this layer: all but the graph of what forward computed and kept."""
        return {
            key: x.detach() if isinstance(x, mg.Tensor) and not x.is_leaf else x
            for key, x in vars(self).items()
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._scope.name = state.get("_name", self._kind)

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
                within = [(key, x) for key, x in module.own_contents() if isinstance(x, Module)]
                below += [(f"{path}.{key}".strip("."), x) for key, x in reversed(within)]

    def named_parameters(self, buffers: bool = False) -> Iterator[tuple[str, mg.Tensor]]:
        """Every parameter with its dotted path, a shared one once; with `buffers` those too."""
        seen: set[int] = set()
        for path, module in self.named_modules():
            for name, leaf in module.own_contents():
                is_kept = buffers if name in module.buffers else _is_parameter(leaf)
                if isinstance(leaf, mg.Tensor) and is_kept and id(leaf) not in seen:
                    seen.add(id(leaf))
                    mg.mark_parameter(leaf)  # so that it stays one when it is frozen
                    yield f"{path}.{name}".strip("."), leaf

    def own_contents(self) -> Iterator[tuple[str, Module | mg.Tensor]]:
        """The Tensors and Modules that it holds itself, with their paths in it."""
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
            paths = [path for path in leaves if fnmatchcase(f".{path}.", f"*.{pattern}.*")]
            if not paths and patterns:
                raise ArgumentError(f"freeze: no path has {pattern!r}; there are {[*leaves][:20]}")
            for path in paths:
                leaves[path].requires_grad = flag
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
            if leaf.dtype.kind == "f" and leaf.dtype != dtype:
                leaf._data = leaf._data.astype(dtype)
                leaf.grad = None
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

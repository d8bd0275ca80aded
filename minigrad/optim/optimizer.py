"""What all optimizers share: groups of parameters, what is kept for each, and the step.

Parameters are overwritten in place; those without a gradient are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, SupportsFloat, TypeAlias, TypeVar

import numpy as np

from ..engine.errors import ArgumentError, DTypeError, MissingNameError, ShapeError
from ..engine.listener import Listener, clear_gradients, notify
from ..engine.tensor import Tensor
from ..engine.types import Array, DType, StateDict
from ..engine.writes import SourceLocation, caller, writes
from .updates import ObservedSetting, checked_parameters, update

__all__ = ["Group", "NoDecay", "Optimizer", "ParametersOrGroups"]

NoDecay: TypeAlias = "bool | Callable[[Tensor], bool]"
Settings: TypeAlias = dict[str, Any]  # numbers, pairs of them and flags
ParametersOrGroups: TypeAlias = "Iterable[Tensor] | Iterable[Mapping[str, Any]]"

T = TypeVar("T")
ENTRIES_PER_PART = 1 << 17  # are updated at once, so that they stay in cache from pass to pass


@dataclass(eq=False, repr=False)
class Group:
    """Parameters with settings of their own.

    Attributes:
        settings: what differs from the optimizer's settings, by name.
        lr_scale: their learning rate is this times `optimizer.lr`, also under a schedule.
    """

    parameters: list[Tensor]
    lr_scale: float
    settings: Settings


class Optimizer:
    """What all optimizers share: parameters, settings, what is kept for each, and the step.

    A subclass writes `update`, and `state_names` if it keeps arrays for each parameter.

    Args:
        parameters: Tensors, or groups of them: dicts with "parameters" and any of the settings. A
            group's "lr" stays in proportion to the optimizer's when that changes.
        lr: the learning rate; set the attribute to change it.
        no_decay: which parameters get no weight decay: True is those of fewer than two axes, as
            biases and the weights of norms are, or a rule of the parameter, such as
            `lambda p: p.ndim < 2 or p.name == "P"`. They become a group of their own; a group that
            says its own "weight_decay" keeps it.
        settings: become attributes, which may be set as well.
    Attributes:
        steps: how many were taken.
        version: grows with every attribute that is set.
    Raises: ArgumentError for a setting out of range, for a parameter that comes twice or needs no
        gradient; DTypeError for what is no leaf Tensor.

    >>> import minigrad as mg
    >>> from minigrad.optim import SGD, AdamW
    >>> W, b = (mg.tensor([1.0], requires_grad=True, name=name) for name in "Wb")
    >>> groups = [{"parameters": [W], "weight_decay": 0.1}, {"parameters": [b], "lr": 0.05}]
    >>> optimizer = SGD(groups, lr=0.1)
    >>> [group.lr_scale for group in optimizer.groups]
    [1.0, 0.5]
    >>> W, b = (mg.tensor(np.ones(n), requires_grad=True) for n in ((2, 3), 3))
    >>> optimizer = AdamW([W, b], weight_decay=0.1, no_decay=True)
    >>> [(group.parameters[0].shape, group.settings) for group in optimizer.groups]
    [((2, 3), {}), ((3,), {'weight_decay': 0.0})]
    """

    version = 0
    lr = ObservedSetting()
    steps = ObservedSetting()
    momentum = ObservedSetting()
    weight_decay = ObservedSetting()
    betas = ObservedSetting()
    eps = ObservedSetting()

    def __init__(
        self,
        parameters: ParametersOrGroups,
        lr: float,
        *,
        no_decay: NoDecay = False,
        **settings: Any,
    ) -> None:
        self._check_settings(lr=lr, **settings)
        self.lr, self.steps = lr, 0
        for name, value in settings.items():
            setattr(self, name, value)
        self._names = tuple(settings)
        given: Any = list(parameters) if isinstance(parameters, Iterator) else parameters
        grouped = isinstance(given, list | tuple) and any(isinstance(x, Mapping) for x in given)
        groups = [self._group(x) for x in (given if grouped else [{"parameters": given}])]
        self.groups = [part for group in groups for part in self._split(group, no_decay)]
        every = [p for group in self.groups for p in group.parameters]
        self.parameters = checked_parameters(f"{type(self).__name__}(parameters)", every)
        self._states: dict[int, _ParameterState] = {}  # by the parameter's position
        self._scratch: dict[DType, Array] = {}  # one of each dtype, which stays in cache

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        vars(self)["version"] = self.version + 1
        notify(Listener.setting_written, self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise MissingNameError(
            f"{type(self).__name__!r} object", name, "OPTIMIZER_HABITS", dir(type(self))
        )

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value}" for name, value in self._settings().items())
        n, numbers = len(self.parameters), sum(p.size for p in self.parameters)
        of = f"{n} parameter{'s' * (n > 1)} of {numbers:,} numbers"
        return f"{type(self).__name__}(lr={self.lr}{settings}): {of}, {self.steps} steps taken"

    def zero_grad(self) -> None:
        """Forget every gradient."""
        clear_gradients(self.parameters)

    def step(self) -> None:
        """Move each parameter that has a gradient, in place.

        Graphs that saved it before refuse to run backward with the new values.
        """
        with update(self, partial(Optimizer.step, self)):
            self._refuse_misfits()
            vars(self)["steps"] += 1
            place = caller()
            of_groups = [self._settings_of(group) for group in self.groups]
            for position, settings in enumerate(self._of_each(of_groups)):
                gradient = self.parameters[position].grad
                if gradient is not None:
                    self._move(position, gradient, settings, place)

    def state_names(self, settings: SimpleNamespace) -> tuple[str, ...]:
        """Names of the arrays that are kept for each parameter; they begin as zeros."""
        return ()

    def update(
        self, settings: SimpleNamespace, t: int, scratch: Array, w: Array, g: Array, *state: Array
    ) -> None:
        """Move the entries w by their gradient g, in place, for the t-th time.

        All are arrays of one shape: `state` those of `state_names`, `scratch` one to write to.
        `settings` has lr and all others as attributes.
        """
        raise NotImplementedError(f"{type(self).__name__} has no update")

    # ------------------------------------------------------------------ saving and loading

    def state_dict(self) -> StateDict:
        """Settings, counts and copies of the arrays kept for each parameter, by its position."""
        return {
            "kind": type(self).__name__,
            "shapes": [list(p.shape) for p in self.parameters],
            "lr": self.lr,
            "steps": self.steps,
            "settings": self._settings(),
            "groups": [
                {"lr_scale": group.lr_scale, "settings": dict(group.settings)}
                for group in self.groups
            ],
            "kept": {str(i): kept.state_dict() for i, kept in sorted(self._states.items())},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Go on from what `state_dict` gave; all of it fits, or nothing is changed.

        Raises: ArgumentError that lists everything that does not fit.
        """
        if wrong := list(self._misfits(state)):
            lines = [f"load_state_dict(state): nothing was loaded, for {type(self).__name__}"]
            raise ArgumentError("\n  ".join([*lines, *wrong]))
        self.lr, self.steps = state["lr"], state["steps"]
        for key, value in state["settings"].items():
            setattr(self, key, tuple(value) if isinstance(value, list) else value)
        for group, saved in zip(self.groups, state["groups"], strict=True):
            group.lr_scale, group.settings = saved["lr_scale"], dict(saved["settings"])
        self._states = {
            int(i): self._new_state(self.parameters[int(i)]).load(saved)
            for i, saved in state["kept"].items()
        }

    # ------------------------------------------------------------------ private

    def _of_each(self, values: Iterable[T]) -> list[T]:
        """For each parameter, the value of its group."""
        each = zip(self.groups, values, strict=False)
        return [value for group, value in each for _ in group.parameters]

    def _misfits(self, state: StateDict) -> Iterator[str]:
        """Why a state cannot be loaded here: a line for each reason."""
        if not {"kind", "shapes", "lr", "steps", "settings", "groups", "kept"} <= set(state):
            yield "this is no state of an optimizer"
            return
        if state["kind"] != type(self).__name__:
            yield f"kind: {state['kind']} in the state"
        for what, mine, theirs in (
            ("parameters", self.parameters, state["shapes"]),
            ("groups", self.groups, state["groups"]),
        ):
            if len(mine) != len(theirs):
                yield f"{what}: {len(mine)} here, {len(theirs)} in the state"
        for i, (p, saved) in enumerate(zip(self.parameters, state["shapes"], strict=False)):
            kept = state["kept"].get(str(i), {})
            shapes = {np.shape(kept[name]) for name in kept if name != "count"}
            for shape in ({tuple(saved)} | shapes) - {p.shape}:
                name = f" ({p.name})" if p.name else ""
                yield f"parameter {i}{name}: shape {p.shape} here, {shape} in the state"
        if state["kind"] == type(self).__name__:
            yield from self._missing(state)

    def _missing(self, state: StateDict) -> Iterator[str]:
        """Lines on arrays that a state lacks, though its settings need them."""
        own = self._settings() | state["settings"]
        for i, settings in enumerate(self._of_each(x["settings"] for x in state["groups"])):
            if (kept := state["kept"].get(str(i))) is not None:
                names = ("count", *self.state_names(SimpleNamespace(**own | settings)))
                if missing := [name for name in names if name not in kept]:
                    yield f"parameter {i}: the state has no {', '.join(missing)}; save it anew"

    def _check_settings(self, **settings: Any) -> None:
        """Raise ArgumentError for a setting out of range, of the optimizer or of a group."""
        for name, value in settings.items():
            if isinstance(value, str):
                kind = type(self).__name__
                raise DTypeError(
                    f"{kind}: {name} must be a number, got {value!r}; write {name}=float({name})"
                )
            if not isinstance(value, tuple | list) and not _at_least_zero(value):
                what = f"{type(self).__name__}: {name} must be at least 0, got {value!r}"
                raise ArgumentError(what)

    def _group(self, given: Mapping[str, Any]) -> Group:
        """A group as the caller wrote it."""
        settings = dict(given)
        name = type(self).__name__
        if "parameters" not in settings:
            raise ArgumentError(f'{name}: a group is a dict with "parameters", got {list(given)}')
        parameters = checked_parameters(f"{name}(parameters)", settings.pop("parameters"))
        unknown = [key for key in settings if key not in ("lr", *self._names)]
        if unknown:
            known = ", ".join(["lr", *self._names])
            raise ArgumentError(f"{name}: a group has no setting {unknown[0]!r}; it has {known}")
        self._check_settings(**self._settings() | {"lr": self.lr} | settings)
        lr = settings.pop("lr", self.lr)
        if lr != self.lr and not self.lr:
            raise ArgumentError(f"{name}: a group's lr is kept in proportion to lr, which is 0")
        return Group(parameters, lr / self.lr if self.lr else 1.0, settings)

    def _split(self, group: Group, no_decay: NoDecay) -> list[Group]:
        """A group as two: parameters with weight decay, and those that `no_decay` spares."""
        if no_decay is False or "weight_decay" in group.settings:
            return [group]
        if "weight_decay" not in self._names:
            raise ArgumentError(f"{type(self).__name__}: no_decay= needs a weight_decay")
        if no_decay is not True and not callable(no_decay):
            raise DTypeError(
                f"{type(self).__name__}: no_decay must be True or a function of a parameter, got "
                f"{no_decay!r}; write no_decay=lambda p: p.ndim < 2"
            )
        is_spared = no_decay if callable(no_decay) else lambda p: p.ndim < 2
        decayed = Group([], group.lr_scale, group.settings)
        spared = Group([], group.lr_scale, group.settings | {"weight_decay": 0.0})
        for p in group.parameters:
            (spared if is_spared(p) else decayed).parameters.append(p)
        return [part for part in (decayed, spared) if part.parameters]

    def _settings(self) -> Settings:
        return {name: getattr(self, name) for name in self._names}

    def _settings_of(self, group: Group) -> SimpleNamespace:
        return SimpleNamespace(**self._settings() | group.settings, lr=self.lr * group.lr_scale)

    def _refuse_misfits(self) -> None:
        """Raise ShapeError for a gradient of another shape, before any parameter is moved."""
        for p in self.parameters:
            if p.grad is not None and np.shape(p.grad) != p.shape:
                what = f"{p.name or 'a parameter'} has shape {p.shape}, its gradient "
                raise ShapeError(f"{type(self).__name__}.step(): {what}{np.shape(p.grad)}")

    def _new_state(self, p: Tensor) -> _ParameterState:
        dtype = np.result_type(p.dtype, np.float32)
        if dtype not in self._scratch:
            self._scratch[dtype] = np.empty(ENTRIES_PER_PART, dtype)
        return _ParameterState(p._data, self._scratch[dtype])

    def _move(
        self, position: int, g: Array, settings: SimpleNamespace, place: SourceLocation
    ) -> None:
        p = self.parameters[position]
        state = self._states.get(position)
        if state is None:
            state = self._states[position] = self._new_state(p)
        elif state.dtype != p.dtype:  # the parameter was cast
            state = self._states[position] = self._new_state(p).load(state.state_dict())
        arrays = state.arrays_named(self.state_names(settings), p._data)
        weights = state.weights(p._data)
        state.count += 1
        for scratch, w, part, *parts in state.parts(weights, g, arrays):
            self.update(settings, state.count, scratch, w, part, *parts)
        if weights is not p._data:
            p._data[...] = weights
        writes.note(p._data, place)


class _ParameterState:
    """What an optimizer keeps for one parameter: how often it moved, arrays by name, a scratch.

    Of a float16 parameter the arrays are float32, because squares would soon be 0 or infinite. So
    is a copy of its weights, because a small step added to float16 would be lost.
    """

    def __init__(self, w: Array, scratch: Array) -> None:
        self.count, self.dtype = 0, w.dtype
        self.arrays: dict[str, Array] = {}
        few = w.size <= ENTRIES_PER_PART
        self.whole = few or not w.flags.c_contiguous
        if few:
            scratch = scratch[: w.size].reshape(w.shape)
        elif self.whole:
            scratch = np.empty_like(w, scratch.dtype)
        self.scratch = scratch

    def arrays_named(self, names: tuple[str, ...], w: Array) -> list[Array]:
        """The arrays of these names; they begin as zeros of w's shape."""
        for name in names:
            if name not in self.arrays:
                self.arrays[name] = np.zeros_like(w, self.scratch.dtype)
        return [self.arrays[name] for name in names]

    def weights(self, w: Array) -> Array:
        """The array to update: w itself, or of float16 a float32 copy with w's latest entries."""
        if w.dtype == self.scratch.dtype:
            return w
        if "weights" not in self.arrays:
            self.arrays["weights"] = w.astype(self.scratch.dtype)
        copy = self.arrays["weights"]
        np.copyto(copy, w, where=copy.astype(w.dtype) != w)
        return copy

    def parts(self, w: Array, g: Array, state: list[Array]) -> Iterator[tuple[Array, ...]]:
        """Views (scratch, w, g, *state) of one part of a large parameter after another."""
        g = np.asarray(g, self.scratch.dtype)
        if self.whole:
            yield self.scratch, w, g, *state
            return
        flat = [array.reshape(-1) for array in (w, g, *state)]
        for i in range(0, w.size, ENTRIES_PER_PART):
            part = [array[i : i + ENTRIES_PER_PART] for array in flat]
            yield self.scratch[: len(part[0])], *part

    def state_dict(self) -> StateDict:
        return {"count": self.count} | {name: a.copy() for name, a in self.arrays.items()}

    def load(self, saved: StateDict) -> _ParameterState:
        self.count = saved["count"]
        dtype = self.scratch.dtype
        self.arrays = {
            name: np.array(a, dtype, order="C") for name, a in saved.items() if name != "count"
        }
        return self


def _at_least_zero(value: SupportsFloat) -> bool:
    try:
        return float(value) >= 0
    except (TypeError, ValueError):
        return False

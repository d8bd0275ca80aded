"""What all optimizers share: groups of parameters, what is kept for each, and the step.

Parameters are overwritten in place; those without a gradient are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from ..engine.context import say
from ..engine.errors import ArgumentError, DTypeError, ShapeError
from ..engine.op import Array, DType
from ..engine.tensor import Tensor, clear_gradients, mark_parameter
from ..engine.writes import caller, writes

__all__ = ["Group", "Optimizer", "after_step"]

Settings: TypeAlias = dict[str, Any]  # numbers, and pairs of them
ParametersOrGroups: TypeAlias = "Iterable[Tensor] | Iterable[Mapping[str, Any]]"

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


after_step: list[Callable[[Optimizer], None]] = []
"""Called with each optimizer that has taken a step, in compiled steps too."""


class Optimizer:
    """What all optimizers share: parameters, settings, what is kept for each, and the step.

    A subclass writes `update`, and `state_names` if it keeps arrays for each parameter.

    Args:
        parameters: Tensors, or groups of them: dicts with "parameters" and any of the settings.
            A group's "lr" stays in proportion to the optimizer's when that changes.
        lr: the learning rate; set the attribute to change it.
        settings: become attributes, which may be set as well.
    Attributes:
        steps: how many were taken.
    Raises: ArgumentError for a setting out of range, for a parameter that comes twice or needs no
        gradient; DTypeError for what is no leaf Tensor.

    >>> import minigrad as mg
    >>> from minigrad.optim import SGD
    >>> W, b = (mg.tensor([1.0], requires_grad=True, name=name) for name in "Wb")
    >>> groups = [{"parameters": [W], "weight_decay": 0.1}, {"parameters": [b], "lr": 0.05}]
    >>> optimizer = SGD(groups, lr=0.1)
    >>> [group.lr_scale for group in optimizer.groups]
    [1.0, 0.5]
    """

    def __init__(self, parameters: ParametersOrGroups, lr: float, **settings: Any) -> None:
        self._check({"lr": lr} | settings)
        self.lr = lr
        self.steps = 0
        vars(self).update(settings)
        self._names = tuple(settings)
        groups: Any = list(parameters) if isinstance(parameters, Iterator) else parameters
        if not isinstance(groups, list | tuple) or not any(isinstance(x, Mapping) for x in groups):
            groups = [{"parameters": groups}]
        self.groups = [self._group(group) for group in groups]
        every = [p for group in self.groups for p in group.parameters]
        self.parameters = checked_parameters(f"{type(self).__name__}(parameters)", every)
        self._kept: list[dict[str, Any]] = [{"count": 0} for _ in every]

    def zero_grad(self) -> None:
        """Forget every gradient."""
        clear_gradients(self.parameters)

    def step(self) -> None:
        """Move each parameter that has a gradient, in place.

        Graphs that saved it before refuse to run backward with the new values.
        """
        with update(self, partial(Optimizer.step, self)):
            for p in self.parameters:  # before any parameter is moved
                if p.grad is not None and np.shape(p.grad) != p.shape:
                    what = f"{p.name or 'a parameter'} has shape {p.shape}, its gradient "
                    raise ShapeError(f"{type(self).__name__}.step(): {what}{np.shape(p.grad)}")
            self._check({"lr": self.lr} | self._settings())  # they may have been set since
            self.steps += 1
            place = caller()
            kept = iter(self._kept)
            for group in self.groups:
                settings = SimpleNamespace(**self._settings() | group.settings)
                settings.lr = self.lr * group.lr_scale
                for p, own in zip(group.parameters, kept, strict=False):
                    if p.grad is not None:
                        self._move(p, own, settings)
                        writes.note(p._data, place)
        for listener in after_step:
            listener(self)

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

    def decayed(self, settings: SimpleNamespace, w: Array, g: Array, scratch: Array) -> Array:
        """g + λ w, in scratch; g itself without a weight decay λ."""
        if not settings.weight_decay:
            return g
        np.multiply(w, settings.weight_decay, scratch)
        scratch += g
        return scratch

    # ------------------------------------------------------------------ saving and loading

    def state_dict(self) -> dict[str, Any]:
        """Settings, and for each parameter its name, shape, and copies of what is kept for it."""
        return {
            "kind": type(self).__name__,
            "lr": self.lr,
            "steps": self.steps,
            "settings": self._settings(),
            "groups": [
                {"lr_scale": group.lr_scale, "settings": dict(group.settings)}
                for group in self.groups
            ],
            "parameters": [
                {"name": p.name, "shape": list(p.shape), "kept": deepcopy(own)}
                for p, own in zip(self.parameters, self._kept, strict=True)
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
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
            group.lr_scale = saved["lr_scale"]
            group.settings = dict(saved["settings"])
        self._kept = [deepcopy(record["kept"]) for record in state["parameters"]]

    def _misfits(self, state: dict[str, Any]) -> Iterator[str]:
        """Why a state cannot be loaded here: a line for each reason."""
        records = state.get("parameters", ())
        for what, here, there in (
            ("kind", type(self).__name__, state.get("kind")),
            ("parameters", len(self.parameters), len(records)),
            ("groups", len(self.groups), len(state.get("groups", ()))),
        ):
            if here != there:
                yield f"{what}: {here} here, {there} in the state"
        for i, (p, record) in enumerate(zip(self.parameters, records, strict=False)):
            if tuple(record["shape"]) != p.shape:
                yield f"parameter {i}: shape {p.shape} here, {tuple(record['shape'])} in the state"
            if p.name and record["name"] and record["name"] != p.name:
                yield (
                    f"parameter {i}: {p.name} here, {record['name']} in the state; save and load "
                    "the model with its optimizer, and parameters go by their names"
                )

    # ------------------------------------------------------------------ private

    def _check(self, settings: Settings) -> None:
        """Raise for a setting out of range, of the optimizer or of a group."""
        name = type(self).__name__
        for key, value in settings.items():
            for x in value if isinstance(value, tuple | list) else [value]:
                if not isinstance(x, int | float | np.number):
                    raise DTypeError(f"{name}: {key} must be a number, got {x!r}")
                limit = 1 if key in ("alpha", "betas") else np.inf
                if not 0 <= x < limit:
                    raise ArgumentError(f"{name}: {key} must lie in [0, {limit}), got {value!r}")

    def _group(self, group: Mapping[str, Any]) -> Group:
        """A group as the caller wrote it."""
        name = type(self).__name__
        known = ["parameters", "lr", *self._names]
        if "parameters" not in group or not set(group) <= set(known):
            raise ArgumentError(
                f"{name}: a group is a dict of {', '.join(known)}, got {', '.join(group)}"
            )
        settings = dict(group)
        parameters = checked_parameters(f"{name}(parameters)", settings.pop("parameters"))
        self._check(settings)
        lr = settings.pop("lr", self.lr)
        if lr != self.lr and not self.lr:
            raise ArgumentError(f"{name}: a group's lr is in proportion to lr, which is 0")
        return Group(parameters, lr / self.lr if self.lr else 1.0, settings)

    def _settings(self) -> Settings:
        return {name: getattr(self, name) for name in self._names}

    def _move(self, p: Tensor, kept: dict[str, Any], settings: SimpleNamespace) -> None:
        """Move one parameter. Of float16, arrays and a copy of the weights are kept in float32.

        Squares would soon be 0 or infinite, and a small step added to float16 would be lost.
        """
        w = p._data
        dtype = at_least_float32(w.dtype)
        if w.dtype != dtype:
            w = kept.setdefault("weights", w.astype(dtype))
            np.copyto(w, p._data, where=w.astype(p.dtype) != p._data)  # what others wrote
        else:
            kept.pop("weights", None)
        names = self.state_names(settings)
        for name in names:
            if name not in kept:
                kept[name] = np.zeros_like(w)
            elif kept[name].dtype != dtype:  # the parameter was cast
                kept[name] = kept[name].astype(dtype)
        kept["count"] += 1
        arrays = [w, np.asarray(p.grad, dtype), *(kept[name] for name in names)]
        for part in _parts(arrays):
            self.update(settings, kept["count"], np.empty_like(part[0]), *part)
        if w is not p._data:
            p._data[...] = w


def _parts(arrays: list[Array]) -> list[list[Array]]:
    """The arrays; of large ones, views of one part after another."""
    size = arrays[0].size
    if size <= ENTRIES_PER_PART or not all(x.flags.c_contiguous for x in arrays):
        return [arrays]
    flat = [x.reshape(-1) for x in arrays]
    starts = range(0, size, ENTRIES_PER_PART)
    return [[x[i : i + ENTRIES_PER_PART] for x in flat] for i in starts]


# ---------------------------------------------------------------- what clipping shares


@cache
def at_least_float32(dtype: DType) -> DType:
    """The dtype in which gradients and weights of this one are computed with."""
    return np.result_type(dtype, np.float32)


@contextmanager
def update(owner: object, again: Callable[[], object]) -> Iterator[list[object]]:
    """Say before and after that weights, gradients or settings are updated; `again` repeats it.

    A compiled step calls it again in place of its ops. One that follows an outer update answers
    False; then the inner one has no end. Put the update's result in the list.
    """
    within_another = False in say("update", owner=owner, again=again)
    result: list[object] = []
    yield result
    if not within_another:
        say("updated", owner=owner, again=again, result=result[0] if result else None)


def checked_parameters(call: str, parameters: object) -> list[Tensor]:
    """The parameters as a list, marked so that views call them parameters.

    Raises: DTypeError unless each is a leaf Tensor; ArgumentError if there is none, if one comes
        twice, or if one needs no gradient.
    """
    if isinstance(parameters, Tensor | Mapping) or not isinstance(parameters, Iterable):
        kind = type(parameters).__name__
        raise DTypeError(
            f"{call}: parameters must be a list of Tensors, as model.parameters(), got a {kind}"
        )
    checked = list(parameters)
    if not checked:
        raise ArgumentError(f"{call}: got no parameters")
    first: dict[int, int] = {}
    for i, p in enumerate(checked):
        if not isinstance(p, Tensor) or not p.is_leaf:
            raise DTypeError(
                f"{call}: each must be a leaf Tensor, as of model.parameters(), got {p!r:.80}"
            )
        parameter = f"parameter {i} ({p.name or 'unnamed'}) of shape {p.shape}"
        if not p.requires_grad:
            raise ArgumentError(
                f"{call}: {parameter} needs no gradient; leave it out, or write "
                "p.requires_grad = True"
            )
        if first.setdefault(id(p), i) != i:
            raise ArgumentError(
                f"{call}: {parameter} is parameter {first[id(p)]} too, and would move twice"
            )
        mark_parameter(p)
    return checked

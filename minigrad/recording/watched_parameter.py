"""What is known of each parameter of a watched model: within a step, and between steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..engine.errors import ArgumentError, DTypeError
from ..engine.tensor import Operand, Tensor
from ..engine.types import Array
from .formulas import array_of
from .measures import unmasked_rms

__all__ = ["WatchedParameter", "mark_symmetric", "named_tensors", "reference_of"]

REUSED = 1 << 20  # entries of an array whose copy keeps its memory


def named_tensors(model: object) -> dict[str, Tensor]:
    """The parameters of a Module by path; of a dict, a list or one Tensor by name.

    Raises: DTypeError for anything else; ArgumentError if there are none.
    """
    if hasattr(model, "named_parameters") and not isinstance(model, type):
        found = dict(model.named_parameters())
    elif isinstance(model, Mapping):
        found = dict(model)
    else:
        found = {}
        for i, p in enumerate(model if isinstance(model, list | tuple) else [model]):
            name = getattr(p, "name", None) or "parameter"
            found[name if name not in found else f"{name} {i}"] = p
    if wrong := [type(p).__name__ for p in found.values() if not isinstance(p, Tensor)]:
        raise DTypeError(
            f"watch(model): model must be a Module, or Tensors in a list or a dict, got {wrong[0]}"
        )
    if not found:
        raise ArgumentError("watch(model): the model has no parameters")
    return found


def reference_of(reference: object, tensors: dict[str, Tensor]) -> Mapping[str, Operand]:
    """The weights to measure drift from: a model like this one, or its state dict."""
    given = reference if isinstance(reference, Mapping) else named_tensors(reference)
    shapes = {name: np.shape(array_of(x)) for name, x in given.items()}
    for name, p in tensors.items():
        if shapes.get(name) != p.shape:
            got = shapes.get(name, "missing")
            raise ArgumentError(f"watch(reference=...): {name} must be of {p.shape}, is {got}")
    return given


@dataclass(eq=False)
class WatchedParameter:
    """What is known of a parameter within a step, and between steps."""

    name: str
    tensor: Tensor
    reference: Array
    path: str = ""
    last_gradient: Array | None = None  # of the last sample, as the optimizer got it
    last_rms: float = 0.0  # of that gradient
    used: bool = False  # whether an op of a recorded step took it
    weights_before: Array | None = None  # as they were before the update of a sample
    cancels: bool = False

    copies: dict[str, Array] = field(default_factory=dict)
    used_rows: Array | None = None  # of a table in which ids are looked up
    ids: int = 0
    symmetric: bool = False  # whether it began with one number all over
    has_copies: bool = False  # whether its units were copies of each other when traced last

    def __post_init__(self) -> None:
        self.scale = unmasked_rms(self.reference) or 1.0
        self.clear()

    def clear(self) -> None:
        self.gradient: Array | None = None
        self.stale = False
        self.used_under_no_grad = False

    def arrived(self, gradient: Array) -> None:
        """A backward reached it: what came before counts, unless it was cleared since."""
        left = self.tensor.grad is not None and bool(np.any(self.tensor.grad))
        if self.gradient is None or not left:
            self.gradient, self.stale = gradient, left
        else:
            self.gradient = self.gradient + gradient

    def copied(self, name: str, array: Array) -> Array:
        """A copy, of small arrays always in the same memory: fresh memory costs more."""
        if array.size > REUSED:
            return array.copy()
        known = self.copies.get(name)
        if known is None or known.shape != array.shape or known.dtype != array.dtype:
            known = self.copies[name] = np.empty_like(array)
        np.copyto(known, array)
        return known

    def look_up(self, ids: Array) -> None:
        """Note which rows were used; positions in order, which are no ids, are passed over."""
        in_order = ids.shape[-1] > 1 and bool((np.diff(ids) > 0).all())
        if in_order or not ids.size:
            return
        if self.used_rows is None:
            self.used_rows = np.zeros(len(self.tensor._data), bool)
        self.used_rows[ids.ravel()] = True
        self.ids += ids.size

    def look_for_copies(self) -> None:
        """Note whether all columns of a matrix are the same."""
        weights = self.tensor._data
        several = weights.ndim == 2 and min(weights.shape) > 1
        alike = several and np.array_equal(weights[:, 0], weights[:, -1])
        self.has_copies = alike and bool((weights == weights[:, :1]).all())


def mark_symmetric(parameters: Iterable[WatchedParameter]) -> None:
    """Matrices of one number all over, as they begin; zeros only where all matrices are zero.

    Zeros alone are usual: in the last layer of a branch that begins as nothing.
    """
    matrices = [p for p in parameters if sum(n > 1 for n in p.tensor.shape) > 1]
    same = [p for p in matrices if np.ptp(p.reference) == 0]
    given = [p for p in matrices if p.tensor.requires_grad]
    all_zero = all(p in same and not p.reference.any() for p in given if "emb" not in p.name)
    for p in same:
        p.symmetric = bool(p.reference.any()) or all_zero

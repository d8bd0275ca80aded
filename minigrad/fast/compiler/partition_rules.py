"""How a step may run on parts of the rows: what it then makes, and how it reads each value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...ops.einsum import explicit
from .axes import indexed, through_reshape
from .program import Step, Value

__all__ = ["WHOLE", "Need", "Place", "Ways"]


class Place(NamedTuple):
    """Where a value stands: "whole" once so many phases have ended, or "rows" along an axis or a
    "sum", made in that phase.
    """

    kind: str
    axis: int
    time: int


Need = tuple[Value, Any]  # a value and how it is read: along an axis, as a "sum", or "whole"
WHOLE = Place("whole", 0, 0)


class Ways:
    """The ways to run each kind of step, given where the values that it reads stand.

    Attributes: places: of values that are not whole from the start, by id.  units: how many rows.
    """

    units: int
    places: dict[int, Place]

    def place(self, value: Value) -> Place:
        return self.places.get(id(value), WHOLE)

    def is_large(self, step: Step) -> bool:
        """Whether a product of whole values is worth cutting."""
        raise NotImplementedError

    def _is_cut(self, value: Value, need: Any) -> bool:
        place = self.place(value)
        return place.kind == need == "sum" or (place.kind == "rows" and place.axis == need)

    def _options(self, step: Step) -> list[tuple[str, int, list[Need]]]:
        """Kind and axis of the result, and how each value is to be read for that: ways in which
        something that is cut already stays so. A large product of whole values is cut too.
        """
        maker = getattr(self, f"_{step.kind}", None)
        values = list(step.reads())
        if maker is None or not all(v.shape or step.kind == "elementwise" for v in values):
            return []
        if all(self.place(v).kind == "whole" for v in values):
            return list(maker(step))[:1] if step.kind == "matmul" and self.is_large(step) else []
        found = list(maker(step))
        return [option for option in found if any(self._is_cut(v, n) for v, n in option[2])]

    def _fits(self, value: Value, axis: int) -> bool:
        return value.shape[axis] % self.units == 0

    def _elementwise(self, step: Step) -> Iterator[tuple[str, int, list[Need]]]:
        values = [v for v in step.args if v.__class__ is Value]
        ndim = len(step.out.shape)
        for value in values:
            place = self.place(value)
            if place.kind == "rows":
                axis = place.axis + ndim - len(value.shape)
                yield "rows", axis, [(v, self._along(v, step.out, axis)) for v in values]
        sums = [v for v in values if self.place(v).kind == "sum"]
        linear = {
            "np.multiply": len(sums) == 1,
            "np.divide": sums == [step.args[0]],
            "np.negative": True,
            "np.add": len(sums) == len(step.args),
            "np.subtract": len(sums) == len(step.args),
        }
        if sums and linear.get(step.text, False):
            yield "sum", 0, [(v, "sum" if v in sums else "whole") for v in values]

    def _along(self, value: Value, out: Value, axis: int) -> Any:
        """How a value is read where it meets rows of the result: along that axis, if it has it."""
        mine = axis - len(out.shape) + len(value.shape)
        has = mine >= 0 and value.shape[mine] == out.shape[axis]
        return mine if has and self._fits(value, mine) else "whole"

    def _cast(self, step: Step) -> Iterator[tuple[str, int, list[Need]]]:
        (place,) = (self.place(v) for v in step.reads())
        yield place.kind, place.axis, [(step.args[0], "sum" if place.kind == "sum" else place.axis)]

    def _copy(self, step: Step) -> Iterator[tuple[str, int, list[Need]]]:
        source, place = step.args[0], self.place(step.args[0])
        if place.kind == "rows":
            axis = through_reshape(source.shape, place.axis, step.out.shape, self.units)
            if axis is not None:
                yield "rows", axis, [(source, place.axis)]

    def _reduce(self, step: Step) -> Iterator[tuple[str, int, list[Need]]]:
        (x,), place = step.args, self.place(step.args[0])
        ndim, axes = len(x.shape), step.kwargs.get("axis")
        axes = range(ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
        gone = {a % ndim for a in axes}
        if place.kind != "rows":
            return
        if place.axis not in gone:
            kept_dims = step.kwargs.get("keepdims", False)
            axis = place.axis if kept_dims else place.axis - sum(a < place.axis for a in gone)
            yield "rows", axis, [(x, place.axis)]
        elif step.text == "np.add.reduce" and "initial" not in step.kwargs:
            yield "sum", 0, [(x, place.axis)]

    def _matmul(self, step: Step) -> Iterator[tuple[str, int, list[Need]]]:
        a, b = step.args
        ndim, m, n = len(step.out.shape), len(a.shape), len(b.shape)
        if m == 1 and n == 2 and self._fits(a, 0):
            yield "sum", 0, [(a, 0), (b, 0)]
        if m == 1 and n == 2 and self._fits(b, 1):
            yield "rows", 0, [(a, "whole"), (b, 1)]
        if min(m, n) < 2:
            return
        for value in (a, b):
            place = self.place(value)
            axis = place.axis + ndim - len(value.shape)
            if place.kind == "rows" and axis < ndim - 2:  # each product its own rows
                yield "rows", axis, [(v, self._along(v, step.out, axis)) for v in (a, b)]
        if self._fits(a, m - 2):
            yield "rows", ndim - 2, [(a, m - 2), (b, "whole")]
        if self._fits(a, m - 1):
            yield "sum", 0, [(a, m - 1), (b, n - 2)]
        if self._fits(b, n - 1):
            yield "rows", ndim - 1, [(a, "whole"), (b, n - 1)]

    def _at(self, step: Step) -> Iterator[tuple[str, int, list[Need]]]:
        """x added into zeros at rows that an array of integers names."""
        x, index = step.args[:2]
        index = index if isinstance(index, tuple) else (index,)
        at, place = index[-1], self.place(x)
        plain = all(part == slice(None) for part in index[:-1])
        whole = at.__class__ is Value and at.dtype.kind in "iu"
        if plain and whole and place.kind == "rows":
            axis = place.axis - len(index) + 1
            if 0 <= axis < len(at.shape):
                yield "sum", 0, [(x, place.axis), (at, axis)]

    def _put(self, step: Step) -> Iterator[tuple[str, int, list[Need]]]:
        """x put into zeros at a basic index."""
        x, index = step.args[:2]
        place, axes = self.place(x), indexed(index, step.out.shape)
        at = place.axis + len(axes) - len(x.shape)
        if place.kind == "rows" and axes[at] is not None:
            yield "rows", axes[at], [(x, place.axis)]

    def _call(self, step: Step) -> Iterator[tuple[str, int, list[Need]]]:
        values = list(step.reads())
        axis = step.kwargs.get("axis")
        if step.text == "np.where" and len(step.args) == 3:
            for kind, a, needs in self._elementwise(step):
                if kind == "rows":
                    yield kind, a, needs
        elif step.text == "np.take" and isinstance(axis, int) and values == list(step.args):
            x, indices = step.args
            place = self.place(indices)
            if place.kind == "rows":
                a = axis % len(x.shape) + place.axis
                yield "rows", a, [(x, "whole"), (indices, place.axis)]
        elif step.text == "np.einsum":
            yield from self._einsum(step)
        elif step.text in ("np.take_along_axis", "np.concatenate") and isinstance(axis, int):
            for value in values:
                place = self.place(value)
                if place.kind == "rows" and place.axis != axis % len(value.shape):
                    yield "rows", place.axis, [(v, place.axis) for v in values]

    def _einsum(self, step: Step) -> Iterator[tuple[str, int, list[Need]]]:
        """A label is rows of the result if it is left in it, and otherwise summed over."""
        subscripts, *values = step.args
        if not isinstance(subscripts, str):
            return
        terms, out = explicit(subscripts, tuple(len(v.shape) for v in values))
        if any(len(set(term)) < len(term) for term in terms):  # a diagonal
            return
        for value, term in zip(values, terms, strict=True):
            place = self.place(value)
            if place.kind != "rows":
                continue
            label, count = term[place.axis], value.shape[place.axis]
            axes = [t.find(label) for t in terms]
            has = [a >= 0 and v.shape[a] == count for v, a in zip(values, axes, strict=True)]
            needs = [(v, a if h else "whole") for v, a, h in zip(values, axes, has, strict=True)]
            yield ("rows", out.index(label), needs) if label in out else ("sum", 0, needs)

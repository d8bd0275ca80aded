"""The memory of a forward pass: what it keeps for backward, each array once, and its peak."""

from __future__ import annotations

from ..engine.types import Array
from ..engine.writes import writes

__all__ = ["ForwardMemory"]


class ForwardMemory:
    """The arrays that ops use, make and keep, up to the first backward step.

    An array lives from the op that makes it to the last that uses it, and to the end if an op keeps
    it or it was there before. A view is part of its base. Temporary arrays of a kernel are not
    counted. The arrays must outlive this, so that no id() comes again.
    """

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}  # bytes of each array, by the id() of what owns it
        self._made: dict[int, int] = {}  # at which step; absent for what was there before
        self._used: dict[int, int] = {}  # at which step last
        # the parts that are kept for backward, each by its address and bytes
        self._held: dict[int, set[tuple[int, int]]] = {}
        self._steps = 0
        self.over = False  # a backward step was run

    def step(self, inputs: list[Array], out: Array) -> None:
        """An op ran on these arrays."""
        if self.over:
            return
        self._steps += 1
        for array in (*inputs, out):
            key = id(writes.owner(array))
            known = key in self.sizes
            self.sizes[key] = max(self.sizes.get(key, 0), array.nbytes)
            if array is out and not known:
                self._made[key] = self._steps
            self._used[key] = self._steps

    def keep(self, array: Array, own: bool) -> int:
        """An op keeps this for backward; returns how many bytes no earlier op keeps.

        Args: own: it is a by-product of the op's kernel, of which there is no other reference.
        """
        key = -len(self._held) - 1 if own else id(writes.owner(array))
        if not self.over and key not in self.sizes:
            self.sizes[key] = array.nbytes
            self._made[key] = self._steps if own else 0
        whole = array if own else writes.owner(array)
        parts = self._held.setdefault(key, set())
        before = min(whole.nbytes, sum(nbytes for _, nbytes in parts))
        parts.add((array.__array_interface__["data"][0], array.nbytes))
        return min(whole.nbytes, sum(nbytes for _, nbytes in parts)) - before

    @property
    def peak(self) -> int:
        """The most bytes of arrays that are there at once."""
        changes = [0] * (self._steps + 2)
        for key, nbytes in self.sizes.items():
            made = self._made.get(key, 0)
            lasting = key in self._held or key not in self._made
            changes[made] += nbytes
            changes[self._steps + 1 if lasting else self._used[key] + 1] -= nbytes
        most = now = 0
        for change in changes:
            now += change
            most = max(most, now)
        return most

"""Several products as one: X [A|B|C] forward, and backward Xᵀ [P|Q|R] and [P|Q|R] [A|B|C]ᵀ.

The parts of a joint result are views of its columns. The parts of a joint operand are written there
by the steps that make them, so nothing is copied; only parameters, which live in arrays of their
own, are copied side by side each call.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from .program import SMALL, Program, Step, Value, is_whole, nbytes, root
from .rewrite import Rewriting, drop_dead, final_readers, uses_of
from .simplify import tidy

__all__ = ["join"]

Joined = dict[int, tuple[Value, int]]  # a parameter: where it was copied to, from which column on


def join(program: Program) -> bool:
    """Join what can be joined."""
    groups: dict[int, list[Step]] = {}  # products of matrices, by their left operand
    for step in program.steps:
        if step.kind == "matmul" and all(len(v.shape) == 2 for v in step.args):
            groups.setdefault(id(step.args[0]), []).append(step)
    several = [group for group in groups.values() if len(group) > 1]
    joined: Joined = {}
    changed = False
    while _join_apart(program, several, joined):
        drop_dead(program)
        changed = True
    if changed:
        tidy(program)
    return changed


def _join_apart(program: Program, groups: list[list[Step]], joined: Joined) -> bool:
    """Join at once those groups that share no step; the ones forward before the others."""
    known = _Known(program)
    possible = [j for group in groups if (j := _Joint(group, joined, known)).possible()]
    at_once: dict[int, _Joint] = {}  # by the steps that they change
    for joint in [j for j in possible if j.forward] or possible:
        changes = joint.plan()
        if at_once.keys().isdisjoint(changes):
            at_once.update(dict.fromkeys(changes, joint))
    if at_once:
        r = Rewriting(program)
        r.run(lambda step: id(step) in at_once and at_once[id(step)].visit(r, step))
    return bool(at_once)


class _Known:
    """Who reads each value, and where each step stands, until the program changes."""

    def __init__(self, program: Program) -> None:
        self.steps, self.uses = program.steps, uses_of(program)
        self.position = {id(step): i for i, step in enumerate(program.steps)}


class _Joint:
    """Products X P, X Q, X R, whose right operands are to lie side by side: parameters, or what
    steps of their own make.
    """

    def __init__(self, group: list[Step], joined: Joined, known: _Known) -> None:
        self.joined, self.steps = joined, known.steps
        self.uses, self.position = known.uses, known.position
        products = [step for step in group if self._is_projection(step)]
        self.forward = len(products) > 1
        self.products = products if self.forward else group
        self.parts = [step.args[1] for step in self.products]
        self.makers = [root(part).step for part in self.parts]
        self.families = [self.products]
        self.sums: dict[int, Value] = {}  # steps that end a sum of P Aᵀ, Q Bᵀ and R Cᵀ, and [A|B|C]

    def _is_projection(self, step: Step) -> bool:
        """Whether a step multiplies with a parameter, and its result stays within the program."""
        weight, used = step.args[1], id(step) in self.position
        return (
            used
            and weight.kind == "leaf"
            and is_whole(weight)
            and None not in final_readers(self.uses, step.out)
        )

    def possible(self) -> bool:
        """Whether parts that are computed are so by steps of their own, kept by nobody, and read
        later only.
        """
        if len(self.parts) < 2 or not all(id(step) in self.position for step in self.products):
            return False  # an earlier join took one over
        if len({id(root(part)) for part in self.parts}) < len(self.parts):
            return False
        if len({part.dtype for part in self.parts}) > 1:
            return False
        if self.forward:
            return True
        if not self._in_time(self.products) or not all(map(self._fits, self.parts, self.makers)):
            return False
        made = [m.out for m in self.makers if m is not None]
        readers = [step for value in made for step in final_readers(self.uses, value)]
        return all(step is not None and step.kind != "grad" for step in readers)

    def _fits(self, part: Value, maker: Step | None) -> bool:
        """Whether a step makes this whole matrix, and could write it to columns of a wider one."""
        if maker is None or maker.kind not in ("matmul", "copy", "elementwise"):
            return False
        if maker.into is not None or nbytes(maker.out) != nbytes(part) or not is_whole(part):
            return False
        shapes = [maker.out.shape, maker.args[0].shape if maker.kind == "copy" else part.shape]
        wider = np.empty((part.shape[0], part.shape[1] + 1), part.dtype)
        columns = wider[:, : part.shape[1]]
        return all(np.may_share_memory(columns.reshape(shape), wider) for shape in shapes)

    def _in_time(self, family: list[Step]) -> bool:
        """Whether nobody reads a member's result before the last member has run."""
        first, last = (f(self.position[id(step)] for step in family) for f in (min, max))
        outs = {id(step.out) for step in family}
        between = self.steps[first : last + 1]
        return not any(id(v) in outs for step in between for v in step.reads())

    # ------------------------------------------------------------------ what else is joined

    def _part(self, value: Any) -> int | None:
        """Which part a value is, whole and as a matrix."""
        for k, part in enumerate(self.parts):
            same = value.__class__ is Value and value.shape == part.shape and is_whole(value)
            if same and root(value) is root(part):
                return k
        return None

    def _readers(self) -> list[Step]:
        """The steps that read a part, one after the other."""
        found = [s for part in self.parts for s in final_readers(self.uses, root(part))]
        return sorted((s for s in found if s is not None), key=lambda s: self.position[id(s)])

    def _order(self) -> list[int]:
        """The parts in the order of the joint parameters that they are multiplied with, if there
        are any.
        """
        found: dict[int, tuple[Value, int, Value]] = {}  # of a part: [A|B|C], column of A, P Aᵀ
        for step in self._readers():
            k = self._part(step.args[0]) if step.kind == "matmul" else None
            leaf = root(step.args[1]) if k is not None else None
            if k is not None and leaf is not None and id(leaf) in self.joined:
                if step.args[1].shape == leaf.shape[::-1]:
                    found[k] = (*self.joined[id(leaf)], step.out)
        whole = {id(joint): joint for joint, _, _ in found.values()}
        if len(found) == len(self.parts) and len(whole) == 1:
            (joint,) = whole.values()
            if joint.shape[1] == sum(part.shape[1] for part in self.parts):
                self._find_sums({id(out): k for k, (_, _, out) in found.items()}, joint)
        starts = {k: start for k, (_, start, _) in found.items()}
        return sorted(range(len(self.parts)), key=lambda k: (starts.get(k, 0), k))

    def _find_sums(self, products: dict[int, int], joint: Value) -> None:
        """Which step adds the last of the products to the sum of the others."""
        known = {key: frozenset([k]) for key, k in products.items()}
        for key in (found := list(products)):
            for step in self.uses.get(key, []):
                if step is None or step.text not in ("reshape", "np.add"):
                    continue
                terms = step.args if step.text == "np.add" else step.args[:1]
                parts = [known.get(id(term), frozenset()) for term in terms]
                total = frozenset().union(*parts)
                if id(step.out) in known or not all(parts) or len(total) < sum(map(len, parts)):
                    continue
                known[id(step.out)] = total
                found.append(id(step.out))
                if len(total) == len(self.parts) and len(terms) > 1:
                    self.sums[id(step)] = joint

    def _sums_of_rows(self) -> None:
        """The sums over the rows of every part are one sum too."""
        found: dict[int, Step] = {}
        for step in self._readers():
            if step.text == "np.add.reduce" and step.kwargs == {"axis": 0}:
                k = self._part(step.args[0])
                if k is not None:
                    found.setdefault(k, step)
        family = [found[k] for k in sorted(found)]
        if len(family) == len(self.parts) and self._in_time(family):
            self.families.append(family)

    def _biases(self) -> list[Step]:
        """The steps that add a bias to the rows of each product, if each has one."""
        found = [self._bias_of(step) for step in self.products] if self.forward else []
        return [add for add in found if add is not None] if all(found) else []

    def _bias_of(self, step: Step) -> Step | None:
        """The one reader of a product, if it adds a bias to its rows."""
        value, readers = step.out, self.uses.get(id(step.out), [])
        while len(readers) == 1 and readers[0] is not None and readers[0].text == "reshape":
            value, readers = readers[0].out, self.uses.get(id(readers[0].out), [])
        add = readers[0] if len(readers) == 1 else None
        if add is None or add.text != "np.add" or value.shape[-1] != step.out.shape[-1]:
            return None
        x, bias = add.args
        fits = x is value and bias.__class__ is Value and bias.kind == "leaf"
        fits = fits and bias.shape == value.shape[-1:] and bias.dtype == value.dtype
        fits = fits and add.out.dtype == value.dtype
        return add if fits and None not in final_readers(self.uses, add.out) else None

    # ------------------------------------------------------------------ joining

    def plan(self) -> set[int]:
        """Settle what lies where, and what is joined; the steps that `visit` is to be shown."""
        self.order, self.biases = self._order(), self._biases()
        if not self.forward:
            self._sums_of_rows()
        self.room = _Room([self.parts[k] for k in self.order], self.parts[0].shape[:1])
        made = {id(m): k for k, m in enumerate(self.makers) if m is not None}
        self.places = {key: self.order.index(k) for key, k in made.items()}
        self.added = {id(step) for step in self.biases}
        end = min if self.forward else max  # what is multiplied is there from the start, or last
        self.ends = {end(self.position[id(s)] for s in family): family for family in self.families}
        self.members = {id(step) for family in self.families for step in family}
        return self.members | self.places.keys() | self.sums.keys() | self.added

    def visit(self, r: Rewriting, step: Step) -> bool:
        """Rewrite one of these steps; whether that takes its place."""
        key, room = id(step), self.room
        if key in self.places:
            room.place(r, step, self.places[key], step.out.shape)
            step.into.name = step.out.name  # type: ignore[union-attr]
            return False
        if key in self.members:
            family = self.ends.get(self.position[key])
            if family is not None:
                if self.forward:
                    self.joined.update(room.copy(r))
                self._as_one(r, [family[k] for k in self.order])
        elif key in self.sums:
            turned = r.transposed(self.sums[key])
            shape = (*room.rows, turned.shape[1])
            total = r.emit("matmul", "np.matmul", (room.whole(r), turned), shape, room.dtype)
            r.replace(step.out, total)
            r.now[id(step.out)] = r.reshaped(total, step.out.shape)
        else:  # a bias, which is in the joint sum
            r.now[id(step.out)] = step.args[0]
        return True

    def _as_one(self, r: Rewriting, family: list[Step]) -> None:
        """One step in place of a family's; each member's result is a part of its."""
        first, whole, biases = family[0], self.room.whole(r), self.biases
        if first.kind == "matmul":
            x, shape = r.map(first.args[0]), (first.out.shape[0], whole.shape[1])
            made = r.emit("matmul", "np.matmul", (x, whole), shape, first.out.dtype)
        else:
            made = r.emit("reduce", first.text, (whole,), whole.shape[1:], whole.dtype, axis=0)
        if biases:
            few = nbytes(made) <= SMALL * made.dtype.itemsize  # a bias in each row is added faster
            bias = _Room([add.args[1] for add in biases], made.shape[:1] if few else ())
            bias.copy(r)
            args = (made, bias.whole(r))
            made = r.emit("elementwise", "np.add", args, made.shape, made.dtype)
        named = biases or family
        made.name = _common_name([step.out.name for step in named])
        for start, step, name in zip(self.room.starts, family, named, strict=True):
            part = _columns(r, made, start, step.out.shape[-1])
            part.name = name.out.name
            r.now[id(step.out)] = part


class _Room:
    """Memory in which several matrices, or vectors as so many equal rows, lie side by side."""

    def __init__(self, parts: list[Value], rows: tuple[int, ...]) -> None:
        widths = [part.shape[-1] for part in parts]
        self.parts, self.rows, self.dtype = parts, rows, parts[0].dtype
        self.starts = [0, *accumulate(widths)][:-1]
        self.room = Value("room", None, (*rows, sum(widths)), self.dtype)
        self.room.name = _common_name([part.name or root(part).name for part in parts])
        self.made: dict[int, Value] = {}

    def place(self, r: Rewriting, step: Step, k: int, shape: tuple[int, ...]) -> None:
        """Have a step write the k-th part."""
        part = _columns(r, self.room, self.starts[k], self.parts[k].shape[-1])
        r.put(step, r.reshaped(part, shape))
        self.made[k] = step.out

    def copy(self, r: Rewriting) -> Joined:
        """Copy the parts here; where they lie."""
        for k, part in enumerate(self.parts):
            shape = (*self.rows, part.shape[-1])
            r.emit("elementwise", "spread", (part, shape), shape, self.dtype)
            copy = r.steps[-1]
            r.steps.pop()
            self.place(r, copy, k, shape)
            r.steps.append(copy)
            assert copy.into is not None
            copy.into.name = f"{part.name or 'w'}_in_{self.room.name or 'joint'}"
        whole = self.whole(r)
        places = zip(self.parts, self.starts, strict=True)
        return {id(part): (whole, start) for part, start in places}

    def whole(self, r: Rewriting) -> Value:
        return r.joined(self.room, *(self.made[k] for k in range(len(self.parts))))


def _columns(r: Rewriting, value: Value, start: int, width: int) -> Value:
    """Some columns of a matrix, or some entries of a vector."""
    cut = slice(start, start + width)
    part = r.view(value, "getitem", ((slice(None), cut) if len(value.shape) == 2 else (cut,),))
    part.part = True
    return part


def _common_name(names: list[str | None]) -> str | None:
    """W_Q, W_K, W_V → W_QKV; names that have nothing in common stand side by side."""
    if not all(names):
        return None
    known = [str(name) for name in names]
    head, rests = _shared(known)
    tail, middles = _shared([rest[::-1] for rest in rests])
    return head + "".join(middle[::-1] for middle in middles) + tail[::-1]


def _shared(names: list[str]) -> tuple[str, list[str]]:
    """What all names begin with, and what comes after, of which each keeps something."""
    letters = zip(*names, strict=False)
    size = next((i for i, c in enumerate(letters) if len(set(c)) > 1), min(map(len, names)) - 1)
    return names[0][:size], [name[size:] for name in names]

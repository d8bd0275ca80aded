"""Several products as one: X [A|B|C] forward, and backward Xᵀ [P|Q|R] and [P|Q|R] [A|B|C]ᵀ.

The parts of a joint result are views of its columns. The parts of a joint operand are written there
by the steps that make them, so nothing is copied; only parameters, which live in arrays of their
own, are copied side by side each call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .program import Program, Step, Value, is_whole, nbytes, root
from .rewrite import Rewriting, drop_dead, final_readers, uses_of
from .tidy import tidy

__all__ = ["join"]


def join(program: Program) -> bool:
    """Join what can be joined."""
    changed = _join_products(program)
    if changed:
        drop_dead(program)
        tidy(program)
    for group in _groups(program):
        parts = _Parts(program, group)
        if parts.possible():
            changed = True
            parts.join()
            drop_dead(program)
            tidy(program)
    return changed


def _groups(program: Program) -> list[list[Step]]:
    """Products of matrices that have their left operand in common."""
    groups: dict[int, list[Step]] = {}
    for step in program.steps:
        if step.kind == "matmul" and all(len(v.shape) == 2 for v in step.args):
            groups.setdefault(id(step.args[0]), []).append(step)
    return [group for group in groups.values() if len(group) > 1]


def _common_name(names: list[str | None]) -> str | None:
    """W_Q, W_K, W_V → W_QKV; names that have nothing in common stand side by side."""
    if not all(names):
        return None
    known = [str(name) for name in names]
    letters = zip(*known, strict=False)
    size = next((i for i, c in enumerate(letters) if len(set(c)) > 1), 0)
    rests = [name[size:] for name in known]
    end = 0
    while len(set(r[len(r) - end - 1 :] for r in rests)) == 1 and all(
        len(r) > end + 1 for r in rests
    ):
        end += 1
    middles = [r[: len(r) - end] for r in rests]
    return known[0][:size] + "".join(middles) + rests[0][len(rests[0]) - end :]


# ---------------------------------------------------------------- forward


def _join_products(program: Program) -> bool:
    """X A, X B, X C = X [A|B|C], and their biases likewise, for parameters A, B and C."""
    uses = uses_of(program)
    r = Rewriting(program)
    group_of: dict[int, list[Step]] = {}
    biases: dict[int, Step] = {}  # of a product: the step that adds a bias to it
    for group in _groups(program):
        chosen = [step for step in group if step.args[1].kind == "leaf" and is_whole(step.args[1])]
        chosen = [step for step in chosen if None not in final_readers(uses, step.out)]
        parameters = {id(step.args[1]) for step in chosen}
        if len(parameters) == len(chosen) > 1 and len({s.args[1].dtype for s in chosen}) == 1:
            group_of.update((id(step), chosen) for step in chosen)
            found = [_bias_of(uses, step) for step in chosen]
            if all(found):
                biases.update(zip(map(id, chosen), found, strict=True))  # type: ignore[arg-type]
    added = {id(add) for add in biases.values()}
    joint: dict[int, Value] = {}

    def visit(step: Step) -> bool:
        group = group_of.get(id(step))
        if group is not None:
            if id(group) not in joint:
                joint[id(group)] = _joint_product(r, group, biases)
            start = sum(s.out.shape[1] for s in group[: group.index(step)])
            part = _columns(r, joint[id(group)], start, step.out.shape[1])
            part.name = biases.get(id(step), step).out.name
            r.now[id(step.out)] = part
        elif id(step) in added:
            r.now[id(step.out)] = step.args[0]
        return group is not None or id(step) in added

    return r.run(visit)


def _columns(r: Rewriting, value: Value, start: int, width: int) -> Value:
    """Some columns of a matrix, or some entries of a vector."""
    cut = slice(start, start + width)
    part = r.view(value, "getitem", ((slice(None), cut) if len(value.shape) == 2 else (cut,),))
    part.part = True
    return part


def _bias_of(uses: dict[int, list[Step | None]], step: Step) -> Step | None:
    """The one reader of a product, if it adds a bias to its rows."""
    value, readers = step.out, uses.get(id(step.out), [])
    while len(readers) == 1 and readers[0] is not None and readers[0].text == "reshape":
        value, readers = readers[0].out, uses.get(id(readers[0].out), [])
    add = readers[0] if len(readers) == 1 else None
    if add is None or add.text != "np.add" or value.shape[-1] != step.out.shape[-1]:
        return None
    x, bias = add.args
    fits = x is value and bias.__class__ is Value and bias.kind == "leaf"
    fits = fits and bias.shape == value.shape[-1:] and bias.dtype == value.dtype == add.out.dtype
    return add if fits and None not in final_readers(uses, add.out) else None


def _joint_product(r: Rewriting, group: list[Step], biases: dict[int, Step]) -> Value:
    """X [A|B|C], with [a|b|c] added if each member has a bias."""
    x, dtype = r.map(group[0].args[0]), group[0].out.dtype
    weights = _side_by_side(r, [step.args[1] for step in group], dtype)
    shape = (x.shape[0], weights.shape[1])
    made = r.emit("matmul", "np.matmul", (x, weights), shape, dtype)
    adds = [biases[id(step)] for step in group if id(step) in biases]
    if adds:
        bias = _side_by_side(r, [add.args[1] for add in adds], dtype)
        made = r.emit("elementwise", "np.add", (made, bias), shape, dtype)
    made.name = _common_name([step.out.name for step in adds or group])
    return made


def _side_by_side(r: Rewriting, leaves: list[Value], dtype: Any) -> Value:
    """[A|B|C]: the parameters copied into one array."""
    *lead, _ = leaves[0].shape
    shape = (*lead, sum(leaf.shape[-1] for leaf in leaves))
    joint = r.emit("join", "np.concatenate", (tuple(leaves),), shape, dtype, axis=len(lead))
    joint.name = _common_name([leaf.name for leaf in leaves])
    return joint


# ---------------------------------------------------------------- backward


class _Parts:
    """The right operands of several products Xᵀ P, Xᵀ Q, Xᵀ R, to be written side by side."""

    def __init__(self, program: Program, group: list[Step]) -> None:
        self.program = program
        self.parts = [step.args[1] for step in group]
        self.width = sum(part.shape[1] for part in self.parts)
        self.makers = [root(part).step for part in self.parts]
        self.position = {id(step): i for i, step in enumerate(program.steps)}
        self.families: list[list[Step]] = [group]
        self.sums: dict[int, Value] = {}  # steps that end a sum of P Aᵀ, Q Bᵀ and R Cᵀ, and [A|B|C]

    def possible(self) -> bool:
        """Whether all parts are computed by steps of their own, kept by nobody, and read later
        only.
        """
        if not all(id(step) in self.position for step in self.families[0]):
            return False  # an earlier join took one over
        if len({id(root(part)) for part in self.parts}) < len(self.parts):
            return False
        if len({part.dtype for part in self.parts}) > 1 or not self._in_time(self.families[0]):
            return False
        if not all(map(self._fits, self.parts, self.makers)):
            return False
        uses = uses_of(self.program)
        readers = [s for m in self.makers if m is not None for s in final_readers(uses, m.out)]
        return all(step is not None and step.kind != "grad" for step in readers)

    def _fits(self, part: Value, maker: Step | None) -> bool:
        """Whether a step makes this whole matrix, and could write it to columns of a wider one."""
        if maker is None or maker.kind not in ("matmul", "copy", "elementwise"):
            return False
        if maker.into is not None or nbytes(maker.out) != nbytes(part) or not is_whole(part):
            return False
        shapes = [maker.out.shape, maker.args[0].shape if maker.kind == "copy" else part.shape]
        columns = np.empty((part.shape[0], self.width), part.dtype)[:, : part.shape[1]]
        return all(np.may_share_memory(columns.reshape(shape), columns) for shape in shapes)

    def _in_time(self, family: list[Step]) -> bool:
        """Whether nobody reads a member's result before the last member has run."""
        first, last = (f(self.position[id(step)] for step in family) for f in (min, max))
        outs = {id(step.out) for step in family}
        between = self.program.steps[first : last + 1]
        return not any(id(v) in outs for step in between for v in step.reads())

    def _part(self, value: Any) -> int | None:
        """Which part a value is, whole and as a matrix."""
        for k, part in enumerate(self.parts):
            same = value.__class__ is Value and value.shape == part.shape and is_whole(value)
            if same and root(value) is root(part):
                return k
        return None

    def _order(self) -> list[int]:
        """The parts in the order of the joint parameters that they are multiplied with, if there
        are any.
        """
        starts = dict.fromkeys(range(len(self.parts)), 0)
        joined: dict[int, tuple[Value, int]] = {}
        for step in self.program.steps:
            if step.kind == "join" and len(step.out.shape) == 2:
                begins = _starts([leaf.shape[1] for leaf in step.args[0]])
                joined.update(
                    (id(leaf), (step.out, begin))
                    for leaf, begin in zip(step.args[0], begins, strict=True)
                )
        products: dict[int, tuple[Step, Value]] = {}
        for step in self.program.steps if joined else ():
            k = self._part(step.args[0]) if step.kind == "matmul" else None
            leaf = root(step.args[1]) if k is not None else None
            if leaf is None or id(leaf) not in joined or k is None:
                continue
            if step.args[1].shape == leaf.shape[::-1]:
                products[k], starts[k] = (step, joined[id(leaf)][0]), joined[id(leaf)][1]
        order = sorted(starts, key=lambda k: (starts[k], k))
        targets = {id(joint): joint for _, joint in products.values()}
        if len(products) == len(self.parts) and len(targets) == 1:
            (joint,) = targets.values()
            if joint.shape[1] == self.width:
                self._find_sums({id(step.out): k for k, (step, _) in products.items()}, joint)
        return order

    def _find_sums(self, products: dict[int, int], joint: Value) -> None:
        """Which step adds the last of the products to the sum of the others."""
        known = {key: frozenset([k]) for key, k in products.items()}
        for step in self.program.steps:
            if step.text == "reshape" and id(step.args[0]) in known:
                known[id(step.out)] = known[id(step.args[0])]
            elif step.text == "np.add" and all(id(v) in known for v in step.args):
                first, second = (known[id(v)] for v in step.args)
                if not first & second:
                    known[id(step.out)] = first | second
                    if len(first | second) == len(self.parts):
                        self.sums[id(step)] = joint

    def _sums_of_rows(self) -> None:
        """The sums over the rows of every part are one sum too."""
        found: dict[int, Step] = {}
        for step in self.program.steps:
            if step.text == "np.add.reduce" and step.kwargs == {"axis": 0}:
                k = self._part(step.args[0])
                if k is not None:
                    found.setdefault(k, step)
        family = [found[k] for k in sorted(found)]
        if len(family) == len(self.parts) and self._in_time(family):
            self.families.append(family)

    def join(self) -> None:
        order = self._order()
        self._sums_of_rows()
        widths = [part.shape[1] for part in self.parts]
        starts = dict(zip(order, _starts([widths[k] for k in order]), strict=True))
        rows, dtype = self.parts[0].shape[0], self.parts[0].dtype
        room = Value("room", None, (rows, self.width), dtype)
        room.name = _common_name([self.parts[k].name or root(self.parts[k]).name for k in order])
        r = Rewriting(self.program)
        makers = {id(m): k for k, m in enumerate(self.makers)}
        members = {id(step) for family in self.families for step in family}
        lasts = {max(self.position[id(s)] for s in family): family for family in self.families}
        made: dict[int, Value] = {}

        def whole() -> Value:
            return r.joined(room, *(made[k] for k in order))

        def visit(step: Step) -> bool:
            if id(step) in makers:
                k = makers[id(step)]
                step.into = r.reshaped(_columns(r, room, starts[k], widths[k]), step.out.shape)
                step.into.name = step.out.name
                step.out.strides, step.out.offset = step.into.strides, step.into.offset
                made[k] = step.out
            elif id(step) in members:
                family = lasts.get(self.position[id(step)])
                if family is not None:
                    self._as_one(r, family, whole(), starts, order)
                return True
            elif id(step) in self.sums:
                turned = r.transposed(self.sums[id(step)])
                shape = (rows, turned.shape[1])
                total = r.emit("matmul", "np.matmul", (whole(), turned), shape, dtype)
                r.replace(step.out, total)
                r.now[id(step.out)] = r.reshaped(total, step.out.shape)
                return True
            return False

        r.run(visit)

    def _as_one(
        self,
        r: Rewriting,
        family: list[Step],
        whole: Value,
        starts: dict[int, int],
        order: list[int],
    ) -> None:
        """One step in place of a family's; each member's result is a part of its."""
        first, width = family[0], whole.shape[1]
        if first.kind == "matmul":
            x = r.map(first.args[0])
            made = r.emit("matmul", "np.matmul", (x, whole), (x.shape[0], width), whole.dtype)
        else:
            made = r.emit("reduce", first.text, (whole,), (width,), whole.dtype, axis=0)
        made.name = _common_name([family[k].out.name for k in order])
        for k, step in enumerate(family):
            part = _columns(r, made, starts[k], step.out.shape[-1])
            part.name = step.out.name
            r.now[id(step.out)] = part


def _starts(widths: list[int]) -> list[int]:
    return [sum(widths[:k]) for k in range(len(widths))]

"""Several products as one: X [A|B|C] forward, and backward Xᵀ [P|Q|R] and [P|Q|R] [A|B|C]ᵀ.

The parts of a joint result are views of its columns. The parts of a joint operand are written there
by the steps that
make them, so nothing is copied; only parameters, which live in arrays of their own, are copied side
by side each call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .program import Program, Step, Value, contiguous, nbytes, root
from .rewrite import Keeps, Rewriting, drop_dead, final_readers, tidy, uses_of

__all__ = ["join"]


def join(program: Program, keeps: Keeps) -> Keeps:
    """Join what can be joined, and let products write straight to where they would be copied."""
    keeps = drop_dead(program, _join_products(program, keeps))
    for group in _groups(program):
        parts = _Parts(program, keeps, group)
        if parts.possible():
            keeps = drop_dead(program, parts.join())
    return drop_dead(program, _place_copies(program, keeps))


def _groups(program: Program) -> list[list[Step]]:
    """Products of matrices that have their left operand in common."""
    groups: dict[int, list[Step]] = {}
    for step in program.steps:
        if step.kind == "matmul" and all(len(v.shape) == 2 for v in step.args):
            groups.setdefault(id(step.args[0]), []).append(step)
    return [group for group in groups.values() if len(group) > 1]


def _is_whole(value: Value) -> bool:
    return value.strides == contiguous(value.shape, value.dtype)


def _common_name(names: list[str | None]) -> str | None:
    """W_Q, W_K, W_V → W_QKV."""
    known = [name for name in names if name]
    letters = zip(*known, strict=False)
    size = next((i for i, c in enumerate(letters) if len(set(c)) > 1), 0)
    if len(known) < len(names) or not size:
        return None
    return known[0][:size] + "".join(name[size:] for name in known)


# ---------------------------------------------------------------- forward


def _join_products(program: Program, keeps: Keeps) -> Keeps:
    """X A, X B, X C = X [A|B|C], and their biases likewise, for parameters A, B and C."""
    uses = uses_of(program, keeps)
    r = Rewriting(program, keeps)
    group_of: dict[int, list[Step]] = {}
    biases: dict[int, Step] = {}  # of a product: the step that adds a bias to it
    for group in _groups(program):
        chosen = [step for step in group if step.args[1].kind == "leaf" and _is_whole(step.args[1])]
        chosen = [step for step in chosen if None not in final_readers(uses, step.out)]
        found = {id(step): _bias_of(uses, step) for step in chosen}
        if (
            len({id(step.args[1]) for step in chosen}) == len(chosen) > 1
            and len({v.args[1].dtype for v in chosen}) == 1
        ):
            group_of.update((id(step), chosen) for step in chosen)
            if all(found.values()):
                biases.update((key, add) for key, add in found.items() if add is not None)
    added = {id(add) for add in biases.values()}
    joint: dict[int, Value] = {}

    def visit(step: Step) -> bool:
        group = group_of.get(id(step))
        if group is not None:
            if id(group) not in joint:
                joint[id(group)] = _joint_product(r, group, biases)
            start = sum(s.out.shape[1] for s in group[: group.index(step)])
            part = _columns(r, joint[id(group)], start, step.out.shape[1])
            part.name = biases[id(step)].out.name if id(step) in biases else step.out.name
            r.now[id(step.out)] = part
        elif id(step) in added:
            r.now[id(step.out)] = step.args[0]
        return group is not None or id(step) in added

    return tidy(program, r.run(visit))


def _columns(r: Rewriting, value: Value, start: int, width: int) -> Value:
    """Some columns of a matrix, or some entries of a vector."""
    cut = slice(start, start + width)
    index = (slice(None), cut) if len(value.shape) == 2 else (cut,)
    part = r.view(value, "getitem", (index,), (*value.shape[:-1], width), value.strides)
    part.part = True
    return part


def _bias_of(uses: dict[int, list[Step | None]], step: Step) -> Step | None:
    """The one reader of a product, if it adds a bias to its rows."""
    value, readers = step.out, uses.get(id(step.out), [])
    while (
        len(readers) == 1
        and readers[0] is not None
        and readers[0].kind == "view"
        and readers[0].text == "reshape"
    ):
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
    made = r.emit(
        "matmul",
        "np.matmul",
        (x, _side_by_side(r, [s.args[1] for s in group], dtype)),
        (x.shape[0], sum(s.out.shape[1] for s in group)),
        dtype,
    )
    adds = [biases.get(id(step)) for step in group]
    if all(adds):
        bias = _side_by_side(r, [add.args[1] for add in adds if add is not None], dtype)
        made = r.emit("elementwise", "np.add", (made, bias), made.shape, dtype)
    names = [
        add.out.name if add is not None else s.out.name for s, add in zip(group, adds, strict=True)
    ]
    made.name = _common_name(names) or ("".join(map(str, names)) if all(names) else None)
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

    def __init__(self, program: Program, keeps: Keeps, group: list[Step]) -> None:
        self.program, self.keeps = program, keeps
        self.operands = [step.args[1] for step in group]
        self.makers = [self._maker(part) for part in self.operands]
        self.position = {id(step): i for i, step in enumerate(program.steps)}
        self.families: list[list[Step]] = [group]
        self.sums: dict[int, Value] = {}  # steps that end a sum of P Aᵀ, Q Bᵀ and R Cᵀ, and [A|B|C]

    @staticmethod
    def _maker(part: Value) -> Step | None:
        """The step that computes a whole matrix, perhaps in another shape."""
        step = root(part).step
        fits = (
            step is not None
            and step.kind in ("matmul", "copy", "elementwise")
            and step.into is None
        )
        return step if fits and nbytes(root(part)) == nbytes(part) and _is_whole(part) else None

    def possible(self) -> bool:
        """Whether all parts are computed by steps of their own, kept by nobody, and read later
        only.
        """
        if any(m is None for m in self.makers) or len({id(m) for m in self.makers}) < len(
            self.makers
        ):
            return False
        if len({part.dtype for part in self.operands}) > 1 or not self._in_time(self.families[0]):
            return False
        uses = uses_of(self.program, self.keeps)
        for maker, part in zip(self.makers, self.operands, strict=True):
            assert maker is not None
            readers = final_readers(uses, maker.out)
            if any(step is None or step.kind == "grad" for step in readers):
                return False
            if maker.kind == "copy" and not _splits(
                part, maker.args[0].shape, sum(p.shape[1] for p in self.operands)
            ):
                return False
            if maker.out.shape != part.shape and not _splits(
                part, maker.out.shape, sum(p.shape[1] for p in self.operands)
            ):
                return False
        return True

    def _in_time(self, family: list[Step]) -> bool:
        """Whether nobody reads a member's result before the last member has run."""
        last = max(self.position[id(step)] for step in family)
        outs = {id(step.out) for step in family}
        return not any(
            id(v) in outs for step in self.program.steps[: last + 1] for v in step.reads()
        )

    def _part(self, value: Any) -> int | None:
        """Which part a value is, whole and as a matrix."""
        for k, part in enumerate(self.operands):
            if (
                value.__class__ is Value
                and value.shape == part.shape
                and _is_whole(value)
                and root(value) is root(part)
            ):
                return k
        return None

    def _order(self) -> list[int]:
        """The parts in the order of the joint parameters that they are multiplied with, if there
        are any.
        """
        starts = dict.fromkeys(range(len(self.operands)), 0)
        joined = {
            id(leaf): (step.out, start)
            for step in self.program.steps
            if step.kind == "join" and len(step.out.shape) == 2
            for leaf, start in zip(
                step.args[0], _starts([v.shape[1] for v in step.args[0]]), strict=True
            )
        }
        products: dict[int, tuple[Step, Value]] = {}
        for step in self.program.steps:
            k = self._part(step.args[0]) if step.kind == "matmul" else None
            leaf = root(step.args[1]) if k is not None and step.args[1].__class__ is Value else None
            if (
                k is not None
                and leaf is not None
                and id(leaf) in joined
                and step.args[1].shape == leaf.shape[::-1]
            ):
                products[k], starts[k] = (step, joined[id(leaf)][0]), joined[id(leaf)][1]
        order = sorted(starts, key=lambda k: (starts[k], k))
        targets = {id(joint): joint for _, joint in products.values()}
        if len(products) == len(self.operands) and len(targets) == 1:
            (joint,) = targets.values()
            if joint.shape[1] == sum(part.shape[1] for part in self.operands):
                self._find_sums({id(step.out): k for k, (step, _) in products.items()}, joint)
        return order

    def _find_sums(self, products: dict[int, int], joint: Value) -> None:
        """Which step adds the last of the products to the sum of the others."""
        known = {key: frozenset([k]) for key, k in products.items()}
        for step in self.program.steps:
            if step.kind == "view" and step.text == "reshape" and id(step.args[0]) in known:
                known[id(step.out)] = known[id(step.args[0])]
            elif step.text == "np.add" and all(id(v) in known for v in step.args):
                first, second = (known[id(v)] for v in step.args)
                if not first & second:
                    known[id(step.out)] = first | second
                    if len(first | second) == len(self.operands):
                        self.sums[id(step)] = joint

    def _sums_of_rows(self) -> None:
        """The sums over the rows of every part are one sum too."""
        found: dict[int, Step] = {}
        for step in self.program.steps:
            k = (
                self._part(step.args[0])
                if step.text == "np.add.reduce" and step.kwargs == {"axis": 0}
                else None
            )
            if k is not None:
                found.setdefault(k, step)
        family = [found[k] for k in sorted(found)]
        if len(family) == len(self.operands) and self._in_time(family):
            self.families.append(family)

    def join(self) -> Keeps:
        order = self._order()
        self._sums_of_rows()
        widths = [part.shape[1] for part in self.operands]
        starts = dict(zip(order, _starts([widths[k] for k in order]), strict=True))
        rows, dtype = self.operands[0].shape[0], self.operands[0].dtype
        room = Value("room", None, (rows, sum(widths)), dtype)
        names = [self.operands[k].name or root(self.operands[k]).name for k in order]
        room.name = _common_name(names) or "d_joint"
        r = Rewriting(self.program, self.keeps)
        makers = {id(m): k for k, m in enumerate(self.makers)}
        members = {id(step): family for family in self.families for step in family}
        lasts = {max(self.position[id(s)] for s in family): family for family in self.families}
        made: dict[int, Value] = {}

        def everything() -> Value:
            return r.view(room, "joined", tuple(made[k] for k in order), room.shape, room.strides)

        def visit(step: Step) -> bool:
            if id(step) in makers:
                k = makers[id(step)]
                target = _columns(r, room, starts[k], widths[k])
                step.into = r.view(target, "reshape", (step.out.shape,), step.out.shape, ())
                step.out.strides, step.out.offset = step.into.strides, step.into.offset
                made[k] = step.out
            elif id(step) in members:
                family = lasts.get(self.position[id(step)])
                if family is not None:
                    self._as_one(
                        r, family, everything(), [starts[k] for k in range(len(widths))], order
                    )
                return True
            elif id(step) in self.sums:
                turned = r.transposed(self.sums[id(step)])
                shape = (rows, turned.shape[1])
                total = r.emit("matmul", "np.matmul", (everything(), turned), shape, dtype)
                r.replace(step.out, total)
                r.now[id(step.out)] = r.reshaped(total, step.out.shape)
                return True
            return False

        return tidy(self.program, r.run(visit))

    def _as_one(
        self, r: Rewriting, family: list[Step], whole: Value, starts: list[int], order: list[int]
    ) -> None:
        """One step in place of a family's; each member's result is a part of its."""
        first = family[0]
        if first.kind == "matmul":
            x = r.map(first.args[0])
            made = r.emit(
                "matmul", "np.matmul", (x, whole), (x.shape[0], whole.shape[1]), whole.dtype
            )
        else:
            made = r.emit("reduce", first.text, (whole,), (whole.shape[1],), whole.dtype, axis=0)
        made.name = _common_name([family[k].out.name for k in order])
        for step, start in zip(family, starts, strict=True):
            part = _columns(r, made, start, step.out.shape[-1])
            part.name = step.out.name
            r.now[id(step.out)] = part


def _starts(widths: list[int]) -> list[int]:
    return [sum(widths[:k]) for k in range(len(widths))]


def _splits(part: Value, shape: tuple[int, ...], width: int) -> bool:
    """Whether columns of a wider matrix can be seen in another shape without a copy."""
    memory = np.empty((part.shape[0], width), part.dtype)
    seen = memory[:, : part.shape[1]].reshape(shape)
    return bool(np.may_share_memory(seen, memory))


# ---------------------------------------------------------------- copies


def _place_copies(program: Program, keeps: Keeps) -> Keeps:
    """A result that is copied into another order of axes is written in that order in the first
    place.
    """
    uses = uses_of(program, keeps)
    handed = {id(root(v)) for step in program.steps if step.kind == "grad" for v in step.reads()}
    handed |= {
        id(root(v))
        for readers in uses.values()
        for s in readers
        if s is not None and s.note == "shares"
        for v in s.reads()
    }
    wanted: dict[int, tuple[Step, list[tuple[int, ...]]]] = {}
    for copy in program.steps:
        maker = _maker_of_copy(copy)
        if maker is not None and id(maker.out) not in handed and id(maker) not in wanted:
            if None not in final_readers(uses, maker.out):
                wanted[id(maker)] = (copy, _permutations(copy.args[0], maker.out))
    r = Rewriting(program, keeps)
    done: dict[int, Value] = {}

    def visit(step: Step) -> bool:
        if id(step) in wanted:
            copy, turns = wanted[id(step)]
            into = r.map(copy.into) if copy.into is not None else None
            room = Value("room", None, copy.out.shape, copy.out.dtype)
            target = _again(r, into) if into is not None else room
            target.name = target.name or copy.out.name
            seen = r.view(target, "reshape", (copy.args[0].shape,), copy.args[0].shape, ())
            for turn in reversed(turns):
                back = tuple(int(i) for i in np.argsort(turn))
                shape = tuple(seen.shape[i] for i in back)
                seen = r.view(
                    seen, "transpose", (back,), shape, tuple(seen.strides[i] for i in back)
                )
            if r.steps[-1].kind == "copy" or root(seen) is not root(target):
                return False
            step.into, step.out.strides, step.out.offset = seen, seen.strides, seen.offset
            done[id(copy)] = target
        elif id(step) in done:
            target = done[id(step)]
            made = r.view(target, "joined", (step.args[0],), target.shape, target.strides)
            made.name = step.out.name
            r.now[id(step.out)] = made
            return True
        return False

    return tidy(program, r.run(visit))


def _again(r: Rewriting, value: Value) -> Value:
    """The same view, made here."""
    step = value.step
    if step is None or step.kind != "view":
        return value
    source = _again(r, step.args[0])
    return r.view(source, step.text, step.args[1:], value.shape, value.strides)


def _maker_of_copy(copy: Step) -> Step | None:
    """The product whose result, its axes in another order, is all that is copied."""
    if copy.kind != "copy" or copy.text != "reshape":
        return None
    value = copy.args[0]
    while (
        value.step is not None
        and value.step.kind == "view"
        and value.step.text in ("swapaxes", "transpose")
    ):
        value = value.step.args[0]
    step = value.step
    return step if step is not None and step.kind == "matmul" and step.into is None else None


def _permutations(value: Value, source: Value) -> list[tuple[int, ...]]:
    """The orders of axes on the way from `source` to `value`."""
    turns: list[tuple[int, ...]] = []
    while value is not source:
        step = value.step
        assert step is not None
        axes = list(range(len(value.shape)))
        if step.text == "swapaxes":
            i, j = (a % len(axes) for a in step.args[1:])
            axes[i], axes[j] = axes[j], axes[i]
        else:
            given = step.args[1] if len(step.args) > 1 and step.args[1] is not None else axes[::-1]
            axes = [a % len(axes) for a in given]
        turns.insert(0, tuple(axes))
        value = step.args[0]
    return turns

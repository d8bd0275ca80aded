"""What the formulas of each op say is what its kernel and its rules compute, on every sample."""

from copy import deepcopy
from math import erf, prod

import numpy as np
import pytest

import minigrad as mg
from tests.ops.evaluate import AXES, evaluate


def axes_of(below):
    return tuple(map(int, below.split(","))) if below and AXES.fullmatch(below) else None


def shape_of(below):
    return tuple(int(n) for n in below.split(r" \times ")) if below != "1" else ()


def reducing(reduce):
    def along(below, x):
        axes = 1 if below == "k" else axes_of(below)  # k: of the entries of a window
        return reduce(np.asarray(x), axis=axes, keepdims=bool(below))

    return along


def by_rows(reduce):
    return lambda below, x: reduce(np.asarray(x), axis=axes_of(below) or -1, keepdims=True)


def softmax(x, axis, keepdims, log=False):
    axis = axis if np.ndim(x) else None
    less = x - np.max(x, axis=axis, keepdims=True, initial=-1e300)
    total = np.exp(less).sum(axis=axis, keepdims=True)
    return less - np.log(total) if log else np.exp(less) / np.maximum(total, 1e-300)


def scattered(shape, at, values):
    total = np.zeros(shape)
    np.add.at(total, at, values)
    return total


def axis_of(below):
    return axes_of(below)[0] if below else None


def functions_of(slots, target):
    """What the names in formulas mean, for one call; a gradient has the shape `target`."""
    ndim = len(target)

    def broadcast(below, x):
        if "shape" in slots:
            return np.broadcast_to(x, shape_of(below))
        axes = axes_of(below) or tuple(range(ndim))
        kept = [1 if k in axes else n for k, n in enumerate(target)]
        return np.broadcast_to(np.reshape(x, kept), target)

    def scatter(below, x, indices=None):
        if indices is None:
            return scattered(slots.get("shape", target), slots["index"], x)
        if below and target:
            return scattered(target, (*[slice(None)] * axis_of(below), indices), x)
        return scattered(prod(target), indices, x).reshape(target)

    def cumsum(below, x, step=1):
        x, axis = (np.ravel(x), 0) if below is None else (np.asarray(x), axis_of(below))
        turn = (*[slice(None)] * axis, slice(None, None, step))
        return np.cumsum(x[turn], axis)[turn]

    def others(below, x):
        axes, found = axes_of(below) or tuple(range(ndim)), np.empty(x.shape)
        for at in np.ndindex(x.shape):
            row = x[tuple(slice(None) if k in axes else i for k, i in enumerate(at))].copy()
            row[tuple(at[k] for k in axes)] = 1
            found[at] = row.prod()
        return found

    def einsum(below, *operands):
        text = below.replace(r" \to ", "->").replace(r"\ldots ", "...")
        terms, _, out = text.partition("->")
        lengths = dict(zip(out, target, strict=False))  # of the rows of ones that a rule makes
        pairs = zip(terms.split(","), operands, strict=True)
        return np.einsum(text, *[np.ones(lengths[c]) if x is None else x for c, x in pairs])

    def pad(below, x, value):
        widths = [tuple(map(int, pair.split("+"))) for pair in below.split(", ")]
        return np.pad(x, widths, constant_values=value)

    def each(_, g):
        return np.broadcast_to(g, (len(g), prod(windows_size(slots)), *g.shape[2:]))

    return {
        **{f.__name__: reducing(f) for f in (np.sum, np.mean, np.prod, np.max, np.min, np.var)},
        **{f"row{f.__name__}": by_rows(f) for f in (np.sum, np.mean, np.var)},
        "logsumexp": reducing(lambda x, **how: np.log(np.sum(np.exp(x), **how))),
        "softmax": by_rows(softmax),
        "log softmax": by_rows(lambda x, **how: softmax(x, log=True, **how)),
        "broadcast": broadcast, "scatter": scatter, "einsum": einsum,
        "cumsum": cumsum, "cumsum from the end": lambda below, x: cumsum(below, x, -1),
        "prod of others": others,
        "erf": lambda _, x: np.vectorize(erf, otypes=[float])(x),
        "sign": lambda _, x: np.sign(x), "round": lambda _, x: np.rint(x),
        "float64": lambda _, x: x,
        "clip": lambda below, x: np.clip(x, *map(int, below.split(", "))),
        "reshape": lambda below, x: np.reshape(x, shape_of(below)),
        "transpose": lambda below, x: np.transpose(x, axes_of(below)),
        "swap": lambda below, x: np.swapaxes(x, *axes_of(below)),
        "concat": lambda below, x: np.concatenate(x, axis_of(below)),
        "stack": lambda below, x: np.stack(x, axis_of(below)), "pad": pad,
        "take": lambda below, x, i: np.take(x, i, axis_of(below)),
        "onehot": lambda _, t: np.eye(slots["logits"].shape[-1])[np.maximum(t, 0)],
        "column": lambda _, x: np.expand_dims(x, -1), "each": each,
        "first": lambda _, found: found * (np.cumsum(found, axis=1) == 1),
        **(windows_functions(slots) if windows_size(slots) else {}),
    }  # fmt: skip


# ---------------------------------------------------------------- windows


def windows_size(slots):
    """How long a window is along each axis, of a convolution, a pool or windows themselves."""
    if "groups" in slots:
        return slots["weight"].shape[2:]
    if "size" not in slots:
        return ()
    return tuple(np.broadcast_to(slots["size"], len(shape_of_x(slots)) - 2).tolist())


def shape_of_x(slots):
    return slots.get("shape", np.shape(slots["x"]))


def windows_functions(slots):
    """By the ops themselves, which convolutions and pools hold to PyTorch's."""
    size, shape, groups = windows_size(slots), shape_of_x(slots), slots.get("groups")
    stride = size if slots["stride"] is None else slots["stride"]  # of a pool
    given = size, stride, slots["padding"], slots.get("dilation", 1)

    def windows(_, x):
        found = mg.registry["windows"](x, *given)
        if slots["lowest"]:  # which is what a maximum has around it
            inside = mg.registry["windows"](np.ones(x.shape), *given)
            found = np.where(inside == 1, found, -np.inf)
        return found.reshape(groups, -1, prod(found.shape[2:])) if groups else found

    def add_windows(_, columns):
        columns = np.reshape(columns, (shape[1], prod(size), -1, shape[0]))
        return mg.registry["add_windows"](columns, shape, *given)

    return {"windows": windows, "addwindows": add_windows}


# ---------------------------------------------------------------- as formulas read their slots


def as_matrices(op, slots, name):
    """Rows, columns, channels and groups as the matrices that a product of matrices takes."""
    new, g = dict(slots), slots.get("g")
    if op.name in ("matmul", "linear"):
        left, right = op.inputs[:2]
        if np.ndim(slots[right]) == 1:
            new[right], g = slots[right][:, None], None if g is None else g[..., None]
        if np.ndim(slots[left]) == 1:
            new[left], g = slots[left][None], None if g is None else np.expand_dims(g, -2)
        new["g"] = g
    elif getattr(slots.get("mask"), "dtype", None) == np.bool_ and "W_hh" not in slots:
        new["mask"] = np.where(slots["mask"], 0.0, -np.inf)
    elif slots.get("rule") is not None:
        i, j = np.ogrid[: slots["q"].shape[-2], : slots["k"].shape[-2]]
        new["rule"] = np.where(slots["rule"](i, j), 0.0, -np.inf)
    elif op.name == "batch_norm":
        for k in ("weight", "bias", "mean", "var"):
            wide = (-1, *[1] * (slots["x"].ndim - 2))
            new[k] = None if slots[k] is None else np.reshape(slots[k], wide)
    elif "groups" in slots and name != "bias":
        by_group = (slots["groups"], len(slots["weight"]) // slots["groups"], -1)
        new["weight"] = slots["weight"].reshape(by_group)
        new["bias"] = None if slots["bias"] is None else slots["bias"].reshape(by_group)
        new["g"] = None if g is None else np.moveaxis(g, 0, -1).reshape(by_group)
    elif op.name.endswith("pool"):
        columns = (slots["x"].shape[1], 1, -1, len(slots["x"]))
        new["out"] = np.moveaxis(slots["out"], 0, -1).reshape(columns)
        new["g"] = None if g is None else np.moveaxis(g, 0, -1).reshape(columns)
    return new


def fits(found, expected, images):
    """Compare; what was broadcast is summed, as the edge rule does."""
    found, shape = np.asarray(found, float), expected.shape
    if images:  # (C, length, …, N) as (N, C, length, …)
        found = np.moveaxis(found.reshape(*shape[1:], shape[0]), -1, 0)
    if found.size == expected.size:
        found = found.reshape(shape)
    found = found.sum(axis=tuple(range(found.ndim - len(shape))))
    axes = tuple(k for k, n in enumerate(shape) if n < found.shape[k])
    found = found.sum(axis=axes, keepdims=True)
    np.testing.assert_allclose(np.broadcast_to(found, shape), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.only(lambda case: case.op.kernel.__module__.startswith("minigrad.ops."))
@pytest.mark.only(
    lambda case: case.masked.size and all(np.size(x) for x in case.inputs if x is not None)
)
def test_formulas_are_what_the_op_computes(case, invoke, leaves, cotangent):
    op, tensors = case.op, leaves(case)
    out = invoke(op, tensors, case.settings)
    u = cotangent(out.shape)
    gradients = mg.grad(out, [tensors[i] for i in case.free], u)
    tex, rules = op.formulas(case.inputs, case.settings, out.data)
    names = [*rules]
    slots = dict(zip((*names, *op.settings), (*case.inputs, *case.settings), strict=True))
    slots |= {"out": out.numpy()} | ({op.inputs[0]: [*case.inputs]} if op.variadic else {})
    if op.auxiliary:
        made = op.flat(*case.inputs, *deepcopy(case.settings))
        slots |= dict(zip(op.auxiliary, made[1:], strict=True))
    given = [k for k in ("indices", "targets", "mask") if slots.get(k) is not None]
    slots |= {k: np.asarray(slots[k]) for k in given}
    slots["lowest"] = op.name == "max_pool"
    images = "groups" in slots or op.name.endswith("pool")

    def value(formula, name, slots, target):
        return evaluate(formula, as_matrices(op, slots, name), functions_of(slots, target))

    with np.errstate(all="ignore"):
        fits(value(tex, "", slots, np.shape(case.inputs[0])), out.numpy(), images)
        for i, gradient in zip(case.free, gradients, strict=True):
            found = value(rules[names[i]], names[i], slots | {"g": u}, gradient.shape)
            column = op.name == "matmul" and i == 1 and gradient.ndim == 1
            fits(found[..., 0] if column else found, gradient, False)

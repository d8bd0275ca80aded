"""A setting that changes what an op computes shows in its formulas, or in the words beside them."""

import re
from collections import Counter
from contextlib import suppress
from copy import deepcopy

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine.op import registry
from minigrad.errors import MinigradError
from minigrad.views.derivation import derivation_text

from .test_derivation import assert_renders

OURS = [op for op in registry.values() if op.kernel.__module__.startswith("minigrad.")]
OURS = [op for op in OURS if not op.effect]  # on one rank, no setting of a collective says anything
# values that the samples of an op do not try
MORE = {
    "astype": {"dtype": [np.float32]},
    "cross_entropy": {},
    "concatenate": {"axis": [0, 1]},
    "expand_dims": {"axis": [0, 1, 2]},
    "layer_norm": {"eps": [0.3]},
    "pad": {"constant_values": [2.0], "pad_width": [((1, 1), (0, 2))]},
    "nll_loss": {"axis": [0]},
    "squeeze": {"axis": [0]},
    "tiled_attention": {"is_causal": [True], "scale": [0.3]},
}
# calls that take a setting's values in turn, where no sample does
CALLS = {"nll_loss": [mg.call(-np.arange(9.0).reshape(3, 3), np.array([0, 2, 2]))]}
# drawn at random; on which threads, and how much is kept, for speed
CHANGE_NOTHING = {
    ("dropout", "rng"),
    ("linear", "shared"),
    ("take", "negative"),  # whether it is refused
    ("tiled_attention", "keep"),
}
# No value of another sample fits a sample's other arguments and gives another result.
UNTRIED = {
    *(("add_windows", name) for name in ("dilation", "padding", "shape", "size", "stride")),
    ("batch_norm", "mean"),
    ("batch_norm", "var"),
    ("conv1d", "groups"),
    ("conv2d", "groups"),
    ("cross_entropy", "ignore_index"),
    ("cross_entropy", "targets"),
    ("nll_loss", "targets"),
    ("norm", "ord"),
    ("take_along_axis", "axis"),
    ("take_along_axis", "indices"),
}


# ---------------------------------------------------------------- every op


def lifted(x):
    if isinstance(x, list | tuple):
        return type(x)(map(lifted, x))
    floating = isinstance(x, np.ndarray) and x.dtype.kind == "f"
    return mg.tensor(x, requires_grad=True) if floating else x


def with_leaves(op, bound):
    """A call whose floating inputs are leaves."""
    bound = deepcopy(bound)  # generators draw the same again
    for name in op.inputs:
        if name in bound.arguments:
            bound.arguments[name] = lifted(bound.arguments[name])
    return bound


@pytest.mark.parametrize("op", registry.values(), ids=lambda op: op.name)
def test_every_sample_of_every_op_can_be_told_forward_and_backward(op):
    for sample in op.samples(np.random.default_rng(1)):
        bound = with_leaves(op, op.signature.bind(*sample.args, **sample.kwargs))
        with mg.trace() as t:
            out = op(*bound.args, **bound.kwargs)
            if out.requires_grad and np.isfinite(out.numpy()).all():
                out.backward(np.ones(out.shape, out.dtype))
        text = derivation_text(t)
        assert "no rule" not in text
        assert_renders(text)


# ---------------------------------------------------------------- their settings


def ran(op, bound):
    """The output, the gradients for one cotangent, and the derivation's text."""
    bound = with_leaves(op, bound)
    with mg.trace() as t:
        out = op(*bound.args, **bound.kwargs)
    text = derivation_text(t)
    inputs = [bound.arguments.get(name) for name in op.inputs]
    parts = [part for x in inputs for part in (x if isinstance(x, list | tuple) else [x])]
    leaves = [part for part in parts if isinstance(part, mg.Tensor)]
    gradients = []
    if out.requires_grad:
        cotangent = np.random.default_rng(5).normal(size=out.size).reshape(out.shape)
        gradients = mg.grad(out, leaves, cotangent.astype(out.dtype))
    return out.numpy(), gradients, text


def equations(text, shapes=False):
    """Forward: the equations, and the words on the op. Without shapes, which any axis changes."""
    words = re.findall(r"^\*.*\*$", text, re.MULTILINE)
    found = blocks(text.split("## Backward")[0])
    return [*words, *(x if shapes else bare(x) for x in found)]


def rules(text, shapes=False):
    """Backward: the rules, the signs they use, and the words on the op; with shapes, all of it."""
    back = text.split("## Backward")[1]
    words, found = re.findall(r"^\*.*\*$", back, re.MULTILINE), blocks(back)
    signs = [line for line in found[0].split("\n") if r"\in " not in line] if found else []
    return [*words, *(found if shapes else [*signs, *map(bare, found[1:])])]


def blocks(text):
    return re.findall(r"```math\n(.*?)\n```", text, re.DOTALL)


def bare(equation):
    return re.sub(r"(&&|\\quad) \\in .*?(?= \\\\\[|$)", "", equation, flags=re.MULTILINE)


def same(one, other):
    return len(one) == len(other) and all(
        np.shape(a) == np.shape(b) and np.allclose(a, b, 1e-5, equal_nan=True)
        for a, b in zip(one, other, strict=True)
    )


def key(value):
    return "array" if isinstance(value, np.ndarray) else repr(value)


def samples_of(op):
    return [*op.samples(np.random.default_rng(1)), *CALLS.get(op.name, ())]


def values_of(op, name):
    """Values of a setting that the samples and MORE try, each once."""
    found = {}
    for sample in samples_of(op):
        bound = op.signature.bind(*sample.args, **sample.kwargs)
        bound.apply_defaults()
        found.setdefault(key(bound.arguments[name]), bound.arguments[name])
    first = next(iter(found.values()))
    near = [] if isinstance(first, bool) or not isinstance(first, int | float) else [first / 2 + 1]
    for value in MORE.get(op.name, {}).get(name, near):
        found.setdefault(key(value), type(first)(value) if value in near else value)
    return found


def changed_calls(op, name):
    """Every sample call, and the same with the setting changed in each way."""
    others = values_of(op, name)
    for sample in samples_of(op):
        bound = op.signature.bind(*sample.args, **sample.kwargs)
        bound.apply_defaults()
        changed = []
        for other, value in others.items():
            if other != key(bound.arguments[name]):
                changed.append(deepcopy(bound))
                changed[-1].arguments[name] = value
        yield bound, changed


REFUSED = (MinigradError, ArithmeticError, TypeError, ValueError)  # where that is no call


@pytest.mark.parametrize(
    ("op", "name"),
    [
        pytest.param(op, name, id=f"{op.name}-{name}")
        for op in OURS
        for name in op.settings
        if (op.name, name) not in CHANGE_NOTHING
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_calls_that_compute_different_things_never_read_alike(op, name):
    differed = Counter()
    for bound, others in changed_calls(op, name):
        with suppress(*REFUSED):
            value, gradients, text = ran(op, bound)
            for changed in others:
                with suppress(*REFUSED):
                    other, slopes, told = ran(op, changed)
                    values = bound.arguments[name], changed.arguments[name]
                    if not same([value], [other]) or value.dtype != other.dtype:
                        reshaped = same([value.ravel()], [other.ravel()]) and name != "dtype"
                        shapes = reshaped or name == "shape"
                        assert equations(text, shapes) != equations(told, shapes), values
                        differed["forward"] += 1
                    if not same(gradients, slopes):
                        assert rules(text, name == "shape") != rules(told, name == "shape"), values
                        differed["backward"] += 1
    assert bool(differed) is ((op.name, name) not in UNTRIED)


# ---------------------------------------------------------------- attention in one op


def tiled(rng, mask=None, frozen="", **settings):
    q, k, v = (
        mg.tensor(rng.normal(size=(5, d)), requires_grad=name != frozen, name=name)
        for name, d in (("Q", 3), ("K", 3), ("V", 2))
    )
    with mg.trace() as t:
        out = mg.scaled_dot_product_attention(q, k, v, mask, method="tiled", **settings)
        mg.sum(out.named("O") * out).backward()
    return derivation_text(t)


CAUSAL = r"\mathrm{softmax}_{j \le i}(\tfrac{1}{\sqrt{3}}\, Q K^\top)"


@pytest.mark.parametrize(
    ("settings", "said", "unsaid"),
    [
        (
            {"is_causal": True},
            [
                rf"O &= {CAUSAL}\, V",
                rf"A &= {CAUSAL} \\[4pt]",
                "of query $`i`$ over the keys $`j \\le i`$ alone",
            ],
            ["keep", r"$`\mathrm{softmax}(Q"],
        ),
        (
            {"mask": np.tri(5, dtype=bool), "scale": 0.7},
            [r"\mathrm{softmax}(0.7\, Q K^\top + M)", r"$`M \in \{0, -\infty\}^{5 \times 5}`$"],
            [],
        ),
        ({}, [], ["+ M", r"j \le i"]),
        ({"frozen": "Q"}, [r"\bar S &= ", "A &= "], []),
    ],
    ids=["causal", "mask and scale", "neither", "frozen query"],
)
def test_attention_in_tiles_says_which_keys_a_query_sees(rng, settings, said, unsaid):
    text = tiled(rng, **settings)
    assert all(part in text for part in said)
    assert not any(part in text for part in unsaid)


def test_each_sign_of_a_rule_is_defined_once_in_its_step(rng):
    back = tiled(rng, is_causal=True).split("## Backward")[1]
    assert back.count(r"\bar S &= A \odot") == back.count("A &= ") == 1
    assert back.index("A &= ") < back.index(r"\bar S &= ") < back.index(r"\partial Q} &= ")

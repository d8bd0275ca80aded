"""The derivation says what the graph did, in LaTeX that renders, and claims what was measured."""

import re

import numpy as np
import pytest

import layers
import minigrad as mg
from minigrad.engine.op import registry
from minigrad.views.derivation import derivation_text
from minigrad.views.derivation.sections import Sections
from minigrad.views.derivation.symbols import symbol_of
from minigrad.views.fold import prefixes
from minigrad.views.formula import latex, number
from minigrad.views.model import AnnotatedTrace

from . import conftest as graphs
from .models import KINDS, trained

HOSTILE = [
    "a_b*c_d",
    "</script>",
    "$x$ `y`",
    "a|b",
    "50% #1 & {x}",
    "\\frac",
    "ab\u202ecd",
    "x\n```\ny",
    "X" * 10_000,
]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def leaf(rng, *shape, name=None):
    return mg.tensor(rng.uniform(-1, 1, shape), requires_grad=True, name=name)


def of_small(rng):
    x, w = leaf(rng, 2, 3, name="x"), leaf(rng, 3, 5, name="w")
    with mg.trace() as t:
        ((x @ w) ** 2).sum().backward()
    return t


def of_attention(rng, masked=True):
    layer = layers.SelfAttention(5, 3, 2, rng=rng)
    with mg.trace() as t:
        out = layer(rng.normal(size=(2, 7, 5)), np.tri(7, dtype=bool) if masked else None)
        mg.mean(out**2).backward()
    return t


def of_heads(rng, n_kv_heads=3):
    layer = layers.MultiHeadAttention(6, 3, n_kv_heads=n_kv_heads, rng=rng)
    with mg.trace() as t:
        mg.mean(layer(rng.normal(size=(2, 7, 6))) ** 2).backward()
    return t


def of_mlp(rng):
    x = mg.tensor(rng.normal(size=(11, 5)), name="x")
    W1, b1, W2, b2 = (
        leaf(rng, *s, name=n)
        for n, s in (("W1", (5, 7)), ("b1", (7,)), ("W2", (7, 3)), ("b2", (3,)))
    )
    gamma, beta = leaf(rng, 7, name="gamma"), leaf(rng, 7, name="beta")
    with mg.trace() as t:
        with mg.scope("mlp"):
            hidden = mg.layer_norm(mg.gelu(x @ W1 + b1), gamma, beta)
            logits = (hidden @ W2 + b2).named("logits")
        mg.cross_entropy(logits, rng.integers(0, 3, 11)).backward()
    return t


def of_blocks(rng, count=4):
    blocks = [layers.SelfAttention(4, 3, 4, rng=rng) for _ in range(count)]
    x = mg.tensor(rng.normal(size=(2, 5, 4)), name="X0")
    with mg.trace() as t:
        for i, block in enumerate(blocks):
            with mg.scope(f"block{i}"):
                x = x + block(x)
        mg.mean(x * x).backward()
    return t


RECORDS = [of_small, of_attention, of_heads, of_mlp, of_blocks]


def formulas(text):
    return re.findall(r"```math\n(.*?)\n```", text, re.DOTALL) + re.findall(r"\$`(.*?)`\$", text)


def assert_renders(tex):
    """Braces and \\left … \\right balance, no script is doubled, GitHub refuses nothing."""
    bare = re.sub(r"\\[{}$%#&_]", "", tex)
    depth = 0
    for c in bare:
        depth += (c == "{") - (c == "}")
        assert depth >= 0, tex
    assert depth == 0, tex
    assert len(re.findall(r"\\left(?![a-z])", tex)) == len(re.findall(r"\\right(?![a-z])", tex)), (
        tex
    )
    assert tex.count(r"\begin{aligned}") == tex.count(r"\end{aligned}")
    assert not re.search(r"operatorname|[<>$%#`~]|\|", bare.replace("&", "")), tex
    inner = bare
    while (shorter := re.sub(r"\{[^{}]*\}", "g", inner)) != inner:
        inner = shorter
    assert not re.search(r"_\S_|\^(\\\w+|\S)\^", inner), tex


# ---------------------------------------------------------------- what it says


def test_attention_is_written_in_the_papers_symbols(rng):
    text = derivation_text(of_attention(rng))
    for equation in (
        r"Q &= X W_Q + b_Q",
        r"S_{\mathrm{raw}} &= Q K^\top",
        r"S &= \tfrac{1}{\sqrt{3}}\, S_{\mathrm{raw}}",
        r"S_{\mathrm{masked}} &= S + M",
        r"A &= \mathrm{softmax}(S_{\mathrm{masked}})",
        r"\frac{\partial L}{\partial A} &= \frac{\partial L}{\partial O} V^\top",
        r"\frac{\partial L}{\partial V} &= A^\top \frac{\partial L}{\partial O}",
        r"\partial K} &= \left(\frac{\partial L}{\partial S_{\mathrm{raw}}}\right)^\top Q",
        r"\frac{\partial L}{\partial W_Q} &= \sum_{b} X_b^\top \frac{\partial L}{\partial Q_b}",
        r"\frac{\partial L}{\partial b_Q} &= \sum_{b,i} \frac{\partial L}{\partial Q}",
    ):
        assert equation in text, equation


def test_an_unbatched_product_sums_over_no_batch(rng):
    layer = layers.SelfAttention(5, 3, 2, use_bias=False, rng=rng)
    with mg.trace() as t:
        mg.sum(layer(rng.normal(size=(7, 5)))).backward()
    text = derivation_text(t)
    assert r"\frac{\partial L}{\partial W_Q} &= X^\top \frac{\partial L}{\partial Q} &&" in text
    assert r"\sum_{b}" not in text


def test_where_a_value_fans_out_the_terms_and_their_sizes_are_written(rng):
    t = of_attention(rng)
    text = derivation_text(t)
    assert "$`X`$ is used 3 times, in $`V`$, $`K`$ and $`Q`$" in text
    assert (
        r"&= \frac{\partial L}{\partial V} W_V^\top + \frac{\partial L}{\partial K} W_K^\top "
        r"+ \frac{\partial L}{\partial Q} W_Q^\top"
    ) in text
    parts = [np.linalg.norm(e.contribution) for e in t.uses(t["X"])]
    share = np.linalg.norm(t["X"].gradient) / sum(parts)
    assert f"the norm of their sum is {share:.0%} of the sum of their norms" in text


def test_a_value_used_twice_by_one_op_has_two_terms():
    x = mg.tensor([3.0, 4.0], requires_grad=True, name="x")
    with mg.trace() as t:
        mg.sum(x * x).backward()
    text = derivation_text(t)
    assert "$`x`$ is used 2 times in $`H`$" in text
    assert r"\right\rvert_{H,\,1} + \left." in text


def test_a_broadcast_bias_says_how_many_terms_add(rng):
    text = derivation_text(of_mlp(rng))
    assert (
        "$`b_1`$ is repeated along $`i`$: each of its entries is used 11 times, so 11 terms add."
        in text
    )


def test_a_broadcast_product_says_which_matrices_share_a_factor(rng):
    assert "The 2 matrices along $`b`$ share $`W_O`$, so their 2 products add." in derivation_text(
        of_heads(rng)
    )


@pytest.mark.parametrize(("shape", "said"), [((4, 3), False), ((3,), True)])
def test_arrays_of_one_axis_are_explained_where_one_is_a_factor(rng, shape, said):
    """A bias is none."""
    layer = layers.Linear(3, 5, rng=rng)
    with mg.trace() as t:
        mg.mean(layer(leaf(rng, *shape, name="x")) ** 2).backward()
    assert ("an array of one axis is a row on the left" in derivation_text(t)) is said


def test_an_mlp_with_layer_norm_and_cross_entropy_defines_its_signs(rng):
    text = derivation_text(of_mlp(rng))
    assert r"H_1 &= x W_1 &&" in text
    assert r"H_2 &= H_1 + b_1 &&" in text
    assert r"\frac{\partial L}{\partial \mathrm{logits}} = \tfrac1N\, \left" not in text
    assert r"\tfrac1N\, (\mathrm{softmax}(\mathrm{logits}) - \mathrm{onehot}(t))" in text
    assert "Here $`N = 11`$." in text
    assert r"\hat x &= \tfrac{1}{\sigma}\, (" in text
    assert r"\mu &= \mathrm{rowmean}(" in text
    assert "$`x`$ (frozen), $`t`$ (constant)" in text


def test_steps_are_numbered_in_the_order_backward_ran(rng):
    t = of_attention(rng)
    titles = re.findall(r"^### (\d+)\. Through (.*)$", derivation_text(t), re.MULTILINE)
    assert [int(n) for n, _ in titles] == list(range(1, len(titles) + 1))
    named = [t[i].name for i in t.backward_steps if t[i].name]
    told = re.findall(r"\$`([A-Z])(?=`\$|_)", " ".join(title for _, title in titles))
    assert [s for s in told if s in "OAVKQ"] == [s for s in named if s in "OAVKQ"]


def test_every_size_agrees_with_numpy(rng):
    t = of_mlp(rng)
    text = derivation_text(t)
    size = np.sqrt(np.mean(t["W1"].gradient ** 2))
    assert rf"| $`W_1`$ | `mlp/W1` | 5 × 7 | {size:#.2g} | – |" in text


# ---------------------------------------------------------------- what it claims


def test_marks_are_the_differences_that_check_measured(rng):
    t = of_attention(rng)
    text = derivation_text(t)
    worst = max(c.difference for c in t.check())
    assert f"largest difference {worst:.1e}" in text
    assert "✗" not in text
    assert text.count("✓ within") + text.count("✓ equal to") == len(t.check())


def test_a_run_without_hand_derived_steps_gets_no_mark(rng):
    with mg.trace() as t:
        mg.sum(mg.tanh(leaf(rng, 2, 3, name="x") @ leaf(rng, 3, 5, name="w"))).backward()
    text = derivation_text(t)
    assert "✓" not in text
    assert "✗" not in text


def test_a_wrong_rule_turns_its_step_red_and_names_it_first(rng):
    with graphs.wrong_softmax():
        text = derivation_text(of_attention(rng))
    assert "differ from the hand-derived steps, first in step 3, `softmax`: that of" in text
    through_A = text.split("Through $`A`$")[1].split("###")[0]
    assert "**✗** hand-derived step 3, `softmax` gives" in through_A
    assert "✓" not in through_A
    assert "✓" in text.split("Through $`O`$")[1].split("###")[0]


def test_a_wrong_rule_of_any_op_is_named_where_every_step_was_measured(rng):
    x = leaf(rng, 2, 3, name="x")

    def text():
        with mg.trace(check="ops") as t:
            mg.sum(mg.softmax(x).named("A") ** 2).backward()
        return derivation_text(t)

    assert "✓ 3 of 3 backward steps agree with numeric derivatives" in text()
    with graphs.wrong_softmax():
        said = text()
    assert "**✗ 1 of 3 backward steps WRONG, first softmax: the rule of softmax for x" in said
    assert "**✗ The rule of softmax for `x` is no derivative of it**" in said.split("### 3.")[1]


@pytest.mark.parametrize("masked", [True, False])
def test_without_backward_it_says_so_and_claims_nothing(rng, masked):
    layer = layers.SelfAttention(5, 3, 2, rng=rng)
    with mg.trace() as t:
        mg.sum(layer(rng.normal(size=(2, 7, 5)), np.tri(7, dtype=bool) if masked else None))
    text = derivation_text(t)
    assert "Backward has not run in this trace" in text
    assert r"\frac{\partial L}{\partial A} &= \frac{\partial L}{\partial O} V^\top" in text
    for claim in ("✓", "✗", "rms of", "What came out"):
        assert claim not in text


def test_hand_derived_steps_that_no_backward_reached_are_said_to_be_unmeasured(rng):
    layer = layers.SelfAttention(5, 3, 2, rng=rng)
    x = leaf(rng, 3, name="x")
    with mg.trace() as t:
        layer(rng.normal(size=(2, 7, 5)))
        mg.sum(x * 2.0).backward()
    text = derivation_text(t)
    assert "no gradient was held against hand-derived steps; no backward ran through" in text
    assert "✓" not in text


def test_a_given_seed_is_named_as_where_backward_began(rng):
    x = leaf(rng, 3, name="x")
    with mg.trace() as t:
        (x * 2.0).named("y").backward(np.array([1.0, 2.0, 3.0]))
    text = derivation_text(t)
    assert r"backward began from its gradient $`\frac{\partial L}{\partial y}`$" in text
    assert r"\frac{\partial L}{\partial x} = 2\, \frac{\partial L}{\partial y}" in text


def test_a_graph_without_a_trace_can_be_told_too(rng):
    x, w = leaf(rng, 2, 3, name="x"), leaf(rng, 3, 5, name="w")
    text = derivation_text(mg.Trace.of(mg.sum(mg.softmax(x @ w) * np.ones(5))))
    assert "Backward has not run" in text
    for tex in formulas(text):
        assert_renders(tex)


def test_nothing_that_requires_a_gradient_is_said_plainly():
    with mg.trace() as t:
        mg.sum(mg.tensor([1.0, 2.0]))
    text = derivation_text(t)
    assert "No gradient goes back through this trace: it is a forward pass alone." in text
    assert "Backward" not in text


def test_a_decoding_step_promises_no_rules(rng):
    layer = layers.MultiHeadAttention(6, 3, rng=rng, is_causal=True)
    with mg.no_grad(), mg.trace() as t:
        layer(rng.normal(size=(2, 1, 6)), cache=layers.KVCache())
    assert "rules it would apply" not in derivation_text(t)


# ---------------------------------------------------------------- repeated blocks


def test_repeated_blocks_are_told_once_and_all_are_counted(rng):
    t = of_blocks(rng)
    text = derivation_text(t)
    assert (
        "`block0 … block3` are alike, each with its own tensors: the others repeat `block3`" in text
    )
    assert text.count(r"\mathrm{softmax}(S) \quad") == 1
    sizes = sorted(e.gradient_rms for e in t if e.name == "W_Q")
    assert len(sizes) == 4
    assert f"`block0 … block3/self_attention/W_Q` ×4 | 4 × 3 | {sizes[0]:#.2g}" in text


def test_a_copy_whose_gradient_differs_is_named(rng):
    t = of_blocks(rng)
    t["block1/self_attention/W_Q"].gradient = np.zeros((4, 3))
    line = next(x for x in derivation_text(t).split("\n") if "/W_Q` ×4" in x)
    assert "○ 1 of 4 exactly zero: block1" in line


def test_a_long_model_is_told_in_no_more_words_than_a_short_one(rng):
    assert len(derivation_text(of_blocks(rng, 12))) < 1.1 * len(derivation_text(of_blocks(rng, 3)))


def test_a_long_chain_of_sums_is_told_without_recursion():
    x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    with mg.trace() as t:
        y = x
        for _ in range(3000):
            y = y + np.ones(2)
        mg.sum(y).backward()
    text = derivation_text(t)
    assert "`step[0] … step[2999]` are alike" in text
    assert "add ×3000 | 2 | 1.0 |" in text
    assert "| $`x`$ | `x` | 2 | 1.0 |" in text  # used within a copy that is not told


def test_namesakes_in_different_places_get_different_symbols(rng):
    with mg.trace() as t:
        x = leaf(rng, 3, 3, name="X")
        for where in ("one", "two"):
            with mg.scope(where):
                x = mg.tanh(x @ leaf(rng, 3, 3, name="W"))
        mg.sum(x).backward()
    text = derivation_text(t)
    assert r"W^{(1)}" in text
    assert r"{W^{(2)}}^\top" in text


def test_a_constant_without_a_name_takes_no_letter_from_a_layer(rng):
    layer = layers.MultiHeadAttention(6, 3, rng=rng, position=layers.ALiBi(3))
    with mg.trace() as t:
        mg.mean(layer(rng.normal(size=(2, 7, 6))) ** 2).backward()
    text = derivation_text(t)
    assert r"S_{\mathrm{biased}} &= S + c &&" in text
    assert r"C &= \mathrm{reshape}" in text
    assert "C^{(" not in text


def test_several_constants_without_names_are_counted(rng):
    x = leaf(rng, 3, name="c")
    with mg.trace() as t:
        mg.sum((x + rng.normal(size=3)) * rng.normal(size=3)).backward()
    text = derivation_text(t)
    assert r"$`k_1 \in \mathbb{R}^{3}`$, $`k_2 \in \mathbb{R}^{3}`$" in text
    assert r"H_1 &= c + k_1 &&" in text


def test_a_layer_s_own_letter_stays_beside_an_unnamed_input(rng):
    X = leaf(rng, 2, 3, name="X")
    with mg.trace() as t:
        mg.sum(X + mg.scale(mg.tensor(rng.normal(size=(2, 3))), 2.0)).backward()
    assert "X^{(" not in derivation_text(t)


def test_what_is_detached_reads_as_what_it_was(rng):
    x = leaf(rng, 2, 3, name="x")
    with mg.trace() as t:
        y = mg.exp(x).named("y")
        mg.sum(y - mg.max(y.detach(), axis=-1, keepdims=True)).backward()
    text = derivation_text(t)
    assert r"\max_{j} \left(\mathrm{detach}(y)\right)_{i,j}" in text
    assert "$`\\mathrm{detach}(x)`$ is $`x`$ as a constant" in text
    assert r"y^{(" not in text


def test_many_parameters_are_listed_by_the_scope_that_holds_them(rng):
    block = layers.TransformerBlock(6, 3, rng=rng)
    with mg.trace() as t:
        mg.sum(block(rng.normal(size=(2, 7, 6)))).backward()
    text = derivation_text(t)
    assert re.search(r"^- Parameters \(\d+ numbers in all\):$", text, re.MULTILINE)
    for part, symbol in (("attention", "W_Q"), ("feed_forward", "W_1")):
        line = rf"^  - in `transformer_block/{part}`: \$`{symbol} \\in"
        assert re.search(line, text, re.MULTILINE), part


def test_two_backward_passes_are_those_of_a_sum(rng):
    x = leaf(rng, 3, name="x")
    with mg.trace() as t:
        y = mg.sum(x**3).named("y")
        (slope,) = mg.grad(y, [x], create_graph=True)
        mg.sum(slope * slope).named("z").backward()
    text = derivation_text(t)
    assert "$`L = y + z`$. 2 backward passes ran in this record" in text
    assert "is not in this record" not in text


# ---------------------------------------------------------------- as a file


@pytest.mark.parametrize("record", RECORDS)
def test_every_formula_is_well_formed(rng, record):
    found = formulas(derivation_text(record(rng)))
    assert len(found) > 10
    for tex in found:
        assert_renders(tex)


def calls():
    for name, op in registry.items():
        for i, sample in enumerate(op.samples(np.random.default_rng(1))):
            yield pytest.param(op, sample, id=f"{name}-{i}")


@pytest.mark.parametrize(("op", "sample"), list(calls()))
def test_every_op_of_the_registry_can_be_told(op, sample):
    """Each sample call, its floating inputs made leaves, forward and backward."""

    def lifted(x):
        if isinstance(x, list | tuple):
            return type(x)(map(lifted, x))
        floating = isinstance(x, np.ndarray) and x.dtype.kind == "f"
        return mg.tensor(x, requires_grad=True) if floating else x

    bound = op.signature.bind(*sample.args, **sample.kwargs)
    for name in op.inputs:
        if name in bound.arguments:
            bound.arguments[name] = lifted(bound.arguments[name])
    with mg.trace() as t:
        out = op(*bound.args, **bound.kwargs)
        if out.requires_grad and np.isfinite(out.numpy()).all():
            out.backward(np.ones(out.shape, out.dtype))
    text = derivation_text(t)
    assert "no rule" not in text
    for tex in formulas(text):
        assert_renders(tex)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(rng, name):
    x = leaf(rng, 2, 3, name=name)
    with mg.trace() as t, mg.scope(name):
        mg.sum((x @ leaf(rng, 3, 2)).named(name)).backward()
    text = derivation_text(t)
    assert text.count("```") == 2 * text.count("```math")
    assert "\u202e" not in text
    assert max(map(len, text.split("\n"))) < 1000
    for tex in formulas(text):
        assert_renders(tex)
    for row in re.findall(r"^\|.*\|$", text, re.MULTILINE):
        assert len(re.findall(r"(?<!\\)\|", row)) == 6, row


def test_the_same_program_gives_the_same_bytes():
    first, again = (derivation_text(of_blocks(np.random.default_rng(7))) for _ in range(2))
    assert first == again


def test_it_is_written_to_a_file_whole(rng, tmp_path):
    path = tmp_path / "d.md"
    t = of_small(rng)
    assert t.derivation(path) == path
    assert path.read_text(encoding="utf-8") == derivation_text(t)
    assert list(tmp_path.iterdir()) == [path]
    for name in ("", "a\0.md", "x" * 300, "no/a.md"):
        with pytest.raises(mg.errors.ArgumentError, match=r"^derivation: "):
            t.derivation(tmp_path / name)


# ---------------------------------------------------------------- symbols and formulas


@pytest.mark.parametrize(
    ("name", "tex"),
    [
        ("W_Q", "W_Q"),
        ("b1", "b_1"),
        ("S_masked", r"S_{\mathrm{masked}}"),
        ("alpha", r"\alpha"),
        ("Q_phi", r"Q_{\phi}"),
        ("logits", r"\mathrm{logits}"),
        ("W12", "W_{12}"),
        ("x y", r"\text{x y}"),
    ],
)
def test_a_name_becomes_the_symbol_it_spells(name, tex):
    assert latex(symbol_of(name)) == tex


@pytest.mark.parametrize(
    ("value", "tex"),
    [
        (0.25, "0.25"),
        (1 / 7**0.5, r"\tfrac{1}{\sqrt{7}}"),
        (1 / 3, r"\tfrac13"),
        (-2.0, "-2"),
        (1e-5, "10^{-5}"),
    ],
)
def test_a_number_is_written_as_a_person_would(value, tex):
    assert latex(number(repr(value))) == tex


# ---------------------------------------------------------------- models of every ordinary kind


def first_uses(trace, text):
    """Symbols, gradients and parts of gradients that an equation uses before they are defined."""
    symbols = {latex(s) for s in Sections(trace, trace.checked()).equations.symbols.values()}
    known = "|".join(map(re.escape, sorted(symbols, key=len, reverse=True)))
    symbol = rf"(?<![A-Za-z\\{{])(?:{known})(?![A-Za-z_])|(?<=\{{)(?:{known})(?=\}})"
    slope = rf"\\frac\{{\\partial L\}}\{{\\partial (?:{known})\}}"
    part = rf"\\left\.{slope}\\right\\rvert_\{{(?:{known})(?:,\\,\d+)?\}}"
    token = re.compile(f"{part}|{slope}|{symbol}")
    defined, missing = set(), []
    for line in re.findall(r"^- (?:Param|Leaves|Inp|Const|Loss).*|^  - .*", text, re.M):
        defined |= {
            found for math in re.findall(r"\$`(.*?)`\$", line) for found in token.findall(math)
        }
    as_others = r"(?<!what )((?:\$`[^$]*`\$[and, ]*)+)(?:is|are) to `"
    said = rf"{as_others}|gives (\S+|\$`[^$]*`\$) where|at the loss, with (.*?) = 1"
    for found in re.finditer(rf"```math\n(.*?)\n```|{said}", text, re.S):
        defined |= {use for part in found.groups()[1:] for use in token.findall(part or "")}
        for row in re.split(r"\\\\\[4pt\]\n", found[1] or ""):
            left, _, right = re.sub(r"\\(begin|end)\{aligned\}", "", row).partition("= ")
            right = re.split(r"&& \\in|\\quad \\in", right)[0]
            missing += [use for use in token.findall(right) if use not in defined]
            defined |= set(token.findall(left)[:1])
    return missing


@pytest.mark.parametrize("seed", range(4 * len(KINDS)))
def test_a_derivation_defines_every_symbol_before_it_uses_it(seed):
    t = trained(seed)
    text = derivation_text(t)
    assert first_uses(t, text) == []
    for tex in formulas(text):
        assert_renders(tex)


@pytest.mark.parametrize("seed", range(2 * len(KINDS)))
def test_a_derivation_ends_with_the_gradient_of_every_parameter(seed):
    t = trained(seed)
    rows = re.findall(r"^\| .*? \| `(.*?)`(?: ×(\d+))? \| ", derivation_text(t), re.M)
    counts = {path: int(times or 1) for path, times in rows}
    leaves = [e for e in t if e.learns and e.gradient is not None]
    model = AnnotatedTrace(t)
    fold = model.fold
    for e in leaves:
        scopes = [fold.name(scope) for scope in prefixes(fold.place[e.id])]
        times = sum(fold.leader(other.id) == fold.leader(e.id) for other in leaves)
        path = e.path if times == 1 else "/".join([*scopes, model.label(e)])
        assert counts[path] == times, path

"""The derivation says what the graph did, in LaTeX that renders, and claims what was measured."""

import re

import numpy as np
import pytest

import layers
import minigrad as mg
from minigrad.views.derivation import derivation_text
from minigrad.views.derivation.sections import Sections
from minigrad.views.fold import prefixes
from minigrad.views.formula import latex
from minigrad.views.model import AnnotatedTrace
from minigrad.views.plain import sized
from tests.planted import wrong_rules

from . import conftest as graphs
from .models import KINDS, trained


def leaf(rng, *shape, name=None):
    return mg.tensor(rng.uniform(-1, 1, shape), requires_grad=True, name=name)


def ran(loss):
    """The record of a run, with its backward unless the function did it or there is none."""
    with mg.trace() as t:
        made = loss()
        if made is not None:
            made.backward()
    return t


def of_attention(rng):
    layer, x = layers.SelfAttention(5, 3, 2, rng=rng), rng.normal(size=(2, 7, 5))
    return lambda: mg.mean(layer(x, np.tri(7, dtype=bool)) ** 2)


def of_mlp(rng):
    x = mg.tensor(rng.normal(size=(11, 5)), name="x")
    W1, b1 = leaf(rng, 5, 7, name="W1"), leaf(rng, 7, name="b1")
    W2, b2 = leaf(rng, 7, 3, name="W2"), leaf(rng, 3, name="b2")
    gamma, beta = leaf(rng, 7, name="gamma"), leaf(rng, 7, name="beta")
    targets = rng.integers(0, 3, 11)

    def loss():
        with mg.scope("mlp"):
            hidden = mg.layer_norm(mg.gelu(x @ W1 + b1), gamma, beta)
            logits = (hidden @ W2 + b2).named("logits")
        return mg.cross_entropy(logits, targets)

    return loss


def of_blocks(rng, count=4):
    blocks = [layers.SelfAttention(4, 3, 4, rng=rng) for _ in range(count)]
    x = mg.tensor(rng.normal(size=(2, 5, 4)), name="X0")

    def loss():
        h = x
        for i, block in enumerate(blocks):
            with mg.scope(f"block{i}"):
                h = h + block(h)
        return mg.mean(h * h)

    return ran(loss)


def formulas(text):
    return re.findall(r"```math\n(.*?)\n```", text, re.DOTALL) + re.findall(r"\$`(.*?)`\$", text)


def assert_renders(text):
    """Braces and \\left … \\right balance, no script is doubled, and GitHub refuses nothing."""
    for tex in formulas(text):
        bare = re.sub(r"\\[{}$%#&_]", "", tex)
        depth = 0
        for c in bare:
            depth += (c == "{") - (c == "}")
            assert depth >= 0, tex
        assert depth == 0, tex
        opened, closed = (re.findall(rf"\\{side}(?![a-z])", tex) for side in ("left", "right"))
        assert len(opened) == len(closed), tex
        assert tex.count(r"\begin{aligned}") == tex.count(r"\end{aligned}")
        assert not re.search(r"operatorname|[<>$%#`~]|\|", bare.replace("&", "")), tex
        inner = bare
        while (shorter := re.sub(r"\{[^{}]*\}", "g", inner)) != inner:
            inner = shorter
        assert not re.search(r"_\S_|\^(\\\w+|\S)\^", inner), tex


# ---------------------------------------------------------------- what it says

CLAIMS = []


def says(*said, never=()):
    """Of the run that a function prepares, what its derivation says, and what it never does."""

    def claim(prepare):
        CLAIMS.append(pytest.param(prepare, said, never, id=prepare.__name__))
        return prepare

    return claim


@says(
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
)
def attention_in_the_papers_symbols(rng):
    return of_attention(rng)


@says(
    r"\frac{\partial L}{\partial W_Q} &= X^\top \frac{\partial L}{\partial Q} &&",
    never=[r"\sum_{b}"],
)
def of_an_unbatched_product_no_sum_over_a_batch(rng):
    layer = layers.SelfAttention(5, 3, 2, use_bias=False, rng=rng)
    return lambda: mg.sum(layer(rng.normal(size=(7, 5))))


@says("$`x`$ is used 2 times in $`H`$", r"\right\rvert_{H,\,1} + \left.")
def two_terms_of_a_value_used_twice_by_one_op(rng):
    x = leaf(rng, 2, name="x")
    return lambda: mg.sum(x * x)


@says("The 2 matrices along $`b`$ share $`W_O`$, so their 2 products add.")
def which_matrices_share_a_factor(rng):
    layer = layers.MultiHeadAttention(6, 3, rng=rng)
    return lambda: mg.mean(layer(rng.normal(size=(2, 7, 6))) ** 2)


def a_row(rng, *shape):
    layer, x = layers.Linear(3, 5, rng=rng), leaf(rng, *shape, name="x")
    return lambda: mg.mean(layer(x) ** 2)


@says("an array of one axis is a row on the left")
def arrays_of_one_axis_where_one_is_a_factor(rng):
    return a_row(rng, 3)


@says(never=["an array of one axis is a row on the left"])
def a_bias_is_no_factor(rng):
    return a_row(rng, 4, 3)


@says(
    "no gradient was held against hand-derived steps; no backward ran through",
    never=["✓"],
)
def hand_derived_steps_that_no_backward_reached_are_unmeasured(rng):
    layer, x = layers.SelfAttention(5, 3, 2, rng=rng), leaf(rng, 3, name="x")

    def loss():
        layer(rng.normal(size=(2, 7, 5)))
        return mg.sum(x * 2.0)

    return loss


@says(
    r"backward began from its gradient $`\frac{\partial L}{\partial y}`$",
    r"\frac{\partial L}{\partial x} = 2\, \frac{\partial L}{\partial y}",
)
def a_given_seed_as_where_backward_began(rng):
    x = leaf(rng, 3, name="x")
    return lambda: (x * 2.0).named("y").backward(np.array([1.0, 2.0, 3.0]))


@says(
    "No gradient goes back through this trace: it is a forward pass alone.",
    never=["Backward"],
)
def that_nothing_requires_a_gradient(rng):
    def loss():
        mg.sum(mg.tensor([1.0, 2.0]))

    return loss


@says(never=["rules it would apply"])
def no_promise_of_rules_for_a_decoding_step(rng):
    layer = layers.MultiHeadAttention(6, 3, rng=rng, mask=layers.causal)

    def loss():
        with mg.no_grad():
            layer(rng.normal(size=(2, 1, 6)), cache=layers.KVCache())

    return loss


@says(
    "`step[0] … step[1099]` are alike",
    "add ×1100 | 2 | 1.0 |",
    "| $`x`$ | `x` | 2 | 1.0 |",  # used within a copy that is not told
)
def a_long_chain_without_recursion(rng):
    x = leaf(rng, 2, name="x")

    def loss():
        y = x
        for _ in range(1100):
            y = y + np.ones(2)
        return mg.sum(y)

    return loss


@says(r"W^{(1)}", r"{W^{(2)}}^\top")
def namesakes_in_different_places_by_different_symbols(rng):
    x, V, W = leaf(rng, 3, 3, name="X"), leaf(rng, 3, 3, name="W"), leaf(rng, 3, 3, name="W")

    def loss():
        with mg.scope("one"):
            h = mg.tanh(x @ V)
        with mg.scope("two"):
            return mg.sum(mg.tanh(h @ W))

    return loss


@says("| `linear/b` | 3 |", "In `linear (2)`:", "| `linear (2)/b` | 2 |")
def what_came_out_by_the_names_of_the_picture(rng):
    first, second = layers.Linear(5, 3, rng=rng), layers.Linear(3, 2, rng=rng)
    x = rng.normal(size=(7, 5))
    return lambda: mg.sum(second(mg.tanh(first(x))))


@says(r"S_{\mathrm{masked}} &= S + c &&", r"C &= \mathrm{reshape}", never=["C^{("])
def a_constant_without_a_name_by_no_letter_of_a_layer(rng):
    layer = layers.MultiHeadAttention(6, 3, rng=rng, position=layers.ALiBi(3))
    return lambda: mg.mean(layer(rng.normal(size=(2, 7, 6))) ** 2)


@says(r"$`k_1 \in \mathbb{R}^{3}`$, $`k_2 \in \mathbb{R}^{3}`$", r"H_1 &= c + k_1 &&")
def several_constants_without_names_by_numbers(rng):
    x = leaf(rng, 3, name="c")
    return lambda: mg.sum((x + rng.normal(size=3)) * rng.normal(size=3))


@says(
    " numbers in all):\n",
    "\n  - in `transformer_block/attention`: $`W_Q \\in",
    "\n  - in `transformer_block/feed_forward`: $`W_1 \\in",
)
def many_parameters_by_the_scope_that_holds_them(rng):
    block = layers.TransformerBlock(6, 3, rng=rng)
    return lambda: mg.sum(block(rng.normal(size=(2, 7, 6))))


@says("$`L = y + z`$. 2 backward passes ran in this record", never=["is not in this record"])
def two_backward_passes_as_those_of_a_sum(rng):
    x = leaf(rng, 3, name="x")

    def loss():
        y = mg.sum(x**3).named("y")
        (slope,) = mg.grad(y, [x], create_graph=True)
        return mg.sum(slope * slope).named("z")

    return loss


def _losses_of_a_loop(rng, write):
    """Four backward passes, the last of them to come; alike, so that most are folded."""
    layer = layers.Linear(3, 2, rng=rng)
    optimizer = mg.optim.SGD(layer.parameters(), lr=0.1)
    X, targets = rng.normal(size=(5, 3)), np.array([0, 1, 1, 0, 1])

    def loss():
        for _ in range(3):
            mg.cross_entropy(layer(X), targets).backward()
            if write:
                optimizer.step()
        return mg.cross_entropy(layer(X), targets)

    return loss


@says(
    ". 4 backward passes ran in this record", "(8 numbers in all", "`step[0] … step[2]` are alike"
)
def gradients_that_a_loop_adds_up(rng):
    return _losses_of_a_loop(rng, write=False)


@says("(8 numbers in all", "`step[0] … step[2]` are alike", "$`W^{(1)}`$, then $`W^{(2)}`$")
def steps_of_training_that_forget_to_clear_the_gradients(rng):
    return _losses_of_a_loop(rng, write=True)


@says(r"c + \mathrm{detach}(c)", never=[r"\mathrm{detach} +"])
def an_input_without_a_name_that_is_detached_before_it_is_used(rng):
    X, W = mg.tensor(rng.normal(size=3)), leaf(rng, 3, name="W")
    return lambda: mg.sum((X + X.detach()) * W)


@says(r"P &= X^\top &&", r"H &= P W &&")
def a_transposed_factor_that_has_a_name_by_an_equation(rng):
    X, W = leaf(rng, 3, 2, name="X"), leaf(rng, 3, 5, name="W")
    return lambda: mg.sum(X.T.named("P") @ W)


@pytest.mark.parametrize(("prepare", "said", "never"), CLAIMS)
def test_a_derivation_tells(rng, prepare, said, never):
    text = derivation_text(ran(prepare(rng)))
    assert [part for part in said if part not in text] == []
    assert [part for part in never if part in text] == []
    assert_renders(text)


def test_where_a_value_fans_out_the_terms_and_their_sizes_are_written(rng):
    t = ran(of_attention(rng))
    text = derivation_text(t)
    assert "$`X`$ is used 3 times, in $`V`$, $`K`$ and $`Q`$" in text
    assert (
        r"&= \frac{\partial L}{\partial V} W_V^\top + \frac{\partial L}{\partial K} W_K^\top "
        r"+ \frac{\partial L}{\partial Q} W_Q^\top"
    ) in text
    parts = [np.linalg.norm(e.contribution) for e in t.uses(t["X"])]
    share = np.linalg.norm(t["X"].gradient) / sum(parts)
    assert f"the norm of their sum is {share:.0%} of the sum of their norms" in text


def test_the_terms_of_copies_that_are_shown_once_have_the_sizes_of_all(rng):
    W, h = leaf(rng, 3, 3, name="W"), rng.normal(size=(2, 3))

    def loop(h):
        for _ in range(4):
            h = mg.tanh(h @ W)
        return mg.sum(h)

    t = ran(lambda: loop(h))
    sizes = sorted(edge.contribution_rms for edge in t.uses(t["W"]))
    said = f"and its copies, 4 in all, {sizes[0]:#.2g} to {sizes[-1]:#.2g}; the norm of their sum"
    assert said in derivation_text(t)


def test_steps_are_numbered_in_the_order_backward_ran(rng):
    t = ran(of_attention(rng))
    titles = re.findall(r"^### (\d+)\. Through (.*)$", derivation_text(t), re.MULTILINE)
    assert [int(n) for n, _ in titles] == list(range(1, len(titles) + 1))
    named = [t[i].name for i in t.backward_steps if t[i].name]
    told = re.findall(r"\$`([A-Z])(?=`\$|_)", " ".join(title for _, title in titles))
    assert [s for s in told if s in "OAVKQ"] == [s for s in named if s in "OAVKQ"]


# ---------------------------------------------------------------- what it claims


def test_marks_are_the_differences_that_check_measured(rng):
    t = ran(of_attention(rng))
    text = derivation_text(t)
    worst = max(c.difference for c in t.check())
    assert f"largest difference {worst:.1e}" in text
    assert "✗" not in text
    assert text.count("✓ within") + text.count("✓ equal to") == len(t.check())


def test_a_wrong_rule_turns_its_step_red_and_names_it_first(rng):
    with wrong_rules("softmax"):
        text = derivation_text(ran(of_attention(rng)))
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
    with wrong_rules("softmax"):
        said = text()
    assert "**✗ 1 of 3 backward steps WRONG, first softmax: the rule of softmax for x" in said
    assert "**✗ The rule of softmax for `x` is no derivative of it**" in said.split("### 3.")[1]


def test_without_backward_it_says_so_and_claims_nothing(rng):
    with mg.trace() as t:
        of_attention(rng)()
    text = derivation_text(t)
    assert "Backward has not run in this trace" in text
    assert r"\frac{\partial L}{\partial A} &= \frac{\partial L}{\partial O} V^\top" in text
    for claim in ("✓", "✗", "rms of", "What came out"):
        assert claim not in text


def test_a_graph_without_a_trace_can_be_told_and_claims_no_axes_that_it_does_not_know(rng):
    x = leaf(rng, 2, 3, 5, name="x")
    text = derivation_text(mg.Trace.of(mg.sum(mg.sum(mg.softmax(x), axis=(0, 1)) ** 2)))
    assert "Backward has not run" in text
    assert r"\sum_{b,i,j}" not in text
    assert r"\text{None}" not in text
    assert_renders(text)


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


# ---------------------------------------------------------------- as a file


@pytest.mark.parametrize("name", graphs.HOSTILE_NAMES)
def test_hostile_names_stay_text(rng, name):
    x = leaf(rng, 2, 3, name=name)
    with mg.trace() as t, mg.scope(name):
        mg.sum((x @ leaf(rng, 3, 2)).named(name)).backward()
    text = derivation_text(t)
    assert text.count("```") == 2 * text.count("```math")
    assert "\u202e" not in text
    assert max(map(len, text.split("\n"))) < 1000
    assert_renders(text)
    for row in re.findall(r"^\|.*\|$", text, re.MULTILINE):
        assert len(re.findall(r"(?<!\\)\|", row)) == 6, row


def test_the_same_program_gives_the_same_bytes_and_the_file_has_them(tmp_path):
    first, again = (of_blocks(np.random.default_rng(7)) for _ in range(2))
    path = tmp_path / "d.md"
    assert first.derivation(path) == path
    assert path.read_text(encoding="utf-8") == derivation_text(first) == derivation_text(again)
    assert list(tmp_path.iterdir()) == [path]


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
def test_a_derivation_defines_every_symbol_it_uses_and_ends_with_every_gradient(seed):
    t = trained(seed)
    text = derivation_text(t)
    assert first_uses(t, text) == []
    assert_renders(text)
    row = r"^\| .*? \| `(.*?)`(?: ×(\d+))? \| .*? \| (.*?) \| "
    rows = {(path, int(times or 1), size) for path, times, size in re.findall(row, text, re.M)}
    leaves = [e for e in t if e.learns and e.gradient is not None]
    model = AnnotatedTrace(t)
    fold = model.fold
    for e in leaves:
        scopes = [fold.name(scope) for scope in prefixes(fold.place[e.id])]
        times = sum(fold.leader(other.id) == fold.leader(e.id) for other in leaves)
        if times == 1:  # the scope of its first use, as the picture names it
            scopes = prefixes(model.scope_of(t[t.first_use(e).target]))[-1:]
        path = "/".join([*scopes, model.label(e)])
        size = sized(np.sqrt(np.mean(e.gradient**2))) if times == 1 and e.state == "ok" else ""
        assert any((path, times) == one[:2] and one[2].startswith(size) for one in rows), path

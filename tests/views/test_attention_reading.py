"""Attention is read rightly: the record's own arrays, and figures with known answers."""

import sys

import numpy as np
import pytest

import layers
import minigrad as mg
from minigrad.errors import ArgumentError, MissingDependencyError, ShapeError
from minigrad.views.attention import (
    entropy,
    gradient_times_attention,
    patterns,
    read_attention,
    rollout,
    sparsity,
)
from minigrad.views.terminal import cells
from tests.compare import refusals

# the texts' examples of each pattern
BAND = np.array([[abs(i - j) <= 2 for j in range(20)] for i in range(20)], float)
BAND /= BAND.sum(axis=1, keepdims=True)
DIAGONAL = np.array(
    [[0.8, 0.1, 0.1, 0.0], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.8, 0.0], [0.0, 0.1, 0.1, 0.8]]
)
STRIPE = np.array(
    [[0.1, 0.7, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.7, 0.1, 0.1], [0.2, 0.5, 0.2, 0.1]]
)
TRIANGLE = np.array(
    [[1.0, 0.0, 0.0, 0.0], [0.4, 0.6, 0.0, 0.0], [0.2, 0.3, 0.5, 0.0], [0.1, 0.2, 0.3, 0.4]]
)
UNIFORM = np.full((8, 8), 1 / 8)
CAUSAL_UNIFORM = np.tri(8) / np.arange(1, 9)[:, None]
CAUSAL = np.tri(4, dtype=bool)


def beside(n, offset):
    """Each query looks at the key so far from its own, the ones without such a key at theirs."""
    A = np.eye(n, k=offset)
    A[0 if offset < 0 else -1, 0 if offset < 0 else -1] = 1
    return A


def stripe(n):
    A = np.full((n, n), 0.1 / (n - 1))
    A[:, 0] = 0.9
    return A


def replaced(A, row, by):
    A = A.copy()
    A[row] = by
    return A


LONG = replaced(0.9 * np.eye(8) + UNIFORM / 10, 6, np.eye(8)[1])


def recorded(rng, layer=None, n=7, mask=None, batch=(2,)):
    layer = layer or SINGLE
    with mg.trace() as t:
        mg.mean(layer(rng.normal(size=(*batch, n, layer.d_model)), mask) ** 2).backward()
    return t


# ---------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("A", "told"),
    [
        (DIAGONAL, ["diagonal"]),
        (BAND, ["band"]),
        (STRIPE, ["vertical stripe"]),
        (TRIANGLE, ["lower-triangular"]),
        (UNIFORM, ["diffuse"]),
        (CAUSAL_UNIFORM, ["lower-triangular", "diffuse"]),
        (beside(4, -1), ["previous token", "lower-triangular"]),
        (beside(10, -1), ["previous token", "lower-triangular"]),
        (beside(10, 1), ["next token"]),
        (0.8 * beside(10, 1) + 0.02, ["next token"]),
        (stripe(8), ["vertical stripe"]),
        (stripe(30), ["vertical stripe"]),
        (replaced(np.eye(8), 3, UNIFORM[0]), ["diagonal", "horizontal stripe"]),
        (replaced(beside(8, -1), 5, CAUSAL_UNIFORM[5]),
         ["previous token", "horizontal stripe", "lower-triangular"]),
        (LONG, ["diagonal", "off-diagonal spike"]),
        (np.eye(5), ["diagonal", "lower-triangular"]),
        (np.pad(np.eye(2), ((0, 0), (3, 0))), ["diagonal", "lower-triangular"]),  # of a cache
        (np.ones((1, 1)), ["diagonal"]),
    ],
)  # fmt: skip
def test_the_texts_examples_are_told_by_their_names(A, told):
    assert patterns(A)[0].told == told


@pytest.mark.parametrize(
    ("A", "name", "score", "where"),
    [
        (DIAGONAL, "diagonal", np.mean([(a - 0.25) / 0.75 for a in (0.8, 0.7, 0.8, 0.8)]), ""),
        (STRIPE, "vertical stripe", (0.7 + 0.7 + 0.5) / 3, "key 1"),
        (replaced(np.eye(8), 3, UNIFORM[0]), "horizontal stripe", 1.0, "query 3"),
        (LONG, "off-diagonal spike", 1 - (0.9 + 0.7 / 8) / 7, "query 6 to key 1"),
    ],
)
def test_a_verdict_has_its_figure_and_its_place(A, name, score, where):
    [head] = patterns(A)
    assert head[name].score == pytest.approx(score)
    assert head[name].where == where
    assert f"{name} {score:.2f}{f' ({where})' if where else ''}" in str(head)


@pytest.mark.parametrize("n", [6, 8, 16, 32])
def test_random_attention_has_none_of_the_patterns_and_says_which_was_nearest(rng, n):
    for head in patterns(rng.dirichlet(np.full(n, 1.0), size=(50, n))):
        assert set(head.told) <= {"diffuse", *(["off-diagonal spike"] if n < 16 else [])}
        assert head.told or str(head).startswith("none; nearest is")


def test_heads_are_read_one_by_one():
    A = np.stack([np.eye(8), UNIFORM])
    found = [head.told for head in patterns(np.stack([A, A]))]  # a batch of two
    assert found == [["diagonal", "lower-triangular"], ["diffuse"]]


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize(
    ("figure", "A", "value", "verdict"),
    [
        (entropy, np.eye(8), 0.0, "focused"),
        (entropy, UNIFORM, np.log(8), "diffuse"),
        (entropy, CAUSAL_UNIFORM, np.log(np.arange(1, 9)).mean(), "100% of the largest"),
        (sparsity, np.array([[0.5, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 1.0]]), 5 / 8, "sparse"),
        (sparsity, TRIANGLE, 0.0, "dense"),  # what the mask forbids is no choice
    ],
)
def test_figures_with_known_values(figure, A, value, verdict):
    found = figure(A)
    np.testing.assert_allclose(found, [value], atol=1e-15)
    assert verdict in found.verdicts[0]


def test_rollout_is_the_product_of_layers_with_their_residuals(rng):
    maps = [rng.dirichlet(np.ones(5), size=(2, 3, 5)) for _ in range(3)]
    expected = np.zeros((5, 5))
    for b in range(2):
        R = np.eye(5)
        for A in maps:
            R = (0.5 * A[b].mean(axis=0) + 0.5 * np.eye(5)) @ R
        expected += R / 2
    np.testing.assert_allclose(rollout(maps), expected)


def test_gradient_times_attention_keeps_what_raises_the_output(rng):
    A, dA = rng.dirichlet(np.ones(5), size=(3, 5)), rng.normal(size=(3, 5, 5))
    one, two = np.maximum(A * dA, 0).mean(axis=0), gradient_times_attention([A, A], [dA, dA])
    np.testing.assert_allclose(gradient_times_attention(A, dA), one)
    np.testing.assert_allclose(two, np.eye(5) + one + one @ (np.eye(5) + one))


# ---------------------------------------------------------------- of a record


SINGLE, MULTI = layers.SelfAttention(5, 3, 2, rng=0), layers.MultiHeadAttention(6, 3, rng=0)


@pytest.mark.parametrize(
    ("layer", "batch", "shape"),
    [
        (SINGLE, (2,), (2, 1, 7, 7)),  # the batch of a single head
        (SINGLE, (), (1, 1, 7, 7)),
        (MULTI, (2,), (2, 3, 7, 7)),
        (MULTI, (), (1, 3, 7, 7)),  # the heads of one sequence
    ],
)
def test_the_record_s_weights_and_gradients_are_shown_by_batch_and_head(rng, layer, batch, shape):
    t = recorded(rng, layer, batch=batch)
    [found] = t.attention()
    assert found.A.shape == shape
    np.testing.assert_array_equal(found.A, t["A"].value.reshape(shape))
    np.testing.assert_array_equal(found.dA, t["A"].gradient.reshape(shape))


def test_weights_are_known_by_their_rows_and_not_by_the_op_that_made_them():
    S = mg.tensor(np.eye(3), requires_grad=True)
    with mg.trace() as t:
        weights = mg.exp(S) / mg.sum(mg.exp(S), axis=-1, keepdims=True)
        mg.sum(weights.named("A")[0]).backward()
        mg.exp(S).named("A")  # no weights
    [found] = t.attention()
    np.testing.assert_allclose(found.A[0, 0], weights.numpy())


@pytest.mark.parametrize("mask", [CAUSAL, np.where(CAUSAL, 0, -1e9)])
def test_a_map_has_numbers_dots_where_masked_and_tokens_on_both_axes(rng, mask):
    t = recorded(rng, n=4, mask=mask)
    [found] = t.attention()
    np.testing.assert_array_equal(found.forbidden[0, 0], ~CAUSAL)
    A, dA = t["A"].value, t["A"].gradient
    lines = t.attention(["the", "cat", "sat", "on"]).text(300).split("\n")
    assert [row.count("·") for row in lines[3:7]] == [6, 4, 2, 0]
    assert f"cat  {A[0, 1, 0]:.2f}  {A[0, 1, 1]:.2f}" in lines[4]
    assert "  the   cat   sat" in lines[2]
    assert "∂L/∂A" in lines[1]
    plain = read_attention(["the", "cat", "sat", "on"], A[:, None], dA[:, None], CAUSAL)
    assert plain.text(300).split("\n")[1:] == lines[1:]
    assert read_attention([7, 11], np.eye(2))[0].keys == ("7", "11")


@pytest.mark.parametrize("n", [3, 20, 90])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_heatmaps_fit_their_width(rng, n, width):
    t = recorded(rng, n=n, mask=np.tri(n, dtype=bool))
    lines = t.attention().text(width).split("\n")
    assert max(map(cells, lines)) <= width
    assert n < 90 or any("each cell is the largest of" in line for line in lines) == (width < 90)


def test_cells_drawn_as_one_have_the_largest_gradient_that_no_mask_hides():
    dA = np.array([[0.25, -7.0], [-0.5, 0.125]])
    [_, found] = read_attention(["a", "b"], np.eye(2)[None], dA[None], CAUSAL[:2, :2])[0].grids(0)
    one = found.pooled(2)
    assert one.values.item() == -0.5
    assert not one.forbidden.item()


def test_hostile_tokens_and_scopes_stay_on_their_line(rng):
    with mg.scope("s" * 10_000):
        t = recorded(rng, n=3)
    plain = t.attention(["a", "b", "c"]).text(80)
    text = t.attention(["a\nb" * 4000, "\u202ex", "\x1b[31m"]).text(80)
    assert text.count("\n") == plain.count("\n")
    assert not {"\u202e", "\x1b"} & set(text)
    assert max(map(len, text.split("\n"))) < 300


@pytest.mark.parametrize("tokens", [["a", "b"], [7, 11], [["a"], ["x", "y", "z"]]])
def test_tokens_must_fit(rng, tokens):
    t = recorded(rng, n=3)
    with pytest.raises(ShapeError, match=r"has 3 queries, got \d tokens"):
        t.attention(tokens)
    assert t.attention([["a", "b", "c"], ["x", "y", "z"]])[0].keys == ("x", "y", "z")


def test_a_record_without_attention_says_so():
    with mg.trace() as t:
        mg.sum(mg.softmax(mg.tensor([1.0, 2.0], requires_grad=True)))
    assert "no attention in this record" in str(t.attention())
    with pytest.raises(ArgumentError, match="no attention"):
        t.attention().plot()


# ---------------------------------------------------------------- of plain arrays


EYE = np.eye(3)
test_what_is_no_attention_is_refused = refusals(
    *[(lambda f=f, A=A: f(A), ShapeError, "must be")
      for f in (patterns, entropy, sparsity) for A in (np.ones(3), np.zeros((0, 0)))],
    *[(lambda x=x: sparsity(EYE, x), ArgumentError, "threshold must lie in")
      for x in (0, -1, 1.5, float("nan"))],
    (lambda: rollout([]), ArgumentError, "at least one layer"),
    (lambda: rollout([np.eye(2), EYE]), ShapeError, "same n"),
    (lambda: gradient_times_attention(EYE, np.eye(2)), ShapeError, "but dA"),
    (lambda: read_attention("ab", EYE), ShapeError, "weights has 3 queries, got 2 tokens"),
    (lambda: read_attention(None, EYE, np.eye(2)), ShapeError,
     r"weights are \(3, 3\) but gradient \(2, 2\)"),
    (lambda: read_attention(None, np.ones(3)), ShapeError, "must be"),
)  # fmt: skip


# ---------------------------------------------------------------- as a plot


def test_a_plot_is_written_whole(rng, tmp_path):
    pytest.importorskip("matplotlib")
    t = recorded(rng, layers.MultiHeadAttention(6, 2, rng=rng), 4, CAUSAL)
    path, found = tmp_path / "a.svg", t.attention(["$x", "_", "b\n", "d"])
    assert found.plot(path) == path
    assert path.stat().st_size > 1000
    assert list(tmp_path.iterdir()) == [path]
    axes = found.plot().axes
    maps = [axis for axis in axes if axis.get_title()]
    assert len(maps) == 4  # every head twice
    assert len(axes) == 8  # each with its colour bar
    assert {(axis.get_xlabel(), axis.get_ylabel()) for axis in maps} == {("key", "query")}


@pytest.mark.parametrize(
    ("name", "said"),
    [("a.xyz", "must end in"), ("", "folder"), ("a\0.png", "no file"), ("x" * 300 + ".png", "no")],
)
def test_a_plot_that_cannot_be_written_is_refused(rng, tmp_path, name, said):
    pytest.importorskip("matplotlib")
    (tmp_path / "f.png").mkdir()
    with pytest.raises(ArgumentError, match=f"attention.plot: .*{said}"):
        recorded(rng).attention().plot(tmp_path / (name or "f.png"))


def test_without_matplotlib_the_error_says_what_to_install(rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'minigrad\[plot\]'"):
        recorded(rng).attention().plot()


def test_even_weights_over_all_that_a_padding_mask_allows_are_diffuse(rng):
    layer = layers.SelfAttention(7, 3, 2, rng=rng)
    layer.W_Q.assign_(np.zeros_like(layer.W_Q.numpy()))
    with mg.trace() as t:
        layer(rng.normal(size=(2, 5, 7)), layers.padding_mask(np.array([3, 3]), 5))
    text = " ".join(t.attention().text(200).split())
    assert "diffuse 1.00; entropy 1.10, 100% of the largest possible: diffuse" in text
    [found] = t.attention()
    assert found.figures[1].figures == [0.0]  # the pairs that are masked are not the head's choice

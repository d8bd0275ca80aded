"""Attention is read rightly: the record's own arrays, and figures with known answers."""

import builtins

import numpy as np
import pytest

import layers
import minigrad as mg
from minigrad.errors import ArgumentError, MissingDependencyError, ShapeError
from minigrad.views.attention import (
    attention_distance,
    entropy,
    gradient_times_attention,
    head_agreement,
    patterns,
    rollout,
    sparsity,
)

# the texts' examples of each pattern
DIAGONAL = np.array(
    [[0.8, 0.1, 0.1, 0.0], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.8, 0.0], [0.0, 0.1, 0.1, 0.8]]
)
STRIPE = np.array(
    [[0.1, 0.7, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.7, 0.1, 0.1], [0.2, 0.5, 0.2, 0.1]]
)
TRIANGLE = np.array(
    [[1.0, 0.0, 0.0, 0.0], [0.4, 0.6, 0.0, 0.0], [0.2, 0.3, 0.5, 0.0], [0.1, 0.2, 0.3, 0.4]]
)
BLOCKS = np.kron(np.eye(2), np.full((4, 4), 0.25))
UNIFORM = np.full((8, 8), 1 / 8)
CAUSAL_UNIFORM = np.tri(8) / np.arange(1, 9)[:, None]


def previous(n):
    A = np.eye(n, k=-1)
    A[0, 0] = 1
    return A


def stripe(n):
    A = np.full((n, n), 0.1 / (n - 1))
    A[:, 0] = 0.9
    return A


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def recorded(rng, layer, n=7, mask=None):
    with mg.trace() as t:
        mg.mean(layer(rng.normal(size=(2, n, layer.d_model)), mask) ** 2).backward()
    return t


# ---------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("A", "told"),
    [
        (DIAGONAL, ["diagonal"]),
        (STRIPE, ["vertical stripe"]),
        (TRIANGLE, ["lower-triangular"]),
        (BLOCKS, ["block"]),
        (0.9 * BLOCKS + 0.1 * UNIFORM, ["block"]),
        (UNIFORM, ["diffuse"]),
        (CAUSAL_UNIFORM, ["lower-triangular", "diffuse"]),
        (previous(4), ["previous token", "lower-triangular"]),
        (previous(10), ["previous token", "lower-triangular"]),
        (stripe(8), ["vertical stripe"]),
        (stripe(30), ["vertical stripe"]),
        (np.eye(5), ["diagonal", "lower-triangular"]),
    ],
)
def test_the_texts_examples_are_told_by_their_names(A, told):
    assert patterns(A)[0].told == told


def test_a_verdict_has_its_figure_behind_it():
    head = patterns(DIAGONAL)[0]
    rows = [0.8, 0.7, 0.8, 0.8]
    assert head["diagonal"].score == pytest.approx(np.mean([(a - 0.25) / 0.75 for a in rows]))
    assert patterns(STRIPE)[0]["vertical stripe"].score == pytest.approx((0.7 + 0.7 + 0.5) / 3)
    assert patterns(STRIPE)[0]["vertical stripe"].where == "key 1"
    assert patterns(BLOCKS)[0]["block"].where == "0–3, 4–7"
    assert "block 1.00 (0–3, 4–7)" in str(patterns(BLOCKS)[0])


def test_what_has_no_pattern_says_which_was_nearest(rng):
    [head] = patterns(rng.dirichlet(np.full(16, 0.5), size=16))
    assert head.told == []
    assert str(head).startswith("none; nearest is")


@pytest.mark.parametrize("n", [6, 8, 16, 32])
def test_random_attention_is_not_called_blocks(rng, n):
    heads = rng.dirichlet(np.full(n, 1.0), size=(50, n))
    assert not any(head["block"].told for head in patterns(heads))


def test_heads_are_read_one_by_one():
    A = np.stack([np.eye(8), UNIFORM, BLOCKS])
    found = patterns(np.stack([A, A]))  # a batch of two
    assert [head.told for head in found] == [
        ["diagonal", "lower-triangular"],
        ["diffuse"],
        ["block"],
    ]


def test_a_cache_puts_the_diagonal_where_the_keys_end():
    A = np.zeros((2, 5))
    A[0, 3] = A[1, 4] = 1.0
    assert patterns(A)[0].told == ["diagonal", "lower-triangular"]


def test_one_token_has_no_pattern():
    assert patterns(np.ones((1, 1)))[0]["lower-triangular"].score == 0.0


@pytest.mark.parametrize("A", [np.ones(3), np.zeros((0, 0))])
@pytest.mark.parametrize("call", [patterns, entropy, sparsity, attention_distance, head_agreement])
def test_what_is_no_attention_is_refused(call, A):
    with pytest.raises(ShapeError, match="must be"):
        call(A)


# ---------------------------------------------------------------- figures


def test_entropy_is_the_logarithm_of_how_many_are_seen():
    found = entropy(np.stack([np.eye(8), UNIFORM]))
    np.testing.assert_allclose(found, [0.0, np.log(8)], atol=1e-15)
    assert found.verdicts[0].endswith("focused")
    assert found.verdicts[1].endswith("diffuse")


def test_causal_entropy_is_held_against_what_a_causal_row_can_have():
    found = entropy(CAUSAL_UNIFORM)
    np.testing.assert_allclose(found.figures, [np.log(np.arange(1, 9)).mean()])
    assert found.verdicts[0].startswith("100%")


def test_sparsity_counts_what_lies_below_the_threshold():
    A = np.array([[0.5, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 1.0]])
    np.testing.assert_allclose(sparsity(A), [5 / 8])
    np.testing.assert_allclose(sparsity(A, threshold=0.6), [7 / 8])
    np.testing.assert_allclose(sparsity(TRIANGLE), [0.0])  # what the mask forbids is no choice


@pytest.mark.parametrize("threshold", [0, -1, 1.5, float("nan")])
def test_a_threshold_outside_of_the_weights_is_refused(threshold):
    with pytest.raises(ArgumentError, match="threshold must lie in"):
        sparsity(np.eye(2), threshold)


def test_attention_distance_of_the_previous_token_is_almost_one():
    np.testing.assert_allclose(attention_distance(previous(10)), [0.9])
    np.testing.assert_allclose(attention_distance(np.eye(10)), [0.0])


def test_heads_that_do_the_same_agree_and_disjoint_ones_do_not():
    found = head_agreement(np.stack([np.eye(4), np.eye(4), np.eye(4)[::-1], UNIFORM[:4, :4] * 2]))
    np.testing.assert_allclose(found, found.T)
    np.testing.assert_allclose(np.diag(found), 1.0)
    np.testing.assert_allclose(found[0, 1:3], [1.0, 0.0], atol=1e-12)
    assert 0.0 < found[0, 3] < 1.0


def test_rollout_is_the_product_of_layers_with_their_residuals(rng):
    layers_ = [rng.dirichlet(np.ones(5), size=(2, 3, 5)) for _ in range(3)]
    expected = np.zeros((5, 5))
    for b in range(2):
        R = np.eye(5)
        for A in layers_:
            R = (0.5 * A[b].mean(axis=0) + 0.5 * np.eye(5)) @ R
        expected += R / 2
    np.testing.assert_allclose(rollout(layers_), expected)
    np.testing.assert_allclose(rollout(layers_).sum(axis=-1), 1.0)


def test_rollout_of_nothing_or_of_misfits_is_refused():
    with pytest.raises(ArgumentError, match="at least one layer"):
        rollout([])
    with pytest.raises(ShapeError, match="same n"):
        rollout([np.eye(2), np.eye(3)])


def test_gradient_times_attention_keeps_what_raises_the_output(rng):
    A, dA = rng.dirichlet(np.ones(5), size=(3, 5)), rng.normal(size=(3, 5, 5))
    one = np.maximum(A * dA, 0).mean(axis=0)
    np.testing.assert_allclose(gradient_times_attention(A, dA), one)
    np.testing.assert_allclose(
        gradient_times_attention([A, A], [dA, dA]), np.eye(5) + one + one @ (np.eye(5) + one)
    )
    with pytest.raises(ShapeError, match="but dA"):
        gradient_times_attention(A, dA[:2])


# ---------------------------------------------------------------- of a record


def test_the_record_s_weights_and_gradients_are_shown_per_head(rng):
    layer = layers.MultiHeadAttention(6, 3, rng=rng)
    t = recorded(rng, layer)
    [found] = t.attention()
    assert (found.heads, found.A.shape) == (3, (2, 3, 7, 7))
    np.testing.assert_array_equal(found.A, layer.attention_weights)
    np.testing.assert_array_equal(found.dA, t["A"].gradient)


def test_the_batch_of_a_single_head_is_not_taken_for_heads(rng):
    [found] = recorded(rng, layers.SelfAttention(5, 3, 2, rng=rng)).attention()
    assert found.A.shape == (2, 1, 7, 7)


def test_the_heads_of_an_unbatched_layer_are_heads(rng):
    layer = layers.MultiHeadAttention(6, 3, rng=rng)
    with mg.trace() as t:
        layer(rng.normal(size=(7, 6)))
    [found] = t.attention()
    assert found.A.shape == (1, 3, 7, 7)
    assert found.dA is None


def test_masked_cells_are_dots_and_zero_weights_are_not(rng):
    t = recorded(rng, layers.SelfAttention(5, 3, 2, rng=rng), 4, np.tri(4, dtype=bool))
    [found] = t.attention()
    np.testing.assert_array_equal(found.forbidden[0, 0], ~np.tri(4, dtype=bool))
    rows = [line for line in str(t.attention().text(200, ascii=False)).split("\n")[3:7]]
    assert [row.count("·") for row in rows] == [6, 4, 2, 0]


def test_numbers_are_the_weights_and_tokens_name_both_axes(rng):
    t = recorded(rng, layers.SelfAttention(5, 3, 2, rng=rng), 3)
    text = t.attention(["the", "cat", "sat"]).text(200)
    A = t["A"].value[0]
    assert f"cat  {A[1, 0]:.2f}  {A[1, 1]:.2f}  {A[1, 2]:.2f}" in text
    assert "  the   cat   sat" in text
    assert "∂L/∂A" in text


@pytest.mark.parametrize("n", [3, 20, 90])
@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("ascii", [True, False])
def test_heatmaps_fit_their_width(rng, n, width, ascii):
    t = recorded(rng, layers.SelfAttention(5, 3, 2, rng=rng), n, np.tri(n, dtype=bool))
    lines = t.attention().text(width, ascii=ascii).split("\n")
    maps = [line for line in lines if ":" not in line.replace(" :", "") and "each cell" not in line]
    assert max(map(len, maps)) <= width
    assert n < 90 or any("each cell is the largest of" in line for line in lines) == (width < 90)
    assert not ascii or "".join(lines).isascii()


def test_hostile_tokens_stay_on_their_line(rng):
    t = recorded(rng, layers.SelfAttention(5, 3, 2, rng=rng), 3)
    plain = t.attention(["a", "b", "c"]).text(80)
    text = t.attention(["a\nb", "\u202ex", "\x1b[31m"]).text(80)
    assert text.count("\n") == plain.count("\n")
    assert not {"\u202e", "\x1b"} & set(text)


def test_tokens_must_fit(rng):
    t = recorded(rng, layers.SelfAttention(5, 3, 2, rng=rng), 3)
    with pytest.raises(ShapeError, match="has 3 queries, got 2 tokens"):
        t.attention(["a", "b"])
    assert t.attention([["a", "b", "c"], ["x", "y", "z"]])[0].keys == ("x", "y", "z")


def test_a_record_without_attention_says_so():
    with mg.trace() as t:
        mg.sum(mg.softmax(mg.tensor([1.0, 2.0], requires_grad=True)))
    assert "no attention in this record" in str(t.attention())
    with pytest.raises(ArgumentError, match="no attention"):
        t.attention().plot()


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_plot_is_written_whole(rng, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    t = recorded(rng, layers.MultiHeadAttention(6, 3, rng=rng), 4, np.tri(4, dtype=bool))
    path = tmp_path / f"a.{suffix}"
    assert t.attention(["$x", "_", "b\n", "d"]).plot(path) == path
    assert path.stat().st_size > 1000
    assert list(tmp_path.iterdir()) == [path]


def test_a_plot_without_a_path_is_a_figure_of_every_head_twice(rng):
    pytest.importorskip("matplotlib")
    figure = recorded(rng, layers.MultiHeadAttention(6, 3, rng=rng)).attention().plot()
    assert len(figure.axes) == 6


def test_a_plot_in_an_unknown_format_is_refused(rng, tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(ArgumentError, match="must end in"):
        recorded(rng, layers.SelfAttention(5, 3, 2, rng=rng)).attention().plot(tmp_path / "a.xyz")


def test_without_matplotlib_the_error_says_what_to_install(rng, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    found = recorded(rng, layers.SelfAttention(5, 3, 2, rng=rng)).attention()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=r"pip install 'minigrad\[plot\]'"):
        found.plot()

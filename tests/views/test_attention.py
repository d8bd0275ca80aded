"""Attention read: figures in closed form, heat maps as text and as SVG."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from minigrad.errors import ArgumentError, ShapeError
from minigrad.views.attention import (
    gradient_times_attention,
    looks_at,
    patterns,
    read_attention,
    rollout,
    sparsity,
)
from tests.compare import assert_same
from tests.views.graphs import WORDS, attention, language_model

EYE, EVEN = np.eye(5), np.full((5, 5), 0.2)
ROW = np.array(EYE)
ROW[2] = 0.2
COLUMN = np.tile([0.0, 1.0, 0.0, 0.0, 0.0], (5, 1))
SPIKE = np.full((5, 5), 0.2)
SPIKE[4] = [0.9, 0.025, 0.025, 0.025, 0.025]
NEARBY = np.array([[max(3 - abs(i - j), 0) for j in range(9)] for i in range(9)], float)
CAUSAL = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None]
SHAPES = {
    "diagonal": EYE, "previous token": np.eye(5, k=-1) + np.diag([1.0, 0, 0, 0, 0]),
    "next token": np.eye(5, k=1) + np.diag([0, 0, 0, 0, 1.0]), "vertical stripe": COLUMN,
    "horizontal stripe": ROW, "off-diagonal spike": SPIKE, "lower-triangular": CAUSAL,
    "diffuse": EVEN, "band": NEARBY / NEARBY.sum(-1, keepdims=True),
    "blocks": np.kron(np.eye(2), np.full((3, 3), 1 / 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_each_pattern_of_the_texts_is_found(name):
    found = patterns(SHAPES[name])[0]
    assert name in found
    assert ("blocks" in found) == (name == "blocks")


def test_random_heads_have_no_pattern(rng):
    found = patterns(rng.dirichlet(np.full(11, 1.0), size=(50, 11)))
    assert sum(map(bool, found)) <= 2


def test_looks_at_finds_induction():
    tokens = ["a", "b", "a", "b"]
    A = np.array([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]], float)
    found = looks_at(A, tokens)
    assert found["what followed that one"][0] == 1
    assert found["itself"][0] < 0.5
    assert looks_at(np.eye(4, k=-1) + np.eye(4)[:1].T @ np.eye(4)[:1])["previous token"] == 1


def test_a_record_and_its_arrays_read_the_same(tmp_path):
    t = attention()
    [found] = t.attention(WORDS)
    plain = read_attention(
        WORDS, t["A"].value[:, None], t["A"].gradient[:, None], np.tri(7, dtype=bool)
    )
    assert_same(found.A, plain[0].A)
    assert_same(found.dA, plain[0].dA)
    assert (found.forbidden == plain[0].forbidden).all()
    assert t.attention(WORDS).text(90).splitlines()[3:] == plain.text(90).splitlines()[3:]


def test_text_has_each_weight_and_marks_what_is_masked():
    t = attention()
    text = t.attention(WORDS).text(120)
    rows = [line for line in text.splitlines() if line.startswith("sat")]
    assert f"{t['A'].value[0, 2, 1]:.2f}" in rows[0]
    assert rows[0].count("·") == 4


@pytest.mark.parametrize("n", [7, 30, 300])
def test_text_fits_its_width_whatever_the_length(n, rng):
    text = read_attention(None, rng.dirichlet(np.ones(n), size=n)).text(80)
    assert max(map(len, text.splitlines())) <= 80
    assert ("each cell is the largest" in text) == (n > 30)


def test_the_svg_has_a_cell_for_each_pair_named_axes_and_a_colour_bar(tmp_path):
    t = attention()
    tree = ElementTree.fromstring(t.attention(WORDS).draw(tmp_path / "a.svg").read_text("utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    titles = [one.text for one in tree.iter(f"{space}title")]
    assert len(titles) == 2 * 49
    assert f"sat → cat: {t['A'].value[0, 2, 1]:.3g}" in titles
    said = [one.text for one in tree.iter(f"{space}text")]
    assert {"key →", "query ↓", "0", "1", *WORDS} <= {*said}


def test_all_layers_and_heads_of_a_model_are_there():
    found = language_model().attention()
    assert [(one.path[-11:], one.heads) for one in found] == [("attention/A", 3)] * 4
    assert "Attention" in repr(found)
    assert "image/svg+xml" in found._repr_mimebundle_()


REFUSED = [
    (lambda: sparsity(EYE, 0), ArgumentError, "threshold must lie in"),
    (lambda: rollout([np.eye(2), EYE]), ShapeError, "same n"),
    (lambda: gradient_times_attention(EYE, np.eye(2)), ShapeError, "but dA"),
    (lambda: read_attention("ab", EYE), ShapeError, "attention is over 5 positions, got 2 tokens"),
    (lambda: read_attention(None, EYE, np.eye(2)), ShapeError, "but gradient"),
    (lambda: read_attention(None, np.ones(3)), ShapeError, "must be"),
]


@pytest.mark.parametrize(("call", "error", "said"), REFUSED)
def test_what_does_not_fit_is_refused(call, error, said):
    with pytest.raises(error, match=said):
        call()

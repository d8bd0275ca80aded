"""The hand-derived steps: their order, what they refuse; test_attention.py has their numbers."""

import numpy as np
import pytest

from layers.hand_derived import multi_head_steps, self_attention_steps
from tests.compare import refusals

B, N, D_MODEL, D_K, D_V = 2, 5, 7, 3, 11
HEADS, KV_HEADS = 6, 2
CAUSAL = np.tril(np.ones((N, N), dtype=bool))
ADDITIVE_CAUSAL = np.where(CAUSAL, 0.0, -np.inf)

MASKS = {
    "none": None,
    "additive causal": ADDITIVE_CAUSAL,
    "fully masked row": CAUSAL & (np.arange(N)[:, None] != 3),
}


def head_inputs(h=HEADS, g=KV_HEADS):
    widths = {"Q": h * D_K, "K": g * D_K, "V": g * D_V}
    shapes = {"X": (B, N, D_MODEL), "grad_output": (B, N, D_MODEL)}
    shapes |= {f"W_{p}": (D_MODEL, width) for p, width in widths.items()}
    shapes |= {"W_O": (h * D_V, D_MODEL)}
    shapes |= {f"b_{p}": (width,) for p, width in widths.items()} | {"b_O": (D_MODEL,)}
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def single_inputs():
    return head_inputs(h=1, g=1)


def merged(steps):
    """All gradients of all steps; no symbol is yielded twice."""
    gradients = {}
    for step in steps:
        assert not gradients.keys() & step.gradients.keys()
        gradients |= step.gradients
    return gradients


# --- what the steps are ---------------------------------------------------------------------------


def test_the_formulas_mention_groups_only_where_heads_are_shared():
    own, shared = (multi_head_steps(n_heads=6, n_kv_heads=g, **head_inputs(g=g))[2] for g in (6, 2))
    assert own.forward == "O = A V"
    assert shared.forward == r"O = A \operatorname{repeat}\left(V\right)"
    assert shared.formulas["V"].startswith(r"\sum_{\mathrm{group}} A^\top")


def test_no_two_gradients_share_memory_with_each_other_or_with_an_input():
    inputs = head_inputs()
    arrays = [*merged(multi_head_steps(n_heads=HEADS, n_kv_heads=KV_HEADS, **inputs)).values()]
    everything = arrays + list(inputs.values())
    for i, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in everything[i + 1 :])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("mask", [None, CAUSAL, ADDITIVE_CAUSAL, np.where(CAUSAL, 0.0, -1e9)])
def test_gradients_keep_the_dtype_of_the_inputs_whatever_the_masks(dtype, mask):
    single = {name: array.astype(dtype) / 4 for name, array in single_inputs().items()}
    many = {name: array.astype(dtype) / 4 for name, array in head_inputs().items()}
    for steps in (
        self_attention_steps(**single, mask=mask),
        multi_head_steps(n_heads=HEADS, n_kv_heads=KV_HEADS, **many, mask=mask),
    ):
        assert {gradient.dtype for gradient in merged(steps).values()} == {np.dtype(dtype)}


# --- masks and batches ----------------------------------------------------------------------------


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_scores_far_beyond_700_give_finite_gradients_and_no_warning(mask):
    inputs = single_inputs()
    inputs["X"] = inputs["X"] * 100
    Q, K = inputs["X"] @ inputs["W_Q"], inputs["X"] @ inputs["W_K"]
    assert np.abs(Q @ K.swapaxes(1, 2) / np.sqrt(D_K)).max() > 700
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        g = merged(self_attention_steps(**inputs, mask=mask))
    assert all(np.isfinite(gradient).all() for gradient in g.values())


# --- refusing -------------------------------------------------------------------------------------


def heads(n_heads, n_kv_heads, **changed):
    return multi_head_steps(n_heads=n_heads, n_kv_heads=n_kv_heads, **head_inputs() | changed)


test_what_is_refused = refusals(
    (lambda: heads(6, 2, X=np.zeros((1, B, N, D_MODEL))),
     ValueError, r"multi_head_steps: X must be \(B, n, d_model\)"),
    *((lambda h=h, g=g: heads(h, g), ValueError, f"multi_head_steps: {rule}") for h, g, rule in [
        (6, 4, "n_kv_heads must divide n_heads, got 6 and 4"),
        (6, 0, "n_kv_heads must divide n_heads, got 6 and 0"),
        (0, 2, "n_heads must divide W_Q's columns, got 18 and 0"),
        (4, 2, "n_heads must divide W_Q's columns, got 18 and 4"),
        (9, 9, "n_kv_heads must divide W_K's columns, got 6 and 9"),
        (6, 6, "n_kv_heads must divide W_V's columns, got 22 and 6"),
    ]),
    *((lambda shape=shape: self_attention_steps(**single_inputs(), mask=np.ones(shape, bool)),
       ValueError, r"mask must broadcast to the scores \(2, 5, 5\), got")
      for shape in [(N + 2, N), (3, N, N), (B, 1, N, N)]),
    (lambda: self_attention_steps(**single_inputs() | {"grad_output": np.ones(D_MODEL)}),
     ValueError, r"self_attention_steps: grad_output .* \(2, 5, 7\), got"),
    (lambda: self_attention_steps(**single_inputs(), mask=CAUSAL.astype(np.int64)),
     TypeError, r"mask must be boolean .* or float .*, got int64"),
)  # fmt: skip

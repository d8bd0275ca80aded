"""What holds for every kind of layer: nothing recorded in vain, symbols, compiled as a program."""

import numpy as np
import pytest

import minigrad as mg
from layers import (
    ALiBi,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    LearnedPosition,
    LinearAttention,
    LinformerAttention,
    MultiHeadAttention,
    PerformerAttention,
    RelativePosition,
    RMSNorm,
    Rotary,
    SelfAttention,
    SinusoidalPosition,
    T5Bias,
    TransformerBlock,
    TransformerXLPosition,
    sliding_window_mask,
)

B, N, D, H = 2, 7, 12, 3

KINDS = {
    "self-attention": lambda: SelfAttention(D, 5, 3, rng=0),
    "multi-head": lambda: MultiHeadAttention(D, H, rng=0),
    "grouped": lambda: MultiHeadAttention(D, 6, 2, rng=0),
    "soft-cap and norms": lambda: MultiHeadAttention(D, H, qk_norm=RMSNorm, softcap=3.0, rng=0),
    "causal window": lambda: MultiHeadAttention(D, H, causal=True, window=3, rng=0),
    "rotary": lambda: MultiHeadAttention(D, H, position=Rotary(4), rng=0),
    "rotary in part": lambda: MultiHeadAttention(
        D, H, position=Rotary(2, pairing="interleaved"), rng=0
    ),
    "rotary, one head": lambda: SelfAttention(D, 4, 3, use_bias=False, position=Rotary(4), rng=0),
    "rotary, one head, biases": lambda: SelfAttention(
        D, 4, 4, position=Rotary(4, pairing="interleaved"), rng=0
    ),
    "grouped rotary": lambda: MultiHeadAttention(
        D, 3, 1, use_bias=False, qk_norm=RMSNorm, position=Rotary(4), rng=0
    ),
    "norms, one head": lambda: SelfAttention(D, 5, 3, qk_norm=RMSNorm, softcap=3.0, rng=0),
    "Shaw": lambda: MultiHeadAttention(D, H, position=RelativePosition(4, 3, d_v=4), rng=0),
    "Transformer-XL": lambda: MultiHeadAttention(
        D, H, position=TransformerXLPosition(D, H, 4), rng=0
    ),
    "T5": lambda: MultiHeadAttention(D, H, position=T5Bias(H), rng=0),
    "ALiBi": lambda: MultiHeadAttention(D, H, position=ALiBi(H), rng=0),
    "linear": lambda: LinearAttention(D, H, rng=0),
    "linear, causal, grouped": lambda: LinearAttention(D, 6, causal=True, n_kv_heads=2, rng=0),
    "performer": lambda: PerformerAttention(D, H, 5, rng=0),
    "performer, causal": lambda: PerformerAttention(D, H, 5, causal=True, rng=0),
    "linformer": lambda: LinformerAttention(D, H, seq_len=11, k=2, rng=0),
    "layer norm": lambda: LayerNorm(D),
    "norm of two axes": lambda: LayerNorm((N, D)),
    "gemma's norm": lambda: RMSNorm(D, plus_one=True),
    "feed-forward": lambda: FeedForward(D, 5, rng=0),
    "swiglu": lambda: GatedFeedForward(D, 5, rng=0),
    "learned positions": lambda: LearnedPosition(11, D, rng=0),
    "sinusoidal positions": lambda: SinusoidalPosition(D),
    "block": lambda: TransformerBlock(D, H, 5, rng=0),
    "post-norm block": lambda: TransformerBlock(D, H, 5, norm_order="post", rng=0),
    "block normed on both sides": lambda: TransformerBlock(
        D, H, 5, norm_order="both", gated=True, rng=0
    ),
}


def drawn(rng, name):
    X = mg.tensor(rng.normal(size=(B, N, D)), requires_grad=True, name="X")
    layer = KINDS[name]()
    for parameter in layer.parameters():
        parameter.assign_(rng.normal(size=parameter.shape))
    return layer, X


def in_vain(t):
    """Ops that backward did not come to."""
    missing = [entry for entry in t if entry.kind == "op" and entry.gradient is None]
    return [entry.path for entry in missing if t.explain_missing(entry) == "unreached"]


def test_an_op_in_vain_is_noticed():
    x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    with mg.trace() as t:
        mg.swapaxes(x, 0, 0).named("aside")
        mg.sum(x * x).backward()
    assert in_vain(t) == ["aside"]


@pytest.mark.parametrize("name", KINDS)
def test_every_op_that_is_recorded_leads_to_the_output(rng, name):
    layer, X = drawn(rng, name)
    with mg.trace() as t:
        mg.sum(layer(X) * rng.normal(size=(B, N, D))).backward()
    assert in_vain(t) == []


@pytest.mark.needs_fast("the step is compiled")
@pytest.mark.parametrize("name", KINDS)
def test_a_layer_compiles_to_a_program_and_to_its_own_results(rng, name):
    layer, X = drawn(rng, name)
    W = rng.normal(size=(B, N, D))

    def step(x):
        loss = mg.sum(layer(x) * W)
        loss.backward()
        return loss

    compiled, leaves = mg.compile(step), [X, *layer.parameters()]
    for _ in range(3):
        found = []
        for f in (step, compiled):
            for leaf in leaves:
                leaf.grad = None
            found.append([f(X).numpy(), *(leaf.grad for leaf in leaves)])
        for ours, eager in zip(found[1], found[0], strict=True):
            np.testing.assert_allclose(ours, eager, rtol=1e-10, atol=1e-12)
        X.assign_(rng.normal(size=X.shape))
    assert not compiled.source.startswith("# runs eagerly"), compiled.source


SYMBOLS = {
    "rotary": "Q_rot K_rot a b cos sin",
    "Shaw": "E S_relative S_biased V_relative O_relative",
    "Transformer-XL": "PE R Q_v E G S_relative S_biased",
    "T5": "b S_biased",
    "linear": "Q_phi K_phi S Z N D O",
    "linear, causal, grouped": "Q_groups K_groups Q_phi K_phi P P_seen T Z N D O",
    "performer": "Q_root K_root W h E E_shifted c Q_phi K_phi S Z N D O",
    "linformer": "E_m F_m K_bar V_bar S_raw S A O",
    "gemma's norm": "gain X_norm",
    "learned positions": "P_positions X",
    "sinusoidal positions": "PE X",
    "block": "X_norm Q K V S A O C out H F X",
}


@pytest.mark.parametrize("name", SYMBOLS)
def test_what_a_layer_computes_bears_the_papers_symbols(rng, name):
    layer, X = drawn(rng, name)
    with mg.trace() as t:
        layer(X)
    names = {entry.name for entry in t}
    assert set(SYMBOLS[name].split()) <= names


def test_a_sparse_mask_is_a_mask_in_the_record(rng):
    layer, X = drawn(rng, "multi-head")
    with mg.trace() as t:
        layer(X, sliding_window_mask(N, 2))
    assert "S_masked" in {entry.name for entry in t}

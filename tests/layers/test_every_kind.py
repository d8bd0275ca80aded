"""What holds for every kind of layer: nothing recorded in vain, symbols, compiled as a program."""

import copy

import numpy as np
import pytest

import minigrad as mg
from layers import sliding_window_mask
from tests.compare import assert_same
from tests.compiled import assert_compiles
from tests.layers.test_cost_layers import LAYERS, B, D, N

KINDS = [name for name in LAYERS if not {"tiles", "dropout"} & set(name.replace(",", "").split())]


def drawn(rng, name):
    X = mg.tensor(rng.normal(size=(B, N, D)), requires_grad=True, name="X")
    layer = LAYERS[name]
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
def test_every_op_that_is_recorded_leads_to_the_output_and_what_steps_are_claimed_hold(rng, name):
    layer, X = drawn(rng, name)
    with mg.trace() as t:
        out = layer(X)
        mg.sum(out * rng.normal(size=out.shape)).backward()
    assert in_vain(t) == []
    assert t.check().ok


@pytest.mark.parametrize("name", KINDS)
def test_gradients_of_a_layer_agree_with_differences_along_a_direction(rng, name):
    """Of X and all parameters at once; the difference's error is of third order in h."""
    layer, X = drawn(rng, name)
    leaves = [X, *layer.parameters()]
    starts = [leaf.numpy().copy() for leaf in leaves]
    directions = [rng.normal(size=leaf.shape) for leaf in leaves]
    out = layer(X)
    u, h = rng.normal(size=out.shape), 1e-6
    terms = [g * d for g, d in zip(mg.grad(out, leaves, u), directions, strict=True)]

    def loss(step):
        for leaf, start, direction in zip(leaves, starts, directions, strict=True):
            leaf.assign_(start + step * direction)
        return (u * layer(X).numpy()).sum()

    numeric = (loss(h) - loss(-h)) / (2 * h)
    found = sum(term.sum() for term in terms)
    np.testing.assert_allclose(found, numeric, rtol=1e-5, atol=1e-6)


@pytest.mark.needs_fast("the step is compiled")
@pytest.mark.parametrize("name", KINDS)
def test_a_layer_compiles_to_a_program_and_to_its_own_results(rng, name):
    layer, X = drawn(rng, name)
    W = rng.normal(size=layer(X).shape)

    def step(x):
        loss = mg.sum(layer(x) * W)
        loss.backward()
        return loss

    assert_compiles(step, [X, *layer.parameters()], *[(X,)] * 3, tolerance=1e-10)


@pytest.mark.parametrize("name", KINDS)
def test_a_layer_of_float32_stays_so_and_takes_one_sequence_as_well_as_many(rng, name):
    layer, X = drawn(rng, name)
    wide = layer(X).numpy()
    layer, x = copy.deepcopy(layer).to(np.float32), X.numpy().astype(np.float32)
    out = layer(x)
    np.testing.assert_allclose(out.numpy(), wide, rtol=1e-2, atol=1e-2 * np.abs(wide).max())
    one = layer(x[0])
    assert_same(one, out.numpy()[0], 1e-4)
    gradients = [layer.backward(np.ones(one.shape)), *(p.grad for p in layer.parameters())]
    assert {array.dtype for array in (out, one, *gradients)} == {np.dtype(np.float32)}


SYMBOLS = {
    "rotary": "Q_rot K_rot a b cos sin",
    "Shaw": "E S_relative S_biased V_relative O_relative",
    "Transformer-XL": "PE R Q_v E G S_relative S_biased",
    "T5": "b S_biased",
    "linear attention": "Q_phi K_phi S Z N D O",
    "linear attention, causal, grouped": "Q_groups K_groups Q_phi K_phi P P_seen T Z N D O",
    "performer": "Q_root K_root W h E E_shifted c Q_phi K_phi S Z N D O",
    "linformer": "E_m F_m K_bar V_bar S_raw S A O",
    "rms norm, one plus weight": "gain X_norm",
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

"""What holds for every kind of layer: its formula, gradients, costs, dtypes, copies, programs."""

import copy
import pickle

import numpy as np
import pytest

import layers as L
import minigrad as mg
from tests.compare import assert_same
from tests.compiled import assert_compiles
from tests.layers.counting import assert_costs
from tests.layers.kinds import OF_ARRAYS, OF_TOKENS, ROWS, WITH_CONTEXT, B, N, call, drawn, kinds
from tests.layers.reference import attention

EVERY = ROWS, WITH_CONTEXT, OF_TOKENS, OF_ARRAYS
ONE_OR_MANY = ROWS, WITH_CONTEXT, [name for name in OF_ARRAYS if name[:3] in ("rnn", "gru", "lst")]


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


@kinds(*EVERY)
def test_each_op_leads_to_the_output_steps_hold_and_leaves_are_inputs_or_parameters(rng, name):
    layer, *inputs = drawn(rng, name)
    with mg.trace() as t:
        out = call(layer, *inputs)
        mg.sum(out * rng.normal(size=out.shape)).backward()
    assert in_vain(t) == []
    assert t.check().ok
    kinds = {entry.name: entry.kind for entry in t if entry.op is None and entry.needs}
    assert all(kinds.pop(x.name) == "input" for x in inputs if isinstance(x, mg.Tensor))
    assert set(kinds.values()) <= {"parameter"}


@kinds(*EVERY)
def test_gradients_of_a_layer_agree_with_differences_along_a_direction(rng, name):
    """Of its inputs and all parameters at once; the difference's error is of third order in h."""
    layer, *inputs = drawn(rng, name)
    leaves = [*(x for x in inputs if isinstance(x, mg.Tensor)), *layer.parameters()]
    starts = [leaf.numpy().copy() for leaf in leaves]
    directions = [rng.normal(size=leaf.shape) for leaf in leaves]
    out = call(layer, *inputs)
    u, h = rng.normal(size=out.shape), 1e-6
    terms = [g * d for g, d in zip(mg.grad(out, leaves, u), directions, strict=True)]

    def loss(step):
        for leaf, start, direction in zip(leaves, starts, directions, strict=True):
            leaf.assign_(start + step * direction)
        return (u * call(layer, *inputs).numpy()).sum()

    numeric = (loss(h) - loss(-h)) / (2 * h)
    found = sum(term.sum() for term in terms)
    np.testing.assert_allclose(found, numeric, rtol=1e-5, atol=1e-6)


@kinds(*EVERY, without=("dropout", "tiles"))
def test_a_layer_compiles_to_a_program_and_to_its_own_results(rng, name):
    layer, *inputs = drawn(rng, name)
    W = rng.normal(size=call(layer, *inputs).shape)

    def step(*inputs):
        loss = mg.sum(call(layer, *inputs) * W)
        loss.backward()
        return loss

    leaves = [x for x in inputs if isinstance(x, mg.Tensor)]
    assert_compiles(step, [*leaves, *layer.parameters()], *[inputs] * 3, tolerance=1e-10)


@kinds(*ONE_OR_MANY)
def test_a_layer_of_float32_stays_so_and_takes_one_sequence_as_well_as_many(rng, name):
    layer, *inputs = drawn(rng, name)
    wide = call(layer, *inputs).numpy()
    layer, arrays = copy.deepcopy(layer).to(np.float32), [x.numpy().astype("f") for x in inputs]
    out = call(layer, *arrays)
    np.testing.assert_allclose(out.numpy(), wide, rtol=1e-2, atol=1e-2 * np.abs(wide).max())
    one = call(layer, *(x[0] for x in arrays))
    assert_same(one, out.numpy()[0], 1e-4)
    gradients = [layer.backward(np.ones(one.shape)), *(p.grad for p in layer.parameters())]
    assert {array.dtype for array in (out, one, *gradients)} == {np.dtype(np.float32)}


@kinds(*EVERY)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_a_copy_computes_the_same_shares_nothing_and_takes_another_state(rng, name, copied):
    layer, *inputs = drawn(rng, name)
    twin, state = copied(layer), layer.state_dict()
    assert_same(call(twin, *inputs), call(layer, *inputs), 0)
    assert (repr(twin), twin.training) == (repr(layer), layer.training)
    _, *inputs = drawn(rng, name)
    for mine, theirs in zip(layer.parameters(), twin.parameters(), strict=True):
        assert not np.shares_memory(mine.numpy(), theirs.numpy())
        assert theirs.requires_grad
    assert_same(twin.state_dict(), state, 0)
    twin.load_state_dict(layer.state_dict())
    assert_same(call(twin, *inputs), call(layer, *inputs), 0)


@kinds(*EVERY)
def test_of_a_frozen_layer_only_the_input_gets_a_gradient(rng, name):
    layer, *inputs = drawn(rng, name)
    layer.freeze()
    out = call(layer, *inputs)
    assert out.requires_grad == (name not in OF_TOKENS)
    if out.requires_grad:
        mg.sum(out).backward()
        assert all(x.grad is not None for x in inputs)
    assert all(p.grad is None for p in layer.unfreeze().parameters())


@kinds(ROWS, WITH_CONTEXT, OF_TOKENS)
@pytest.mark.parametrize(("b", "n", "m"), [(2, 37, 5), (1, 1, 1)])
def test_the_closed_form_of_a_cost_is_what_the_graph_counts(rng, name, b, n, m):
    n = N if name == "gpt-2" else n  # it has so many positions
    layer, *inputs = drawn(rng, name, b, n, m)
    assert_costs(layer, inputs, L.layer_cost(layer, b, n, m if len(inputs) == 2 else None))


@kinds(OF_ARRAYS)
def test_the_closed_form_of_the_cost_of_an_array_is_what_the_graph_counts(rng, name):
    layer, X = drawn(rng, name)
    assert_costs(layer, [X], L.layer_cost(layer, input_shape=X.shape))


# ---------------------------------------------------------------- what it computes

ATTENTION = [
    name
    for table in (ROWS, WITH_CONTEXT)
    for name, layer in table.items()
    if isinstance(layer, L.SelfAttention | L.MultiHeadAttention)
]


@kinds(ATTENTION)
@pytest.mark.parametrize("given", ["nothing", "mask", "positions", "positions of each row"])
def test_every_attention_is_its_formula_written_out(rng, name, given):
    layer, *inputs = drawn(rng, name)
    X, *context = (x.numpy() / 5 for x in inputs)
    Y = context[0] if context else None
    mask = rng.random((B, N, (X if Y is None else Y).shape[1])) < 0.7 if given == "mask" else None
    at = {"positions": 1000 + np.arange(N), "positions of each row": rng.integers(0, 13, (B, N))}
    out = layer(X, mask, context=Y, positions=at.get(given))
    assert_same(out, attention(layer, X, mask, Y, at.get(given)), 1e-9)


SYMBOLS = {
    "soft-cap": "S_raw S S_capped A O",
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
    assert set(SYMBOLS[name].split()) <= {entry.name for entry in t}

"""RNN, GRU and LSTM: as PyTorch's, alike in one op or step by step, and padding."""

import numpy as np
import pytest

import minigrad as mg
from layers import GRU, LSTM, RNN
from tests.compare import assert_same
from tests.layers.twins import assert_same_gradients, filled

KINDS = {"rnn": RNN, "gru": GRU, "lstm": LSTM}
B, T, D, H = 3, 5, 2, 7
MASK = np.arange(T) < np.array([[5], [2], [4]])


def _draw(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def _state(kind, cells, seed=3):
    parts = [mg.tensor(_draw(cells, B, H, seed=seed + k), requires_grad=True) for k in range(2)]
    return tuple(parts) if kind == "lstm" else parts[0]


def _parts(state):
    return list(state) if isinstance(state, tuple) else [state]


def _gradients(layer, X, state, mask):
    """H and the last state, then the gradients of X, of the first state and of all weights."""
    leaves = [X, *_parts(state), *layer.parameters()]
    H_all, last = layer(X, state, mask, return_state=True)
    results = [H_all, *_parts(last)]
    terms = [mg.sum(r * _draw(*r.shape, seed=50 + k)) for k, r in enumerate(results)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return [r.numpy() for r in results] + mg.grad(total, leaves)


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "padded"])
@pytest.mark.parametrize("form", [(1, False), (2, True)], ids=["one", "two both ways"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_op_is_what_its_steps_are(kind, form, mask):
    X, state = mg.tensor(_draw(B, T, D), requires_grad=True), _state(kind, form[0] * (1 + form[1]))
    fused, steps = (KINDS[kind](D, H, *form, method=m, rng=0) for m in ("fused", "steps"))
    pairs = zip(_gradients(fused, X, state, mask), _gradients(steps, X, state, mask), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("form", [(1, False), (2, True)], ids=["one", "two both ways"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_is_pytorchs(kind, form, padded):
    """Values, last states and every gradient; sequences of several lengths packed there."""
    torch = pytest.importorskip("torch")
    layers, both = form
    ours = KINDS[kind](D, H, layers, both, rng=0)
    kinds = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}
    theirs = filled(kinds[kind](D, H, layers, bidirectional=both, batch_first=True), ours)
    X, state = mg.tensor(_draw(B, T, D), requires_grad=True), _state(kind, layers * (1 + both))
    found = _gradients(ours, X, state, MASK if padded else None)

    x = torch.tensor(X.numpy(), requires_grad=True)
    first = [torch.tensor(s.numpy(), requires_grad=True) for s in _parts(state)]
    given = tuple(first) if kind == "lstm" else first[0]
    utils = torch.nn.utils.rnn
    if padded:
        lengths = torch.tensor(MASK.sum(1))
        packed = utils.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, last = theirs(packed, given)
        out, _ = utils.pad_packed_sequence(out, batch_first=True)
    else:
        out, last = theirs(x, given)
    results = [out, *_parts(last)]
    sum(
        (r * torch.tensor(_draw(*r.shape, seed=50 + k))).sum() for k, r in enumerate(results)
    ).backward()
    known = [*results, *(t.grad for t in [x, *first])]
    assert_same(found[: len(known)], known, 1e-11)
    for parameter, gradient in zip(ours.parameters(), found[len(known) :], strict=True):
        parameter.grad = gradient
    assert_same_gradients(ours, theirs, 1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_one_sequence_is_padded_as_one_of_many(kind):
    layer, X = KINDS[kind](D, H, 2, True, rng=0), _draw(B, T, D)
    assert_same(layer(X[1], mask=MASK[1]), layer(X, mask=MASK)[1], 1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_biases_are_drawn_with_uniform_weights_and_else_zero(kind):
    uniform, normal = (KINDS[kind](D, H, rng=0, init=init) for init in ("uniform", "normal"))
    for name in ("bias_ih", "bias_hh"):
        drawn = getattr(uniform.cells[0], name).numpy()
        assert 0 < np.abs(drawn).min() < np.abs(drawn).max() <= H**-0.5
        assert not getattr(normal.cells[0], name).numpy().any()


@pytest.mark.parametrize("kind", KINDS)
def test_an_array_as_a_first_state_does_not_widen_a_layer_of_float32(kind):
    layer = KINDS[kind](D, H, dtype=np.float32, rng=0)
    state = tuple(part.numpy() for part in _parts(_state(kind, 1)))
    state = state if kind == "lstm" else state[0]
    cell_state = tuple(part[0] for part in state) if kind == "lstm" else state[0]
    found = [layer(_draw(B, T, D), state), *_parts(layer.cells[0](_draw(B, D), cell_state))]
    assert {x.dtype for x in found} == {np.dtype(np.float32)}

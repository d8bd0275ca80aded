"""Layers beside PyTorch's: the same weights, the same outputs and gradients."""

import numpy as np
import pytest

import layers as L
from tests.compare import assert_same

torch = pytest.importorskip("torch")
nn = torch.nn


def names_of(ours, theirs):
    """PyTorch's parameter of each of ours; matrices of attention are transposed."""
    if isinstance(ours, L.MultiHeadAttention):
        W = theirs.in_proj_weight.chunk(3)
        b = theirs.in_proj_bias.chunk(3)
        found = {f"W_{s}": W[k].T for k, s in enumerate("QKV")}
        found |= {f"b_{s}": b[k] for k, s in enumerate("QKV")}
        return found | {"W_O": theirs.out_proj.weight.T, "b_O": theirs.out_proj.bias}
    if isinstance(ours, L.RNN | L.GRU | L.LSTM):
        two = ours.directions
        suffix = lambda k: f"l{k // two}" + "_reverse" * (k % two)  # noqa: E731
        return {
            f"cells.{k}.{name}": getattr(theirs, f"{name}_{suffix(k)}")
            for k, cell in enumerate(ours.cells)
            for name, _ in cell.named_parameters()
        }
    return dict(theirs.named_parameters())


def attended(module, x):
    return module(x, x, x, need_weights=False)[0]


def first(module, x):
    return module(x)[0]


SEQUENCE, IMAGE = (2, 5, 6), (2, 6, 7, 8)
PAIRS = {
    "layer norm": (L.LayerNorm(6), nn.LayerNorm(6), SEQUENCE, None),
    "rms norm": (L.RMSNorm(6), nn.RMSNorm(6, eps=1e-5), SEQUENCE, None),
    "group norm": (L.GroupNorm(3, 6), nn.GroupNorm(3, 6), IMAGE, None),
    "batch norm": (L.BatchNorm(6), nn.BatchNorm2d(6), IMAGE, None),
    "batch norm, evaluated": (L.BatchNorm(6).eval(), nn.BatchNorm2d(6).eval(), IMAGE, None),
    "attention": (L.MultiHeadAttention(6, 2, use_bias=True),
                  nn.MultiheadAttention(6, 2, batch_first=True), SEQUENCE, attended),
    **{
        f"{kind} {layers} {both} {method}": (
            getattr(L, kind)(6, 4, layers, both, method=method),
            getattr(nn, kind)(6, 4, layers, bidirectional=both, batch_first=True), SEQUENCE, first)
        for kind in ("RNN", "GRU", "LSTM") for layers, both in ((1, False), (2, True))
        for method in ("fused", "steps")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_outputs_and_every_gradient_are_pytorchs(rng, name):
    ours, theirs, shape, call = PAIRS[name]
    theirs = theirs.double()
    theirs.zero_grad()
    pairs = names_of(ours, theirs)
    assert pairs.keys() == dict(ours.named_parameters()).keys()
    for path, p in ours.named_parameters():
        p.assign_(rng.normal(size=p.shape))
        with torch.no_grad():
            pairs[path].copy_(torch.tensor(p.numpy().copy()))
    X = rng.normal(size=shape)
    x = torch.tensor(X, requires_grad=True)
    out, expected = ours(X), (call or (lambda module, x: module(x)))(theirs, x)
    assert_same(out.numpy(), expected.detach().numpy(), 1e-10)
    G = rng.normal(size=out.shape)
    expected.backward(torch.tensor(G))
    assert_same(ours.backward(G), x.grad.numpy(), 1e-9)
    gradients = {id(p): p.grad for p in theirs.parameters()}
    for path, p in ours.named_parameters():
        base = pairs[path]._base if pairs[path]._base is not None else pairs[path]
        grad = gradients[id(base)]
        if path[:2] in ("W_", "b_") and path[2] in "QKV":
            grad = grad.chunk(3)["QKV".index(path[2])]
        grad = grad.T if path.startswith("W") else grad
        np.testing.assert_allclose(p.grad, grad.numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_padding_carries_the_state_and_shows_zeros_as_packed_sequences_do(rng, kind):
    ours = getattr(L, kind)(6, 4, bidirectional=True, rng=0)
    theirs = getattr(nn, kind)(6, 4, bidirectional=True, batch_first=True).double()
    pairs = names_of(ours, theirs)
    with torch.no_grad():
        for path, p in ours.named_parameters():
            pairs[path].copy_(torch.tensor(p.numpy().copy()))
    X, lengths = rng.normal(size=(3, 5, 6)), [5, 2, 3]
    packed = nn.utils.rnn.pack_padded_sequence(
        torch.tensor(X), lengths, batch_first=True, enforce_sorted=False
    )
    expected, last = theirs(packed)
    expected, _ = nn.utils.rnn.pad_packed_sequence(expected, batch_first=True)
    H, state = ours(X, mask=np.arange(5) < np.array(lengths)[:, None], return_state=True)
    assert_same(H.numpy(), expected.detach().numpy(), 1e-10)
    last, state = (x if isinstance(x, tuple) else (x,) for x in (last, state))
    for mine, yours in zip(state, last, strict=True):
        assert_same(mine.numpy(), yours.detach().numpy(), 1e-10)

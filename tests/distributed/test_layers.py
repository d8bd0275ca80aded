"""Layers split over ranks: the whole layer's numbers and gradients, for one all-reduce each way."""

import numpy as np
import pytest

import minigrad as mg
from layers import (
    ALiBi,
    BatchNorm,
    Embedding,
    FeedForward,
    GatedFeedForward,
    LanguageModel,
    Linear,
    MultiHeadAttention,
    RMSNorm,
    Rotary,
    Sequential,
    T5Bias,
    lora,
)
from layers.parallel import (
    ColumnLinear,
    RowLinear,
    Whole,
    gather,
    shard,
    split_cross_entropy,
)
from minigrad import distributed as dist
from minigrad.errors import ArgumentError

X = np.random.default_rng(1).normal(size=(2, 5, 24))
U = np.random.default_rng(2).normal(size=(2, 5, 24))
LAYERS = {
    "heads": (lambda: MultiHeadAttention(24, 4, use_bias=True, rng=0), 4),
    "causal, rotary, normed": (
        lambda: MultiHeadAttention(
            24, 4, rng=0, is_causal=True, position=Rotary(6), qk_norm=RMSNorm
        ),
        2,
    ),
    "groups": (lambda: MultiHeadAttention(24, 4, 2, use_bias=True, rng=0), 2),
    "fewer groups than ranks": (lambda: MultiHeadAttention(24, 4, 2, use_bias=True, rng=0), 4),
    "one group": (lambda: MultiHeadAttention(24, 4, 1, rng=0, is_causal=True), 4),
    "ALiBi": (lambda: MultiHeadAttention(24, 6, rng=0, is_causal=True, position=ALiBi(6)), 3),
    "T5": (lambda: MultiHeadAttention(24, 4, 2, rng=0, position=T5Bias(4, 8)), 4),
    "feed-forward": (lambda: FeedForward(24, 35, rng=0), 4),
    "gated": (lambda: GatedFeedForward(24, 35, use_bias=True, rng=0), 2),
}


def gradients(layer, part):
    """The whole layer's gradients, of which each rank has some, by path."""
    own = {path.replace("part.", ""): p.grad for path, p in part.named_parameters()}
    return {
        path: part.layout.whole(path, own.get(path, np.zeros(0)))
        for path, _ in layer.named_parameters()
    }


@pytest.mark.parametrize("kind", LAYERS)
def test_a_split_layer_is_the_whole_one_forward_and_backward(kind):
    make, p = LAYERS[kind]
    layer = make()
    if kind == "T5":
        layer.position.table.assign_(np.random.default_rng(4).normal(size=(8, 4)))
    x = mg.tensor(X, requires_grad=True)
    expected = layer(x)
    expected.backward(U)

    def step():
        part = shard(layer)
        x = mg.tensor(X, requires_grad=True)
        with mg.trace() as t:
            out = part(x)
            out.backward(U)
        sent = [e.op for e in t if e.op in ("all_reduce", "copy_to_ranks")]
        return out.numpy(), x.grad, gradients(layer, part), sent, t.check()

    for out, grad, found, sent, checked in dist.run(p, step):
        np.testing.assert_allclose(out, expected.numpy(), rtol=0, atol=1e-13)
        np.testing.assert_allclose(grad, x.grad, rtol=0, atol=1e-13)
        if kind in ("heads", "groups"):
            assert checked.ok, checked  # by the steps derived by hand, of this rank's heads
        assert sent == ["copy_to_ranks", "all_reduce"]  # one sum forward, and one back
        for path, p in layer.named_parameters():
            np.testing.assert_allclose(found[path], p.grad, rtol=0, atol=1e-12, err_msg=path)


def test_columns_then_rows_of_linear_maps_are_the_whole_maps():
    one, two = Linear(24, 10, rng=0), Linear(10, 7, rng=1)
    one.b.assign_(np.arange(10.0))
    two.b.assign_(np.arange(7.0))
    x = mg.tensor(X, requires_grad=True)
    two(mg.tanh(one(x))).sum().backward()

    def step():
        columns, rows = (
            kind(w, dist.world()) for kind, w in ((ColumnLinear, one), (RowLinear, two))
        )
        x = mg.tensor(X, requires_grad=True)
        rows.b.grad = None
        out = rows(mg.tanh(columns(x)))
        out.sum().backward()
        return out.numpy(), x.grad, columns.b.grad

    found = dist.run(2, step)
    for out, grad, _ in found:
        np.testing.assert_allclose(out, two(mg.tanh(one(X))).numpy(), rtol=1e-12)
        np.testing.assert_allclose(grad, x.grad, rtol=1e-12)
    np.testing.assert_allclose(np.concatenate([g for *_, g in found]), one.b.grad, rtol=1e-12)


def test_a_list_of_tokens_is_taken_as_by_the_whole_embedding():
    embedding = Embedding(11, 6, rng=0)
    tokens = [[1, 10, 3]]
    for found in dist.run(2, lambda: shard(embedding)(tokens).numpy()):
        np.testing.assert_array_equal(found, embedding(tokens).numpy())


@pytest.mark.parametrize("p", [1, 2, 3])
def test_an_embedding_and_a_loss_split_by_tokens_are_the_whole_ones(p):
    """11 tokens on 2 or 3 ranks; the same matrix reads in and out."""
    embedding = Embedding(11, 24, scaled=True, rng=0)
    tokens = np.random.default_rng(3).integers(0, 11, (2, 7))
    mg_loss = mg.cross_entropy(embedding.as_linear(embedding(tokens[:, :-1])), tokens[:, 1:])
    mg_loss.backward()

    def step():
        part = shard(embedding)
        loss = split_cross_entropy(part.as_linear(part(tokens[:, :-1])), tokens[:, 1:])
        loss.backward()
        return loss.item(), part.layout.whole("W", part.W.grad)

    for loss, grad in dist.run(p, step):
        np.testing.assert_allclose(loss, mg_loss.item(), rtol=1e-14)
        np.testing.assert_allclose(grad, embedding.W.grad, rtol=0, atol=1e-13)


def test_what_was_split_is_gathered_as_it_was():
    def make(rng):
        return LanguageModel(11, 24, 4, 2, max_len=7, n_kv_heads=2, tied=False, rng=rng)

    model = make(0)
    for p in (1, 2, 4):
        states = dist.run(p, lambda: Whole(shard(model)).state_dict())
        for state in states:
            assert [*state] == [*model.state_dict()]
            for path, array in model.state_dict().items():
                np.testing.assert_array_equal(state[path], array)
    found = dist.run(2, lambda: gather(shard(model), make(1)))
    one, other = (m(np.arange(5)[None]).numpy() for m in (found[1], model))
    np.testing.assert_array_equal(one, other)


def test_buffers_and_what_is_frozen_come_along():
    def make(seed):
        return Sequential(BatchNorm(24), FeedForward(24, 35, rng=seed))

    model = make(0).freeze("W_1")
    model(X.reshape(10, 24))  # its averages have moved

    def step():
        part = shard(model)
        part.train()(mg.tensor(U.reshape(10, 24))).sum().backward()
        whole = make(1)
        trained = {path: p.requires_grad for path, p in part.named_parameters()}
        return Whole(part).state_dict(), gather(part, whole).state_dict(), trained

    found = dist.run(2, step)
    model(U.reshape(10, 24))
    for state, gathered, trained in found:
        whole = {path: p.requires_grad for path, p in model.named_parameters()}
        assert trained.items() <= {p.replace("1.", "1.part."): t for p, t in whole.items()}.items()
        for path, array in model.state_dict().items():
            np.testing.assert_allclose(state[path], array, rtol=1e-14)
            np.testing.assert_array_equal(gathered[path], state[path])


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (lora(MultiHeadAttention(24, 3), 2).model, "shard: W_Q is wrapped or quantized"),
        (MultiHeadAttention(24, 4), "3 ranks cannot share 4 heads equally"),
        (MultiHeadAttention(24, 6, 2), "3 ranks cannot share 6 heads and 2 key-value heads"),
    ],
)
def test_what_ranks_cannot_share_is_an_error_on_each(layer, said):
    with pytest.raises(ArgumentError, match=said):
        dist.run(3, shard, layer)


def test_a_bias_that_layers_share_is_split_once():
    """And comes back whole."""
    bias = T5Bias(4, 8)
    bias.table.assign_(np.random.default_rng(4).normal(size=(8, 4)))
    layers = Sequential(*(MultiHeadAttention(24, 4, rng=i, position=bias) for i in range(2)))
    expected = layers(X).numpy()

    def step():
        part = shard(layers)
        return part(X).numpy(), Whole(part).state_dict()

    for out, state in dist.run(2, step):
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-13)
        for path, array in layers.state_dict().items():
            np.testing.assert_array_equal(state[path], array)

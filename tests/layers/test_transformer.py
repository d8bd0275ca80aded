"""Blocks and stacks: what they are made of, what they hold, and how they look in a trace."""

import numpy as np
import pytest

import layers as L
import minigrad as mg

B, N, M, D, H, D_FF = 2, 7, 5, 12, 3, 17


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D))


def scrambled(layer, rng):
    for parameter in layer.parameters():
        parameter.assign_(rng.normal(scale=0.5, size=parameter.shape))
    return layer


# ---------------------------------------------------------------- feed-forward


def test_feed_forward_is_two_maps_with_an_activation_between(rng, X):
    layer = scrambled(L.FeedForward(D, D_FF, "relu", rng=rng), rng)
    W_1, b_1, W_2, b_2 = (p.numpy() for p in layer.parameters())
    expected = np.maximum(X @ W_1 + b_1, 0) @ W_2 + b_2
    np.testing.assert_allclose(layer(X).numpy(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "relu", "sigmoid"])
def test_a_gate_multiplies_what_passes(rng, X, activation):
    layer = scrambled(L.GatedFeedForward(D, D_FF, activation, use_bias=True, rng=rng), rng)
    W, b, V, c, W_2, b_2 = (p.numpy() for p in layer.parameters())
    gate = layer.activation(X @ W + b)
    np.testing.assert_allclose(layer(X).numpy(), gate * (X @ V + c) @ W_2 + b_2, rtol=1e-11)


def test_the_hidden_layer_is_four_times_as_wide_unless_said_otherwise():
    assert L.FeedForward(D).W_1.shape == (D, 4 * D)
    assert L.GatedFeedForward(D).V.shape == (D, 4 * D)


# ---------------------------------------------------------------- dropout


def test_dropout_keeps_the_mean_and_nothing_happens_outside_training(rng):
    drop, x = L.Dropout(0.3, rng=rng), np.ones((100, 1000))
    out = drop(x).numpy()
    np.testing.assert_allclose(out.mean(), 1, atol=0.01)
    assert set(np.unique(out)) == {0, 1 / 0.7}
    np.testing.assert_array_equal(drop.eval()(x).numpy(), x)


def test_a_blocks_dropout_follows_train_and_eval(rng, X):
    block = L.TransformerBlock(D, H, D_FF, dropout=0.5, attention_dropout=0.5, rng=rng)
    plain = L.TransformerBlock(D, H, D_FF, rng=rng)
    plain.load_state_dict(block.state_dict())
    assert np.abs(block(X).numpy() - plain(X).numpy()).max() > 1e-3
    np.testing.assert_array_equal(block.eval()(X).numpy(), plain(X).numpy())
    assert np.abs(block.train()(X).numpy() - plain(X).numpy()).max() > 1e-3


# ---------------------------------------------------------------- embedding


def test_an_embedding_is_a_row_for_each_token(rng):
    layer, tokens = L.Embedding(11, 3, rng=rng), np.array([[4, 0], [4, 10]])
    np.testing.assert_array_equal(layer(tokens).numpy(), layer.W.numpy()[tokens])
    scaled = L.Embedding(11, 3, scaled=True)
    scaled.load_state_dict(layer.state_dict())
    np.testing.assert_allclose(scaled(tokens).numpy(), layer.W.numpy()[tokens] * np.sqrt(3))


def test_a_tied_output_adds_both_gradients_to_the_one_weight(rng):
    layer, tokens = L.Embedding(11, 3, rng=rng), np.array([4, 0])

    def f(W):
        layer.W = W
        return layer.as_linear(layer(tokens) * 2.0)

    X = layer(tokens).numpy() * 2.0
    np.testing.assert_allclose(f(layer.W).numpy(), X @ layer.W.numpy().T, rtol=1e-13)
    assert mg.gradcheck(f, [mg.tensor(layer.W, requires_grad=True)])
    assert len(layer.parameters()) == 1


# ---------------------------------------------------------------- blocks


def test_each_order_of_norms_is_its_equation(rng, X):
    for order in ("pre", "post", "both"):
        block = scrambled(L.TransformerBlock(D, H, D_FF, norm_order=order, rng=rng), rng)
        f, g = block.attention, block.feed_forward
        n_1, n_2 = block.norm_1, block.norm_2
        x = mg.tensor(X)
        if order == "pre":
            x = x + f(n_1(x))
            x = x + g(n_2(x))
        elif order == "post":
            x = n_1(x + f(x))
            x = n_2(x + g(x))
        else:
            x = x + block.norm_1_out(f(n_1(x)))
            x = x + block.norm_2_out(g(n_2(x)))
        np.testing.assert_array_equal(block(X).numpy(), x.numpy())


def test_a_decoder_block_attends_to_itself_causally_and_to_all_of_the_context(rng, X):
    block, context = L.DecoderBlock(D, H, D_FF, rng=rng), rng.normal(size=(B, M, D))
    block(X, context)
    A, cross = block.attention.attention_weights, block.cross_attention.attention_weights
    np.testing.assert_array_equal(A > 0, np.broadcast_to(np.tri(N, dtype=bool), A.shape))
    assert cross.shape == (B, H, N, M)
    assert (cross > 0).all()
    block(X, context, context_mask=L.padding_mask([M, M - 2], M))
    np.testing.assert_array_equal(block.cross_attention.attention_weights[1, :, :, M - 2 :], 0)


# ---------------------------------------------------------------- stacks


def test_a_stack_is_its_blocks_one_after_another_and_a_norm_after_pre_norm_ones(rng, X):
    stack = scrambled(L.Encoder(2, D, H, D_FF, rng=rng), rng)
    by_hand = stack.norm(stack.blocks[1](stack.blocks[0](mg.tensor(X))))
    np.testing.assert_array_equal(stack(X).numpy(), by_hand.numpy())
    assert L.Encoder(2, D, H, D_FF, norm_order="post").norm is None
    assert isinstance(L.Encoder(1, D, H, norm=L.RMSNorm).norm, L.RMSNorm)
    assert L.Encoder(1, D, H, final_norm=False).norm is None


def test_a_decoder_decodes_with_a_cache_as_without(rng, X):
    decoder, context = L.Decoder(2, D, H, D_FF, rng=rng), rng.normal(size=(B, M, D))
    whole, cache = decoder(X, context).numpy(), decoder.new_cache()
    with mg.no_grad():
        steps = [decoder(X[:, t : t + 1], context, cache=cache).numpy() for t in range(N)]
    np.testing.assert_allclose(np.concatenate(steps, axis=1), whole, rtol=1e-10, atol=1e-12)


def products_of(f, *args, **kwargs):
    """FLOPs of the products that a call runs, biases included."""
    with mg.trace() as t, mg.no_grad():
        f(*args, **kwargs)
    return sum(entry.flops or 0 for entry in t if entry.op in ("matmul", "linear"))


def test_keys_and_values_of_the_context_are_made_for_the_first_token_only(rng, X):
    decoder, context = L.Decoder(2, D, H, D_FF, rng=rng), rng.normal(size=(B, M, D))
    cache = decoder.new_cache()
    first, second = (products_of(decoder, X[:, t : t + 1], context, cache=cache) for t in range(2))
    of_context, one_more_key = 2 * 2 * B * M * D * (2 * D + 1), 2 * (2 * 2 * B * D)
    assert first - second == of_context - one_more_key


def test_another_context_or_a_reset_makes_its_keys_and_values_anew(rng, X):
    decoder = L.Decoder(2, D, H, D_FF, rng=rng)
    one, other = rng.normal(size=(2, B, M, D))
    cache = decoder.new_cache()
    with mg.no_grad():
        decoder(X[:, :1], one, cache=cache)
        for own in cache:
            own.crop(0)
        again = decoder(X[:, :1], other, cache=cache).numpy()
        np.testing.assert_array_equal(again, decoder(X[:, :1], other).numpy())
        other += 1
        for own in cache:
            own.reset()
        again = decoder(X[:, :1], other, cache=cache).numpy()
        np.testing.assert_array_equal(again, decoder(X[:, :1], other).numpy())


# ---------------------------------------------------------------- sequential


def test_sequential_is_function_composition_with_its_layers_in_the_state(rng, X):
    layers = L.Linear(D, 5, rng=rng), mg.tanh, L.Linear(5, 2, rng=rng)
    mlp = L.Sequential(*layers)
    by_hand = layers[2](mg.tanh(layers[0](mg.tensor(X))))
    np.testing.assert_array_equal(mlp(X).numpy(), by_hand.numpy())
    assert list(mlp.state_dict()) == ["layers.0.W", "layers.0.b", "layers.2.W", "layers.2.b"]
    assert len(mlp) == 3
    assert mlp[2] is layers[2]
    assert L.Sequential()(5) == 5


# ---------------------------------------------------------------- language model


MODELS = {
    "gpt2": {"max_len": 13, "activation": "gelu_tanh"},
    "llama": {
        "n_kv_heads": 1, "position": L.Rotary(4), "norm": L.RMSNorm, "qk_norm": L.RMSNorm,
        "gated": True, "use_bias": False, "tied": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_a_prompt_padded_at_its_start_is_read_as_it_would_be_alone(rng, settings):
    """The padding is masked, and positions count from the first real token."""
    model = scrambled(L.LanguageModel(31, D, H, 2, D_FF, rng=rng, **settings), rng)
    tokens = rng.integers(0, 31, (1, N))
    padded = np.concatenate((np.zeros((1, 3), int), tokens), axis=1)
    at = np.arange(N + 3) - 3
    out = model(padded, L.padding_mask(at[None] >= 0), positions=np.maximum(at, 0)).numpy()[:, 3:]
    np.testing.assert_allclose(out, model(tokens).numpy(), rtol=1e-10, atol=1e-12)


def test_every_layer_is_a_module_and_none_subclasses_another():
    import layers

    made = [v for v in vars(layers).values() if isinstance(v, type) and issubclass(v, L.Module)]
    assert len(made) > 15
    for layer in made:
        assert not set(layer.__mro__[1:]) & {*made} - {L.Module}, layer

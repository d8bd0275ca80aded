"""Blocks and stacks: what they are made of, what they hold, and how they look in a trace."""

import numpy as np
import pytest

import layers as L
import minigrad as mg
from tests.compare import assert_same
from tests.layers.counting import products_of

B, N, M, D, H, D_FF = 2, 7, 5, 12, 3, 17


@pytest.fixture
def X(rng):
    return rng.normal(size=(B, N, D))


def test_the_hidden_layer_is_four_times_as_wide_unless_said_otherwise():
    assert L.FeedForward(D).W_1.shape == L.GatedFeedForward(D).V.shape == (D, 4 * D)


# ---------------------------------------------------------------- dropout


def test_a_blocks_dropout_follows_train_and_eval(rng, X):
    assert set(L.Dropout(0.3, rng=rng)(np.ones(1000)).numpy()) == {0, 1 / 0.7}
    block = L.TransformerBlock(D, H, D_FF, dropout=0.5, attention_dropout=0.5, rng=rng)
    plain = L.TransformerBlock(D, H, D_FF, rng=rng)
    plain.load_state_dict(block.state_dict())
    assert np.abs(block(X).numpy() - plain(X).numpy()).max() > 1e-3
    assert_same(block.eval()(X), plain(X), 0)
    assert np.abs(block.train()(X).numpy() - plain(X).numpy()).max() > 1e-3


# ---------------------------------------------------------------- blocks


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


def test_a_stack_ends_with_a_norm_of_its_kind_unless_its_blocks_do_or_it_is_told():
    assert isinstance(L.Encoder(1, D, H, norm=L.RMSNorm).norm, L.RMSNorm)
    assert L.Encoder(2, D, H, norm_order="post").norm is None
    assert L.Encoder(1, D, H, final_norm=False).norm is None
    assert L.Encoder(1, D, H, norm_order="post", final_norm=True).norm is not None


def test_a_decoder_decodes_with_a_cache_as_without(rng, X):
    decoder, context = L.Decoder(2, D, H, D_FF, rng=rng), rng.normal(size=(B, M, D))
    whole, cache = decoder(X, context).numpy(), decoder.new_cache()
    with mg.no_grad():
        steps = [decoder(X[:, t : t + 1], context, cache=cache).numpy() for t in range(N)]
    assert_same(np.concatenate(steps, axis=1), whole, 1e-10)


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
        for restart in (lambda own: own.crop(0), L.KVCache.reset):
            for own in cache:
                restart(own)
            again = decoder(X[:, :1], other, cache=cache)
            assert_same(again, decoder(X[:, :1], other), 0)
            other += 1


# ---------------------------------------------------------------- sequential


def test_sequential_is_a_list_of_layers_and_functions_with_the_layers_in_its_state():
    mlp = L.Sequential(L.Linear(D, 5), mg.tanh, last := L.Linear(5, 2))
    assert list(mlp.state_dict()) == ["layers.0.W", "layers.0.b", "layers.2.W", "layers.2.b"]
    assert (len(mlp), mlp[2]) == (3, last)
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
    model = L.LanguageModel(31, D, H, 2, D_FF, rng=rng, **settings)
    for parameter in model.parameters():
        parameter.assign_(rng.normal(scale=0.5, size=parameter.shape))
    tokens = rng.integers(0, 31, (1, N))
    padded = np.concatenate((np.zeros((1, 3), int), tokens), axis=1)
    at = np.arange(N + 3) - 3
    out = model(padded, L.padding_mask(at[None] >= 0), positions=np.maximum(at, 0))
    assert_same(out[:, 3:], model(tokens), 1e-10)


def test_every_layer_is_a_module_and_none_subclasses_another():
    import layers

    made = [v for v in vars(layers).values() if isinstance(v, type) and issubclass(v, L.Module)]
    assert len(made) > 15
    for layer in made:
        assert not set(layer.__mro__[1:]) & {*made} - {L.Module}, layer

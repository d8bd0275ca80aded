"""Models of Hugging Face's `transformers`, with weights drawn at random, built from these layers.

Its norms, angles and some softmaxes run in float32 whatever the model's dtype, so results agree to
that: 1e-5 of their size. tests/layers/test_models.py holds the same layers to 1e-12.
"""

from functools import partial

import numpy as np
import pytest

import minigrad as mg
from layers import (
    Encoder,
    LanguageModel,
    RMSNorm,
    Rotary,
    T5Bias,
    padding_mask,
)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

N_TOKENS, B, N, D, H, D_FF = 31, 2, 13, 24, 4, 20
NORM = partial(RMSNorm, eps=1e-6)
SIZES = {
    "vocab_size": N_TOKENS, "hidden_size": D, "num_attention_heads": H, "num_hidden_layers": 2,
    "intermediate_size": D_FF, "max_position_embeddings": 16, "attn_implementation": "sdpa",
}  # fmt: skip


def theirs(kind, config, seed=0):
    """One of their models in float64, every parameter drawn anew."""
    torch.manual_seed(seed)
    model = kind(config).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def llama_state(model, qkv_bias=False, qk_norm=False):
    """Their parameters under our paths; their matrices are ours, transposed."""
    own = {name: x.detach().numpy() for name, x in model.state_dict().items()}
    state = {
        "embedding.W": own["model.embed_tokens.weight"],
        "decoder.norm.weight": own["model.norm.weight"],
    }
    if not model.config.tie_word_embeddings:
        state["head.W"] = own["lm_head.weight"].T
    for k in range(model.config.num_hidden_layers):
        there, here = f"model.layers.{k}.", f"decoder.blocks.{k}."
        for s in "QKVO":
            state[f"{here}attention.W_{s}"] = own[f"{there}self_attn.{s.lower()}_proj.weight"].T
            if qkv_bias and s != "O":
                state[f"{here}attention.b_{s}"] = own[f"{there}self_attn.{s.lower()}_proj.bias"]
        for ours, name in (("W", "gate"), ("V", "up"), ("W_2", "down")):
            state[f"{here}feed_forward.{ours}"] = own[f"{there}mlp.{name}_proj.weight"].T
        if qk_norm:
            for s in "qk":
                state[f"{here}attention.{s}_norm.weight"] = own[f"{there}self_attn.{s}_norm.weight"]
        norms = {"norm_1": "input_layernorm", "norm_2": "post_attention_layernorm"}
        if f"{there}pre_feedforward_layernorm.weight" in own:
            norms = {
                "norm_1": "input_layernorm", "norm_1_out": "post_attention_layernorm",
                "norm_2": "pre_feedforward_layernorm", "norm_2_out": "post_feedforward_layernorm",
            }  # fmt: skip
        for ours, name in norms.items():
            state[f"{here}{ours}.weight"] = own[f"{there}{name}.weight"]
    return state


def same_logits(model, tokens, ours):
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).logits.numpy()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(ours(tokens).numpy(), expected, rtol=0, atol=1e-5 * scale)
    cache = ours.new_cache()
    with mg.no_grad():
        steps = [ours(tokens[:, t : t + 1], cache=cache).numpy() for t in range(tokens.shape[1])]
    np.testing.assert_allclose(
        np.concatenate(steps, axis=1), ours(tokens).numpy(), rtol=1e-9, atol=1e-9 * scale
    )


def llama_of(base=10000.0, scaling=None, norm=NORM, **settings):
    settings = {"tied": False, "use_bias": False, "gated": True, "n_kv_heads": 2, **settings}
    position = Rotary(settings.get("d_k", D // H), base, scaling=scaling)
    return LanguageModel(N_TOKENS, D, H, 2, D_FF, norm=norm, position=position, **settings)


SCALINGS = {
    "none": None,
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
}  # fmt: skip


@pytest.mark.parametrize("scaling", SCALINGS)
def test_llama(rng, scaling):
    rope = {"rope_theta": 500000.0, **(SCALINGS[scaling] or {"rope_type": "default"})}
    config = transformers.LlamaConfig(num_key_value_heads=2, rope_parameters=rope, **SIZES)
    model = theirs(transformers.LlamaForCausalLM, config)
    ours = llama_of(base=500000.0, scaling=SCALINGS[scaling])
    ours.load_state_dict(llama_state(model))
    same_logits(model, rng.integers(0, N_TOKENS, (B, N)), ours)


def test_angles_that_are_not_scaled_are_seen(rng):
    """The comparison above is no formality."""
    rope = {"rope_theta": 500000.0, **SCALINGS["llama3"]}
    config = transformers.LlamaConfig(num_key_value_heads=2, rope_parameters=rope, **SIZES)
    model, ours = theirs(transformers.LlamaForCausalLM, config), llama_of(base=500000.0)
    ours.load_state_dict(llama_state(model))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        same_logits(model, rng.integers(0, N_TOKENS, (B, N)), ours)


def test_mistral_with_a_sliding_window(rng):
    config = transformers.MistralConfig(num_key_value_heads=2, sliding_window=4, **SIZES)
    model = theirs(transformers.MistralForCausalLM, config)
    ours = llama_of(window=4)
    ours.load_state_dict(llama_state(model))
    same_logits(model, rng.integers(0, N_TOKENS, (B, N)), ours)


def test_qwen2_with_biases_and_tied_output(rng):
    config = transformers.Qwen2Config(num_key_value_heads=2, tie_word_embeddings=True, **SIZES)
    model = theirs(transformers.Qwen2ForCausalLM, config)
    ours = llama_of(use_bias="QKV", ff_bias=False, tied=True)
    ours.load_state_dict(llama_state(model, qkv_bias=True))
    same_logits(model, rng.integers(0, N_TOKENS, (B, N)), ours)


def test_qwen3_with_normed_queries_and_wider_heads(rng):
    config = transformers.Qwen3Config(num_key_value_heads=2, head_dim=8, **SIZES)
    model = theirs(transformers.Qwen3ForCausalLM, config)
    ours = llama_of(d_k=8, qk_norm=NORM)
    ours.load_state_dict(llama_state(model, qk_norm=True))
    same_logits(model, rng.integers(0, N_TOKENS, (B, N)), ours)


def encoder_state(own, names, norms, here="blocks.{}."):
    """An encoder's parameters under our paths; `names` gives theirs for each of our maps."""
    state = {}
    for k in range(2):
        for ours, name in names.items():
            state[here.format(k) + ours.format("W")] = own[f"{name.format(k)}.weight"].T
            if f"{name.format(k)}.bias" in own:
                state[here.format(k) + ours.format("b")] = own[f"{name.format(k)}.bias"]
        for ours, name in norms.items():
            for part in ("weight", "bias"):
                if f"{name.format(k)}.{part}" in own:
                    state[f"{here.format(k)}{ours}.{part}"] = own[f"{name.format(k)}.{part}"]
    return state


def test_t5s_encoder_with_one_table_of_biases_for_all_blocks(rng):
    config = transformers.T5Config(
        vocab_size=N_TOKENS, d_model=D, d_kv=D // H, num_heads=H, num_layers=2, d_ff=D_FF,
        dropout_rate=0.0,
    )  # fmt: skip
    model = theirs(transformers.T5EncoderModel, config)
    own = {name: x.detach().numpy() for name, x in model.state_dict().items()}
    ours = Encoder(
        2, D, H, D_FF, norm=NORM, activation="relu", use_bias=False, scale=1.0,
        position=T5Bias(H),
    )  # fmt: skip
    layer = "encoder.block.{}.layer."
    maps = {f"attention.{{}}_{s}": f"{layer}0.SelfAttention.{s.lower()}" for s in "QKVO"}
    maps |= {"feed_forward.{}_1": f"{layer}1.DenseReluDense.wi"}
    maps |= {"feed_forward.{}_2": f"{layer}1.DenseReluDense.wo"}
    norms = {"norm_1": f"{layer}0.layer_norm", "norm_2": f"{layer}1.layer_norm"}
    state = encoder_state(own, maps, norms)
    table = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    state["blocks.0.attention.position.table"] = own[table]
    state["norm.weight"] = own["encoder.final_layer_norm.weight"]
    ours.load_state_dict(state)
    tokens, lengths = rng.integers(0, N_TOKENS, (B, N)), [N, 7]
    real = np.arange(N) < np.array(lengths)[:, None]
    with torch.no_grad():
        expected = model(torch.tensor(tokens), attention_mask=torch.tensor(real))[0].numpy()
    found = ours(own["shared.weight"][tokens], padding_mask(lengths, N)).numpy()
    np.testing.assert_allclose(found[real], expected[real], rtol=0, atol=1e-5)

"""Checkpoints that Hugging Face's `transformers` wrote, held to its models in float64.

Its norms, angles and some softmaxes run in float32 whatever the model's dtype; here that name means
float64, so that results must agree to 1e-10 of their size.
"""

import json

import numpy as np
import pytest

from layers import generate, load_pretrained, padding_mask

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

SIZES = {
    "vocab_size": 31, "hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 3,
    "intermediate_size": 20, "max_position_embeddings": 16,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2}
CAUSAL = {
    "GPT2": {"n_embd": 24, "n_layer": 3, "n_head": 4, "vocab_size": 31, "n_positions": 16},
    "GPT2 untied": {
        "n_embd": 24, "n_layer": 3, "n_head": 4, "vocab_size": 31, "n_positions": 16,
        "tie_word_embeddings": False, "activation_function": "relu", "n_inner": 20,
    },
    "Llama": GROUPED,
    "Llama scaled": GROUPED | {"rope_parameters": LLAMA3, "attention_bias": True, "mlp_bias": True},
    "Llama yarn": GROUPED | {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 4
    }},
    "Mistral": GROUPED | {"sliding_window": 4},
    "Qwen2": GROUPED | {"tie_word_embeddings": True},
    "Qwen2 windows": GROUPED | {
        "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1
    },
    "Qwen3": GROUPED | {"head_dim": 8},
    "Gemma2": GROUPED | {"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8},
}  # fmt: skip


@pytest.fixture(autouse=True)
def reference_in_float64(monkeypatch):
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def reference(family, kind, settings):
    """Their model with weights drawn anew, in float64."""
    torch.manual_seed(0)
    name = family.split()[0]
    config = getattr(transformers, f"{name}Config")(**settings, attn_implementation="eager")
    model = getattr(transformers, f"{name}{kind}")(config).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def assert_close(found, expected):
    expected = expected.detach().numpy()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-10 * scale)


@pytest.mark.parametrize("family", CAUSAL)
def test_logits_are_those_of_transformers(family, rng, tmp_path):
    kind = "LMHeadModel" if family.startswith("GPT2") else "ForCausalLM"
    model = reference(family, kind, CAUSAL[family])
    model.save_pretrained(tmp_path)
    tokens = rng.integers(0, 31, (2, 13))
    ours = load_pretrained(tmp_path, np.float64)
    assert_close(ours(tokens), model(torch.tensor(tokens)).logits)
    assert ours.unused == []
    settings = {"do_sample": False, "max_new_tokens": 8, "eos_token_id": None, "pad_token_id": 0}
    expected = model.generate(torch.tensor(tokens[:, :5]), **settings)[:, 5:]
    found = np.stack(list(generate(ours, tokens[:, :5], 8)), axis=1)
    np.testing.assert_array_equal(found, expected.numpy())


def test_a_bert_guesses_and_pools_as_transformers_does(rng, tmp_path):
    model = reference("Bert", "ForPreTraining", SIZES)
    model.save_pretrained(tmp_path)
    ours = load_pretrained(tmp_path, np.float64)
    tokens, segments = rng.integers(0, 31, (2, 13)), rng.integers(0, 2, (2, 13))
    lengths = [13, 7]
    real = np.arange(13) < np.array(lengths)[:, None]
    given = {"attention_mask": torch.tensor(real), "token_type_ids": torch.tensor(segments)}
    theirs = model.bert(torch.tensor(tokens), **given)
    X = ours(tokens, padding_mask(lengths, 13), segments=segments)
    assert_close(X[real], theirs.last_hidden_state[torch.tensor(real)])
    assert_close(ours.pooled(X), theirs.pooler_output)
    guessed = model(torch.tensor(tokens), **given).prediction_logits
    assert_close(ours.logits(X)[real], guessed[torch.tensor(real)])
    assert ours.unused == ["cls.seq_relationship.bias", "cls.seq_relationship.weight"]

    (tmp_path / "1_Pooling").mkdir()
    mean = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(mean))
    kinds = [{"type": f"sentence_transformers.models.{kind}"} for kind in ("Pooling", "Normalize")]
    (tmp_path / "modules.json").write_text(json.dumps(kinds))
    found = load_pretrained(tmp_path, np.float64).sentence(tokens, lengths)
    without = model.bert(torch.tensor(tokens), attention_mask=given["attention_mask"])[0]
    weights = torch.tensor(real)[..., None].double()
    expected = (without * weights).sum(1) / weights.sum(1)
    assert_close(found, torch.nn.functional.normalize(expected, dim=-1))

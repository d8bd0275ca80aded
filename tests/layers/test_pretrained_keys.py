"""Every key of every family's config.json: changed, it changes what we compute as it changes what
`transformers` computes, or it is refused.
"""

import json

import numpy as np
import pytest

from layers import load_pretrained
from layers.pretrained.config import Config
from minigrad.errors import ArgumentError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

SIZES = {
    "vocab_size": 31, "hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2,
    "intermediate_size": 20, "max_position_embeddings": 16,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 4,
    "rope_theta": 9.0,
}
T5_SIZES = {
    "vocab_size": 31, "d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_heads": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10,
}  # fmt: skip
FAMILIES = {
    "GPT2LMHeadModel": {"n_embd": 24, "n_layer": 2, "n_head": 4, "vocab_size": 31},
    "LlamaForCausalLM": GROUPED | {"rope_parameters": YARN | {"rope_theta": 99.0}},
    "MistralForCausalLM": GROUPED | {"sliding_window": 4},
    "Qwen2ForCausalLM": GROUPED | {"use_sliding_window": True, "sliding_window": 4,
                                   "max_window_layers": 1},
    "Qwen3ForCausalLM": GROUPED | {"head_dim": 6},
    "Gemma2ForCausalLM": GROUPED | {"head_dim": 6, "sliding_window": 4},
    "BertForMaskedLM": SIZES,
    "BertForTokenClassification": SIZES,
    "RobertaForMaskedLM": SIZES,
    "RobertaForTokenClassification": SIZES,
    "DistilBertForMaskedLM": {"vocab_size": 31, "dim": 24, "n_heads": 4, "n_layers": 2,
                              "hidden_dim": 20, "max_position_embeddings": 16},
    "T5ForConditionalGeneration": T5_SIZES,
    "T5EncoderModel": T5_SIZES | {"feed_forward_proj": "gated-gelu"},
}  # fmt: skip
TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2]])
UNASKED = {
    "logit_scale": 2.0, "partial_rotary_factor": 0.5, "is_decoder": True, "attention_bias": True,
    "sliding_window": 3, "position_embedding_type": "relative_key", "scale_attn_weights": False,
    "tie_word_embeddings": False, "hidden_act": "relu", "activation_function": "relu",
    "dense_act_fn": "relu", "pruned_heads": {"0": [1]}, "rope_theta": 7.0, "num_labels": 3,
}  # fmt: skip
"""Keys that a file may have beside those that `transformers` writes today."""


def changes(config):
    """The config without each key, with another value of it, and with each key of UNASKED."""
    for key, value in config.items():
        yield key, {k: v for k, v in config.items() if k != key}
        yield f"{key}: null", config | {key: None}
        if isinstance(value, dict):
            yield from ((f"{key}: {k}", config | {key: new}) for k, new in changes(value))
        else:
            yield key, config | {key: other(value)}
    yield from ((key, config | {key: value}) for key, value in UNASKED.items())


def other(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return value[::-1]
    if isinstance(value, str):
        return "silu" if value in ("relu", "gelu_new", "gelu") else "relu"
    return 2 if value is None else value * 2


def theirs(kind, config, state):
    """What `transformers` computes; None where it refuses, or has other tensors."""
    cls = getattr(transformers, kind)
    try:
        model = cls(cls.config_class(**config, attn_implementation="eager")).double().eval()
        odd = model.load_state_dict(state, strict=False)
        if odd.missing_keys or odd.unexpected_keys:
            return None
        more = {"decoder_input_ids": torch.tensor(TOKENS)} if "Conditional" in kind else {}
        with torch.no_grad():
            out = model(torch.tensor(TOKENS), **more)
    except Exception:
        return None
    return (out.logits if hasattr(out, "logits") else out.last_hidden_state).numpy()


def ours(kind, folder):
    """What we compute; None where the checkpoint is refused."""
    try:
        model = load_pretrained(folder, np.float64)
    except ArgumentError:
        return None
    out = model(TOKENS, TOKENS) if "Conditional" in kind else model(TOKENS)
    return (model.logits(out) if "Bert" in kind or "Roberta" in kind else out).numpy()


def passed_over(kind, folder):
    """The keys that change what they compute, while we say nothing and compute as before."""
    torch.manual_seed(0)
    cls = getattr(transformers, kind)
    model = cls(cls.config_class(**FAMILIES[kind])).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    config, state = json.loads((folder / "config.json").read_text()), model.state_dict()
    neither = {"transformers_version", "architectures", "model_type", "dtype"}
    config = {key: value for key, value in config.items() if key not in neither}
    named = {"architectures": [kind], "model_type": cls.config_class.model_type}
    found, compared = [], 0
    for key, new in [("", config), *changes(config)]:
        (folder / "config.json").write_text(json.dumps(new | named))
        mine = ours(kind, folder)
        expected = None if mine is None else theirs(kind, new, state)
        if expected is not None:
            compared += 1
            close = mine.shape == expected.shape and np.allclose(mine, expected, atol=1e-6)
            found += [] if close else [key]
    assert compared > 5
    return found


@pytest.fixture(autouse=True)
def quiet():
    transformers.logging.set_verbosity(60)


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_key_of_a_config_is_passed_over(kind, tmp_path):
    assert passed_over(kind, tmp_path) == []


def test_a_key_that_is_passed_over_is_found(tmp_path, monkeypatch):
    get = Config.get

    def forgetful(self, key, *default):
        value = get(self, key, *default)
        return 1e-6 if key == "rms_norm_eps" else value

    monkeypatch.setattr(Config, "get", forgetful)
    FAMILIES["Qwen3ForCausalLM"]["rms_norm_eps"] = 1e-6
    try:
        assert "rms_norm_eps" in passed_over("Qwen3ForCausalLM", tmp_path)
    finally:
        del FAMILIES["Qwen3ForCausalLM"]["rms_norm_eps"]

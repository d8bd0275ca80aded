"""Checkpoints that Hugging Face's `transformers` wrote, held to its models in float64: outputs and
gradients, and every key of config.json, which changes ours as it changes theirs or is refused.

Its norms, angles and some softmaxes run in float32 whatever the model's dtype; here that name means
float64, so that results must agree to 1e-10 of their size.
"""

import json

import numpy as np
import pytest

import minigrad as mg
from layers import generate, load_pretrained, padding_mask
from layers.pretrained import TextEncoder
from layers.pretrained.config import Config
from minigrad.errors import ArgumentError, OutOfRangeError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

from tests.layers.test_pretrained_families import pool  # noqa: E402

SIZES = {
    "vocab_size": 31, "hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 3,
    "intermediate_size": 20, "max_position_embeddings": 16,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2}
WINDOWS = GROUPED | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 99.0, "factor": 4.0, "original_max_position_embeddings": 4
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 99.0, "short_factor": [1.0, 1.5, 2.0],
    "long_factor": [2.0, 3.0, 4.0], "original_max_position_embeddings": 7,
}  # fmt: skip
GPT2 = {"n_embd": 24, "n_layer": 3, "n_head": 4, "vocab_size": 31, "n_positions": 16}
DISTIL = {
    "vocab_size": 31, "dim": 24, "n_heads": 4, "n_layers": 3, "hidden_dim": 20,
    "max_position_embeddings": 16,
}  # fmt: skip
T5 = {
    "vocab_size": 31, "d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_heads": 3,
    "num_decoder_layers": 3, "relative_attention_num_buckets": 8, "decoder_start_token_id": 3,
    "relative_attention_max_distance": 10,
}  # fmt: skip
GATED = {"feed_forward_proj": "gated-gelu"}
CASES = {
    "GPT2LMHeadModel": GPT2,
    "GPT2LMHeadModel untied": GPT2 | {
        "tie_word_embeddings": False, "activation_function": "relu", "n_inner": 20
    },
    "LlamaForCausalLM": GROUPED,
    "LlamaForCausalLM scaled": GROUPED | {
        "rope_parameters": LLAMA3, "attention_bias": True, "mlp_bias": True
    },
    "LlamaForCausalLM yarn": GROUPED | {"rope_parameters": YARN},
    "MistralForCausalLM": GROUPED | {"sliding_window": 4},
    "Qwen2ForCausalLM": GROUPED | {"tie_word_embeddings": True},
    "Qwen2ForCausalLM windows": WINDOWS,
    "Qwen3ForCausalLM": GROUPED | {"head_dim": 8},
    "Gemma2ForCausalLM": GROUPED | {
        "head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8
    },
    "LlamaModel": GROUPED, "MistralModel": GROUPED | {"sliding_window": 4},
    "Qwen2Model": GROUPED, "Qwen2Model windows": WINDOWS, "Qwen3Model": GROUPED | {"head_dim": 8},
    "T5ForConditionalGeneration": T5,
    "T5ForConditionalGeneration v1.1": T5 | GATED | {"tie_word_embeddings": False},
    "T5ForConditionalGeneration of gelu": T5 | {"feed_forward_proj": "gelu"},
    "T5EncoderModel": T5, "T5EncoderModel gated": T5 | GATED,
    "BertForNextSentencePrediction": SIZES,
}  # fmt: skip
ENCODERS = {
    "Bert": SIZES, "Roberta": SIZES | {"hidden_act": "relu", "pad_token_id": 1},
    "XLMRoberta": SIZES | {"pad_token_id": 2, "type_vocab_size": 1}, "DistilBert": DISTIL,
}  # fmt: skip
LABELS = {"num_labels": 5}
HEADS = {
    "Model": {}, "ForMaskedLM": {}, "ForSequenceClassification": LABELS,
    "ForTokenClassification": LABELS, "ForQuestionAnswering": {},
}  # fmt: skip
CASES |= {f"{e}{h}": sizes | more for e, sizes in ENCODERS.items() for h, more in HEADS.items()}


@pytest.fixture(autouse=True)
def reference_in_float64(monkeypatch):
    transformers.logging.set_verbosity(60)
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch, "float", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def reference(name, folder, **settings):
    """Their model, with weights drawn anew, and written into a folder."""
    torch.manual_seed(0)
    kind = getattr(transformers, name.split()[0])
    config = kind.config_class(**CASES.get(name, {}) | settings, attn_implementation="eager")
    model = kind(config).double().eval()
    if "v1.1" in name:  # which it ties all the same
        model.lm_head.weight = torch.nn.Parameter(torch.empty(31, 12))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return model


def of_theirs(model, name, tokens, written):
    """What their model gives: logits, or vectors where it has none."""
    more = {"decoder_input_ids": torch.tensor(written)} if "T5For" in name else {}
    out = model(torch.tensor(tokens), **more)
    if "start_logits" in out:
        return torch.stack([out.start_logits, out.end_logits], dim=-1)
    return out.logits if "logits" in out else out.last_hidden_state


def of_ours(model, name, tokens, written):
    X = model(tokens, written) if "T5For" in name else model(tokens)
    if "Next" in name:
        return model.next_sentence(X)
    return model.logits(X) if "For" in name and isinstance(model, TextEncoder) else X


def assert_gradients_agree(ours, loss, theirs, their_loss):
    """Each of our gradients is theirs, once it is turned as the file is."""
    loss.backward()
    their_loss.backward()
    wanted = {path: p.grad.numpy() for path, p in theirs.named_parameters() if p.grad is not None}
    whole, compared = max(np.abs(g).max() for g in wanted.values()), 0
    for path, parameter in ours.named_parameters():
        source, how = ours.sources[path]
        if source in wanted and "/" not in how:
            expected = wanted[source].T if how == "T" else wanted[source]
            assert np.abs(parameter.grad - expected).max() <= 1e-10 * whole, path
            compared += 1
    assert compared > 10


def assert_close(found, expected):
    expected = expected.detach().numpy()
    assert found.shape == expected.shape
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-10 * scale)


WRITES = {"do_sample": False, "max_new_tokens": 8, "eos_token_id": None, "pad_token_id": 0}


@pytest.mark.parametrize("name", CASES)
def test_outputs_gradients_and_texts_are_those_of_transformers(name, rng, tmp_path):
    theirs = reference(name, tmp_path)
    ours = load_pretrained(tmp_path, np.float64)
    assert ours.unused == []
    tokens = rng.integers(3, 31, (2, 13))  # torch gives tokens that pad no gradient
    written = rng.integers(0, 31, (2, 7))
    expected, found = (
        of(model, name, tokens, written) for of, model in ((of_theirs, theirs), (of_ours, ours))
    )
    assert_close(found, expected)
    assert_gradients_agree(ours, mg.sum(found**2), theirs, (expected**2).sum())
    if "CausalLM" in name or "LMHead" in name:
        wanted = theirs.generate(torch.tensor(tokens[:, :5]), **WRITES)[:, 5:]
        steps = np.stack(list(generate(ours, tokens[:, :5], 8, stop=())), axis=1)
        np.testing.assert_array_equal(steps, wanted.numpy())
    elif "T5For" not in name:
        with pytest.raises(ArgumentError, match="writes no text"):
            generate(ours, [3], 4)


@pytest.mark.parametrize("scaling", [LLAMA3, LONGROPE], ids=lambda s: s["rope_type"])
def test_the_trained_length_beside_a_scaling_counts_more_than_the_one_in_it(scaling, rng, tmp_path):
    reference("LlamaForCausalLM", tmp_path, rope_parameters=scaling)
    config = json.loads((tmp_path / "config.json").read_text())
    trained = {"original_max_position_embeddings": 12}
    (tmp_path / "config.json").write_text(json.dumps(config | trained))
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    tokens = rng.integers(0, 31, (2, 9))
    assert_close(load_pretrained(tmp_path, np.float64)(tokens), model(torch.tensor(tokens)).logits)


def test_a_bert_guesses_and_pools_as_transformers_does(rng, tmp_path):
    model = reference("BertForPreTraining", tmp_path, **SIZES)
    ours = load_pretrained(tmp_path, np.float64)
    tokens, segments = rng.integers(0, 31, (2, 13)), rng.integers(0, 2, (2, 13))
    lengths = [13, 7]
    real = np.arange(13) < np.array(lengths)[:, None]
    given = {"attention_mask": torch.tensor(real), "token_type_ids": torch.tensor(segments)}
    theirs = model.bert(torch.tensor(tokens), **given)
    X = ours(tokens, padding_mask(lengths, 13), segments=segments)
    assert_close(X[real], theirs.last_hidden_state[torch.tensor(real)])
    assert_close(ours.pooled(X), theirs.pooler_output)
    guessed = model(torch.tensor(tokens), **given)
    assert_close(ours.logits(X)[real], guessed.prediction_logits[torch.tensor(real)])
    assert_close(ours.next_sentence(X), guessed.seq_relationship_logits)
    assert ours.unused == []

    pooling = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    found = pool(tmp_path, pooling, "Pooling", "Normalize").sentence(tokens, lengths)
    without = model.bert(torch.tensor(tokens), attention_mask=given["attention_mask"])[0]
    weights = torch.tensor(real)[..., None].double()
    expected = (without * weights).sum(1) / weights.sum(1)
    assert_close(found, torch.nn.functional.normalize(expected, dim=-1))


@pytest.mark.parametrize("pad", [1, 3])
def test_a_roberta_counts_positions_from_its_padding_token_on(pad, rng, tmp_path):
    model = reference("RobertaModel", tmp_path, pad_token_id=pad)
    ours, tokens = load_pretrained(tmp_path, np.float64), rng.integers(4, 31, (2, 16 - pad - 1))
    tokens[0, 4], tokens[1, 7:] = pad, pad  # within a text, and behind one
    real = torch.tensor(tokens != pad)
    assert_close(ours(tokens), model(torch.tensor(tokens)).last_hidden_state)
    X = ours(tokens, padding_mask(real.numpy()))
    theirs = model(torch.tensor(tokens), attention_mask=real)
    assert_close(X[real.numpy()], theirs.last_hidden_state[real])
    assert_close(ours.pooled(X), theirs.pooler_output)
    assert ours.max_len == tokens.shape[1]
    with pytest.raises(OutOfRangeError, match=r"must be|out of|beyond|lie in"):
        ours(np.full((1, tokens.shape[1] + 1), 9))


@pytest.mark.parametrize("name", [name for name in CASES if "T5For" in name])
def test_a_t5_reads_padded_rows_and_writes_as_transformers_does(name, rng, tmp_path):
    model = reference(name, tmp_path)
    ours = load_pretrained(tmp_path, np.float64)
    assert (ours.head is None) == ("v1.1" not in name)
    tokens, written, lengths = rng.integers(0, 31, (2, 13)), rng.integers(0, 31, (2, 7)), [13, 6]
    real = torch.tensor(np.arange(13) < np.array(lengths)[:, None])
    given = {"input_ids": torch.tensor(tokens), "attention_mask": real}
    found = ours(tokens, written, padding_mask(lengths, 13))
    assert_close(found, model(**given, decoder_input_ids=torch.tensor(written)).logits)
    narrow = load_pretrained(tmp_path)(tokens, written, padding_mask(lengths, 13)).numpy()
    np.testing.assert_allclose(narrow, found.numpy(), rtol=0, atol=1e-4 * np.abs(narrow).max())
    expected = model.generate(**given, **WRITES, use_cache=False)[:, 1:]
    steps = list(generate(ours, [tokens[0], tokens[1, :6]], 8, stop=()))
    np.testing.assert_array_equal(np.stack(steps, axis=1), expected.numpy())


# ---------------------------------------------------------------- every key of config.json

OF_KEYS = [
    "GPT2LMHeadModel", "LlamaForCausalLM yarn", "MistralForCausalLM", "Qwen2ForCausalLM windows",
    "Qwen3ForCausalLM", "Gemma2ForCausalLM", "BertForMaskedLM", "BertForTokenClassification",
    "RobertaForMaskedLM", "DistilBertForMaskedLM", "T5ForConditionalGeneration",
    "T5EncoderModel gated",
]  # fmt: skip
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


def of_another_config(kind, config, state, *given):
    """What their model of another config gives; None if they refuse it, or it has other tensors."""
    try:
        model = kind(config).double().eval()
        odd = model.load_state_dict(state, strict=False)
        with torch.no_grad():
            out = of_theirs(model, *given).numpy()
    except Exception:
        return None
    return None if odd.missing_keys or odd.unexpected_keys else out


def passed_over(name, folder, **more):
    """The keys that change what they compute, while we say nothing and compute as before."""
    model = reference(name, folder, **more)
    config, state = json.loads((folder / "config.json").read_text()), model.state_dict()
    neither = {"transformers_version", "architectures", "model_type", "dtype"}
    config = {key: value for key, value in config.items() if key not in neither}
    named = {"architectures": [type(model).__name__], "model_type": model.config.model_type}
    tokens = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2]])
    given = name, tokens, tokens
    found, compared, known = [], 0, {}  # what theirs gives, by what its config says
    for key, new in [("", config), *changes(config)]:
        (folder / "config.json").write_text(json.dumps(new | named))
        try:
            ours = load_pretrained(folder, np.float64)
        except ArgumentError:
            continue
        try:
            theirs = type(model.config)(**new, attn_implementation="eager")
        except Exception:
            continue
        said = theirs.to_json_string()
        if said not in known:
            known[said] = of_another_config(type(model), theirs, state, *given)
        mine, expected = of_ours(ours, *given).numpy(), known[said]
        if expected is not None:
            compared += 1
            close = mine.shape == expected.shape and np.allclose(mine, expected, atol=1e-6)
            found += [] if close else [key]
    assert compared > 5
    return found


@pytest.mark.parametrize("name", OF_KEYS)
def test_no_key_of_a_config_is_passed_over(name, tmp_path):
    assert passed_over(name, tmp_path) == []


def test_a_key_that_is_passed_over_is_found(tmp_path, monkeypatch):
    get = Config.get

    def forgetful(self, key, *default):
        value = get(self, key, *default)
        return 1e-6 if key == "rms_norm_eps" else value

    monkeypatch.setattr(Config, "get", forgetful)
    assert "rms_norm_eps" in passed_over("Qwen3ForCausalLM", tmp_path, rms_norm_eps=1e-6)

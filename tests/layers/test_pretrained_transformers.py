"""Checkpoints that Hugging Face's `transformers` wrote, held to its models in float64.

Its norms, angles and some softmaxes run in float32 whatever the model's dtype; here that name means
float64, so that results must agree to 1e-10 of their size.
"""

import json

import numpy as np
import pytest

import minigrad as mg
from layers import generate, load_pretrained, padding_mask
from minigrad.errors import ArgumentError, OutOfRangeError

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


def gradients(model, loss):
    """Of all of their parameters, by the names of the file."""
    model.zero_grad()
    loss.backward()
    return {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}


def assert_gradients_agree(ours, loss, theirs):
    """Each of our gradients is theirs, once it is turned as the file is."""
    loss.backward()
    whole = max(np.abs(g).max() for g in theirs.values())
    for path, parameter in ours.named_parameters():
        name, how = ours.sources[path]
        if name in theirs and "/" not in how:
            expected = theirs[name].T if how == "T" else theirs[name]
            np.testing.assert_allclose(
                parameter.grad, expected, rtol=0, atol=1e-10 * whole, err_msg=path
            )


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
    found = np.stack(list(generate(ours, tokens[:, :5], 8, stop=())), axis=1)
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
    follows = model(torch.tensor(tokens), **given).seq_relationship_logits
    assert_close(ours.next_sentence(X), follows)
    assert ours.unused == []

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


HEADS = {
    "Model": (2, 13, 24), "ForMaskedLM": (2, 13, 31), "ForSequenceClassification": (2, 5),
    "ForTokenClassification": (2, 13, 5), "ForQuestionAnswering": (2, 13, 2),
    "ForNextSentencePrediction": (2, 2),
}  # fmt: skip
DISTIL = {
    "vocab_size": 31, "dim": 24, "n_heads": 4, "n_layers": 3, "hidden_dim": 20,
    "max_position_embeddings": 16,
}  # fmt: skip
ENCODERS = {
    "Bert": SIZES, "Roberta": SIZES | {"hidden_act": "relu", "pad_token_id": 1},
    "XLMRoberta": SIZES | {"pad_token_id": 2, "type_vocab_size": 1}, "DistilBert": DISTIL,
}  # fmt: skip
PAIRS = [(f, k) for f in ENCODERS for k in HEADS if f == "Bert" or "NextSentence" not in k]


@pytest.mark.parametrize(("family", "kind"), PAIRS)
def test_an_encoder_and_the_head_that_its_architecture_names(family, kind, rng, tmp_path):
    of_labels = ("ForSequenceClassification", "ForTokenClassification")
    labels = {"num_labels": 5} if kind in of_labels else {}
    model = reference(family, kind, ENCODERS[family] | labels)
    model.save_pretrained(tmp_path)
    ours = load_pretrained(tmp_path, np.float64)
    tokens = rng.integers(3, 31, (2, 13))  # torch gives tokens that pad no gradient
    theirs = model(torch.tensor(tokens))
    if kind == "ForQuestionAnswering":
        theirs = torch.stack([theirs.start_logits, theirs.end_logits], dim=-1)
    else:
        theirs = theirs.last_hidden_state if kind == "Model" else theirs.logits
    X = found = ours(tokens)
    if kind != "Model":
        found = ours.next_sentence(X) if "NextSentence" in kind else ours.logits(X)
    assert found.shape == HEADS[kind]
    assert_close(found, theirs)
    assert ours.unused == []
    assert_gradients_agree(ours, mg.sum(found**2), gradients(model, (theirs**2).sum()))


@pytest.mark.parametrize("pad", [1, 3])
def test_a_roberta_counts_positions_from_its_padding_token_on(pad, rng, tmp_path):
    model = reference("Roberta", "Model", SIZES | {"pad_token_id": pad})
    model.save_pretrained(tmp_path)
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


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen2 windows", "Qwen3"])
def test_a_language_model_without_an_output_layer_gives_vectors(family, rng, tmp_path):
    model = reference(family, "Model", CAUSAL[family] | {"tie_word_embeddings": False})
    model.save_pretrained(tmp_path)
    ours, tokens = load_pretrained(tmp_path, np.float64), rng.integers(0, 31, (2, 13))
    theirs, found = model(torch.tensor(tokens)).last_hidden_state, ours(tokens)
    assert_close(found, theirs)
    assert_gradients_agree(ours, mg.sum(found**2), gradients(model, (theirs**2).sum()))
    assert ours.unused == []
    with pytest.raises(ArgumentError, match="writes no text"):
        generate(ours, [3], 4)


T5_SIZES = {
    "vocab_size": 31, "d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_heads": 3,
    "num_decoder_layers": 3, "relative_attention_num_buckets": 8, "decoder_start_token_id": 3,
    "relative_attention_max_distance": 10,
}  # fmt: skip
T5S = {
    "v1.0": {}, "v1.1": {"tie_word_embeddings": False, "feed_forward_proj": "gated-gelu"},
    "of gelu": {"feed_forward_proj": "gelu"},
}  # fmt: skip


@pytest.mark.parametrize("kind", T5S)
def test_a_t5_reads_and_writes_as_transformers_does(kind, rng, tmp_path):
    model = reference("T5", "ForConditionalGeneration", T5_SIZES | T5S[kind])
    if kind == "v1.1":
        model.lm_head.weight = torch.nn.Parameter(torch.randn(31, 12))
    model.save_pretrained(tmp_path)
    ours = load_pretrained(tmp_path, np.float64)
    assert (ours.unused, ours.head is None) == ([], kind != "v1.1")
    tokens, written, lengths = rng.integers(0, 31, (2, 13)), rng.integers(0, 31, (2, 7)), [13, 6]
    real = torch.tensor(np.arange(13) < np.array(lengths)[:, None])
    given = {"input_ids": torch.tensor(tokens), "attention_mask": real}
    theirs = model(**given, decoder_input_ids=torch.tensor(written)).logits
    found = ours(tokens, written, padding_mask(lengths, 13))
    assert_close(found, theirs)
    assert_gradients_agree(ours, mg.sum(found**2), gradients(model, (theirs**2).sum()))
    narrow = load_pretrained(tmp_path)(tokens, written, padding_mask(lengths, 13)).numpy()
    np.testing.assert_allclose(narrow, found.numpy(), rtol=0, atol=1e-4 * np.abs(narrow).max())

    settings = {"do_sample": False, "max_new_tokens": 8, "eos_token_id": None, "pad_token_id": 0}
    expected = model.generate(**given, **settings, use_cache=False)[:, 1:]
    steps = list(generate(ours, [tokens[0], tokens[1, :6]], 8, stop=()))
    np.testing.assert_array_equal(np.stack(steps, axis=1), expected.numpy())


def test_an_encoder_of_t5_alone_reads_as_transformers_does(rng, tmp_path):
    model = reference("T5", "EncoderModel", T5_SIZES)
    model.save_pretrained(tmp_path)
    ours, tokens = load_pretrained(tmp_path, np.float64), rng.integers(0, 31, (2, 13))
    theirs = model(torch.tensor(tokens)).last_hidden_state
    found = ours(tokens)
    assert_close(found, theirs)
    assert_gradients_agree(ours, mg.sum(found**2), gradients(model, (theirs**2).sum()))
    assert ours.unused == []

"""The families that `load_pretrained` reads, each small and with drawn weights, as models."""

import json
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from layers import padding_mask
from layers.pretrained.files import Folder, Stored
from layers.pretrained.loading import MODELS, read_settings
from minigrad.errors import ArgumentError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

SIZES = {
    "vocab_size": 31, "hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 1,
    "intermediate_size": 20, "num_key_value_heads": 2, "rope_theta": 100.0,
}  # fmt: skip
T5 = {
    "model_type": "t5", "vocab_size": 31, "d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 1,
    "num_heads": 3, "relative_attention_num_buckets": 8, "decoder_start_token_id": 3,
    "relative_attention_max_distance": 10, "architectures": ["T5ForConditionalGeneration"],
}  # fmt: skip
GPT2 = {"n_embd": 24, "n_layer": 1, "n_head": 4, "vocab_size": 31, "n_positions": 50}
BERT = {
    "max_position_embeddings": 50, "type_vocab_size": 2, "num_key_value_heads": None,
    "rope_theta": None, "architectures": ["BertModel"],
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}
FAMILIES = {
    "gpt2": {"model_type": "gpt2"} | GPT2,
    "llama, yarn": {
        "model_type": "llama", "rope_scaling": YARN, "max_position_embeddings": 64
    } | SIZES,
    "mistral": {"model_type": "mistral", "sliding_window": 12} | SIZES,
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True} | SIZES,
    "qwen3": {"model_type": "qwen3", "head_dim": 8} | SIZES,
    "gemma2": {
        "model_type": "gemma2", "head_dim": 8, "sliding_window": 12, "query_pre_attn_scalar": 8
    } | SIZES | {"num_hidden_layers": 2},
    "bert": {"model_type": "bert"} | SIZES | BERT,
    "roberta": {"model_type": "roberta"} | SIZES | BERT | {"architectures": ["RobertaModel"]},
    "t5": T5,
}  # fmt: skip


def model_of(config, rng):
    """A model of a checkpoint's config, with drawn weights in place of its files'."""
    entries = {key: value for key, value in config.items() if value is not None}
    weights = {"any": Stored("", "F32", np.broadcast_to(np.float32(0), (10**6,)))}
    folder = Folder(Path("tiny"), {"config.json": json.dumps(entries).encode()}, weights)
    family, settings = read_settings(folder)
    model = MODELS[family.model](**settings, rng=rng, dtype=np.float32).eval()
    for parameter in model.parameters():
        parameter.assign_(rng.normal(0, 0.3, parameter.shape).astype(np.float32))
    return model


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_of_checkpoints_runs_at_other_batches_and_lengths(name, rng, tmp_path):
    model, path = model_of(FAMILIES[name], rng), str(tmp_path / "m.onnx")

    def draw(batch, n):
        tokens = rng.integers(0, 31, (batch, n))
        if name == "t5":
            return [tokens, rng.integers(0, 31, (batch, n + 2))]
        return [tokens, rng.random((batch, n)) < 0.7] if "bert" in name else [tokens]

    run = model
    if "bert" in name:
        run = lambda tokens, real: model(tokens, padding_mask(real))  # noqa: E731
    mg.export_onnx(run, draw(2, 7), path, longest=64)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shapes = [["batch", "length"], ["batch", "written_length" if name == "t5" else "length"]]
    assert [i.shape for i in session.get_inputs()] == shapes[: len(session.get_inputs())]
    for batch, n in ((1, 3), (5, 30)):
        inputs = draw(batch, n)
        feeds = dict(zip([i.name for i in session.get_inputs()], inputs, strict=True))
        ours = run(*inputs).numpy()
        np.testing.assert_allclose(session.run(None, feeds)[0], ours, rtol=1e-4, atol=1e-4)


def test_both_lengths_of_a_t5_have_names_of_their_own_even_where_they_are_equal(rng, tmp_path):
    model, path = model_of(T5, rng), str(tmp_path / "m.onnx")
    tokens = rng.integers(0, 31, (2, 7))
    mg.export_onnx(model, [tokens, tokens[::-1].copy()], path, longest=32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [i.shape[1] for i in session.get_inputs()] == ["length", "written_length"]
    feeds = {"tokens": rng.integers(0, 31, (3, 5)), "written": rng.integers(0, 31, (3, 11))}
    ours = model(*feeds.values()).numpy()
    np.testing.assert_allclose(session.run(None, feeds)[0], ours, rtol=1e-4, atol=1e-4)


SCALED = {
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "longrope": {"rope_type": "longrope", "short_factor": [1.0] * 3, "long_factor": [2.0] * 3,
                 "original_max_position_embeddings": 8},
}  # fmt: skip


@pytest.mark.parametrize("kind", SCALED)
def test_angles_that_depend_on_the_length_are_refused_before_any_trial(
    kind, rng, tmp_path, monkeypatch
):
    config = {"model_type": "llama", "rope_scaling": SCALED[kind], "max_position_embeddings": 16}
    model, calls = model_of(config | SIZES, rng), []
    monkeypatch.setattr(type(model), "forward", lambda *args: calls.append(args))
    with pytest.raises(ArgumentError, match=r"angles of rotary positions depend on the length"):
        mg.export_onnx(model, [rng.integers(0, 31, (2, 7))], tmp_path / "m.onnx")
    assert not calls

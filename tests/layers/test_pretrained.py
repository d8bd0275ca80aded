"""Checkpoints of GPT-2, Llama, Mistral and Qwen2 against the models written down in NumPy."""

import json
import os
import tracemalloc

import numpy as np
import pytest

from layers import generate, load_pretrained
from minigrad.errors import ArgumentError, FileError

V, D, H, DK, FF = 13, 16, 4, 4, 20  # tokens, width, heads, their width, hidden entries
TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])
GPT2 = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": V, "n_embd": D,
    "n_head": H, "n_layer": 2, "n_positions": 7, "layer_norm_epsilon": 1e-4, "eos_token_id": 0,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": V,
    "hidden_size": D, "num_attention_heads": H, "num_key_value_heads": 2, "num_hidden_layers": 2,
    "intermediate_size": FF, "rms_norm_eps": 1e-5, "rope_theta": 500.0, "head_dim": DK,
    "torch_dtype": "bfloat16", "max_position_embeddings": 64, "eos_token_id": [1, 2],
}  # fmt: skip
SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 6}  # fmt: skip
MISTRAL = LLAMA | {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
MISTRAL |= {"sliding_window": 3}
QWEN2 = LLAMA | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
QWEN2 |= {"use_sliding_window": False, "sliding_window": 3, "tie_word_embeddings": True}
CONFIGS = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "llama with biases": LLAMA | {"attention_bias": True},
    "llama 3": LLAMA | {"rope_scaling": SCALED},
    "mistral": MISTRAL,
    "mistral without a window": MISTRAL | {"sliding_window": None},
    "qwen2": QWEN2,
}


def drawn(config, dtype=np.float64):
    """Tensors as the family's files have them, with entries that are large enough to matter."""
    rng = np.random.default_rng(7)
    if config["model_type"] == "gpt2":
        block = {"attn.c_attn": (D, 3 * D), "attn.c_proj": (D, D), "mlp.c_fc": (D, 4 * D),
                 "mlp.c_proj": (4 * D, D), "ln_1": (D,), "ln_2": (D,)}  # fmt: skip
        named = {f"h.{k}.{n}": s for k in range(2) for n, s in block.items()} | {"ln_f": (D,)}
        shapes = {"wte.weight": (V, D), "wpe.weight": (7, D)}
        for name, shape in named.items():
            shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[-1:]}
    else:
        widths = {"q": D, "k": D // 2, "v": D // 2, "o": D}
        biases = (
            "qkvo" if config.get("attention_bias") else "qkv" * (config["model_type"] == "qwen2")
        )
        block = {f"self_attn.{x}_proj.weight": (n, D) for x, n in widths.items()}
        block |= {f"self_attn.{x}_proj.bias": (widths[x],) for x in biases}
        block |= {f"mlp.{x}_proj.weight": (FF, D) for x in ("gate", "up")}
        block |= {"mlp.down_proj.weight": (D, FF), "input_layernorm.weight": (D,)}
        block |= {"post_attention_layernorm.weight": (D,)}
        shapes = {f"model.layers.{k}.{n}": s for k in range(2) for n, s in block.items()}
        shapes |= {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,)}
        if not config.get("tie_word_embeddings"):
            shapes["lm_head.weight"] = (V, D)
    return {n: rng.normal(0, 0.4, s).astype(dtype) for n, s in shapes.items()}


def written(folder, config, tensors):
    safetensors = pytest.importorskip("safetensors.numpy")
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


# ---------------------------------------------------------------- the models, written down


def by_head(x):
    """(B, n, h, d_k) of (B, n, d): of fewer than H heads, each for a group."""
    return np.repeat(x.reshape(*x.shape[:2], -1, DK), H * DK // x.shape[-1], axis=2)


def attended(q, k, v, sees):
    S = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(DK)
    A = np.exp(np.where(sees, S, -np.inf))
    return np.einsum("bhij,bjhd->bihd", A / A.sum(-1, keepdims=True), v).reshape(2, -1, D)


def gpt2(w, config):
    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + config["layer_norm_epsilon"])
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    def affine(x, name):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    n = TOKENS.shape[1]
    x = w["wte.weight"][TOKENS] + w["wpe.weight"][:n]
    for k in range(2):
        qkv = np.split(affine(norm(x, f"h.{k}.ln_1"), f"h.{k}.attn.c_attn"), 3, -1)
        x = x + affine(attended(*map(by_head, qkv), np.tri(n, dtype=bool)), f"h.{k}.attn.c_proj")
        f = affine(norm(x, f"h.{k}.ln_2"), f"h.{k}.mlp.c_fc")
        f = 0.5 * f * (1 + np.tanh(np.sqrt(2 / np.pi) * (f + 0.044715 * f**3)))
        x = x + affine(f, f"h.{k}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def frequencies(config):
    """θ of each pair; as llama3 scales them, one by one."""
    theta = [config["rope_theta"] ** (-2 * k / DK) for k in range(DK // 2)]
    if scaling := config.get("rope_scaling"):
        length = scaling["original_max_position_embeddings"]
        for k, rate in enumerate(theta):
            turns = length * rate / (2 * np.pi)
            if turns < 1:
                theta[k] = rate / 8
            elif turns <= 4:
                theta[k] = (1 - (turns - 1) / 3) * rate / 8 + (turns - 1) / 3 * rate
    return np.array(theta)


def turned(x, config):
    angles = np.arange(x.shape[1])[:, None, None] * frequencies(config)
    a, b = x[..., : DK // 2], x[..., DK // 2 :]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def llama(w, config):
    def norm(x, name):
        mean = (x**2).mean(-1, keepdims=True)
        return x / np.sqrt(mean + config["rms_norm_eps"]) * w[f"{name}.weight"]

    def affine(x, name):
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)

    i = np.arange(TOKENS.shape[1])
    sees = i <= i[:, None]
    if config["model_type"] == "mistral" and config["sliding_window"]:
        sees &= i > i[:, None] - config["sliding_window"]
    x = w["model.embed_tokens.weight"][TOKENS]
    for k in range(2):
        at = f"model.layers.{k}"
        y = norm(x, f"{at}.input_layernorm")
        q, key, v = (by_head(affine(y, f"{at}.self_attn.{s}_proj")) for s in "qkv")
        out = attended(turned(q, config), turned(key, config), v, sees)
        x = x + affine(out, f"{at}.self_attn.o_proj")
        y = norm(x, f"{at}.post_attention_layernorm")
        gate = affine(y, f"{at}.mlp.gate_proj")
        x = x + affine(gate / (1 + np.exp(-gate)) * affine(y, f"{at}.mlp.up_proj"),
                       f"{at}.mlp.down_proj")  # fmt: skip
    head = "model.embed_tokens" if config.get("tie_word_embeddings") else "lm_head"
    return norm(x, "model.norm") @ w[f"{head}.weight"].T


@pytest.mark.parametrize("name", CONFIGS)
def test_a_checkpoint_computes_what_its_family_computes(name, tmp_path):
    config = CONFIGS[name]
    tensors = drawn(config)
    model = load_pretrained(written(tmp_path, config, tensors), dtype=np.float64)
    expected = (gpt2 if name == "gpt2" else llama)(tensors, config)
    np.testing.assert_allclose(model(TOKENS).numpy(), expected, rtol=0, atol=1e-10)
    assert model.end_tokens == ((0,) if name == "gpt2" else (1, 2))
    assert not model.training
    (token,) = generate(model, [3, 1, 4], max_new=1)
    assert token == expected[0, 2].argmax()


def test_bfloat16_is_read_from_several_files_as_the_first_half_of_float32(tmp_path):
    from safetensors import TensorSpec, serialize_file

    tensors, index = drawn(LLAMA, np.float32), {}
    for name, x in tensors.items():
        bits = (x.view(np.uint32) >> 16).astype(np.uint16)
        spec = TensorSpec(
            dtype="bfloat16", shape=x.shape, data_ptr=bits.ctypes.data, data_len=bits.nbytes
        )
        index[name] = f"{name}.safetensors"
        serialize_file({name: spec}, tmp_path / index[name], metadata=None)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    W_K = load_pretrained(tmp_path).decoder.blocks[1].attention.W_K.numpy()
    exact = tensors["model.layers.1.self_attn.k_proj.weight"].T
    np.testing.assert_array_equal(W_K.view(np.uint32), exact.view(np.uint32) >> 16 << 16)


def test_the_tokenizer_comes_with_the_model(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"the": 3, "dog": 1, "?": 0}, "?"))
    tokenizer.save(str(written(tmp_path, GPT2, drawn(GPT2)) / "tokenizer.json"))
    assert load_pretrained(tmp_path).tokenizer.encode("dog").ids == [1]
    (tmp_path / "tokenizer.json").unlink()
    assert load_pretrained(tmp_path).tokenizer is None


# ---------------------------------------------------------------- what is refused


def loading(tmp_path, config, **changed):
    """Load a checkpoint whose tensors were changed: None takes one away."""
    tensors = {n: x for n, x in (drawn(config) | changed).items() if x is not None}
    return load_pretrained(written(tmp_path, config, tensors))


REFUSED = {
    "another family": (LLAMA | {"model_type": "gemma"}, {}, "one of gpt2, llama, mistral, qwen2"),
    "yarn": (LLAMA | {"rope_scaling": SCALED | {"rope_type": "yarn"}}, {}, "rope_scaling 'yarn'"),
    "an unknown key": (LLAMA | {"softcap": 30.0}, {}, "softcap = 30.0 is not understood"),
    "wider heads": (LLAMA | {"head_dim": 8}, {}, "head_dim = 8 is not understood, only 4"),
    "missing": (GPT2, {"h.1.ln_2.bias": None}, r"1.norm_2.bias: .*\(16,\), got nothing"),
    "unexpected": (GPT2, {"h.1.ln_3.bias": np.ones(3)}, r"ln_3.bias: must be nothing, got"),
    "misshapen": (GPT2, {"ln_f.bias": np.ones(5)}, r"norm.bias: must be \(16,\), got \(5,\)"),
    "another output": (QWEN2, {"lm_head.weight": np.ones((V, D))}, "head.W: must be nothing, got"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused_by_name(name, tmp_path):
    config, changed, message = REFUSED[name]
    with pytest.raises(ArgumentError, match=message):
        loading(tmp_path, config, **changed)


WRONG = {
    **{f"{key} of {value!r}": (LLAMA | {key: value}, f"{key} must be .*, got")
       for key, value in {
           "hidden_size": "8", "num_attention_heads": 0, "rms_norm_eps": [1],
           "tie_word_embeddings": "false", "vocab_size": True,
       }.items()},
    "a scale in words": (LLAMA | {"rope_scaling": SCALED | {"factor": "8"}}, "must be float"),
    "no heads of one width": (LLAMA | {"num_attention_heads": 3}, "must divide hidden_size"),
    **{f"too large by {key}": (config | {key: size}, "its model has .* the files hold")
       for config, key, size in ((LLAMA, "vocab_size", 10**12), (GPT2, "n_layer", 10**9))},
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_no_config_can_say_is_a_damaged_file(name, tmp_path):
    config, message = WRONG[name]
    with pytest.raises(FileError, match=message):
        load_pretrained(written(tmp_path, config, drawn(GPT2 if "n_embd" in config else LLAMA)))


def test_keys_that_change_no_number_are_passed_over(tmp_path):
    keys = {"_num_labels": 1, "rope_interleaved": False, "is_llama_config": True}
    keys |= {"use_mrope": False, "unsloth_version": "2024.9", "transformers.js_config": {"a": 1}}
    assert not loading(tmp_path, LLAMA | keys).training
    with pytest.raises(ArgumentError, match="use_mrope = True is not understood"):
        loading(tmp_path, LLAMA | keys | {"use_mrope": True})


def test_a_model_is_in_memory_once_and_one_tensor_on_its_way(tmp_path):
    config = LLAMA | {"vocab_size": 4001}
    tensors = drawn(config) | {"lm_head.weight": np.ones((4001, D))}
    tensors |= {"model.embed_tokens.weight": np.ones((4001, D))}
    tensors = {name: x.astype(np.float16) for name, x in tensors.items()}
    written(tmp_path, config, tensors)
    tracemalloc.start()
    model = load_pretrained(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    sizes = [4 * p.size for p in model.parameters()]
    assert peak < sum(sizes) + 1.2 * max(sizes)


def test_a_tied_output_that_a_file_has_too_is_the_embedding(tmp_path):
    same = drawn(QWEN2)["model.embed_tokens.weight"]
    assert loading(tmp_path, QWEN2, **{"lm_head.weight": same}).head is None


def test_a_file_that_is_damaged_or_missing_is_said_to_be(tmp_path):
    path = written(tmp_path, GPT2, drawn(GPT2)) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(FileError, match=r"model\.safetensors is damaged"):
        load_pretrained(tmp_path)
    for name in ("model.safetensors", "config.json"):
        (tmp_path / name).unlink()
        if hasattr(os, "mkfifo"):  # which is not waited for
            os.mkfifo(tmp_path / name)
        with pytest.raises(FileError, match=f"no such file: .*{name}"):
            load_pretrained(tmp_path)

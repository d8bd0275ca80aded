"""Checkpoints made here, byte by byte: what is read, what is refused, and what is written again."""

import json
import struct

import numpy as np
import pytest

import minigrad as mg
from layers import LanguageModel, Linear, Module, load_pretrained, load_state
from layers.pretrained.files import open_folder
from minigrad.errors import ArgumentError, FileError, MissingDependencyError
from tests.compare import assert_same
from tests.weighing import weigh

pytest.importorskip("safetensors")

D, H, D_FF, N_TOKENS = 8, 2, 10, 11
CONFIG = {
    "model_type": "llama", "vocab_size": N_TOKENS, "hidden_size": D, "num_attention_heads": H,
    "num_hidden_layers": 2, "intermediate_size": D_FF, "num_key_value_heads": 1, "eos_token_id": 2,
    "rope_theta": 100.0, "attention_dropout": 0.0, "rope_scaling": None,
}  # fmt: skip
SHAPES = {"model.embed_tokens.weight": (N_TOKENS, D), "model.norm.weight": (D,)}
SHAPES |= {"lm_head.weight": (N_TOKENS, D)}
for _k in range(2):
    _of_block = {
        "self_attn.q_proj": (D, D), "self_attn.k_proj": (4, D), "self_attn.v_proj": (4, D),
        "self_attn.o_proj": (D, D), "mlp.gate_proj": (D_FF, D), "mlp.up_proj": (D_FF, D),
        "mlp.down_proj": (D, D_FF), "input_layernorm": (D,), "post_attention_layernorm": (D,),
    }  # fmt: skip
    SHAPES |= {f"model.layers.{_k}.{name}.weight": shape for name, shape in _of_block.items()}
TOKENS = np.array([[3, 1, 4, 1, 5]])
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8"}


@pytest.fixture
def tensors(rng):
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def file_of(tensors, kind="F32"):
    """The bytes of a safetensors file."""
    header, body = {}, b""
    for name, array in tensors.items():
        end = len(body) + array.nbytes
        header[name] = {
            "dtype": kind, "shape": list(array.shape), "data_offsets": [len(body), end]
        }  # fmt: skip
        body += array.tobytes()
    return with_header(header, body)


def with_header(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def write_folder(folder, content=None, kind="F32", **config):
    """Write a checkpoint's tensors, or the bytes of its file; keywords change its config."""
    folder.mkdir(exist_ok=True)
    if content is not None:
        made = content if isinstance(content, bytes) else file_of(content, kind)
        (folder / "model.safetensors").write_bytes(made)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def write(tmp_path):
    """Write a checkpoint of CONFIG, with these changes."""
    return lambda content=None, kind="F32", **config: write_folder(
        tmp_path, content, kind, **CONFIG | config
    )


def test_arrays_of_the_files_dtype_are_shared_with_it_and_writes_stay_here(tensors, write):
    folder = write(tensors)
    before = (folder / "model.safetensors").read_bytes()
    model = load_pretrained(folder)
    assert model.embedding.W._data.base is not None
    model.embedding.W.assign_(np.zeros((N_TOKENS, D), np.float32))
    assert (folder / "model.safetensors").read_bytes() == before


WIDER = {8: 512, 4: 256, 10: 700, 11: 1001}


@pytest.mark.parametrize(("kind", "most"), [("F32", 0.1), ("BF16", 1.2)])
def test_loading_takes_the_memory_of_the_weights_that_are_not_the_files_own(kind, most, write):
    shapes = {name: tuple(WIDER[n] for n in shape) for name, shape in SHAPES.items()}
    tensors = {name: np.zeros(shape, DTYPES[kind]) for name, shape in shapes.items()}
    sizes = {"hidden_size": 512, "intermediate_size": 700, "vocab_size": 1001}
    folder = write(tensors, kind, **sizes)
    model = load_pretrained(folder)  # what is imported only now is no part of it
    size = sum(p.size * p.dtype.itemsize for p in model.parameters())
    assert weigh(lambda: load_pretrained(folder))[1] < most * size


@pytest.mark.parametrize("kind", ["F64", "F32", "F16", "BF16"])
def test_a_model_saved_has_the_bytes_that_were_read(kind, tensors, write, tmp_path):
    given = {name: bits(x, kind) for name, x in tensors.items()}
    folder = write(given, kind, torch_dtype="any")
    (folder / "tokenizer.json").write_text("{}")
    load_pretrained(folder, np.float64).save(tmp_path / "again")
    for name, stored in open_folder(tmp_path / "again").tensors.items():
        assert stored.kind == kind
        assert stored.array.tobytes() == given[name].tobytes(), name
    for name in ("config.json", "tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def bits(x, kind):
    """x in a dtype of the format; bfloat16 is the upper half of float32."""
    return (x.view("<u4") >> 16).astype("<u2") if kind == "BF16" else x.astype(DTYPES[kind])


def test_bfloat16_is_widened_exactly_and_rounded_to_even(write, tensors, tmp_path):
    values = np.array([1.0, 1.00390625, 1.01171875, np.nan, np.inf, -0.0, 0, 2], np.float32)
    tensors = {name: bits(x, "BF16") for name, x in tensors.items()}
    model = load_pretrained(write(tensors, "BF16"))
    model.decoder.norm.weight.assign_(values)
    model.save(tmp_path)
    again = load_pretrained(tmp_path).decoder.norm.weight.numpy()
    np.testing.assert_array_equal(again, [1.0, 1.0, 1.015625, np.nan, np.inf, -0.0, 0, 2])


def test_training_then_saving_over_the_same_folder_keeps_the_new_weights(tensors, write):
    folder = write(tensors)
    model = load_pretrained(folder)
    mg.sum(model(TOKENS) ** 2).backward()
    for parameter in model.parameters():
        parameter.assign_(parameter.numpy() - np.float32(0.01) * parameter.grad)
    model.save(folder)
    assert_same(load_pretrained(folder)(TOKENS), model(TOKENS), 0)


def test_the_one_file_there_is_may_have_another_name(tensors, write):
    folder = write(tensors)
    whole = load_pretrained(folder)(TOKENS).numpy()
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    assert_same(load_pretrained(folder)(TOKENS), whole, 0)


def test_shards_are_read_by_their_index_and_written_as_shards(tensors, write, tmp_path):
    whole = load_pretrained(write(tensors))(TOKENS).numpy()
    folder, names = write_folder(tmp_path / "sharded", **CONFIG), list(tensors)
    index = {name: f"model-{k % 2}.safetensors" for k, name in enumerate(names)}
    for file in set(index.values()):
        of_file = {name: tensors[name] for name in names if index[name] == file}
        (folder / file).write_bytes(file_of(of_file))
    said = folder / "model.safetensors.index.json"
    said.write_text(json.dumps({"weight_map": index}))
    load_pretrained(folder).save(tmp_path / "again")
    assert_same(load_pretrained(tmp_path / "again")(TOKENS), whole, 0)
    said.write_text(json.dumps({"weight_map": index | {"more": "model-0.safetensors"}}))
    with pytest.raises(FileError, match="the index and the file disagree about more"):
        load_pretrained(folder)
    said.write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    with pytest.raises(FileError, match=r"names a file outside: '\.\./model"):
        load_pretrained(folder)


def test_an_output_layer_stored_beside_the_embedding_it_is_tied_to(tensors, write, tmp_path):
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model = load_pretrained(write(tensors, tie_word_embeddings=True))
    assert model.head is None
    assert model.unused == ["lm_head.weight"]
    model.embedding.W.assign_(np.ones((N_TOKENS, D), np.float32))
    model.save(tmp_path)
    assert (open_folder(tmp_path).tensors["lm_head.weight"].array == 1).all()
    with pytest.raises(ArgumentError, match=r"lm_head\.weight: unexpected"):
        load_pretrained(write(tensors | {"lm_head.weight": tensors["lm_head.weight"] + 1},
                              tie_word_embeddings=True))  # fmt: skip


MISFITS = {
    r"decoder\.norm\.weight: model\.norm\.weight is missing": {"model.norm.weight": None},
    "extra: unexpected": {"extra": np.zeros(3, "f4")},
    "lm_haed: unexpected": {"lm_head.weight": None, "lm_haed": np.zeros((N_TOKENS, D), "f4")},
    r"head\.W: lm_head\.weight must be \(11, 8\), got \(8, 11\)":
        {"lm_head.weight": np.zeros((D, N_TOKENS), "f4")},
}  # fmt: skip


@pytest.mark.parametrize("message", MISFITS)
def test_tensors_that_do_not_fit_are_listed(message, tensors, write):
    changed = tensors | MISFITS[message]
    with pytest.raises(ArgumentError, match=message):
        load_pretrained(write({name: x for name, x in changed.items() if x is not None}))


def entry(begin, end, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


HOSTILE = {
    "empty": b"",
    "a header of 2 GB": struct.pack("<Q", 2**31) + b"{}",
    "a header beyond the file": struct.pack("<Q", 1000) + b"{}",
    "no JSON": with_header(b"not json"),
    "nested without end": with_header(b"[" * 100_000),
    "overlapping offsets": with_header({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)),
    "a hole": with_header({"a": entry(0, 8), "b": entry(12, 20)}, bytes(20)),
    "offsets beyond the file": with_header({"a": entry(0, 8)}, bytes(4)),
    "a shape too large to count": with_header({"a": entry(0, 8, (2**40, 2**40))}, bytes(8)),
    "an unknown dtype": with_header({"a": entry(0, 2, dtype="F8_E4M3")}, bytes(2)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_files_that_are_damaged_or_hostile_are_refused(kind, write):
    with pytest.raises(FileError, match=r"damaged|not supported"):
        load_pretrained(write(HOSTILE[kind]))


CONFIGS = {
    r"(?s)logit_scale = 2.0: not understood.*load_state\(model, arrays, rename\)":
        {"logit_scale": 2.0},
    "hidden_act = 'quick_gelu'": {"hidden_act": "quick_gelu"},
    "rope_interleaved = True is not understood, only False": {"rope_interleaved": True},
    "hidden_size must be a positive integer, got -6": {"hidden_size": -6},
    "model_type must be one of .*, got 'mamba'": {"model_type": "mamba"},
    "rope_type must be one of": {"rope_scaling": {"type": "odd"}},
    "architectures = .* must be one of LlamaForCausalLM":
        {"architectures": ["LlamaForSequenceClassification"]},
    r"rope_parameters: mrope_section = \[1\]: not understood":
        {"rope_scaling": {"type": "linear", "factor": 2.0, "mrope_section": [1]}},
    "rope_theta must be a positive number, got 0": {"rope_parameters": {"rope_theta": 0}},
    "low_freq_factor must be less than high_freq_factor":
        {"rope_scaling": {"type": "llama3", "low_freq_factor": 4, "high_freq_factor": 1}},
    "short_factor must be 2 positive numbers":
        {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}},
    r"config\.json: .*n_kv_heads must": {"num_key_value_heads": 3},
    "vocab_size = 1073741824 is more than all entries of the files": {"vocab_size": 2**30},
    "describes at least 67,288 entries, the files hold": {"num_hidden_layers": 300},
    "head_dim = 1073741824 is more than all": {"head_dim": 2**30},
}  # fmt: skip


@pytest.mark.parametrize("message", CONFIGS)
def test_a_config_that_is_not_understood_is_an_error_naming_the_key(message, tensors, write):
    with pytest.raises(ArgumentError, match=message):
        load_pretrained(write(tensors, **CONFIGS[message]))


def test_keys_of_a_config_that_change_nothing_are_let_through(tensors, write):
    harmless = {"unsloth_version": "2025.1", "unsloth_fixed": True, "attention_bias": False}
    folder = write(tensors, **harmless, _attn_implementation_autoset=True, model_type="mistral")
    assert load_pretrained(folder).decoder.blocks[0].attention.b_Q is None
    with pytest.raises(ArgumentError, match="attention_bias = True: not understood"):
        load_pretrained(write(tensors, attention_bias=True, model_type="mistral"))


def test_a_base_model_without_an_output_layer_gives_vectors(tensors, write):
    model = load_pretrained(write(tensors), np.float64)
    expected = model.decoder(model.embedding(TOKENS)).numpy()
    bare = {name.removeprefix("model."): x for name, x in tensors.items() if "lm_head" not in name}
    base = load_pretrained(write(bare, architectures=["LlamaModel"]), np.float64)
    np.testing.assert_array_equal(base(TOKENS).numpy(), expected)
    with pytest.raises(ArgumentError, match=r"lm_head\.weight is missing"):
        load_pretrained(write(bare, architectures=["LlamaForCausalLM"]))


def test_an_untied_embedding_is_never_taken_from_the_output_layer(tensors, write):
    del tensors["model.embed_tokens.weight"]
    with pytest.raises(ArgumentError, match=r"model\.embed_tokens\.weight is missing"):
        load_pretrained(write(tensors))
    tied = load_pretrained(write(tensors, tie_word_embeddings=True))
    np.testing.assert_array_equal(tied.embedding.W.numpy(), tensors["lm_head.weight"])


def test_pickled_and_missing_files_are_never_read(tmp_path):
    with pytest.raises(FileError, match="no such folder"):
        load_pretrained(tmp_path / "nowhere")
    with pytest.raises(FileError, match=r"has no config\.json"):
        load_pretrained(tmp_path)
    write_folder(tmp_path, **CONFIG)
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    with pytest.raises(FileError, match=r"pytorch_model\.bin is pickled, and never read"):
        load_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(with_header({}))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(FileError, match="is not JSON"):
        load_pretrained(tmp_path)


def test_without_the_library_the_error_says_what_to_install(tensors, write, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "minigrad\[models\]"'):
        load_pretrained(write(tensors))


def test_the_tokenizer_neither_pads_nor_truncates_until_told(tensors, write):
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: k for k, word in enumerate(["[UNK]", "the", "cat", "sat"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_padding(length=7)
    made.enable_truncation(2)
    folder = write(tensors)
    made.save(str(folder / "tokenizer.json"))
    model = load_pretrained(folder)
    assert model.tokenizer.encode("the cat sat").ids == [1, 2, 3]
    model.tokenizer.enable_padding(length=4)
    assert model.tokenizer.encode("cat").ids == [2, 0, 0, 0]


def test_arrays_under_names_of_ones_own(rng, tmp_path):
    model = LanguageModel(N_TOKENS, D, H, n_layers=2, max_len=7, dtype=np.float32, rng=0)
    state = LanguageModel(N_TOKENS, D, H, n_layers=2, max_len=7, rng=1).state_dict()
    theirs = {}
    for path, x in state.items():
        block = path.split(".")[2] if "blocks" in path else ""
        if not path.endswith(("W_Q", "W_K", "W_V")):
            theirs[path.replace("W_1", "up") if block else path] = x.T if "W_1" in path else x
    for k in range(2):
        of = f"decoder.blocks.{k}.attention.W_"
        theirs[f"qkv{k}"] = np.concatenate([state[of + s] for s in "QKV"], axis=1)
    np.savez(tmp_path / "gpt.npz", **theirs)
    rename = {f"decoder.blocks.*.attention.W_{s}": f"qkv* {k}/3" for k, s in enumerate("QKV")}
    rename["decoder.blocks.*.feed_forward.W_1"] = "decoder.blocks.*.feed_forward.up T"
    load_state(model, np.load(tmp_path / "gpt.npz"), rename)
    before = model.state_dict()
    assert_same(before, {path: x.astype(np.float32) for path, x in state.items()}, 0)
    odd = {"decoder.blocks.0.feed_forward.up": np.ones(5), "odd": np.ones(1)}
    with pytest.raises(ArgumentError, match=r"W_1: .*up must be \(32, 8\), got \(5,\)\n.*odd: un"):
        load_state(model, theirs | odd, rename)
    with pytest.raises(ArgumentError, match="qkv1 must be of real numbers, is <U"):
        load_state(model, theirs | {"qkv1": theirs["qkv1"].astype(str)}, rename)
    assert_same(model.state_dict(), before, 0)


def test_a_parameter_without_axes_is_written_too():
    class Scaled(Module):
        def __init__(self):
            self.factor = mg.tensor(2.0, requires_grad=True)

    model = Scaled()
    load_state(model, {"factor": np.array(3.0)})
    assert model.factor.item() == 3
    with pytest.raises(ArgumentError, match=r"factor must be \(\), got \(1,\)"):
        load_state(model, {"factor": np.ones(1)})


def test_a_tokenizer_that_is_missing_or_damaged_is_named(tensors, write):
    folder = write(tensors)
    with pytest.raises(FileError, match=r"has no tokenizer\.json; copy that of the model it was"):
        _ = load_pretrained(folder).tokenizer
    (folder / "vocab.txt").write_text("[UNK]\nthe")
    with pytest.raises(FileError, match=r"AutoTokenizer\.from_pretrained\(folder\)\.save_pre"):
        _ = load_pretrained(folder).tokenizer
    pytest.importorskip("tokenizers")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(FileError, match=r"tokenizer\.json is damaged"):
        _ = load_pretrained(folder).tokenizer


@pytest.mark.parametrize("how", ["t", "transpose", "TT", "3/3", "T 4/3"])
def test_what_stands_behind_a_name_and_is_no_step_is_refused(how):
    layer = Linear(3, 3, use_bias=False, rng=0)
    before = layer.W.numpy().copy()
    arrays = {"weight": np.ones((3, 9 if "/" in how else 3))}
    with pytest.raises(ArgumentError, match="load_state: W: behind the name weight may stand T"):
        load_state(layer, arrays, {"W": f"weight {how}"})
    np.testing.assert_array_equal(layer.W.numpy(), before)

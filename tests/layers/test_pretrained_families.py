"""A tiny checkpoint of each family, made here, and what it gives: no `transformers` is needed.

The numbers are those that `transformers` computes; test_pretrained_transformers.py holds us to it.
"""

import contextlib
import json
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from layers import generate, load_pretrained
from layers.pretrained import describe, families
from layers.pretrained.config import Config
from layers.pretrained.files import Folder, Stored, open_folder
from layers.pretrained.loading import MODELS, _usual_sources
from layers.pretrained.settings import read as settings_of
from minigrad.errors import ArgumentError, DTypeError, FileError, MinigradError, ShapeError
from tests.compare import assert_same, give_wrong_values
from tests.layers.test_pretrained import (
    CONFIG,
    D_FF,
    N_TOKENS,
    TOKENS,
    D,
    file_of,
    write_folder,
)  # fmt: skip

pytest.importorskip("safetensors")


KIN = {key: value for key, value in CONFIG.items() if key != "model_type"}
FAMILIES = {
    "gpt2": ("GPT2LMHeadModel", {
        "vocab_size": N_TOKENS, "n_embd": D, "n_head": 2, "n_layer": 2, "n_inner": D_FF,
        "n_positions": 7}),
    "llama": ("LlamaForCausalLM", KIN),
    "mistral": ("MistralForCausalLM", KIN | {"sliding_window": 3}),
    "qwen2": ("Qwen2ForCausalLM", KIN | {
        "use_sliding_window": True, "sliding_window": 2, "max_window_layers": 1}),
    "qwen3": ("Qwen3ForCausalLM", KIN | {"head_dim": 4}),
    "gemma2": ("Gemma2ForCausalLM", KIN | {"head_dim": 4, "query_pre_attn_scalar": 4,
                                                   "sliding_window": 3}),
    "bert": ("BertForMaskedLM", {
        "vocab_size": N_TOKENS, "hidden_size": D, "num_attention_heads": 2, "num_hidden_layers": 2,
        "intermediate_size": D_FF, "max_position_embeddings": 7}),
    "roberta": ("RobertaForMaskedLM", {
        "vocab_size": N_TOKENS, "hidden_size": D, "num_attention_heads": 2, "num_hidden_layers": 2,
        "intermediate_size": D_FF, "max_position_embeddings": 7, "pad_token_id": 1}),
    "distilbert": ("DistilBertForMaskedLM", {
        "vocab_size": N_TOKENS, "dim": D, "n_heads": 2, "n_layers": 2, "hidden_dim": D_FF,
        "max_position_embeddings": 7}),
    "t5": ("T5ForConditionalGeneration", {
        "vocab_size": N_TOKENS, "d_model": D, "d_kv": 3, "d_ff": D_FF, "num_layers": 2,
        "num_heads": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9,
        "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
        "scale_decoder_outputs": False, "decoder_start_token_id": 0}),
}  # fmt: skip
EXPECTED = {
    "gpt2": [-0.206133465369, -0.80030832127, -0.903656576931, -0.200199404144],
    "llama": [-0.379371525671, 0.378358775841, -0.822479527619, -0.134224414193],
    "mistral": [-0.744923472152, 0.345751146181, -1.2648946952, -0.198284390751],
    "qwen2": [-0.228075807626, -0.044193352508, -1.33812939181, 0.0335800881407],
    "qwen3": [-0.289435141374, 0.340396359175, -0.98454475901, -0.0291871618667],
    "gemma2": [0.1408030685, 2.51578118463, 1.75862554743, -1.94088062131],
    "bert": [-1.09781818939, -1.44972690443, -1.29438271056, 0.367916289562],
    "roberta": [0.923634428011, -0.97538375269, 0.550578899712, 1.18243206176],
    "distilbert": [-0.752446770718, -2.08093817869, 0.0551027564654, -0.875943524442],
    "t5": [0.473590041851, 0.695903897397, 0.436427196744, 0.342124542963],
}
"""The first four logits after the last token."""


def shapes_of(family, config):
    """What a checkpoint of this family and config holds, by the family's own table of names.

    The table is held by the numbers above: entries are drawn by their tensor's name.
    """
    entries = Stored("", "F64", np.broadcast_to(0.0, 2**40))
    folder, made = Folder(Path("here"), tensors={"": entries}), families.FAMILIES[family]
    made, settings = settings_of(made, Config(config, folder, [*made.kinds]))
    model = MODELS[made.model](**settings, rng=0, dtype=np.float64)
    model.folder = folder
    sources = _usual_sources(model, made, "" if family == "gpt2" else made.prefix)
    return {
        s.name: s.shape(p.shape) for s, p in zip(sources.values(), model.parameters(), strict=True)
    }


def write_family(family, folder, n_tokens=N_TOKENS, positions=7, **more):
    """A checkpoint whose entries depend on the tensor's name alone; `more` goes to its config."""
    kind, config = FAMILIES[family]
    sizes = {N_TOKENS: n_tokens, 7: positions}  # numbers that nothing else is
    config = {key: sizes.get(value, value) for key, value in config.items()}
    config |= {"model_type": family, "architectures": [kind]}
    tensors = {
        name: np.random.default_rng(zlib.crc32(name.encode())).normal(0, 0.5, shape)
        for name, shape in shapes_of(family, config).items()
    }
    return write_folder(folder, tensors, "F64", **config | more)


def last_logits(model):
    """The first four logits at the last token."""
    out = model(TOKENS, TOKENS[:, :3]) if hasattr(model, "decode") else model(TOKENS)
    out = model.logits(out) if hasattr(model, "pooled") else out
    return out.numpy()[0, -1, :4]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_of_each_family_gives_the_numbers_of_transformers(family, tmp_path):
    model = load_pretrained(write_family(family, tmp_path), np.float64)
    np.testing.assert_allclose(last_logits(model), EXPECTED[family], rtol=1e-9)
    assert not model.training
    narrow = last_logits(load_pretrained(tmp_path))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, EXPECTED[family], rtol=0, atol=1e-4 * np.abs(narrow).max())
    assert model.unused == []
    model.save(tmp_path / "again")
    saved, stored = open_folder(tmp_path / "again").tensors, open_folder(tmp_path).tensors
    assert saved.keys() == stored.keys()
    for name, tensor in stored.items():
        assert saved[name].array.tobytes() == tensor.array.tobytes(), name


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"type": "yarn", "factor": 4.0}
DYNAMIC = {"type": "dynamic", "factor": 2.0}
SCALINGS = {
    "linear": ({"rope_type": "linear", "factor": 4.0}, 16, 0,
               [-0.756158944055, 0.472798010043, -1.10484909961, -0.158623902583]),
    "dynamic, within": (DYNAMIC, 16, 0, EXPECTED["llama"]),
    "dynamic, beyond": (DYNAMIC, 4, 0,
                        [-0.386986699629, 0.382387234, -0.809924492877, -0.137654882379]),
    "llama3, mixed and slowed": (
        LLAMA3, 256, 16, [-0.373846420482, 0.449686943719, -0.769004319975, -0.112655657396]),
    "llama3, kept and mixed": (
        LLAMA3, 256, 64, [-0.398588518839, 0.387885075874, -0.797380617801, -0.141941612903]),
    "yarn, slowed": (
        YARN, 16, 4, [-0.444472122414, 0.407419671157, -0.689699324732, -0.178136062601]),
    "yarn, mixed": (
        YARN, 256, 64, [-0.432636886437, 0.402889825858, -0.696349729804, -0.175256940176]),
    "yarn, its ends": (
        YARN | {"beta_fast": 4.0, "beta_slow": 0.5, "truncate": False}, 256, 64,
        [-0.436458023346, 0.404408542511, -0.6937194841, -0.176245505299]),
    "yarn, amplitude": (
        YARN | {"attention_factor": 1.5}, 16, 4,
        [-0.602122651344, 0.455230368099, -0.519769433794, -0.234917131709]),
    "yarn, both scales": (
        YARN | {"mscale": 2.0, "mscale_all_dim": 1.0}, 16, 4,
        [-0.437838330362, 0.404791273462, -0.702326940166, -0.173922027528]),
    "yarn, one scale": (
        YARN | {"mscale": 2.0}, 16, 4,
        [-0.444472122414, 0.407419671157, -0.689699324732, -0.178136062601]),
}  # fmt: skip
"""A Llama's rope_scaling, its positions, those that it was trained on first, and what it gives."""


@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_angles_give_the_numbers_of_transformers(name, tmp_path):
    scaling, positions, trained, expected = SCALINGS[name]
    scaling = scaling | ({"original_max_position_embeddings": trained} if trained else {})
    given = {"rope_scaling": scaling, "max_position_embeddings": positions}
    model = load_pretrained(write_family("llama", tmp_path, **given), np.float64)
    np.testing.assert_allclose(last_logits(model), expected, rtol=1e-9)


def test_norms_may_have_the_names_of_older_files(tmp_path):
    folder = write_family("bert", tmp_path)
    expected = load_pretrained(folder).state_dict()
    tensors = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): stored.array
        for name, stored in open_folder(folder).tensors.items()
    }
    (folder / "model.safetensors").write_bytes(file_of(tensors, "F64"))
    assert_same(load_pretrained(folder).state_dict(), expected, 0)


def changed(folder, file="config.json", **by):
    """The folder, with these keys in one of its JSON files."""
    path = folder / file
    entries = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(entries | by))
    return folder


@pytest.mark.parametrize(
    ("family", "config", "windows"),
    [
        ("qwen2", {"use_sliding_window": False}, [None, None]),
        ("qwen2", {}, [None, 2]),
        ("mistral", {"sliding_window": None}, [None, None]),
        ("llama", {"model_type": "mistral", "architectures": None}, [4096, 4096]),
    ],
)
def test_windows_are_those_of_the_family_where_the_config_has_none(
    family, config, windows, tmp_path
):
    model = load_pretrained(write_family(family, tmp_path, **config))
    assert [block.attention.window for block in model.decoder.blocks] == windows


def test_outputs_of_a_t5_are_not_scaled_where_the_key_is_null(tmp_path):
    folder = write_family("t5", tmp_path)
    changed(folder, tie_word_embeddings=True, scale_decoder_outputs=None)
    assert_same(last_logits(load_pretrained(folder, np.float64)), EXPECTED["t5"], 1e-9)


def without(folder, *names):
    """The folder, without the tensors in whose names one of these stands."""
    stored = open_folder(folder).tensors.items()
    rest = {name: np.array(x.array) for name, x in stored if not any(n in name for n in names)}
    (folder / "model.safetensors").write_bytes(file_of(rest, "F64"))
    return folder


def test_an_encoder_of_a_t5_needs_no_tensor_of_its_decoder(tmp_path):
    folder = write_family("t5", tmp_path)
    expected = load_pretrained(folder, np.float64).encode(TOKENS).numpy()
    alone = changed(without(folder, "decoder", "lm_head"), architectures=["T5EncoderModel"])
    assert_same(load_pretrained(alone, np.float64)(TOKENS), expected, 0)


def test_a_text_ends_with_the_checkpoints_end_token(tmp_path):
    folder = write_family("gpt2", tmp_path)
    whole = list(generate(load_pretrained(folder), [3], 6))
    cut = whole[: whole.index(whole[2]) + 1]
    end = cut[-1]
    changed(folder, eos_token_id=[10**6, end])
    assert list(generate(load_pretrained(folder), [3], 6)) == cut
    assert list(generate(load_pretrained(folder), [3], 6, stop=())) == whole
    changed(folder, "generation_config.json", eos_token_id=10**6)
    assert list(generate(load_pretrained(folder), [3], 6)) == whole
    changed(folder, "generation_config.json", eos_token_id="</s>")
    with pytest.raises(ArgumentError, match=r"generation_config\.json: eos_token_id must be an"):
        generate(load_pretrained(folder), [3], 6)


def test_an_encoder_is_told_that_it_writes_no_text(tmp_path):
    model = load_pretrained(write_family("bert", tmp_path))
    with pytest.raises(ArgumentError, match=r"TextEncoder has no decoder\.blocks, so it writes no"):
        generate(model, [3], 6)


def test_segments_of_an_encoder_without_any_are_refused(tmp_path):
    model = load_pretrained(write_family("distilbert", tmp_path))
    with pytest.raises(ArgumentError, match="has no embedding of segments"):
        model(TOKENS, segments=0 * TOKENS)


def test_whatever_a_pretrained_model_is_given_what_it_raises_is_an_error_of_ours(tmp_path):
    bert = load_pretrained(write_family("bert", tmp_path / "bert"))
    t5 = load_pretrained(write_family("t5", tmp_path / "t5"))
    X = bert(TOKENS).numpy()
    for method in (bert.logits, bert.pooled, bert.next_sentence):
        give_wrong_values(method, [X])
    give_wrong_values(bert.sentence, [TOKENS, [5]])
    give_wrong_values(t5.encode, [TOKENS, None])
    give_wrong_values(t5.decode, [TOKENS, t5.encode(TOKENS).numpy()])
    give_wrong_values(t5.writer, [[TOKENS[0]]])
    give_wrong_values(partial(describe, tmp_path / "bert"), [5, 1, np.float32])
    for folder in (None, 3):
        with pytest.raises(DTypeError, match=r"\.save\(folder\): "):
            t5.save(folder)


def test_a_t5_writes_what_its_logits_say(tmp_path):
    model = load_pretrained(write_family("t5", tmp_path), np.float64)
    rows, written = [TOKENS[0], TOKENS[0, :3]], [np.zeros((1, 1), int), np.zeros((1, 1), int)]
    steps = np.stack(list(generate(model, rows, 6)), axis=1)
    for row, found, so_far in zip(rows, steps, written, strict=True):
        for token in found:
            assert token == model(row[None], so_far).numpy()[0, -1].argmax()
            so_far = np.append(so_far, [[token]], axis=1)
    assert len(set(steps.ravel())) > 1


POOLINGS = {
    "cls": ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, lambda x: x[0]),
    "mean": ({"pooling_mode_mean_tokens": True}, lambda x: x.mean(axis=0)),
    "max": ({"pooling_mode_max_tokens": True, "word_embedding_dimension": 8},
            lambda x: x.max(axis=0)),
    "max, named": ({"pooling_mode": "max"}, lambda x: x.max(axis=0)),
}  # fmt: skip


def pool(folder, pooling, *modules):
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    kinds = [{"type": f"sentence_transformers.models.{kind}"} for kind in modules]
    (folder / "modules.json").write_text(json.dumps(kinds))
    return load_pretrained(folder, np.float64)


@pytest.mark.parametrize("kind", POOLINGS)
@pytest.mark.parametrize("unit", [True, False])
def test_a_sentence_is_one_vector_of_its_real_tokens(kind, unit, tmp_path):
    pooling, of = POOLINGS[kind]
    modules = ["Transformer", "Pooling", *(["Normalize"] if unit else [])]
    model = pool(write_family("bert", tmp_path), pooling, *modules)
    found = model.sentence(np.array([[3, 1, 4, 1, 5], [2, 7, 1, 9, 9]]), [5, 3]).numpy()
    for row, tokens in zip(found, ([3, 1, 4, 1, 5], [2, 7, 1]), strict=True):
        s = of(model(np.array([tokens])).numpy()[0])
        np.testing.assert_allclose(row, s / np.sqrt(s @ s) if unit else s, rtol=1e-12)


def test_an_encoder_of_sentences_needs_no_head_of_the_class_that_it_names(tmp_path):
    folder = write_family("roberta", tmp_path)
    expected = pool(folder, POOLINGS["cls"][0]).sentence(TOKENS).numpy()
    model = load_pretrained(without(folder, "lm_head"), np.float64)
    assert_same(model.sentence(TOKENS), expected, 0)
    (folder / "1_Pooling" / "config.json").unlink()
    with pytest.raises(ArgumentError, match=r"lm_head\.dense\.weight is missing"):
        load_pretrained(folder)


def test_what_pools_in_another_way_is_refused_by_name(tmp_path):
    folder = write_family("bert", tmp_path)
    with pytest.raises(FileError, match="has no 1_Pooling"):
        load_pretrained(folder).sentence(TOKENS)
    both = {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}
    for pooling in (both, {"pooling_mode_lasttoken": True}, {}, [], {"pooling_mode": 3}):
        with pytest.raises(ArgumentError, match=r"1_Pooling/config\.json must have one of"):
            pool(folder, pooling).sentence(TOKENS)
    model = pool(folder, POOLINGS["cls"][0], "Transformer", "Pooling", "Dense")
    with pytest.raises(ArgumentError, match=r"modules\.json: \['Dense'\] is not understood"):
        model.sentence(TOKENS)
    with pytest.raises(ArgumentError, match=r"lengths must be 1 integers of 1 to 5, got \[0\]"):
        pool(folder, POOLINGS["cls"][0]).sentence(TOKENS, [0])
    for tokens in (TOKENS[0], [[3, 1], [4]]):
        with pytest.raises(ShapeError, match=r"must be \(B, n\): one text is a row.*lengths="):
            pool(folder, POOLINGS["cls"][0]).sentence(tokens)


ODD = [[], {}, -1, 0.5, True, "x", 10**30, [None]]
KEYS = "model_type architectures id2label rope_parameters layer_types hidden_act head_dim".split()


@pytest.mark.parametrize("family", ["gpt2", "qwen2", "bert", "t5"])
def test_an_odd_value_of_any_key_loads_or_is_refused_by_an_argument_error(family, tmp_path):
    folder = write_family(family, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    for key in [*KEYS, *config]:
        for value in ODD:
            (folder / "config.json").write_text(json.dumps(config | {key: value}))
            with contextlib.suppress(ArgumentError):  # anything else is a failure
                load_pretrained(folder)


def mutated(content, rng):
    """The file with one fault: cut, lengthened, or with other bytes in its header."""
    kind, length = rng.integers(4), 8 + int.from_bytes(content[:8], "little")
    if kind == 0:
        return content[: rng.integers(len(content))]
    if kind == 1:
        return content + rng.bytes(3)
    at = int(rng.integers(8 if kind == 2 else length))
    digit = content[at : at + 1].isdigit()
    new = str(rng.integers(10)).encode() if digit else rng.bytes(1)
    return content[:at] + new + content[at + 1 :]


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
def test_a_file_with_one_fault_loads_as_it_was_or_is_refused(family, tmp_path, rng):
    folder = write_family(family, tmp_path)
    content, refused = (folder / "model.safetensors").read_bytes(), 0
    right = {path: p.shape for path, p in load_pretrained(folder).named_parameters()}
    for _ in range(100):
        (folder / "model.safetensors").write_bytes(mutated(content, rng))
        try:
            model = load_pretrained(folder)
        except MinigradError:
            refused += 1
        else:
            assert {path: p.shape for path, p in model.named_parameters()} == right
    assert refused > 66

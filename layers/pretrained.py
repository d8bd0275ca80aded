"""Language models that others trained: GPT-2, Llama, Mistral and Qwen2, in ordinary layers.

A folder holds config.json, tokenizer.json, and tensors as safetensors: eight bytes with the length
of a header, the header as JSON, the entries. What is not understood is refused by name.
"""

from __future__ import annotations

import json
import os
import re
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError, FileError, MissingDependencyError

from .call import Array
from .masks import causal, window
from .norm import LayerNorm, RMSNorm
from .positions import Rotary, llama3_frequencies
from .transformer import LanguageModel

__all__ = ["load_pretrained"]

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # NumPy has no bfloat16
GELU_TANH = partial(mg.gelu, approximate="tanh")
ACTIVATIONS = {"gelu": mg.gelu, "gelu_new": GELU_TANH, "gelu_pytorch_tanh": GELU_TANH}
ACTIVATIONS |= {"relu": mg.relu, "silu": mg.silu}
# Patterns of keys of config.json that change nothing a loaded model computes, whatever they hold.
NEUTRAL = """
_* auto_map *_token_id *dropout* *pdrop* dtype id2label initializer_range is_*_config label2id
max_position_embeddings max_window_layers n_ctx output_* pretraining_tp reorder_and_upcast_attn
sliding_window summary_* task_specific_params torch_dtype transformers* unsloth_* use_cache
""".split()
LINEAR = re.compile(r"lm_head|self_attn\.._proj|mlp\.(gate|up|down)_proj")
UNUSED = re.compile(r"attn\.bias|attn\.masked_bias|self_attn\.rotary_emb\.inv_freq")
# By the file's name, without .weight or .bias, our weight and our bias; three share one tensor.
NAMES = {
    "wte": "embedding.W",
    "wpe": "position_embedding.P",
    "ln_f": "decoder.norm.weight|bias",
    "ln_1": "norm_1.weight|bias",
    "ln_2": "norm_2.weight|bias",
    "attn.c_attn": "attention.W_Q|b_Q attention.W_K|b_K attention.W_V|b_V",
    "attn.c_proj": "attention.W_O|b_O",
    "mlp.c_fc": "feed_forward.W_1|b_1",
    "mlp.c_proj": "feed_forward.W_2|b_2",
    "embed_tokens": "embedding.W",
    "lm_head": "head.W",
    "norm": "decoder.norm.weight",
    "input_layernorm": "norm_1.weight",
    "post_attention_layernorm": "norm_2.weight",
    "mlp.gate_proj": "feed_forward.W",
    "mlp.up_proj": "feed_forward.V",
    "mlp.down_proj": "feed_forward.W_2",
} | {f"self_attn.{s.lower()}_proj": f"attention.W_{s}|b_{s}" for s in "QKVO"}


def load_pretrained(folder: str | os.PathLike[str], dtype: DTypeLike = np.float32) -> LanguageModel:
    """A language model of Hugging Face's format: GPT-2, Llama, Mistral or Qwen2.

    The model is held once: each tensor is cast on its way from the file into its parameter.

    Returns: a LanguageModel in eval mode, with `tokenizer` (of the tokenizers library; None without
             a tokenizer.json) and `end_tokens`, after which `generate` stops.
    Raises:  FileError for a file that is missing or damaged, or sizes that are not the tensors';
             ArgumentError that lists every tensor that does not fit, or names what of config.json
             is not understood.
    """
    path = Path(folder)
    config = Config(path / "config.json", _parsed(path / "config.json", _json))
    writer, read = config.one_of("model_type", "", FAMILIES)
    config.only(architectures=[writer])
    settings, ends = read(config), config.left.pop("eos_token_id", None)
    attention_bias = settings.pop("attention_bias", False)
    config.check_all_read()
    arrays = _by_our_names(_tensors(path))
    _check_sizes(config, settings, arrays)
    model = LanguageModel(**settings, rng=_no_draws(dtype), dtype=dtype)
    if attention_bias:
        _add_biases(model, arrays, dtype)
    tied = model.head is None and "head.W" in arrays  # then it must be the embedding again
    if tied and np.array_equal(arrays["head.W"].T, arrays["embedding.W"]):
        del arrays["head.W"]
    leaves = dict(model.named_parameters())
    wanted = {name: leaf.shape for name, leaf in leaves.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    problems = [
        f"{name}: must be {wanted.get(name, 'nothing')}, got {shapes.get(name, 'nothing')}"
        for name in wanted | shapes
        if wanted.get(name) != shapes.get(name)
    ]
    if problems:
        raise ArgumentError("\n  ".join([f"load_pretrained: {path} does not fit", *problems]))
    for name, array in arrays.items():
        leaves[name].assign_(_floats(array).astype(dtype, copy=False))
    if ends is None:
        ends = []
    model.end_tokens = tuple(ends) if isinstance(ends, list) else (ends,)
    model.tokenizer = _tokenizer(path / "tokenizer.json")
    return model.eval()


def _add_biases(model: LanguageModel, arrays: dict[str, Array], dtype: DTypeLike) -> None:
    """Give each attention its biases. Where the files have no b_O, as Qwen2's, it is 0."""
    for k, block in enumerate(model.decoder.blocks):
        for symbol in "QKVO":
            zeros = np.zeros(getattr(block.attention, f"W_{symbol}").shape[1], dtype)
            setattr(block.attention, f"b_{symbol}", mg.tensor(zeros, requires_grad=True))
        arrays.setdefault(f"decoder.blocks.{k}.attention.b_O", zeros)


def _by_our_names(tensors: dict[str, Array]) -> dict[str, Array]:
    """Each tensor by the path of our parameter; one that we have not, by its own name."""
    arrays = dict[str, Array]()
    for name, array in tensors.items():
        block = re.match(r"(?:h|layers)\.(\d+)\.", name)
        base, _, kind = name[block.end() if block else 0 :].rpartition(".")
        if LINEAR.fullmatch(base):  # PyTorch's Linear multiplies from the left; GPT-2 has none
            array = array.T
        ours = NAMES.get(base, "").split()
        if not ours and not UNUSED.fullmatch(f"{base}.{kind}"):
            arrays[name] = array
        for part, own in zip(np.split(array, len(ours) or 1, axis=-1), ours, strict=False):
            weight, _, bias = own.partition("|")
            path = weight if kind == "weight" else f"{weight.rpartition('.')[0]}.{bias or name}"
            arrays[f"decoder.blocks.{block[1]}.{path}" if block else path] = part
    return arrays


def _floats(array: Array) -> Array:
    """The tensor's numbers: a bfloat16 is the first half of a float32."""
    if array.dtype != np.uint16:
        return array
    bits = array.astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


def _check_sizes(config: Config, settings: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Raise FileError for a model that is larger than its files, before anything is made."""
    d_model, n_layers, d_ff = (settings[name] for name in ("d_model", "n_layers", "d_ff"))
    rows = settings["n_tokens"] + settings.get("max_len", 0)
    least = d_model * (rows + n_layers * (2 * d_model + d_ff))  # embeddings, W_Q, W_O, the last W
    held = sum(array.size for array in arrays.values())
    if least > held:
        raise config.damaged(f"its model has {least:,} numbers or more, the files hold {held:,}")


def _no_draws(dtype: DTypeLike) -> np.random.Generator:
    """It draws zeros, which take no memory: the entries come from the files."""

    class NoDraws(np.random.Generator):
        def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
            return np.broadcast_to(np.zeros((), dtype), size)

    return NoDraws(np.random.PCG64(0))


class Config:
    """A config.json of which every key is read, known to change nothing, or refused by name."""

    def __init__(self, path: Path, entries: dict[str, Any]) -> None:
        self.path, self.left = path, entries

    def error(self, why: str) -> ArgumentError:
        return ArgumentError(f"load_pretrained: {self.path}: {why}")

    def damaged(self, why: str) -> FileError:
        return FileError(f"load_pretrained: {self.path}: {why}")

    def take(self, key: str, kind: type, *default: Any) -> Any:
        """A value of this kind; numbers are above 0. Null is as if it were missing."""
        value = self.left.pop(key, None)
        if value is None:
            if not default:
                raise self.damaged(f"{key} is missing")
            return default[0]
        is_kind = type(value) is kind or (kind is float and type(value) is int)
        if not is_kind or (kind in (int, float) and not 0 < value < np.inf):
            raise self.damaged(
                f"{key} must be {kind.__name__} (numbers above 0), got {value!r:.40}"
            )
        return value

    def one_of(self, key: str, default: str, choices: dict[str, Any]) -> Any:
        name = self.take(key, str, default)
        if name not in choices:
            raise self.error(f"{key} must be one of {', '.join(choices)}, got {name!r}")
        return choices[name]

    def only(self, **allowed: Any) -> None:
        for key, value in allowed.items():
            actual = self.left.pop(key, None)
            if actual is not None and actual != value:
                raise self.error(f"{key} = {actual!r} is not understood, only {value!r}")

    def check_all_read(self) -> None:
        """Refuse what is left, unless it is off, missing, or known to change nothing."""
        for key, value in self.left.items():
            is_off = value is None or value is False
            if not is_off and not any(fnmatchcase(key, pattern) for pattern in NEUTRAL):
                raise self.error(f"{key} = {value!r:.40} is not understood, and may matter")


def _gpt2(config: Config) -> dict[str, Any]:
    config.only(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
    config.only(add_cross_attention=False, tie_word_embeddings=True)
    keys = {"d_model": "n_embd", "n_heads": "n_head", "n_layers": "n_layer"}
    keys |= {"n_tokens": "vocab_size", "max_len": "n_positions"}
    settings = {ours: config.take(key, int) for ours, key in keys.items()}
    settings["d_ff"] = config.take("n_inner", int, 4 * settings["d_model"])
    settings["activation"] = config.one_of("activation_function", "gelu_new", ACTIVATIONS)
    eps = config.take("layer_norm_epsilon", float, 1e-5)
    return settings | {"norm": partial(LayerNorm, eps=eps)}


def _llama(config: Config, bias: bool = False, windowed: bool = False) -> dict[str, Any]:
    keys = {"d_model": "hidden_size", "n_heads": "num_attention_heads", "d_ff": "intermediate_size"}
    keys |= {"n_tokens": "vocab_size", "n_layers": "num_hidden_layers"}
    settings = {ours: config.take(key, int) for ours, key in keys.items()}
    d_k, rest = divmod(settings["d_model"], settings["n_heads"])
    if rest:
        raise config.damaged("num_attention_heads must divide hidden_size")
    has_window = windowed and config.left.get("sliding_window", 0) is not None  # null is none
    sliding = config.take("sliding_window", int, 4096) if has_window else None
    kind = "full_attention" if sliding is None else "sliding_attention"
    config.only(head_dim=d_k, mlp_bias=False, use_sliding_window=False)
    if {*config.take("layer_types", list, [])} - {kind}:
        raise config.error(f"layer_types are not understood, only {kind!r}")
    settings["n_kv_heads"] = config.take("num_key_value_heads", int, settings["n_heads"])
    settings["tied"] = config.take("tie_word_embeddings", bool, False)
    settings["activation"] = config.one_of("hidden_act", "silu", ACTIVATIONS)
    settings["norm"] = partial(RMSNorm, eps=config.take("rms_norm_eps", float, 1e-6))
    settings["mask"] = causal if sliding is None else causal & window(sliding)
    settings |= {"position": _rotary(config, d_k), "gated": True, "use_bias": False}
    return settings | {"attention_bias": config.take("attention_bias", bool, bias)}


def _rotary(config: Config, d_k: int) -> Rotary:
    """Base and scaling of the angles, as newer files (rope_parameters) and older ones have them."""
    newer, older = (config.take(k, dict, {}) for k in ("rope_parameters", "rope_scaling"))
    rope = Config(config.path, older | newer)
    base = float(rope.take("rope_theta", float, config.take("rope_theta", float, 10000.0)))
    kind = rope.take("rope_type", str, rope.take("type", str, "default"))
    keys = ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
    frequencies = None
    if kind == "llama3":
        frequencies = llama3_frequencies(d_k, base, *(rope.take(key, float) for key in keys))
    elif kind != "default":
        raise config.error(f"rope_scaling {kind!r} is not understood, only llama3")
    rope.check_all_read()
    return Rotary(d_k, base, frequencies)


# By model_type: the class of transformers that writes it, and how its config is read.
FAMILIES = {
    "gpt2": ("GPT2LMHeadModel", _gpt2),
    "llama": ("LlamaForCausalLM", _llama),
    "mistral": ("MistralForCausalLM", partial(_llama, windowed=True)),
    "qwen2": ("Qwen2ForCausalLM", partial(_llama, bias=True)),
}


def _tensors(folder: Path) -> dict[str, Array]:
    """The tensors of all files, mapped into memory, by name; without the model's own prefix."""
    index, files = folder / "model.safetensors.index.json", {"model.safetensors"}
    if index.exists():
        files = {*_parsed(index, lambda path: dict(_json(path)["weight_map"])).values()}
    arrays: dict[str, Array] = {}
    for file in files:
        arrays |= _parsed(folder / Path(file).name, _mapped)
    return {re.sub(r"^(transformer|model)\.", "", name): array for name, array in arrays.items()}


def _mapped(path: Path) -> dict[str, Array]:
    whole, arrays = np.memmap(path, np.uint8, "r"), dict[str, Array]()
    begin = 8 + int.from_bytes(whole[:8].tobytes(), "little")
    for name, entry in json.loads(whole[8:begin].tobytes()).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            raw = np.asarray(whole[begin + first : begin + last])
            arrays[name] = raw.view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_bytes()))


def _parsed(path: Path, parse: Any) -> Any:
    if not path.is_file():  # a pipe, for one, would be waited for
        raise FileError(f"load_pretrained: no such file: {path}")
    try:
        return parse(path)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(f"load_pretrained: {path} is damaged: {error!r}") from error


def _tokenizer(path: Path) -> Any:
    if not path.is_file():
        return None
    if find_spec("tokenizers") is None:
        raise MissingDependencyError(f'{path} needs tokenizers: pip install "minigrad[models]"')
    return import_module("tokenizers").Tokenizer.from_file(str(path))

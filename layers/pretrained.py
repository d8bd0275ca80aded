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
from numpy.typing import DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, FileError, MissingDependencyError

from .masks import causal, window
from .norm import LayerNorm, RMSNorm
from .positions import Rotary, llama3_frequencies
from .transformer import LanguageModel

__all__ = ["load_pretrained"]

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # NumPy has no bfloat16
GELU_TANH = partial(mg.gelu, approximate="tanh")
ACTIVATIONS = {"gelu": mg.gelu, "gelu_new": GELU_TANH, "gelu_pytorch_tanh": GELU_TANH}
ACTIVATIONS |= {"relu": mg.relu, "silu": mg.silu}
# Patterns of keys of config.json that change nothing a loaded model computes.
NEUTRAL = """
_name_or_path auto_map *_token_id *dropout* *pdrop* dtype id2label initializer_range label2id
max_position_embeddings max_window_layers n_ctx output_* pretraining_tp reorder_and_upcast_attn
sliding_window summary_* task_specific_params torch_dtype transformers_version use_cache
""".split()
LINEAR = re.compile(r"lm_head|self_attn\.._proj|mlp\.(gate|up|down)_proj")
UNUSED = re.compile(r"attn\.bias|attn\.masked_bias|self_attn\.rotary_emb\.inv_freq")
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
"""By the file's name, without .weight or .bias, our weight and our bias; three share one tensor."""


def load_pretrained(folder: str | os.PathLike[str], dtype: DTypeLike = np.float32) -> LanguageModel:
    """A language model of Hugging Face's format: GPT-2, Llama, Mistral or Qwen2.

    Returns: a LanguageModel in eval mode, with `tokenizer` (of the tokenizers library; None without
             a tokenizer.json) and `end_tokens`, after which `generate` stops.
    Raises:  FileError for a file that is missing or damaged; ArgumentError that lists every tensor
             that does not fit, or names what of config.json is not understood.
    """
    path = Path(folder)
    config = Config(path / "config.json")
    writer, read = config.one_of("model_type", "", FAMILIES)
    config.only(architectures=[writer])
    ends, settings = config.take("eos_token_id", ()), read(config)
    attention_bias = settings.pop("attention_bias", False)
    config.check_all_read()
    model = LanguageModel(**settings, rng=_no_draws(), dtype=dtype)
    state = {}
    for k, block in enumerate(model.decoder.blocks if attention_bias else []):
        for symbol in "QKVO":
            zeros = np.zeros(getattr(block.attention, f"W_{symbol}").shape[1], dtype)
            setattr(block.attention, f"b_{symbol}", mg.tensor(zeros, requires_grad=True))
        state[f"decoder.blocks.{k}.attention.b_O"] = zeros  # unless the file has others
    state |= {name: x.astype(dtype) for name, x in _by_our_names(_tensors(path)).items()}
    tied = model.head is None and "head.W" in state  # then it must be the embedding again
    if tied and np.array_equal(state["head.W"].T, state.get("embedding.W", ())):
        del state["head.W"]
    model.load_state_dict(state)
    model.end_tokens = tuple(ends) if isinstance(ends, list | tuple) else (ends,)
    model.tokenizer = _tokenizer(path / "tokenizer.json")
    return model.eval()


def _by_our_names(tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Each tensor by the path of our parameter; one that we have not, by its own name."""
    state = dict[str, NDArray[Any]]()
    for name, array in tensors.items():
        block = re.match(r"(?:h|layers)\.(\d+)\.", name)
        base, _, kind = name[block.end() if block else 0 :].rpartition(".")
        if array.dtype == np.uint16:  # a bfloat16 is the first half of a float32
            array = (array.astype(np.uint32) << 16).view(np.float32)
        if LINEAR.fullmatch(base):  # PyTorch's Linear multiplies from the left; GPT-2 has none
            array = array.T
        ours = NAMES.get(base, "").split()
        if not ours and not UNUSED.fullmatch(f"{base}.{kind}"):
            state[name] = array
        for part, own in zip(np.split(array, len(ours) or 1, axis=-1), ours, strict=False):
            weight, _, bias = own.partition("|")
            path = weight if kind == "weight" else f"{weight.rpartition('.')[0]}.{bias or name}"
            state[f"decoder.blocks.{block[1]}.{path}" if block else path] = part
    return state


def _no_draws() -> np.random.Generator:
    """It draws zeros: the entries come from the files."""

    class NoDraws(np.random.Generator):
        def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
            return np.zeros(size)

    return NoDraws(np.random.PCG64(0))


class Config:
    """A config.json of which every key is read, known to change nothing, or refused by name."""

    def __init__(self, path: Path) -> None:
        self.path, self.left = path, _parsed(path, _json)

    def error(self, why: str) -> ArgumentError:
        return ArgumentError(f"load_pretrained: {self.path}: {why}")

    def take(self, key: str, *default: Any) -> Any:
        value = self.left.pop(key, None)  # null is as if it were missing
        if value is not None or default:
            return default[0] if value is None else value
        raise self.error(f"{key} is missing")

    def one_of(self, key: str, default: str, known: dict[str, Any]) -> Any:
        if (name := self.take(key, default)) not in known:
            raise self.error(f"{key} must be one of {', '.join(known)}, got {name!r}")
        return known[name]

    def only(self, **allowed: Any) -> None:
        for key, value in allowed.items():
            if (found := self.take(key, value)) != value:
                raise self.error(f"{key} = {found!r} is not understood, only {value!r}")

    def check_all_read(self) -> None:
        for key, value in self.left.items():
            if value is not None and not any(fnmatchcase(key, known) for known in NEUTRAL):
                raise self.error(f"{key} = {value!r:.40} is not understood, and may matter")


def _gpt2(config: Config) -> dict[str, Any]:
    config.only(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
    config.only(add_cross_attention=False, tie_word_embeddings=True)
    keys = {"d_model": "n_embd", "n_heads": "n_head", "n_layers": "n_layer"}
    keys |= {"n_tokens": "vocab_size", "max_len": "n_positions"}
    found = {ours: config.take(key) for ours, key in keys.items()}
    found["d_ff"] = config.take("n_inner", 4 * found["d_model"])
    found["activation"] = config.one_of("activation_function", "gelu_new", ACTIVATIONS)
    return found | {"norm": partial(LayerNorm, eps=config.take("layer_norm_epsilon", 1e-5))}


def _llama(config: Config, bias: bool = False, windowed: bool = False) -> dict[str, Any]:
    keys = {"d_model": "hidden_size", "n_heads": "num_attention_heads", "d_ff": "intermediate_size"}
    keys |= {"n_tokens": "vocab_size", "n_layers": "num_hidden_layers"}
    found = {ours: config.take(key) for ours, key in keys.items()}
    d_k = found["d_model"] // found["n_heads"]
    sliding = config.left.pop("sliding_window", 4096) if windowed else None  # null is none
    kind = "full_attention" if sliding is None else "sliding_attention"
    config.only(head_dim=d_k, mlp_bias=False, use_sliding_window=False)
    config.only(layer_types=[kind] * found["n_layers"])
    found["n_kv_heads"] = config.take("num_key_value_heads", found["n_heads"])
    found["tied"] = config.take("tie_word_embeddings", False)
    found["activation"] = config.one_of("hidden_act", "silu", ACTIVATIONS)
    found["norm"] = partial(RMSNorm, eps=config.take("rms_norm_eps", 1e-6))
    found["mask"] = causal if sliding is None else causal & window(sliding)
    found |= {"position": _rotary(config, d_k), "gated": True, "use_bias": False}
    return found | {"attention_bias": config.take("attention_bias", bias)}


def _rotary(config: Config, d_k: int) -> Rotary:
    """Base and scaling of the angles, as newer files (rope_parameters) and older ones have them."""
    rope = {**config.take("rope_scaling", {}), **config.take("rope_parameters", {})}
    base = float(rope.pop("rope_theta", config.take("rope_theta", 10000.0)))
    kind = rope.pop("rope_type", rope.pop("type", "default"))
    if kind == "default" and not rope:
        return Rotary(d_k, base)
    keys = ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
    if kind != "llama3" or {*rope} != {*keys}:
        raise config.error(f"rope_scaling {kind!r} with {sorted(rope)}: only llama3 is understood")
    return Rotary(d_k, frequencies=llama3_frequencies(d_k, base, *(rope[key] for key in keys)))


# By model_type: the class of transformers that writes it, and how its config is read.
FAMILIES = {
    "gpt2": ("GPT2LMHeadModel", _gpt2),
    "llama": ("LlamaForCausalLM", _llama),
    "mistral": ("MistralForCausalLM", partial(_llama, windowed=True)),
    "qwen2": ("Qwen2ForCausalLM", partial(_llama, bias=True)),
}


def _tensors(folder: Path) -> dict[str, NDArray[Any]]:
    """The tensors of all files, mapped into memory, by name; without the model's own prefix."""
    index, files = folder / "model.safetensors.index.json", {"model.safetensors"}
    if index.exists():
        files = {*_parsed(index, _json).get("weight_map", {}).values()}
    found: dict[str, NDArray[Any]] = {}
    for file in files:
        found |= _parsed(folder / Path(file).name, _mapped)
    return {re.sub(r"^(transformer|model)\.", "", name): array for name, array in found.items()}


def _mapped(path: Path) -> dict[str, NDArray[Any]]:
    whole, found = np.memmap(path, np.uint8, "r"), dict[str, NDArray[Any]]()
    begin = 8 + int.from_bytes(whole[:8].tobytes(), "little")
    for name, entry in json.loads(whole[8:begin].tobytes()).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            raw = np.asarray(whole[begin + first : begin + last])
            found[name] = raw.view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return found


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_bytes()))


def _parsed(path: Path, parse: Any) -> Any:
    try:
        return parse(path)
    except FileNotFoundError as error:
        raise FileError(f"load_pretrained: no such file: {path}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(f"load_pretrained: {path} is damaged: {error!r}") from error


def _tokenizer(path: Path) -> Any:
    if not path.is_file():
        return None
    if find_spec("tokenizers") is None:
        raise MissingDependencyError(f'{path} needs tokenizers: pip install "minigrad[models]"')
    return import_module("tokenizers").Tokenizer.from_file(str(path))

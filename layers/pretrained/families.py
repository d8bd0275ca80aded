"""The families of checkpoints: for each, where its tensors go, and what its config says.

A table has a row for each of our parameters: its path, the file's name, and what is done to it:
T transposes; 0/3 is the first third of the last axis. `*` is the number of a block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from ..norm import LayerNorm, RMSNorm
from ..rotary import Rotary
from .config import Config
from .models import PretrainedLanguageModel, TextEncoder

__all__ = ["FAMILIES", "Family", "Row", "numbered"]


class Row(NamedTuple):
    """One of our parameters, and where it lies in the file."""

    ours: str
    theirs: str
    how: str


def numbered(name: str, path: str) -> str:
    """A name whose `*` is the number of the block that a parameter's path has."""
    number = re.search(r"\.(\d+)\.", path)
    return name.replace("*", number[1]) if number else name


def rows(table: str, ours: str = "", theirs: str = "") -> list[Row]:
    """The rows of a table, each name with its prefix; W|b is a .weight and a .bias."""
    found = []
    for line in table.strip().splitlines():
        path, name, how, *_ = *line.split(), ""
        path, name, (weight, _, bias) = ours + path, theirs + name, path.partition("|")
        if bias:
            path, name = ours + weight, name + ".weight"
            owner = path.rpartition(".")[0]
            beside = name.replace(".weight", ".bias")
            found.append(Row(f"{owner}.{bias}", beside, how if "/" in how else ""))
        found.append(Row(path, name, how))
    return found


class Family(NamedTuple):
    """A kind of checkpoint.

    settings: from a config, the keywords of the model.  rows: its table.
    prefix: what stands before names of the file where a head surrounds the model.
    ignored: patterns of tensors that no model computes with.
    heads: how names begin that never have it.
    tied: names that a file may have although they are one of our parameters.
    model: what is made of the settings.
    """

    settings: Callable[[Config], dict[str, Any]]
    rows: list[Row]
    prefix: str
    ignored: str = "$^"
    tied: Mapping[str, str] = MappingProxyType({"lm_head.weight": "embedding.W"})
    heads: tuple[str, ...] = ("lm_head.",)
    model: Callable[..., Any] = PretrainedLanguageModel


# ---------------------------------------------------------------- GPT-2

GPT2_ROWS = rows("""
    embedding.W               wte.weight
    position_embedding.P      wpe.weight
    decoder.norm.weight|bias  ln_f
    head.W                    lm_head.weight  T
""") + rows(
    """
    norm_1.weight|bias    ln_1
    attention.W_Q|b_Q     attn.c_attn  0/3
    attention.W_K|b_K     attn.c_attn  1/3
    attention.W_V|b_V     attn.c_attn  2/3
    attention.W_O|b_O     attn.c_proj
    norm_2.weight|bias    ln_2
    feed_forward.W_1|b_1  mlp.c_fc
    feed_forward.W_2|b_2  mlp.c_proj
    """,
    "decoder.blocks.*.",
    "h.*.",
)


def gpt2(config: Config) -> dict[str, Any]:
    config.only(
        scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False
    )
    d_model = config.size("n_embd")
    return {
        "n_tokens": config.size("vocab_size"),
        "d_model": d_model,
        "n_heads": config.size("n_head"),
        "n_layers": config.size("n_layer"),
        "d_ff": config.size("n_inner", 4 * d_model),
        "max_len": config.size("n_positions"),
        "activation": config.activation("activation_function", "gelu_new"),
        "norm": partial(LayerNorm, eps=config.number("layer_norm_epsilon", 1e-5)),
        "tied": config.flag("tie_word_embeddings", True),
    }


# ---------------------------------------------------------------- Llama and its kin

LLAMA_ROWS = rows("""
    embedding.W          embed_tokens.weight
    decoder.norm.weight  norm.weight
    head.W               lm_head.weight   T
""") + rows(
    """
    norm_1.weight            input_layernorm.weight
    attention.W_Q|b_Q        self_attn.q_proj         T
    attention.W_K|b_K        self_attn.k_proj         T
    attention.W_V|b_V        self_attn.v_proj         T
    attention.W_O|b_O        self_attn.o_proj         T
    attention.q_norm.weight  self_attn.q_norm.weight
    attention.k_norm.weight  self_attn.k_norm.weight
    feed_forward.W|b         mlp.gate_proj            T
    feed_forward.V|c         mlp.up_proj              T
    feed_forward.W_2|b_2     mlp.down_proj            T
    """,
    "decoder.blocks.*.",
    "layers.*.",
)
PRE_NORM = rows("norm_2.weight post_attention_layernorm.weight", "decoder.blocks.*.", "layers.*.")
NORMS_AROUND = rows(
    """
    norm_1_out.weight  post_attention_layernorm.weight
    norm_2.weight      pre_feedforward_layernorm.weight
    norm_2_out.weight  post_feedforward_layernorm.weight
    """,
    "decoder.blocks.*.",
    "layers.*.",
)


def llama(config: Config, **kin: Any) -> dict[str, Any]:
    """Llama's settings; `kin` are those in which a kin differs."""
    d_model, n_heads = config.size("hidden_size"), config.size("num_attention_heads")
    n_layers, d_k = config.size("num_hidden_layers"), config.size("head_dim", d_model // n_heads)
    return {
        "n_tokens": config.size("vocab_size"),
        "d_model": d_model,
        "n_heads": n_heads,
        "n_layers": n_layers,
        "d_ff": config.size("intermediate_size"),
        "n_kv_heads": config.size("num_key_value_heads", n_heads),
        "d_k": d_k,
        "gated": True,
        "activation": config.activation("hidden_act", "silu"),
        "norm": partial(RMSNorm, eps=config.number("rms_norm_eps", 1e-6)),
        "use_bias": False,
        "ff_bias": False,
        "tied": config.flag("tie_word_embeddings", False),
        "position": Rotary(d_k, **rotary(config)),
    } | kin


def rotary(config: Config) -> dict[str, Any]:
    """Base and scaling of the angles, as newer files (rope_parameters) and older ones say them."""
    given = config.get("rope_parameters", None) or config.get("rope_scaling", None) or {}
    if not isinstance(given, dict):
        raise config.error(f"rope_parameters must be a mapping, got {given!r:.40}")
    base = given.get("rope_theta", config.number("rope_theta", 10000.0))
    config.get("original_max_position_embeddings", None)
    config.only(rope_interleaved=False, use_mrope=False)
    most = {"max_position_embeddings": config.number("max_position_embeddings", 2048)}
    kind = given.get("rope_type", given.get("type", "default"))
    return {"base": base, "scaling": None if kind == "default" else most | given}


def plain_llama(config: Config) -> dict[str, Any]:
    return llama(
        config,
        use_bias=config.flag("attention_bias", False),
        ff_bias=config.flag("mlp_bias", False),
    )


def mistral(config: Config) -> dict[str, Any]:
    return llama(config, window=config.number("sliding_window", None))


def qwen2(config: Config) -> dict[str, Any]:
    return llama(config, use_bias="QKV", windows=windows(config))


def qwen3(config: Config) -> dict[str, Any]:
    settings = llama(config, use_bias=config.flag("attention_bias", False), windows=windows(config))
    return settings | {"qk_norm": settings["norm"]}


def windows(config: Config) -> list[int | None]:
    """The window of each block: layer_types says which have one, or max_window_layers."""
    n_layers, first = config.size("num_hidden_layers"), config.number("max_window_layers", 0)
    used = config.flag("use_sliding_window", False)
    window = config.number("sliding_window", None) if used else None
    kinds = ["sliding_attention" if k >= first else "full_attention" for k in range(n_layers)]
    return each_window(config, window, config.get("layer_types", kinds))


def each_window(config: Config, window: Any, kinds: list[str]) -> list[int | None]:
    known = {"sliding_attention": window, "full_attention": None}
    if kinds.__class__ is not list or len(kinds) != config.size("num_hidden_layers"):
        raise config.error(f"layer_types must name the kind of each block, got {kinds!r:.60}")
    if not known.keys() >= set(map(str, kinds)):
        raise config.error(f"layer_types is not understood: {kinds!r:.60}")
    return [known[kind] for kind in kinds]


def gemma2(config: Config) -> dict[str, Any]:
    config.only(attention_bias=False, use_bidirectional_attention=False)
    n_layers = config.size("num_hidden_layers")
    kinds = ["full_attention" if k % 2 else "sliding_attention" for k in range(n_layers)]
    settings = llama(
        config,
        activation=config.activation("hidden_activation", "gelu_pytorch_tanh"),
        norm=partial(RMSNorm, eps=config.number("rms_norm_eps", 1e-6), plus_one=True),
        norm_order="both",
        scaled=True,
        tied=config.flag("tie_word_embeddings", True),
        scale=config.number("query_pre_attn_scalar", 256) ** -0.5,
        softcap=config.number("attn_logit_softcapping", None),
        output_softcap=config.number("final_logit_softcapping", None),
    )
    return settings | {
        "windows": each_window(
            config, config.number("sliding_window", None), config.get("layer_types", kinds)
        )
    }


# ---------------------------------------------------------------- BERT

BERT_ROWS = rows("""
    embedding.W            embeddings.word_embeddings.weight
    position_embedding.P   embeddings.position_embeddings.weight
    segment_embedding.W    embeddings.token_type_embeddings.weight
    norm.weight|bias       embeddings.LayerNorm
    pooler.W|b             pooler.dense                         T
    head.transform.W|b     cls.predictions.transform.dense      T
    head.norm.weight|bias  cls.predictions.transform.LayerNorm
    head.bias              cls.predictions.bias
""") + rows(
    """
    attention.W_Q|b_Q     attention.self.query        T
    attention.W_K|b_K     attention.self.key          T
    attention.W_V|b_V     attention.self.value        T
    attention.W_O|b_O     attention.output.dense      T
    norm_1.weight|bias    attention.output.LayerNorm
    feed_forward.W_1|b_1  intermediate.dense          T
    feed_forward.W_2|b_2  output.dense                T
    norm_2.weight|bias    output.LayerNorm
    """,
    "encoder.blocks.*.",
    "encoder.layer.*.",
)


def bert(config: Config) -> dict[str, Any]:
    config.only(
        position_embedding_type="absolute",
        is_decoder=False,
        add_cross_attention=False,
        tie_word_embeddings=True,
    )
    return {
        "n_tokens": config.size("vocab_size"),
        "d_model": config.size("hidden_size"),
        "n_heads": config.size("num_attention_heads"),
        "n_layers": config.size("num_hidden_layers"),
        "d_ff": config.size("intermediate_size"),
        "max_len": config.size("max_position_embeddings"),
        "n_segments": config.size("type_vocab_size", 2),
        "activation": config.activation("hidden_act", "gelu"),
        "norm": partial(LayerNorm, eps=config.number("layer_norm_eps", 1e-12)),
        "pooled": config.has("pooler.dense.weight"),
        "masked": config.has("cls.predictions.bias"),
    }


GPT2 = Family(gpt2, GPT2_ROWS, "transformer.", r"h\.\d+\.attn\.(masked_)?bias")
LLAMA = Family(plain_llama, LLAMA_ROWS + PRE_NORM, "model.", r".*rotary_emb\.inv_freq")

FAMILIES = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": LLAMA._replace(settings=mistral),
    "qwen2": LLAMA._replace(settings=qwen2),
    "qwen3": LLAMA._replace(settings=qwen3),
    "bert": Family(
        bert,
        BERT_ROWS,
        "bert.",
        r"embeddings\.position_ids|cls\.seq_relationship\..*",
        {
            "cls.predictions.decoder.weight": "embedding.W",
            "cls.predictions.decoder.bias": "head.bias",
        },
        ("cls.",),
        TextEncoder,
    ),
    "gemma2": LLAMA._replace(settings=gemma2, rows=LLAMA_ROWS + NORMS_AROUND),
}
"""By the `model_type` of config.json."""

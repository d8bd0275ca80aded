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

from minigrad.errors import MinigradError

from ..bias import T5Bias
from ..norm import LayerNorm, RMSNorm
from ..rotary import Rotary
from .config import Config
from .encoders import TextEncoder
from .models import PretrainedLanguageModel
from .text_to_text import TextToText

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
    kinds: the classes of the library `transformers` that write it, which config.json names.
    tied: names that a file may have although they are one of our parameters.
    model: what is made of the settings.
    """

    settings: Callable[[Config], dict[str, Any]]
    rows: list[Row]
    kinds: tuple[str, ...]
    prefix: str = ""
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
        "position": rotary(config, d_k),
    } | kin


ROPE_NUMBERS = (
    "factor original_max_position_embeddings low_freq_factor high_freq_factor beta_fast beta_slow "
    "attention_factor mscale mscale_all_dim"
).split()


def rotary(config: Config, d_k: int) -> Rotary:
    """Base and scaling of the angles, as newer files (rope_parameters) and older ones say them."""
    rope = config.nested("rope_parameters", "rope_scaling")
    base = rope.number("rope_theta", config.number("rope_theta", 10000.0))
    config.get("original_max_position_embeddings", None)
    config.only(rope_interleaved=False, use_mrope=False)
    given = {key: rope.number(key, None) for key in ROPE_NUMBERS}
    kind = rope.get("rope_type", rope.get("type", "default"))
    given |= {key: rope.numbers(key, d_k // 2) for key in ("short_factor", "long_factor")}
    given |= {"rope_type": kind, "truncate": rope.flag("truncate", True)}
    rope.only(partial_rotary_factor=1.0, type=kind)
    rope.check_all_asked()
    if kind == "llama3" and not (given["low_freq_factor"] or 0) < (given["high_freq_factor"] or 1):
        raise rope.error("low_freq_factor must be less than high_freq_factor")
    long = kind in ("dynamic", "longrope", "yarn")
    most = config.number("max_position_embeddings", *([] if long else [2048]))
    given["max_position_embeddings"] = most
    try:
        return Rotary(d_k, base, scaling=None if kind == "default" else given)
    except MinigradError as error:
        raise rope.error(str(error)) from error


def plain_llama(config: Config) -> dict[str, Any]:
    return llama(
        config,
        use_bias=config.flag("attention_bias", False),
        ff_bias=config.flag("mlp_bias", False),
    )


def mistral(config: Config) -> dict[str, Any]:
    return llama(config, window=config.number_or_null("sliding_window", 4096))


def qwen2(config: Config) -> dict[str, Any]:
    return llama(config, use_bias="QKV", windows=windows(config))


def qwen3(config: Config) -> dict[str, Any]:
    settings = llama(config, use_bias=config.flag("attention_bias", False), windows=windows(config))
    return settings | {"qk_norm": settings["norm"]}


def windows(config: Config) -> list[int | None]:
    """The window of each block: layer_types says which have one, or max_window_layers."""
    n_layers, first = config.size("num_hidden_layers"), config.size("max_window_layers", 28, 0)
    window = config.number_or_null("sliding_window", 4096)
    window = window if config.flag("use_sliding_window", False) else None
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
        softcap=config.number_or_null("attn_logit_softcapping", 50.0),
        output_softcap=config.number_or_null("final_logit_softcapping", 30.0),
    )
    return settings | {
        "windows": each_window(
            config, config.number_or_null("sliding_window", 4096), config.get("layer_types", kinds)
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
    follows.W|b            cls.seq_relationship                 T
    classifier.W|b         classifier                           T
    answer.W|b             qa_outputs                           T
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


BERT_HEADS = {
    "BertModel": "",
    "BertForMaskedLM": "head",
    "BertForPreTraining": "head pooler follows",
    "BertForNextSentencePrediction": "pooler follows",
    "BertForSequenceClassification": "pooler classifier",
    "BertForTokenClassification": "classifier",
    "BertForQuestionAnswering": "answer",
}
"""What a checkpoint must have beside the encoder; it may have more than its architecture needs."""


def bert(config: Config) -> dict[str, Any]:
    heads = set(BERT_HEADS.get(config.kind, "").split())
    stored = {"pooler": "pooler.dense.bias", "head": "cls.predictions.transform.dense.bias"}
    stored |= {"follows": "cls.seq_relationship.bias", "answer": "qa_outputs.bias"}
    heads |= {head for head, name in stored.items() if config.has(name)}
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
        "heads": heads,
        "n_labels": config.size("num_labels", len(config.nested("id2label").entries) or 2),
        "of_sentence": config.kind == "BertForSequenceClassification",
    }


# ---------------------------------------------------------------- T5


T5_KINDS = ("T5ForConditionalGeneration", "T5EncoderModel")


def t5_rows(stack: str, feed_forward: int) -> list[Row]:
    """What the blocks of both stacks have; the file counts a block's sublayers."""
    return rows(
        f"""
        norm_1.weight             0.layer_norm.weight
        attention.W_Q             0.SelfAttention.q.weight                        T
        attention.W_K             0.SelfAttention.k.weight                        T
        attention.W_V             0.SelfAttention.v.weight                        T
        attention.W_O             0.SelfAttention.o.weight                        T
        attention.position.table  0.SelfAttention.relative_attention_bias.weight
        norm_{feed_forward + 1}.weight  {feed_forward}.layer_norm.weight
        feed_forward.W_1          {feed_forward}.DenseReluDense.wi.weight         T
        feed_forward.W            {feed_forward}.DenseReluDense.wi_0.weight       T
        feed_forward.V            {feed_forward}.DenseReluDense.wi_1.weight       T
        feed_forward.W_2          {feed_forward}.DenseReluDense.wo.weight         T
        """,
        f"{stack}.blocks.*.",
        f"{stack}.block.*.layer.",
    )


T5_ROWS = [
    *rows("""
    embedding.W          shared.weight
    encoder.norm.weight  encoder.final_layer_norm.weight
    decoder.norm.weight  decoder.final_layer_norm.weight
    head.W               lm_head.weight                   T
    """),
    *t5_rows("encoder", 1),
    *t5_rows("decoder", 2),
    *rows(
        """
        norm_2.weight        layer_norm.weight
        cross_attention.W_Q  EncDecAttention.q.weight  T
        cross_attention.W_K  EncDecAttention.k.weight  T
        cross_attention.W_V  EncDecAttention.v.weight  T
        cross_attention.W_O  EncDecAttention.o.weight  T
        """,
        "decoder.blocks.*.",
        "decoder.block.*.layer.1.",
    ),
]


def t5(config: Config) -> dict[str, Any]:
    config.only(is_decoder=False)
    config.get("n_positions", None)  # there may be any number of them
    n_heads, n_layers = config.size("num_heads"), config.size("num_layers")
    bias = partial(
        T5Bias,
        n_heads,
        n_buckets=config.size("relative_attention_num_buckets", 32),
        max_distance=config.number("relative_attention_max_distance", 128),
    )
    settings = {
        "n_tokens": config.size("vocab_size"),
        "d_model": config.size("d_model"),
        "n_heads": n_heads,
        "n_layers": n_layers,
        "d_ff": config.size("d_ff"),
        "d_k": config.size("d_kv", 64),
        "scale": 1.0,
        "norm": partial(RMSNorm, eps=config.number("layer_norm_epsilon", 1e-6)),
        "use_bias": False,
        "biases": (bias, partial(bias, bidirectional=False)),
    }
    settings |= t5_activation(config)
    writing = t5_writing(config, n_layers)
    config.get("is_encoder_decoder", None)
    if (config.kind or T5_KINDS[not config.has("EncDecAttention.q.weight")]) == T5_KINDS[1]:
        return settings
    config.only(is_encoder_decoder=True)
    return settings | writing


def t5_activation(config: Config) -> dict[str, Any]:
    """gated-gelu means gelu_new, and gelu itself."""
    given = str(config.get("feed_forward_proj", "relu"))
    gated, name = given.startswith("gated-"), given.removeprefix("gated-")
    name = "gelu_new" if given == "gated-gelu" else name
    config.only(dense_act_fn=name, is_gated_act=gated)
    return {"gated": gated, "activation": config.activation("dense_act_fn", name)}


def t5_writing(config: Config, n_layers: int) -> dict[str, Any]:
    """An output layer that is tied is scaled; newer files say so apart, and call every one tied."""
    tied = config.flag("tie_word_embeddings", True)
    unset = config.is_null("scale_decoder_outputs")  # which `transformers` takes for false
    scaled = config.flag("scale_decoder_outputs", tied and not unset)
    return {
        "n_decoder_layers": config.size("num_decoder_layers", n_layers),
        "tied": tied and (scaled or not config.has("lm_head.weight")),
        "scaled": scaled,
        "start": config.size("decoder_start_token_id", config.size("pad_token_id", 0, 0), 0),
    }


def t5_model(biases: Any, **settings: Any) -> TextEncoder | TextToText:
    positions = [bias(dtype=settings["dtype"]) for bias in biases]
    if "n_decoder_layers" in settings:
        return TextToText(positions=positions, **settings)
    return TextEncoder(position=positions[0], norm_order="pre", **settings)


LLAMA = Family(
    plain_llama,
    LLAMA_ROWS + PRE_NORM,
    ("LlamaForCausalLM", "LLaMAForCausalLM", "LlamaModel"),
    "model.",
    r".*rotary_emb\.inv_freq",
)


def kin_of_llama(name: str, settings: Any, rows: list[Row] = LLAMA.rows) -> Family:
    return LLAMA._replace(
        settings=settings, rows=rows, kinds=(f"{name}ForCausalLM", f"{name}Model")
    )


FAMILIES = {
    "gpt2": Family(
        gpt2,
        GPT2_ROWS,
        ("GPT2LMHeadModel", "GPT2Model"),
        "transformer.",
        r"h\.\d+\.attn\.(masked_)?bias",
    ),
    "llama": LLAMA,
    "mistral": kin_of_llama("Mistral", mistral),
    "qwen2": kin_of_llama("Qwen2", qwen2),
    "qwen3": kin_of_llama("Qwen3", qwen3),
    "gemma2": kin_of_llama("Gemma2", gemma2, LLAMA_ROWS + NORMS_AROUND),
    "bert": Family(
        bert,
        BERT_ROWS,
        tuple(BERT_HEADS),
        "bert.",
        r"embeddings\.position_ids",
        {
            "cls.predictions.decoder.weight": "embedding.W",
            "cls.predictions.decoder.bias": "head.bias",
        },
        ("cls.", "classifier.", "qa_outputs."),
        TextEncoder,
    ),
    "t5": Family(
        t5,
        T5_ROWS,
        T5_KINDS,
        ignored=r".*\.EncDecAttention\.relative_attention_bias\.weight",
        tied={
            "encoder.embed_tokens.weight": "embedding.W",
            "decoder.embed_tokens.weight": "embedding.W",
            "lm_head.weight": "embedding.W",
        },
        model=t5_model,
    ),
}
"""By the `model_type` of config.json."""

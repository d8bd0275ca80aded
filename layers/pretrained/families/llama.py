"""Llama, and those that differ from it in a few settings: Mistral, Qwen 2 and 3, Gemma 2."""

from ..family import Family, classes

__all__ = ["GEMMA2", "LLAMA", "MISTRAL", "QWEN2", "QWEN3"]

CAUSAL = {"ForCausalLM": "head", "Model": ""}
DECODER_SETTINGS = """
n_tokens    vocab_size
d_model     hidden_size
n_heads     num_attention_heads
n_layers    num_hidden_layers
d_ff        intermediate_size
n_kv_heads  num_key_value_heads  size        n_heads
d_k         head_dim             size        d_model/n_heads
activation  hidden_act           activation  silu
norm        rms_norm_eps         RMSNorm     1e-6
tied        tie_word_embeddings  flag        false
position    rope_parameters      rotary      null
"""
LLAMA = Family(
    model="PretrainedLanguageModel",
    kinds={"LlamaForCausalLM": "head", "LLaMAForCausalLM": "head", "LlamaModel": ""},
    prefix="model.",
    names="""
embedding.W                   embed_tokens.weight
decoder.norm.weight           norm.weight
head.W                        /lm_head.weight                  T
decoder.blocks.*.             layers.*.
    norm_1.weight             input_layernorm.weight
    attention.W_Q|b_Q         self_attn.q_proj                 T
    attention.W_K|b_K         self_attn.k_proj                 T
    attention.W_V|b_V         self_attn.v_proj                 T
    attention.W_O|b_O         self_attn.o_proj                 T
    attention.q_norm.weight   self_attn.q_norm.weight
    attention.k_norm.weight   self_attn.k_norm.weight
    norm_2.weight             post_attention_layernorm.weight
    feed_forward.W|b          mlp.gate_proj                    T
    feed_forward.V|c          mlp.up_proj                      T
    feed_forward.W_2|b_2      mlp.down_proj                    T
""",
    settings=f"""{DECODER_SETTINGS}
use_bias    attention_bias       flag        false
ff_bias     mlp_bias             flag        false
""",
    options={"gated": True},
    optional="head",
    ignored=r".*rotary_emb\.inv_freq",
)
NO_BIAS = {"gated": True, "use_bias": False, "ff_bias": False}
MISTRAL = LLAMA._replace(
    kinds=classes("Mistral", CAUSAL),
    settings=f"{DECODER_SETTINGS} window  sliding_window  number_or_null  4096",
    options=NO_BIAS,
)
QWEN2 = LLAMA._replace(
    kinds=classes("Qwen2", CAUSAL),
    settings=f"{DECODER_SETTINGS} windows  sliding_window  late_windows  4096",
    options=NO_BIAS | {"use_bias": "QKV"},
)
QWEN3 = LLAMA._replace(
    kinds=classes("Qwen3", CAUSAL),
    settings=f"""{DECODER_SETTINGS}
use_bias  attention_bias  flag          false
windows   sliding_window  late_windows  4096
qk_norm   rms_norm_eps    RMSNorm       1e-6
""",
    options={"gated": True, "ff_bias": False},
)
GEMMA2 = LLAMA._replace(
    kinds=classes("Gemma2", CAUSAL),
    names=f"""
{LLAMA.names.replace("norm_2.weight ", "norm_1_out.weight ")}
    norm_2.weight             pre_feedforward_layernorm.weight
    norm_2_out.weight         post_feedforward_layernorm.weight
""",
    settings=f"""{DECODER_SETTINGS}
activation      hidden_activation        activation           gelu_pytorch_tanh
norm            rms_norm_eps             RMSNorm_of_1_plus_w  1e-6
tied            tie_word_embeddings      flag                 true
scale           query_pre_attn_scalar    inverse_root         256
softcap         attn_logit_softcapping   number_or_null       50.0
output_softcap  final_logit_softcapping  number_or_null       30.0
windows         sliding_window           even_windows         4096
""",
    options=NO_BIAS | {"norm_order": "both", "scaled": True},
    only={"use_bidirectional_attention": False},
)

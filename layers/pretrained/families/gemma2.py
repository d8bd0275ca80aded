"""Gemma 2: a Llama with norms around each layer, and caps on scores and logits."""

from .llama import LLAMA, NO_BIAS, SETTINGS

__all__ = ["GEMMA2"]

GEMMA2 = LLAMA.renamed(
    "Gemma2",
    names=f"""
{LLAMA.names.replace("norm_2.weight ", "norm_1_out.weight ")}
    norm_2.weight             pre_feedforward_layernorm.weight
    norm_2_out.weight         post_feedforward_layernorm.weight
""",
    settings=f"""{SETTINGS}
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

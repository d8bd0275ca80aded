"""GPT-2."""

from ..family import Family

__all__ = ["GPT2"]

GPT2 = Family(
    model="PretrainedLanguageModel",
    kinds={"GPT2LMHeadModel": "head", "GPT2Model": ""},
    prefix="transformer.",
    names="""
embedding.W               wte.weight
position_embedding.P      wpe.weight
decoder.norm.weight|bias  ln_f
head.W                    /lm_head.weight  T
decoder.blocks.*.         h.*.
    norm_1.weight|bias    ln_1
    attention.W_Q|b_Q     attn.c_attn      0/3
    attention.W_K|b_K     attn.c_attn      1/3
    attention.W_V|b_V     attn.c_attn      2/3
    attention.W_O|b_O     attn.c_proj
    norm_2.weight|bias    ln_2
    feed_forward.W_1|b_1  mlp.c_fc
    feed_forward.W_2|b_2  mlp.c_proj
""",
    settings="""
n_tokens    vocab_size
d_model     n_embd
n_heads     n_head
n_layers    n_layer
d_ff        n_inner              size        4*d_model
max_len     n_positions
activation  activation_function  activation  gelu_new
norm        layer_norm_epsilon   LayerNorm   1e-5
tied        tie_word_embeddings  flag        true
""",
    only={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
    optional="head",
    ignored=r"h\.\d+\.attn\.(masked_)?bias",
)

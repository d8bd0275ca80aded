"""T5; the file counts a block's sublayers."""

from ..family import Family

__all__ = ["T5"]

T5 = Family(
    model="TextToText",
    kinds={"T5ForConditionalGeneration": "decoder", "T5EncoderModel": ""},
    names="""
embedding.W                   shared.weight
head.W                        lm_head.weight                                    T
encoder.norm.weight           encoder.final_layer_norm.weight
decoder.norm.weight           decoder.final_layer_norm.weight
decoder.blocks.*.             decoder.block.*.layer.1.
    norm_2.weight             layer_norm.weight
    cross_attention.W_Q       EncDecAttention.q.weight                          T
    cross_attention.W_K       EncDecAttention.k.weight                          T
    cross_attention.W_V       EncDecAttention.v.weight                          T
    cross_attention.W_O       EncDecAttention.o.weight                          T
"""
    + "".join(
        f"""
{stack}.blocks.*.             {stack}.block.*.layer.
    norm_1.weight             0.layer_norm.weight
    attention.W_Q             0.SelfAttention.q.weight                          T
    attention.W_K             0.SelfAttention.k.weight                          T
    attention.W_V             0.SelfAttention.v.weight                          T
    attention.W_O             0.SelfAttention.o.weight                          T
    attention.position.table  0.SelfAttention.relative_attention_bias.weight
    norm_{last + 1}.weight    {last}.layer_norm.weight
    feed_forward.W_1          {last}.DenseReluDense.wi.weight                   T
    feed_forward.W            {last}.DenseReluDense.wi_0.weight                 T
    feed_forward.V            {last}.DenseReluDense.wi_1.weight                 T
    feed_forward.W_2          {last}.DenseReluDense.wo.weight                   T
"""
        for stack, last in (("encoder", 1), ("decoder", 2))
    ),
    settings="""
n_tokens          vocab_size
d_model           d_model
n_heads           num_heads
n_layers          num_layers
d_ff              d_ff
d_k               d_kv                             size                64
norm              layer_norm_epsilon               RMSNorm             1e-6
n_buckets         relative_attention_num_buckets   size                32
max_distance      relative_attention_max_distance  number              128
gated             feed_forward_proj                is_gated            relu
activation        feed_forward_proj                gate                relu
n_decoder_layers  num_decoder_layers               size                n_layers
scaled_outputs    scale_decoder_outputs            scaled_if_tied      true
tied              tie_word_embeddings              tied_unless_stored  true
start             decoder_start_token_id           start               0
""",
    options={"scale": 1.0, "use_bias": False},
    neutral="n_positions is_encoder_decoder",
    ignored=r".*\.EncDecAttention\.relative_attention_bias\.weight",
    tied=dict.fromkeys(
        ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
        "embedding.W",
    ),
)

"""DistilBERT: half of a BERT's blocks, and no segments."""

from ..family import Family

__all__ = ["DISTILBERT"]

DISTILBERT = Family(
    model="TextEncoder",
    kinds={
        "DistilBertModel": "",
        "DistilBertForMaskedLM": "head",
        "DistilBertForSequenceClassification": "pooler classifier",
        "DistilBertForTokenClassification": "classifier",
        "DistilBertForQuestionAnswering": "answer",
    },
    prefix="distilbert.",
    names="""
embedding.W               embeddings.word_embeddings.weight
position_embedding.P      embeddings.position_embeddings.weight
norm.weight|bias          embeddings.LayerNorm
pooler.W|b                /pre_classifier                        T
head.transform.W|b        /vocab_transform                       T
head.norm.weight|bias     /vocab_layer_norm
head.bias                 /vocab_projector.bias
classifier.W|b            /classifier                            T
answer.W|b                /qa_outputs                            T
encoder.blocks.*.         transformer.layer.*.
    attention.W_Q|b_Q     attention.q_lin                        T
    attention.W_K|b_K     attention.k_lin                        T
    attention.W_V|b_V     attention.v_lin                        T
    attention.W_O|b_O     attention.out_lin                      T
    norm_1.weight|bias    sa_layer_norm
    feed_forward.W_1|b_1  ffn.lin1                               T
    feed_forward.W_2|b_2  ffn.lin2                               T
    norm_2.weight|bias    output_layer_norm
""",
    settings="""
n_tokens    vocab_size
d_model     dim
n_heads     n_heads
n_layers    n_layers
d_ff        hidden_dim
max_len     max_position_embeddings  size        512
activation  activation               activation  gelu
norm        -                        LayerNorm   1e-12
n_labels    num_labels               labels      2
""",
    options={"pooled_by": "relu"},
    only={"tie_word_embeddings": True},
    neutral="sinusoidal_pos_embds tie_weights_",
    optional="pooler head answer",
    ignored=r"embeddings\.position_ids",
    tied={"vocab_projector.weight": "embedding.W"},
)

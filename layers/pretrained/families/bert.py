"""BERT; RoBERTa, which counts positions from its padding token's on; DistilBERT, half of the blocks
of a BERT, and no segments.
"""

from ..family import Family, classes

__all__ = ["BERT", "DISTILBERT", "ROBERTA", "XLM_ROBERTA"]

PARTS_OF_HEADS = {
    "Model": "",
    "ForMaskedLM": "head",
    "ForSequenceClassification": "pooler classifier",
    "ForTokenClassification": "classifier",
    "ForQuestionAnswering": "answer",
}
EMBEDDINGS = """
embedding.W               embeddings.word_embeddings.weight
position_embedding.P      embeddings.position_embeddings.weight
segment_embedding.W       embeddings.token_type_embeddings.weight
norm.weight|bias          embeddings.LayerNorm
"""
ENCODER = """
encoder.blocks.*.         encoder.layer.*.
    attention.W_Q|b_Q     attention.self.query                  T
    attention.W_K|b_K     attention.self.key                    T
    attention.W_V|b_V     attention.self.value                  T
    attention.W_O|b_O     attention.output.dense                T
    norm_1.weight|bias    attention.output.LayerNorm
    feed_forward.W_1|b_1  intermediate.dense                    T
    feed_forward.W_2|b_2  output.dense                          T
    norm_2.weight|bias    output.LayerNorm
"""
BERT = Family(
    model="TextEncoder",
    kinds={
        "BertModel": "",
        "BertForMaskedLM": "head",
        "BertForPreTraining": "head pooler follows",
        "BertForNextSentencePrediction": "pooler follows",
        "BertForSequenceClassification": "pooler classifier",
        "BertForTokenClassification": "classifier",
        "BertForQuestionAnswering": "answer",
    },
    prefix="bert.",
    names=f"""{EMBEDDINGS}pooler.W|b                pooler.dense                          T
head.transform.W|b        /cls.predictions.transform.dense      T
head.norm.weight|bias     /cls.predictions.transform.LayerNorm
head.bias                 /cls.predictions.bias
follows.W|b               /cls.seq_relationship                 T
classifier.W|b            /classifier                           T
answer.W|b                /qa_outputs                           T
{ENCODER}""",
    settings="""
n_tokens    vocab_size
d_model     hidden_size
n_heads     num_attention_heads
n_layers    num_hidden_layers
d_ff        intermediate_size
max_len     max_position_embeddings
n_segments  type_vocab_size          size        2
activation  hidden_act               activation  gelu
norm        layer_norm_eps           LayerNorm   1e-12
n_labels    num_labels               labels      2
""",
    only={"position_embedding_type": "absolute", "tie_word_embeddings": True},
    optional="pooler head follows answer",
    ignored=r"embeddings\.position_ids",
    tied={
        "cls.predictions.decoder.weight": "embedding.W",
        "cls.predictions.decoder.bias": "head.bias",
    },
)
ROBERTA = Family(
    model="TextEncoder",
    kinds=classes("Roberta", PARTS_OF_HEADS),
    prefix="roberta.",
    names=f"""{EMBEDDINGS}pooler.W|b                /classifier.dense,pooler.dense         T
head.transform.W|b        /lm_head.dense                         T
head.norm.weight|bias     /lm_head.layer_norm
head.bias                 /lm_head.bias
classifier.W|b            /classifier.out_proj,/classifier       T
answer.W|b                /qa_outputs                            T
{ENCODER}""",
    settings=f"""{BERT.settings}
pad  pad_token_id  counted_from  1
""",
    options={"head_activation": "gelu"},
    only=BERT.only,
    optional="pooler head answer",
    ignored=r"embeddings\.position_ids|pooler\.dense\.(weight|bias)",
    tied={"lm_head.decoder.weight": "embedding.W", "lm_head.decoder.bias": "head.bias"},
)
XLM_ROBERTA = ROBERTA._replace(kinds=classes("XLMRoberta", PARTS_OF_HEADS))
DISTILBERT = Family(
    model="TextEncoder",
    kinds=classes("DistilBert", PARTS_OF_HEADS),
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

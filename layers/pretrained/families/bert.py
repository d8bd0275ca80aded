"""BERT."""

from ..family import Family

__all__ = ["BERT", "BLOCKS", "EMBEDDINGS"]

EMBEDDINGS = """
embedding.W               embeddings.word_embeddings.weight
position_embedding.P      embeddings.position_embeddings.weight
segment_embedding.W       embeddings.token_type_embeddings.weight
norm.weight|bias          embeddings.LayerNorm
"""
BLOCKS = """
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
{BLOCKS}""",
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

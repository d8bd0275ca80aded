"""RoBERTa: a BERT whose positions are counted from its padding token's on."""

from ..family import Family
from .bert import BERT, BLOCKS, EMBEDDINGS

__all__ = ["ROBERTA", "XLM_ROBERTA"]

ROBERTA = Family(
    model="TextEncoder",
    kinds={
        "RobertaModel": "",
        "RobertaForMaskedLM": "head",
        "RobertaForSequenceClassification": "pooler classifier",
        "RobertaForTokenClassification": "classifier",
        "RobertaForQuestionAnswering": "answer",
    },
    prefix="roberta.",
    names=f"""{EMBEDDINGS}pooler.W|b                /classifier.dense,pooler.dense         T
head.transform.W|b        /lm_head.dense                         T
head.norm.weight|bias     /lm_head.layer_norm
head.bias                 /lm_head.bias
classifier.W|b            /classifier.out_proj,/classifier       T
answer.W|b                /qa_outputs                            T
{BLOCKS}""",
    settings=f"""{BERT.settings}
pad  pad_token_id  counted_from  1
""",
    options={"head_activation": "gelu"},
    only=BERT.only,
    optional="pooler head answer",
    ignored=r"embeddings\.position_ids|pooler\.dense\.(weight|bias)",
    tied={"lm_head.decoder.weight": "embedding.W", "lm_head.decoder.bias": "head.bias"},
)
XLM_ROBERTA = ROBERTA.renamed("XLMRoberta")

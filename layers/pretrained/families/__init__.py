"""The families of checkpoints that are read, a table each."""

from ..family import Family
from .bert import BERT, DISTILBERT, ROBERTA, XLM_ROBERTA
from .gpt2 import GPT2
from .llama import GEMMA2, LLAMA, MISTRAL, QWEN2, QWEN3
from .t5 import T5

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma2": GEMMA2,
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": XLM_ROBERTA,
    "distilbert": DISTILBERT,
    "t5": T5,
}
"""By the `model_type` of config.json."""

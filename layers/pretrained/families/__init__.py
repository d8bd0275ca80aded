"""The families of checkpoints that are read, a table each."""

from ..family import Family
from .bert import BERT
from .gemma2 import GEMMA2
from .gpt2 import GPT2
from .llama import LLAMA, MISTRAL, QWEN2, QWEN3
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
    "t5": T5,
}
"""By the `model_type` of config.json."""

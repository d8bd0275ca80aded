"""Models that others trained: checkpoints of Hugging Face's format, in ordinary layers."""

from .describing import describe
from .encoders import TextEncoder
from .loading import load_pretrained, load_state
from .models import Pretrained, PretrainedLanguageModel
from .text_to_text import TextToText

__all__ = [
    "Pretrained",
    "PretrainedLanguageModel",
    "TextEncoder",
    "TextToText",
    "describe",
    "load_pretrained",
    "load_state",
]

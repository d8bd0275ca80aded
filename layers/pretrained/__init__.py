"""Models that others trained: checkpoints of Hugging Face's format, in ordinary layers."""

from .loading import load_pretrained, load_state
from .models import Pretrained, PretrainedLanguageModel, TextEncoder

__all__ = ["Pretrained", "PretrainedLanguageModel", "TextEncoder", "load_pretrained", "load_state"]

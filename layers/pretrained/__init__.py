"""Models that others trained: checkpoints of Hugging Face's format, in ordinary layers."""

from .loading import Pretrained, PretrainedLanguageModel, load_pretrained, load_state

__all__ = ["Pretrained", "PretrainedLanguageModel", "load_pretrained", "load_state"]

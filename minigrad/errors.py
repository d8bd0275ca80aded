"""Every error minigrad raises on purpose, under the name people import them by."""

from .engine import errors
from .engine.errors import *  # noqa: F403
from .engine.refusals import checked_keywords, explained, without_our_frames

__all__ = ["checked_keywords", "explained", "without_our_frames"]
__all__ += errors.__all__

"""Every error minigrad raises on purpose, under the name people import them by."""

from .engine.errors import *  # noqa: F403
from .engine.errors import __all__ as __all__
from .engine.op import refuse_foreign as refuse_foreign

"""Large arrays are written otherwise than small ones: what is small runs both ways here."""

from importlib import import_module

import pytest


@pytest.fixture(params=[False, True], ids=["small", "as if large"])
def sizes(request, monkeypatch):
    """Arrays as they are, and then all treated as if they were large."""
    if request.param:
        for name in ("homes", "source", "terms"):
            monkeypatch.setattr(import_module(f"minigrad.compiler.{name}"), "LARGE", 0)

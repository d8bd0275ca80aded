"""Large arrays are written otherwise than small ones: what is small runs both ways here."""

from importlib import import_module

import pytest


@pytest.fixture(params=[False, True], ids=["small", "as if large"])
def sizes(request, monkeypatch):
    """Arrays as they are, and then all treated as if they were large; whether they are."""
    if request.param:
        limits = {
            "LARGE": ("source", "terms"),
            "SMALL": ("source", "symbol"),
            "COPIED": ("source",),
        }
        for limit, names in limits.items():
            for name in names:
                monkeypatch.setattr(import_module(f"minigrad.fast.compiler.{name}"), limit, 0)
    return request.param

"""Large arrays are written otherwise than small ones: what is small runs both ways here."""

from dataclasses import fields

import pytest

from minigrad.fast.limits import LIMITS

AS_IF_LARGE = {"lent_bytes": 0, "short_entries": 0}


@pytest.fixture(params=[{}, AS_IF_LARGE], ids=["small", "as if large"])
def sizes(request):
    """Arrays as they are, and then all treated as if they were large."""
    with LIMITS.changed(**request.param):
        yield


@pytest.fixture
def as_if_large():
    with LIMITS.changed(**AS_IF_LARGE):
        yield


@pytest.fixture
def in_parts(monkeypatch):
    """Two threads, and programs run in parts that are too small to gain by it."""
    import minigrad.fast.compiler.partition as partition

    monkeypatch.setattr(partition, "blas_threads", lambda: 2)
    with LIMITS.changed(split_seconds=-1.0, split_share=1e9, phase_seconds=1e-7, turn_seconds=0.0):
        yield


@pytest.fixture
def measured(in_parts):
    """Two threads, and the limits that were measured."""
    with LIMITS.changed(**{field.name: field.default for field in fields(LIMITS)}):
        yield

"""Large arrays are written otherwise than small ones: what is small runs both ways here."""

import pytest

from minigrad.fast.limits import LIMITS

AS_IF_LARGE = {"short_entries": 0}


@pytest.fixture(params=[{}, AS_IF_LARGE], ids=["small", "as if large"])
def sizes(request):
    """Arrays as they are, and then all treated as if they were large."""
    with LIMITS.changed(**request.param):
        yield


@pytest.fixture
def as_if_large():
    with LIMITS.changed(**AS_IF_LARGE):
        yield

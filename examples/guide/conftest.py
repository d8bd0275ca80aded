"""The guide's code runs as tests; some of it needs minigrad/fast."""

import pytest

import minigrad as mg

MISSING = {}
if mg.compile.__module__.endswith("without_fast"):
    MISSING["compile.md"] = "needs minigrad/fast: it compiles"


def pytest_collection_modifyitems(items):
    for item in items:
        if item.name in MISSING:
            item.add_marker(pytest.mark.skip(reason=MISSING[item.name]))

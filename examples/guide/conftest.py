"""The guide's code runs as tests; some of it needs minigrad/fast, or onnxruntime."""

from importlib.util import find_spec

import pytest

import minigrad as mg

MISSING = {}
if mg.compile.__module__.endswith("without_fast"):
    MISSING["compile.md"] = "needs minigrad/fast: it compiles"
if not all(map(find_spec, ("onnx", "onnxruntime"))):
    MISSING["elsewhere.md"] = "needs onnx and onnxruntime"


def pytest_collection_modifyitems(items):
    for item in items:
        if item.name in MISSING:
            item.add_marker(pytest.mark.skip(reason=MISSING[item.name]))

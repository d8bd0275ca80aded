"""What README, guide, docstrings and tests declare stays with them."""

from collections.abc import Iterator

import pytest

import minigrad as mg
import minigrad.layers  # before pytest makes a module of that file by itself


@pytest.fixture(autouse=True)
def _ops_as_they_were() -> Iterator[None]:
    """An op that is declared in a test or a text is no op of the next one."""
    before = dict(mg.registry)
    yield
    for name in mg.registry.keys() - before.keys():
        del mg.registry[name]
    mg.registry.update(before)

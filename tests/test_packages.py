"""What the two packages offer, and what importing them loads."""

import re
import sys
from types import ModuleType

import pytest

import layers
import minigrad
from tests.process import python


def in_a_fresh_interpreter(code):
    return python("-c", code).stdout.strip()


@pytest.mark.parametrize("package", [minigrad, layers])
def test_dir_shows_what_users_call_and_nothing_else_and_all_of_it_is_there(package):
    assert dir(package) == sorted(package.__all__)
    assert not [name for name in dir(package) if name.startswith("_")]
    missing = f"import {package.__name__} as p; print([n for n in dir(p) if not hasattr(p, n)])"
    assert in_a_fresh_interpreter(missing) == "[]"


def test_no_module_hides_a_public_name():
    assert not [name for name in dir(layers) if isinstance(getattr(layers, name), ModuleType)]
    assert re.fullmatch(r"\d+\.\d+\.\d+", minigrad.__version__)


@pytest.mark.parametrize(
    "name", ["minigrad.check", "minigrad.optim", "layers.positions", "layers.transformer"]
)
def test_a_module_is_found_without_an_import_of_its_own(name):
    assert in_a_fresh_interpreter(f"import minigrad, layers; print({name}.__name__)") == name


def test_importing_costs_numpy_alone_and_no_more_than_most_programs_need():
    loaded = in_a_fresh_interpreter(
        "import sys, numpy\n"
        "known = set(sys.modules)\n"
        "import minigrad, layers\n"
        "print(*(set(sys.modules) - known))"
    ).split()
    packages = {name.partition(".")[0] for name in loaded}
    assert packages <= {"minigrad", "layers", "numpy", *sys.stdlib_module_names}
    late = ("views", "distributed", "fast.compile", "check", "optim", "data", "saving", "cli")
    assert not {f"minigrad.{name}" for name in late} & set(loaded)


def test_layers_have_a_name_that_a_file_of_the_users_does_not_hide(tmp_path):
    code = (
        "import sys\n"
        "sys.path.insert(0, {folder!r})\n"
        "import minigrad.layers.positions\n"
        "from minigrad.layers import Linear\n"
        "import layers\n"
        "print(Linear(2, 3, rng=0).W.shape, getattr(layers, 'Linear', None) is Linear)\n"
        "print(sum(m.endswith('layers.positions') for m in {{*map(str, sys.modules)}}))\n"
        "print(len({{id(m) for n, m in sys.modules.items() if n.endswith('layers.basic')}}))\n"
    )
    assert in_a_fresh_interpreter(code.format(folder=str(tmp_path))).split("\n") == [
        "(2, 3) True", "2", "1",
    ]  # fmt: skip
    (tmp_path / "layers.py").write_text("depth = 3\n")
    assert in_a_fresh_interpreter(code.format(folder=str(tmp_path))).split("\n") == [
        "(2, 3) False", "1", "1",
    ]  # fmt: skip

"""The README says what is so: its op is the one that runs, its house the tree, and it is short."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minigrad import registry

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def without_docstring(source):
    """The lines of a source that are code, docstrings and blank lines left out."""
    source = re.sub(r'^    """.*?"""$', "", source, flags=re.DOTALL | re.MULTILINE)
    return [line for line in source.splitlines() if line.strip()]


def test_the_op_shown_is_the_op_that_runs():
    shown = re.search(r"```python\n(@op\(.*?)```", README, re.DOTALL)[1]
    name = re.search(r"^def (\w+)\(", shown, re.MULTILINE)[1]
    source = Path(inspect.getsourcefile(registry[name].rules["x"].function)).read_text("utf-8")
    lines, code = without_docstring(shown), without_docstring(source)
    start = code.index(lines[next(i for i, x in enumerate(lines) if x.startswith("def "))])
    first = start - next(i for i, x in enumerate(lines) if x.startswith("def "))
    comments = [re.sub(r"  # .*", "", line) for line in lines]
    assert comments == code[first : first + len(lines)]


@pytest.mark.parametrize("room", ["engine", "ops", "recording", "views", "fast", "cli", "optim"])
def test_every_room_of_the_house_is_named_and_there(room):
    assert f"`minigrad/{room}/`" in README or f"`{room}/`" in README
    assert (ROOT / "minigrad" / room / "__init__.py").is_file() or room == "fast"


def test_files_and_folders_that_are_named_are_there():
    named = re.findall(r"`((?:minigrad|layers|examples|benchmarks)/[\w/.]*)`", README)
    named += re.findall(r"\]\(([\w/.]+)\)", README)
    assert not [name for name in named if not (ROOT / name).exists() and "fast" not in name]


def test_it_is_short():
    assert README.count("\n") <= 200


def test_the_page_that_reads_one_page_py_shows_its_own_lines():
    page = (ROOT / "examples/guide/one_page.md").read_text("utf-8")
    shown = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    source = (ROOT / "examples/one_page.py").read_text("utf-8")
    assert len(shown) >= 9
    assert not [block for block in shown if block not in source]


DECLARED = """
import numpy as np
from minigrad import op, registry
from minigrad.ops.samples import each, unary
from minigrad.cli.check_ops import check_ops
{code}
assert "arctan" in registry
print(*(f"{{result.name}} {{result.ok}}" for result in check_ops([arctan], order=2, seed=0)))
"""


def test_the_op_that_contributing_adds_has_right_gradients():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    code = re.search(r"```python\n# minigrad/ops/functions\.py\n(.*?)```", text, re.DOTALL)[1]
    command = [sys.executable, "-c", DECLARED.format(code=code)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.stdout == "arctan True\n", ran.stderr

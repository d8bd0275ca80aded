"""The README and the guide say what is so: what they name is there, and the README is short."""

import re
import shutil
from pathlib import Path

from tests.process import python

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def test_every_room_of_the_house_is_named_in_contributing():
    rooms = [path.parent.name for path in (ROOT / "minigrad").glob("*/__init__.py")]
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert [room for room in rooms if f"{room}/" not in text] == []


def test_files_and_folders_that_are_named_are_there():
    named = re.findall(r"`((?:minigrad|layers|examples|benchmarks)/[\w/.]*)`", README)
    named += re.findall(r"\]\(([\w/.]+)\)", README)
    assert not [name for name in named if not (ROOT / name).exists() and "fast" not in name]


def test_it_is_short():
    lines = README.splitlines()
    assert len(lines) <= 120
    assert not [x for x in lines if len(x) > 100 and not x.startswith("python3 -m venv")]


def test_it_has_two_commands_each_one_line_and_early():
    lines = README.splitlines()
    found = [k for k, line in enumerate(lines) if line.startswith("python3 -m venv")]
    assert len(found) == 2
    assert found[1] < 25
    assert "minigrad explain examples/pronoun.py:tired --out explained/" in lines[found[0]]
    assert "-m pytest" in lines[found[1]]


def test_the_page_that_reads_one_page_py_shows_its_own_lines():
    page = (ROOT / "examples/guide/one_page.md").read_text("utf-8")
    shown = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    source = (ROOT / "examples/one_page.py").read_text("utf-8")
    assert len(shown) >= 9
    assert not [block for block in shown if block not in source]


def test_the_op_of_contributing_passes_the_tests_of_ops_as_it_is_pasted(tmp_path):
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    code = re.search(r"```python\n# (minigrad/ops/\w+\.py)\n(.*?)```", text, re.DOTALL)
    for folder in ("minigrad", "layers", "tests"):
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=left_out)
    for file in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    place = tmp_path / code[1]
    source = place.read_text("utf-8").replace("__all__ = [", '__all__ = [\n    "arctan",', 1)
    place.write_text(source + code[2], "utf-8")
    options = ("-m", "pytest", "-q", "-n", "0", "-k", "arctan", "tests/ops", "minigrad/ops")
    done = python(*options, cwd=tmp_path, root=tmp_path)
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 10

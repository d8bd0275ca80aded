"""Every script in examples/ runs, says something, and finds its own headline number.

The pictures of README and guide are what `python examples/picture.py examples/pictures/` draws, and
examples/why_attention.py. The numbers of a page are what its script prints.
"""

import re
import runpy
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from minigrad.errors import MissingDependencyError
from minigrad.views.picture import renderer

ROOT = Path(__file__).parents[1]
PICTURES = sorted(path.stem for path in (ROOT / "examples/pictures").glob("*.svg"))
SLOW = {"char_gpt", "digits", "induction_heads", "summarizer"}


EXAMPLES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem in SLOW))
    for path in sorted((ROOT / "examples").glob("*.py"))
]


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_example_runs_and_its_assertions_hold(path, capsys, monkeypatch):
    """Those that take longer than a few seconds have a shorter form of themselves."""
    quick = ["--quick"] if "--quick" in path.read_text(encoding="utf-8") else []
    monkeypatch.setattr("sys.argv", [str(path), *quick])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()
    assert "assert" in path.read_text(encoding="utf-8")


def test_the_numbers_of_the_page_on_why_are_those_that_its_script_prints(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["why_attention.py"])
    runpy.run_path(str(ROOT / "examples/why_attention.py"), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    page = (ROOT / "examples/guide/why_attention.md").read_text("utf-8")
    shown = "".join(re.findall(r"```text\n(.*?)```", page, re.DOTALL)).splitlines()
    assert len(shown) > 30
    assert [line for line in shown if line not in printed] == []


def test_an_example_needs_what_the_first_command_of_the_readme_installs():
    for path in (ROOT / "examples").glob("*.py"):
        imported = re.findall(r"^(?:from|import) (\w+)", path.read_text("utf-8"), re.MULTILINE)
        known = {"minigrad", "layers", "numpy", "graphviz", *sys.stdlib_module_names}
        assert {*imported} <= known, path.name


def test_each_example_has_its_line_in_the_readme_of_examples():
    text = (ROOT / "examples/README.md").read_text("utf-8")
    scripts = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert set(re.findall(r"^\| \[([\w.]+)\]\(\1\) \| \d+ \|", text, re.MULTILINE)) == scripts


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The pictures drawn anew; what they say of places is relative to the repository."""
    try:
        renderer("svg")
    except MissingDependencyError as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("pictures")
    with chdir(ROOT):
        runpy.run_path("examples/picture.py")["main"](folder)
        runpy.run_path("examples/why_attention.py")["draw_pictures"](folder)
    assert sorted(path.stem for path in folder.glob("*.svg")) == PICTURES
    return folder


def comparable(path):
    """A picture but for numbers of lines, and for what kernels of another order round otherwise,
    which its ids hash.
    """
    text = re.sub(r"(\.py):\d+", r"\1", path.read_text(encoding="utf-8"))
    text = re.sub(r"\S+ k?B saved", "saved", text)
    text = re.sub(r"(largest difference) \S+\d", r"\1", text.replace("&#45;", "-"))
    return re.sub(r"\bmg[0-9a-f]{10}\b", "mg", text)


@pytest.mark.parametrize("name", PICTURES)
def test_a_kept_picture_is_what_its_command_draws(drawn, name):
    kept = ROOT / "examples/pictures" / f"{name}.svg"
    assert comparable(kept) == comparable(drawn / kept.name), (
        "draw them anew: python examples/picture.py examples/pictures/, or why_attention.py"
    )
    assert kept.stat().st_size < 64_000


def test_every_kept_picture_is_shown_in_the_readme_or_the_guide():
    pages = [ROOT / "README.md", *(ROOT / "examples/guide").glob("*.md")]
    shown = set()
    for page in pages:
        for path in re.findall(r"[\w./]+/pictures/\w+\.svg", page.read_text("utf-8")):
            assert (page.parent / path).is_file(), f"{page.name} shows {path}"
            shown.add(Path(path).stem)
    assert shown == set(PICTURES)

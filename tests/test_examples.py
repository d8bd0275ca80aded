"""Every script in examples/ runs, says something, and finds its own headline number.

The pictures of README and guide are what `python examples/picture.py examples/pictures/` draws.
"""

import re
import runpy
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
        "draw them anew: python examples/picture.py examples/pictures/"
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

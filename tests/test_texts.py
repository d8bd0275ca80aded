"""The guide's tables: what they say to write runs, and what it says holds."""

import doctest
import re
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from minigrad import habits

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "examples/guide/from_the_texts.md").read_text("utf-8").partition("## Names that")[0]
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| .* [`(].* \|$", line)]
SETUP = "".join(example.source for example in doctest.DocTestParser().get_examples(PAGE))
CONTEXTS = ("mg.watch(", "mg.anomaly()")  # what they give is tested in their own rooms


@pytest.fixture(scope="module")
def names():
    space = {}
    with chdir(ROOT):
        exec(SETUP, space)
    return space


def test_there_is_a_row_for_each_item():
    assert len(ROWS) > 100


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_what_stands_on_the_right_is_so(row, names):
    cell = row.split(" | ")[-1].removesuffix(" |")
    calls = [
        code
        for code in re.findall(r"`([^`]+)`", cell.replace(r"\|", "|"))
        if re.search(r"[(\[ ]", code)
    ]
    links = re.findall(r"\]\(([^)]+)\)", cell)
    assert calls or links
    assert all((ROOT / "examples/guide" / link).is_file() for link in links)
    for code in calls:
        if code.startswith("from "):
            exec(code, names)
        elif code.startswith(CONTEXTS):
            with eval(code, names):
                names["layer"](names["X"])
        else:
            holds = eval(code, names)
            assert isinstance(holds, bool | np.bool_ | np.ndarray), code
            assert holds, code


@pytest.mark.parametrize(
    ("page", "rows"),
    [
        ("coming_from_pytorch", "PYTORCH"),
        ("coming_from_pytorch", "KEYWORD_ROWS"),
        ("from_the_texts", "TEXTS"),
    ],
)
def test_a_page_shows_the_table_that_errors_read(page, rows):
    text = (ROOT / f"examples/guide/{page}.md").read_text("utf-8")
    for row in getattr(habits, rows).strip().splitlines():
        names, ours = row.split(" | ", 1)
        written = ours.strip('"') if ours[0] == '"' else f"`{ours}`"
        line = written.replace("|", r"\|")
        assert f"\n| `{names.replace(', ', '`, `')}` | {line} |\n" in text

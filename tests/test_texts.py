"""The guide's tables: what they say to write runs, and their comparisons hold."""

import doctest
import re
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from minigrad import habits

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "examples/guide/from_the_texts.md").read_text("utf-8")
ROWS = [
    line
    for line in PAGE.partition("## Names that")[0].splitlines()
    if re.match(r"\| .* `[^`]+` \|$", line)
]
SETUP = "".join(example.source for example in doctest.DocTestParser().get_examples(PAGE))


@pytest.fixture(scope="module")
def names():
    space = {}
    exec(SETUP, space)
    return space


def test_there_is_a_row_for_each_item():
    assert len(ROWS) > 90


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_the_right_side_runs_and_holds(row, names, capsys):
    cell = row.split(" | ")[-1].removesuffix(" |")
    for code in re.findall(r"`([^`]+)`", cell):
        with chdir(ROOT):
            if code.startswith("from "):
                exec(code, names)
                continue
            found = eval(code, names)
        if hasattr(found, "close"):
            found.close()
        assert not isinstance(found, bool | np.bool_) or found


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
    assert habits.markdown(getattr(habits, rows)) in text, "print it anew: habits.markdown"

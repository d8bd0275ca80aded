"""What is printed is what was measured, in the form of a table."""

import doctest
import json

import pytest

from benchmarks import report, sections
from benchmarks.cases import CHAINS, TABLE
from benchmarks.rounds import BASE, Settings
from benchmarks.sections import Options
from tests.benchmarks.given import Given


def test_the_docstrings_examples_hold():
    outcome = doctest.testmod(report, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.fixture
def options():
    return Options("", Settings(rounds=3), cases=("tiny", "add"))


def test_the_table_shows_ratios_and_who_is_wrong_disturbed_or_without(options):
    class Wrong(Given):
        def build(self, case, dtype):
            given = super().build(case, dtype)
            return given | {"out": given["out"] + 1}

    peers = [
        Given(BASE, [0.002, 0.002, 0.004]),
        Given("fair", [0.0017, 0.002, 0.004]),
        Given("unlucky", [0.5, 1.0, 1.0]),
        Wrong("liar"),
    ]
    text = sections.table(peers, options).text().split("\n")
    assert text[2:5] == [
        "  case, float32                   hand-best, ms       fair   unlucky   liar",
        "  single head, tiny (1, 4, 8, 8)            2.0  1.00/0.85  250~/250  wrong",
        "",
    ]
    assert "  single head, tiny (1, 4, 8, 8), liar: wrong answer: out is off by 4.6e-01" in text


def test_there_is_no_table_for_a_readme_unless_the_machine_was_quiet(options):
    def made(third):
        peers = [Given(BASE, [0.002, 0.00215, third]), Given("eager", [0.004] * 3)]
        return sections.table(peers, options)

    assert "| 2.1 | 1.90/2.0 |" in made(0.0021).markdown()
    assert (
        made(0.0025)
        .markdown()
        .startswith(
            "The machine was not quiet: hand-best of single head, tiny (1, 4, 8, 8) took up to 1.25"
        )
    )
    assert "no table is printed for a README" in made(0.0025).text()


def test_a_nodes_cost_is_what_it_takes_beyond_numpy(options):
    class Engine(Given):
        def long_chain(self, nodes):
            return {"forward": 2.5e-6 * nodes, "backward": 1e-6 * nodes}

    peers = [Given(BASE, [0.0005] * 3), Engine("eager", [0.0035] * 3)]
    made = sections.nodes(peers, options)
    assert made.rows == [["4×4 add", "0.50", "3.0"]]
    assert made.notes == [
        "A chain of 1,000,000 additions takes, in µs a node: 2.5 forward, 1.00 backward."
    ]
    assert set(made.data) == {"cases", "chain of 1000000"}


def test_everything_is_data_too(options):
    peers = [Given(BASE, [1.0, 1.2, 3.0]), Given("eager", [2.0, 1.8, 3.0])]
    (case,) = json.loads(json.dumps(sections.table(peers, options).data))["cases"]
    assert case["case"] == "tiny"
    assert case["peers"]["eager"]["ratio to hand-best"] == {"value": 1.5, "quiet": True}
    assert case["peers"]["eager"]["error"] == 0
    assert case["peers"][BASE]["samples"] == [1.0, 1.2, 3.0]


def test_cases_asked_for_are_taken_in_their_section_only():
    some = Options("", cases=("add", "gpt", "tiny"))
    assert [case.name for case in some.chosen(TABLE, ())] == ["gpt", "tiny"]
    assert [case.name for case in some.chosen(CHAINS, ())] == ["add"]
    assert [case.name for case in Options("", quick=True).chosen(TABLE, ("tiny",))] == ["tiny"]
    assert Options("").chosen(TABLE, ("tiny",)) == list(TABLE.values())

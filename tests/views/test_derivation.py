"""The derivation: every step once, every symbol defined, in Markdown that GitHub renders."""

import re

import numpy as np
import pytest

import minigrad as mg
from minigrad.record.finish import finish
from minigrad.views.derivation import derivation
from tests.record import models
from tests.views.graphs import RUNS, attention, language_model, mlp

EQUATION = re.compile(r"```math\n(.*?)\n```", re.DOTALL)


def equations(text):
    """Pairs of a left and a right side."""
    pairs = []
    for block in EQUATION.findall(text):
        for line in block.split("\\\\[4pt]"):
            line = re.sub(r"\\(begin|end)\{aligned\}", "", line).split(r"&& \in")[0]
            left, _, right = line.replace("&=", "=").partition(" = ")
            pairs.append((left.strip(), right.split(r"\quad \in")[0].strip()))
    return pairs


@pytest.mark.parametrize("seed", range(22))
def test_each_symbol_is_defined_where_it_is_used(seed):
    record = finish(models.trained(seed))
    text = derivation(record)
    given = text.split("## Backward")[0]
    shown = {left for left, _ in equations(text)}
    for entry in record.entries:
        used = any(entry.symbol in right for _, right in equations(text))
        shown_by_itself = entry.equation != entry.symbol  # a transposed factor is not
        if used and shown_by_itself and not entry.number and entry.copy_of is None:
            assert entry.symbol in shown or f"$`{entry.symbol}`$" in given, entry


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_the_equations_are_those_of_the_record(run):
    record = finish(run())
    found = {right.replace("\\lt ", "<") for _, right in equations(derivation(record))}
    known = {e.equation for e in record.entries} | {e.equation for e in record.edges}
    sums = {right for right in found if " + " in right and r"\right|" in right}
    assert found - sums - {"1"} <= known


def test_a_plain_mlp_is_written_in_full_with_a_chapter_for_each_module():
    text = derivation(mlp())
    for chapter in ("net/first", "net", "net/second"):
        assert f"### `{chapter}`" in text
        assert f"### back through `{chapter}`" in text
    assert len(equations(text)) == 4 + 1 + 7  # forward, the seed, and what is sent back


def test_alike_modules_are_written_once_with_a_table_of_their_numbers():
    t = language_model()
    text = derivation(t)
    assert text.count("feed_forward`\n") + text.count("feed_forward` (") == 2
    table = text.split("4 times the same steps")[1].split("## Backward")[0]
    for k in range(4):
        entry = t[f"blocks.{k}/attention/A"]
        assert f"$`{entry.symbol}`$ {entry.gradient_rms:#.2g}" in table


def test_where_gradients_add_the_sum_has_all_its_parts():
    text = derivation(attention())
    total = next(
        right for left, right in equations(text) if left == r"\frac{\partial L}{\partial X}"
    )
    assert total.count(r"\right|") == 3


def test_of_a_value_that_one_op_uses_twice_each_use_has_its_own_part():
    x = mg.tensor(np.ones((2, 2)), requires_grad=True, name="x")
    with mg.trace() as t:
        mg.sum(x @ x).backward()
    found = dict(equations(derivation(t)))
    slope = r"\frac{\partial L}{\partial x}"
    a, b = (rf"\left.{slope}\right|_{{H,\,\mathrm{{{use}}}}}" for use in "ab")
    assert found[slope] == f"{a} + {b}"
    assert found[a].endswith(r"x^\top")
    assert found[b].startswith(r"x^\top")


def test_nothing_in_it_does_what_github_cannot_render():
    for run in RUNS.values():
        text = derivation(run())
        assert r"\operatorname" not in text
        assert not re.search(r"\$`[^`\n]*\|[^`\n]*`\$", text)  # it would end a cell

"""A mask rule says of each block what its array says there."""

import numpy as np
import pytest

from minigrad.errors import ArgumentError
from minigrad.ops.mask_rules import Causal, Global, Window

RULES = [
    Causal(),
    Window(5),
    Window(3, dilation=4),
    Global((0, 11)),
    Causal() & Window(7),
    Window(4) | Global((0,)),
    Causal() & (Window(2, 5) | Global((3,))),
    (Causal() & Window(5)).shifted(6),
    (Window(3) | Global((9,))).shifted(-4),
]


def _expected(rule, i, j):
    """Each entry by itself, from the sentence that describes the rule."""
    match rule:
        case Causal():
            return j <= i
        case Window(size, dilation):
            return abs(i - j) < size * dilation and (i - j) % dilation == 0
        case Global(tokens):
            return i in tokens or j in tokens
    if hasattr(rule, "offset"):
        return _expected(rule.rule, i + rule.offset, j)
    together = all if type(rule).__name__ == "AllOf" else any
    return together(_expected(one, i, j) for one in rule.rules)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_entry_is_what_the_rules_sentence_says(rule):
    expected = [[_expected(rule, i, j) for j in range(19)] for i in range(23)]
    np.testing.assert_array_equal(rule.array(23, 19), expected)
    assert (rule.array(0, 19).shape, rule.array(23, 0).shape) == ((0, 19), (23, 0))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_block_is_the_part_of_the_array_or_one_word_for_it(rule):
    whole = rule.array(40, 40)
    for rows in (slice(0, 7), slice(7, 20), slice(38, 40)):
        for keys in (slice(0, 1), slice(1, 13), slice(20, 39)):
            block, part = rule.block(rows, keys), whole[rows, keys]
            if isinstance(block, str):
                assert part.all() if block == "all" else not part.any()
            else:
                np.testing.assert_array_equal(block, part)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.relative], ids=str)
def test_a_relative_rule_says_the_same_of_blocks_at_the_same_distance(rule):
    here, there = ((slice(a, a + 7), slice(a + 2, a + 13)) for a in (9, 21))
    np.testing.assert_array_equal(rule.entries(*here), rule.entries(*there))


def test_blocks_that_a_dilated_window_steps_over_are_closed():
    rule = Window(2, dilation=200)
    assert rule.block(slice(300, 320), slice(200, 220)) == "none"
    assert rule.entries(slice(300, 320), slice(90, 110)).sum() == 10


def test_a_rule_is_a_value():
    assert Causal() & Window(3) == Causal() & Window(3)
    assert len({Window(3), Window(3), Window(4)}) == 2
    assert repr(Causal() & Window(3)) == "AllOf(rules=(Causal(), Window(size=3, dilation=1)))"


def test_a_window_without_a_size_is_refused():
    with pytest.raises(ArgumentError, match=r"at least 1, got Window\(size=0, dilation=1\)"):
        Window(0)

"""Single ops: least times, and a wrong answer is named."""

import numpy as np
import pytest

from benchmarks.ops import compare, figures_of, measure_ops
from benchmarks.remote import ROOT


def test_a_wrong_gradient_is_named_instead_of_timed():
    out, right = np.ones(3), np.array([1.0, 2.0])
    assert compare("sum", [[out, right], [out, right]]) == ""
    assert "gradient of input 0 differs" in compare("sum", [[out, right * 1.01], [out, right]])


def test_a_figure_is_the_least_and_says_whether_the_machine_was_quiet():
    assert figures_of([(1.0, 2.0), (1.1, 1.5), (1.2, 1.6)], 5.0) == (1.0, 1.5, 5.0, True)
    assert not figures_of([(1.0, 1.0), (2.0, 1.0), (2.0, 1.0)], 5.0).quiet


@pytest.mark.slow
def test_an_op_is_timed_beside_pytorch():
    pytest.importorskip("torch")
    report = measure_ops(["max_pool"], str(ROOT), 1, 0.01, lambda what: None)
    ((title, *figures),) = report.rows
    assert title == "max_pool"
    assert float(figures[-1]) > 0

"""Loops by numba: found where they are needed, held to their ops, and left out where they fail."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.engine.op import FASTER
from minigrad.fast.loops import IS_WANTED
from minigrad.fast.overlay import overlays_of
from minigrad.optim import Adam, AdamW
from tests.compare import assert_same
from tests.process import python

needs_numba = pytest.mark.skipif(not IS_WANTED, reason="numba is not installed")

PROGRAM = """
import sys
import numpy as np
import minigrad as mg

x = mg.tensor(np.linspace(-3, 3, 9000), requires_grad=True)
mg.gelu(x[:900])
assert "numba" not in sys.modules
y = mg.gelu(x)
print("numba" in sys.modules, *mg.grad(y.sum(), x)[:3])
"""


def test_numba_is_imported_by_the_first_large_array_and_results_are_alike_without_it():
    uses, *with_loops = python("-W", "error", "-c", PROGRAM).stdout.split()
    none, *without = python("-W", "error", "-c", PROGRAM, MINIGRAD_LOOPS="0").stdout.split()
    assert (uses, none) == (str(IS_WANTED), "False")
    np.testing.assert_allclose(*(np.array(x, float) for x in (with_loops, without)), rtol=1e-12)


@needs_numba
def test_where_numba_fails_ops_run_without_it_and_say_so_once(tmp_path):
    (tmp_path / "numba.py").write_text("raise OSError('planted')")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}mg.softmax(x)"
    done = python("-c", program)
    assert done.stdout.startswith("False")
    assert done.stderr.count("without compiled loops, for numba fails: planted") == 1
    assert "MINIGRAD_LOOPS=0" in done.stderr


@needs_numba
def test_a_loop_that_fails_to_compile_is_left_out_and_says_so_once(monkeypatch):
    from minigrad.fast.loops.formulas import loop
    from minigrad.fast.loops.overlays import by_loop

    x = mg.tensor(np.linspace(-3, 3, 9000), requires_grad=True)
    expected = np.tanh(x.data)
    monkeypatch.setattr(mg.tanh, "faster", None)
    by_loop(mg.tanh, lambda x: True)(loop(lambda x: x.no_such_method()))
    assert len(overlays_of(mg.tanh).every) == 1
    with pytest.warns(
        RuntimeWarning, match=r"(?s)tanh\(x\) runs without its loop in float64.*LOOPS=0"
    ):
        first = mg.tanh(x)
    np.testing.assert_array_equal([first.data, mg.tanh(x).data], [expected, expected])


@needs_numba
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray])
@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_steps_of_adam_by_its_loop_are_those_by_numpy(kind, layout, dtype, rng, monkeypatch):
    W, *gradients = rng.normal(size=(4, 91, 89)).astype(dtype)

    def trained():
        weight = mg.tensor(layout(W), requires_grad=True)
        optimizer = kind([weight], lr=0.1, weight_decay=0.01)
        for g in gradients:
            weight.grad = layout(g)
            optimizer.step()
        return weight.data - W

    took = []
    loop = FASTER["adam"]

    def seen(*given):
        took.append(loop(*given))
        return took[-1]

    monkeypatch.setitem(FASTER, "adam", seen)
    by_loop = trained()
    assert took == [layout is np.ascontiguousarray] * len(gradients)
    monkeypatch.delitem(FASTER, "adam")
    assert_same(by_loop, trained(), {"f2": 1e-2, "f4": 2e-6, "f8": 1e-14}[dtype])

"""What each op does at NaN, infinity, zero and ties: as PyTorch does, but where it says otherwise.

Each line: the op, its inputs, its values, and the gradient of each input. NaN is neither above nor
below anything, so an op that takes one of several entries passes the gradient to it.
"""

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same
from tests.ops.slope import slope

NaN, INF = np.nan, np.inf
X = [NaN, INF, -INF, 0.0, 1.0, -1.0]
PAIRS = [NaN, 1.0, NaN, INF, INF, 0.0, 2.0], [1.0, NaN, NaN, INF, 1.0, 0.0, 3.0]

TABLE = [
    ("relu", [X], [NaN, INF, 0, 0, 1, 0], [[1, 1, 0, 0, 1, 0]]),
    ("sigmoid", [X[:4]], [NaN, 1, 0, 0.5], [[NaN, 0, 0, 0.25]]),
    ("tanh", [X[:4]], [NaN, 1, -1, 0], [[NaN, 0, 0, 1]]),
    ("exp", [X[:4]], [NaN, INF, 0, 1], [[NaN, INF, 0, 1]]),
    ("log", [X[:5]], [NaN, INF, NaN, -INF, 0], [[NaN, 0, 0, INF, 1]]),
    ("sqrt", [X[:5]], [NaN, INF, NaN, 0, 1], [[NaN, 0, NaN, INF, 0.5]]),
    ("negative", [X[:4]], [NaN, -INF, INF, 0], [[-1, -1, -1, -1]]),
    ("silu", [X[:4]], [NaN, INF, NaN, 0], [[NaN, NaN, NaN, 0.5]]),
    ("gelu", [X[:4]], [NaN, INF, NaN, 0], [[NaN, NaN, NaN, 0.5]]),
    ("maximum", PAIRS, [NaN, NaN, NaN, INF, INF, 0, 3],
     [[1, 1, 1, 0.5, 1, 0.5, 0], [1, 1, 1, 0.5, 0, 0.5, 1]]),
    ("minimum", PAIRS, [NaN, NaN, NaN, INF, 1, 0, 2],
     [[1, 1, 1, 0.5, 0, 0.5, 1], [1, 1, 1, 0.5, 1, 0.5, 0]]),
    ("max", [[1, NaN, 2]], NaN, [[0, 1, 0]]),
    ("max", [[2, 1, 2, 2]], 2, [[1 / 3, 0, 1 / 3, 1 / 3]]),
    ("min", [[1, NaN, 2, NaN]], NaN, [[0, 0.5, 0, 0.5]]),
    ("softmax", [[1, INF, 2]], [NaN] * 3, [[NaN] * 3]),
    ("softmax", [[0, -INF, 0]], [0.5, 0, 0.5], [[0, 0, 0]]),
    ("power", [[0, 0, -1, NaN, INF], [0, 2, 2, 0, 2]], [1, 0, 1, 1, INF],
     [[0, 0, -2, 0, INF], [0, 0, NaN, NaN, INF]]),
    ("power", [[0, 0, 0, 1], [0.5, 1, 3, 0]], [0, 0, 0, 1], [[INF, 1, 0, 0], [0, 0, 0, 0]]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "inputs", "value", "slopes"), TABLE, ids=[t[0] for t in TABLE])
def test_the_table_and_pytorch_agree(name, inputs, value, slopes):
    op = getattr(mg, name)
    with np.errstate(all="ignore"):
        found, gradients = op(*map(np.array, inputs)), slope(op, *inputs)
    gradients = [gradients] if len(inputs) == 1 else gradients
    np.testing.assert_array_equal(found, value)
    np.testing.assert_array_equal(gradients, slopes)
    torch = pytest.importorskip("torch")
    functions = {"power": torch.pow, "softmax": lambda x: torch.softmax(x, -1)}
    theirs = functions.get(name) or getattr(torch, name, None) or getattr(torch.nn.functional, name)
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in inputs]
    out = theirs(*leaves)
    out.backward(torch.ones_like(out))
    np.testing.assert_array_equal(found, out.detach().numpy())
    assert_same(gradients, [leaf.grad for leaf in leaves], 0)


def test_where_we_differ_from_pytorch_on_purpose():
    """The NaNs of a row share its gradient, where PyTorch's amax gives NaN to the whole row; abs
    and clip pass the gradient of NaN, where PyTorch gives 0; the softmax of a masked row is zero.
    """
    np.testing.assert_array_equal(
        slope(lambda x: mg.max(x, axis=1), [[1, NaN, 2, NaN], [3, 3, 1, 0]]),
        [[0, 0.5, 0, 0.5], [0.5, 0.5, 0, 0]],
    )
    np.testing.assert_array_equal(slope(mg.abs, X), [1, 1, -1, 0, 1, -1])
    np.testing.assert_array_equal(slope(lambda x: mg.clip(x, -1, 1), X), [1, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(slope(mg.softmax, [-INF, -INF]), [0, 0])
    np.testing.assert_array_equal(slope(mg.logsumexp, [-INF, -INF]), [0, 0])

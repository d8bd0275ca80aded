"""Values and gradients are PyTorch's, over grids of settings."""

from itertools import product

import numpy as np
import pytest

import minigrad as mg
from tests.compare import assert_same

torch = pytest.importorskip("torch")
F = torch.nn.functional


@pytest.fixture
def agree_with_torch(rng):
    """Run a call in both on the same arrays; compare the result and every gradient."""

    def agree(ours, theirs, arrays):
        xs = [mg.tensor(a, requires_grad=True) for a in arrays]
        ts = [torch.tensor(a, requires_grad=True) for a in arrays]
        out, expected = ours(*xs), theirs(*ts)
        assert_same(out.data, expected)
        u = rng.uniform(0.5, 1.5, out.shape)
        expected.backward(torch.tensor(u))
        assert_same(mg.grad(out, xs, u), [t.grad for t in ts])

    return agree


def draw(*shape, low=-3.0, high=3.0, seed=17):
    return np.random.default_rng(seed).uniform(low, high, shape)


X, P = draw(3, 5), draw(3, 5, low=0.05, high=0.95, seed=5)
CLASSES = np.array([0, 4, 2])
CALLS = {  # ours, theirs, arrays
    "bce_with_logits": (mg.bce_with_logits, F.binary_cross_entropy_with_logits, [X, P]),
    "huber_loss": (
        lambda *xs: mg.huber_loss(*xs, delta=0.7), lambda *xs: F.huber_loss(*xs, delta=0.7), [X, P],
    ),
    **{f"cross_entropy-{k}": (
        lambda x, s=s: mg.cross_entropy(x, CLASSES, **s),
        lambda x, s=s: F.cross_entropy(x, torch.tensor(CLASSES), **s), [X],
    ) for k, s in enumerate([{}, {"ignore_index": 4}, {"label_smoothing": 0.3},
                             {"ignore_index": 0, "label_smoothing": 0.1}])},
    "cross_entropy-probabilities": (
        lambda x: mg.cross_entropy(x, P, label_smoothing=0.2),
        lambda x: F.cross_entropy(x, torch.tensor(P), label_smoothing=0.2), [X],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "arrays"), CALLS.values(), ids=CALLS)
def test_a_function_is_pytorchs(ours, theirs, arrays, agree_with_torch):
    agree_with_torch(ours, theirs, arrays)


NaN, INF = np.nan, np.inf
ENDS = [NaN, INF, -INF, 0.0, 1.0, -1.0]
TIES = [NaN, 1.0, NaN, INF, INF, 0.0, 2.0], [1.0, NaN, NaN, INF, 1.0, 0.0, 3.0]
EDGES = [
    *((name, ENDS) for name in "relu sigmoid tanh exp log sqrt negative silu gelu".split()),
    ("elu", ENDS[1:]), ("maximum", *TIES), ("minimum", *TIES), ("max", [1, NaN, 2]),
    ("max", [2, 1, 2, 2]), ("min", [1, NaN, 2, NaN]), ("softmax", [1, INF, 2]),
    ("softmax", [0, -INF, 0]), ("power", [0, 0, -1, NaN, INF], [0, 2, 2, 0, 2]),
    ("power", [0, 0, 0, 1], [0.5, 1, 3, 0]), ("power", [0, 0], [-1, NaN]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arrays"), [(name, arrays) for name, *arrays in EDGES])
def test_at_nan_infinity_zero_and_ties_a_function_is_pytorchs(name, arrays, agree_with_torch):
    """NaN is neither above nor below anything: what takes one of several passes its gradient."""
    others = {"power": torch.pow, "softmax": lambda x: torch.softmax(x, -1)}
    theirs = others.get(name) or getattr(torch, name, None) or getattr(F, name)
    with np.errstate(all="ignore"):
        agree_with_torch(getattr(mg, name), theirs, [np.array(a, float) for a in arrays])


FORMS = [
    {"stride": s, "padding": p, "dilation": d, "groups": g}
    for s, p, d, g in product((1, 2, 3), (0, 2, "same"), (1, 2), (1, 2))
    if s == 1 or p != "same"
]


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("n", [1, 2])
def test_a_convolution_is_pytorchs(n, agree_with_torch):
    name, x, bias = f"conv{n}d", draw(2, 4, *(9, 8)[:n]), draw(6)
    for form in FORMS:
        weight = draw(6, 4 // form["groups"], *(2, 3)[:n])
        calls = [lambda *xs, f=f, form=form: getattr(f, name)(*xs, **form) for f in (mg, F)]
        agree_with_torch(*calls, [x, weight, bias])


@pytest.mark.parametrize("n", [1, 2])
def test_pooling_is_pytorchs(n, agree_with_torch):
    for settings in product((2, 3), (None, 1, 2), (0, 1)):
        for kind in ("max", "avg"):
            both = getattr(mg, f"{kind}_pool"), getattr(F, f"{kind}_pool{n}d")
            calls = [lambda x, f=f, settings=settings: f(x, *settings) for f in both]
            agree_with_torch(*calls, [draw(2, 3, *(9, 8)[:n])])

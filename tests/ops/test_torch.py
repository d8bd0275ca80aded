"""Values and gradients are PyTorch's, at first and second order, over grids of settings."""

from itertools import product

import numpy as np
import pytest

import minigrad as mg

torch = pytest.importorskip("torch")
F = torch.nn.functional


def draw(*shape, low=-3.0, high=3.0, seed=17):
    return np.random.default_rng(seed).uniform(low, high, shape)


X, P, W = draw(3, 5), draw(3, 5, low=0.05, high=0.95, seed=5), draw(5, low=0.5)
CLASSES = np.array([0, 4, 2])
CALLS = {  # ours, theirs, arrays
    **{name: (getattr(mg, name), getattr(torch, name, None) or getattr(F, name), [X])
       for name in "sin cos erf square sign softplus sigmoid relu silu gelu abs exp tanh".split()},
    **{name: (getattr(mg, name), getattr(torch, name), [P]) for name in ("log", "sqrt", "log1p")},
    "leaky_relu": (lambda x: mg.leaky_relu(x, 0.2), lambda x: F.leaky_relu(x, 0.2), [X]),
    "elu": (lambda x: mg.elu(x, 0.7), lambda x: F.elu(x, 0.7), [X]),
    "gelu-tanh": (lambda x: mg.gelu(x, "tanh"), lambda x: F.gelu(x, approximate="tanh"), [X]),
    "softmax": (mg.softmax, lambda x: torch.softmax(x, -1), [X]),
    "log_softmax": (lambda x: mg.log_softmax(x, 0), lambda x: torch.log_softmax(x, 0), [X]),
    "logsumexp": (lambda x: mg.logsumexp(x, 1), lambda x: torch.logsumexp(x, 1), [X]),
    "var": (lambda x: mg.var(x, 1, 1), lambda x: torch.var(x, 1), [X]),
    "std": (lambda x: mg.std(x, 0), lambda x: torch.std(x, 0, correction=0), [X]),
    "norm": (lambda x: mg.norm(x, axis=1), lambda x: torch.linalg.norm(x, dim=1), [X]),
    "prod": (lambda x: mg.prod(x, 1), lambda x: torch.prod(x, 1), [X]),
    "cumsum": (lambda x: mg.cumsum(x, 0), lambda x: torch.cumsum(x, 0), [X]),
    "power": (mg.power, torch.pow, [P, X]),
    "layer_norm": (mg.layer_norm, lambda x, *p: F.layer_norm(x, (5,), *p), [X, W, -W]),
    "rms_norm": (mg.rms_norm, lambda x, w: F.rms_norm(x, (5,), w, 1e-5), [X, W]),
    "batch_norm": (mg.batch_norm, lambda x, *p: F.batch_norm(x, None, None, *p, training=True),
                   [draw(2, 5, 3), W, -W]),
    "mse_loss": (mg.mse_loss, F.mse_loss, [X, P]),
    "bce_with_logits": (mg.bce_with_logits, F.binary_cross_entropy_with_logits, [X, P]),
    "l1_loss": (mg.l1_loss, F.l1_loss, [X, P]),
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
    "embedding": (lambda W: mg.take(W, np.array([[1, 2], [2, 2]]), 0),
                  lambda W: F.embedding(torch.tensor([[1, 2], [2, 2]]), W), [X]),
}  # fmt: skip


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize(("ours", "theirs", "arrays"), CALLS.values(), ids=CALLS)
def test_a_function_is_pytorchs_at_both_orders(ours, theirs, arrays, second, agree_with_torch):
    agree_with_torch(ours, theirs, arrays, second)


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
def test_a_convolution_is_pytorchs_at_both_orders(n, agree_with_torch):
    name, x, bias = f"conv{n}d", draw(2, 4, *(9, 8)[:n]), draw(6)
    for k, form in enumerate(FORMS):
        weight = draw(6, 4 // form["groups"], *(2, 3)[:n])
        calls = [lambda *xs, f=f, form=form: getattr(f, name)(*xs, **form) for f in (mg, F)]
        agree_with_torch(*calls, [x, weight, bias], second=k % 5 == 0)


@pytest.mark.parametrize("n", [1, 2])
def test_pooling_is_pytorchs(n, agree_with_torch):
    for settings in product((2, 3), (None, 1, 2), (0, 1)):
        for kind in ("max", "avg"):
            both = getattr(mg, f"{kind}_pool"), getattr(F, f"{kind}_pool{n}d")
            calls = [lambda x, f=f, settings=settings: f(x, *settings) for f in both]
            agree_with_torch(*calls, [draw(2, 3, *(9, 8)[:n])])


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_recurrences_are_pytorchs(kind, rng):
    T, B, d, H, gates = 5, 3, 4, 2, {"GRU": 3, "LSTM": 4}[kind]
    shapes = [(T, B, d), (gates * H, d), (gates * H, H), (gates * H,), (gates * H,), (B, H), (B, H)]
    X, W_ih, W_hh, b_ih, b_hh, h, c = (rng.normal(size=s) for s in shapes)
    cell = getattr(torch.nn, kind)(d, H).double()
    for p, a in zip(cell.parameters(), (W_ih, W_hh, b_ih, b_hh), strict=True):
        p.data = torch.tensor(a)
    x, u = torch.tensor(X, requires_grad=True), rng.normal(size=(T, B, H))
    first = (
        (torch.tensor(h)[None], torch.tensor(c)[None]) if kind == "LSTM" else torch.tensor(h)[None]
    )
    expected = cell(x, first)[0]
    expected.backward(torch.tensor(u))
    arrays = (
        [X, W_ih, W_hh, b_ih + b_hh, h, c] if kind == "LSTM" else [X, W_ih, W_hh, b_ih, b_hh, h]
    )
    leaves = [mg.tensor(a, requires_grad=True) for a in arrays]
    out = getattr(mg, kind.lower())(*leaves)[:T]
    np.testing.assert_allclose(out.numpy(), expected.detach().numpy(), rtol=1e-12)
    found = mg.grad(out, leaves[:4], u)
    for mine, theirs in zip(found, (x, *cell.parameters()), strict=False):
        np.testing.assert_allclose(mine, theirs.grad.numpy(), rtol=1e-10, atol=1e-12)

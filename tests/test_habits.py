"""What is typed from habit works, or meets an error that says what to write: one table has it."""

import inspect
import re

import numpy as np
import pytest

import layers
import minigrad as mg
from layers import Linear, MultiHeadAttention, Sequential
from minigrad import habits
from minigrad.errors import MissingNameError


@pytest.fixture
def names(rng):
    """What the right sides of the table may name."""
    x = mg.tensor([[3.0, 1.0, 2.0], [4.0, 6.0, 5.0]], requires_grad=True, name="x")
    model = Sequential(Linear(3, 3, rng=rng))
    q, image, kernel = (
        mg.tensor(rng.normal(size=shape), requires_grad=True)
        for shape in ((2, 7, 8), (1, 3, 4, 4), (5, 3, 3, 3))
    )
    attention = MultiHeadAttention(8, 2, rng=rng)
    attention(q.numpy())
    return {
        "mg": mg, "layers": layers, "np": np, "Linear": Linear, "Sequential": Sequential,
        "x": x, "q": q, "image": image, "kernel": kernel, "targets": np.array([0, 2]),
        "tokens": list("abcdefg"), "A": attention.attention_weights[0, 0],
        "rng": rng, "layer": Linear(3, 2, rng=rng), "model": model, "attention": attention,
        "optimizer": mg.optim.Adam(model.parameters()),
    }  # fmt: skip


def value_of(remedy, names):
    """What a remedy gives; of statements, nothing."""
    try:
        return eval(remedy, names)
    except SyntaxError:
        return exec(remedy, names)


@pytest.mark.parametrize("ours", dict.fromkeys(habits.HABITS.values()))
def test_what_to_write_instead_runs_and_says_where_a_gradient_ends(ours, names):
    result = value_of(ours, names)
    if isinstance(result, mg.Tensor) and re.search(r"\b(x|q|image)\b", ours):
        assert result.requires_grad != ("detach" in ours)
    if ".numpy()" in ours and getattr(result, "dtype", np.dtype(int)).kind == "f":
        assert isinstance(result, mg.Tensor) or "gradient" in ours


X = np.array([[3.0, 1.0, 2.0], [4.0, 6.0, 5.0]])
MEANT = {
    "flatten": X.reshape(-1), "permute": X.T, "t": X.T, "unsqueeze": X[None], "numel": 6, "dim": 2,
    "clone": X, "copy": X, "masked_fill": np.where(X > 1, 0, X), "mm": X @ X.T, "mul": X * X,
    "tile": np.tile(X, (2, 1)), "gather": [[3.0], [5.0]], "sort": np.sort(X, axis=1),
    "scatter": [X[0], [0, 0, 0], X[1], [0, 0, 0], [0, 0, 0]], "topk": [[3.0, 2.0], [6.0, 5.0]],
    "diag": np.diag(X), "tril": np.tril(X), "cumprod": np.cumprod(X, axis=1), "gt": X > 0,
    "floor": np.floor(X), "amax": X.max(axis=1), "cat": np.concatenate([X, X]),
    "rsqrt": 1 / np.sqrt(X), "log2": np.log2(X), "tan": np.tan(X),
    "logsigmoid": -np.log1p(np.exp(-X)), "one_hot": [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]],
    "embedding": X[[0, 0]], "isnan": np.isfinite(X), "d_k": 8,
}  # fmt: skip


@pytest.mark.parametrize("habit", MEANT)
def test_what_to_write_instead_gives_what_the_habit_means(habit, names):
    result = value_of(habits.HABITS[habit], names)
    np.testing.assert_allclose(
        result.numpy() if isinstance(result, mg.Tensor) else result, MEANT[habit]
    )


@pytest.mark.parametrize("name", habits.HABITS)
def test_a_name_of_habit_meets_what_to_write_wherever_it_is_missing(name):
    model = Sequential(Linear(3, 3))
    owners = (mg, layers, model) if name[0] == "_" else (mg.tensor([1.0]), mg, layers, model)
    lacking = [x for x in owners if not hasattr(x, name)]
    assert lacking
    for owner in lacking:
        with pytest.raises(MissingNameError, match=re.escape(habits.HABITS[name])):
            getattr(owner, name)


def test_other_names_meet_the_op_the_nearest_or_numpys():
    for owner, name, remedy in (
        (mg.tensor([1.0]), "gelu", "write mg.gelu"),
        (mg.tensor([1.0]), "searchsorted", "write x.numpy().searchsorted, where the gradient ends"),
        (layers, "softmax", "write mg.softmax"),
        (mg, "softmaks", "the nearest is softmax"),
        (Linear(2, 3), "forwad", "the nearest is forward"),
    ):
        with pytest.raises(MissingNameError, match=re.escape(remedy)):
            getattr(owner, name)
    assert not hasattr(mg.tensor([1.0]), "nothing_like_it")


def test_each_keyword_of_habit_stands_for_one_that_some_call_takes():
    offered = [*vars(mg).values(), *vars(layers).values()]
    calls = [call for call in offered if inspect.isfunction(call) or isinstance(call, mg.Op)]
    modules = [x for x in offered if inspect.isclass(x) and issubclass(x, layers.Module)]
    calls += [*modules, *(module.forward for module in modules), mg.optim.Adam]
    taken = {name for call in calls for name in inspect.signature(call).parameters}
    for keyword, ours in habits.KEYWORDS.items():
        assert ours[0] == '"' or {*ours.split(", ")} <= taken, keyword


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        ("mg.sum(x, dim=0)", "write axis= for dim="),
        ("x.mean(axis=0, keepdim=True)", "write keepdims= for keepdim="),
        ("mg.softmax(x, axes=0)", "write axis= for axes="),
        ("layers.Conv2d(3, 5, kernel_size=3)", "write size= for kernel_size="),
        ("layers.MultiHeadAttention(embed_dim=8, n_heads=2)", "write d_model= for embed_dim="),
        ("mg.l1_loss(x, x, reduction='sum')", "a loss is a mean"),
        ("mg.cross_entropy(x, targets, weight=np.ones(3))", "w = weight[targets]; loss = "),
        ("mg.optim.lr_scheduler", "write mg.optim.schedule.cosine("),
    ],
)
def test_the_error_of_a_call_says_it(call, remedy, names):
    with pytest.raises((TypeError, AttributeError), match=re.escape(remedy)):
        eval(call, names)


def test_weights_of_classes_and_of_yes_are_lines_that_give_the_weighted_mean(rng):
    logits = rng.normal(size=(5, 3))
    targets = np.array([0, 2, 1, 1, 0])
    weight = np.array([1.0, 2.0, 5.0])
    space = {"np": np, "mg": mg, "logits": logits, "targets": targets, "weight": weight}
    exec(habits.KEYWORDS["cross_entropy.weight"].strip('"'), space)
    rows = [mg.cross_entropy(logits[i], targets[i]) for i in range(5)]
    np.testing.assert_allclose(space["loss"], np.average(rows, weights=weight[targets]))
    space = {"mg": mg, "x": logits, "targets": logits > 0, "pos_weight": 1.0}
    exec(habits.KEYWORDS["bce_with_logits.pos_weight"].strip('"'), space)
    np.testing.assert_allclose(space["loss"], mg.bce_with_logits(logits, logits > 0))

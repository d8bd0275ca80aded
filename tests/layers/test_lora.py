"""Low-rank adapters: what they compute, train, merge into and save."""

import copy

import numpy as np
import pytest

import layers as L
import minigrad as mg
from minigrad.errors import ArgumentError, GradientError
from minigrad.optim import Adam
from tests.compare import assert_same, refusals
from tests.compiled import assert_compiles
from tests.layers.kinds import OF_ARRAYS, OF_TOKENS, ROWS, WITH_CONTEXT, call, drawn, kinds

TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2]])


def language_model(**options):
    return L.LanguageModel(11, 8, 2, 2, rng=0, **options)


def trained(model, adapters, steps=3):
    """After a few steps, so that B is not zero."""
    optimizer = Adam(adapters.parameters(), 0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        mg.cross_entropy(model(TOKENS)[0, :-1], TOKENS[0, 1:]).backward()
        optimizer.step()
    return adapters


@pytest.mark.parametrize(
    ("targets", "count"),
    [("W_[QV]", 4), ("attention.W_[QKVO]", 8), (["blocks.1"], 6), ("*", 12), (["W_Q", "W_1"], 4)],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_step_0_is_the_base_bit_for_bit_and_only_adapters_are_trained(targets, count, dtype):
    model = language_model(dtype=dtype)
    before, old = model(TOKENS).numpy(), model.state_dict()
    adapters = L.lora(model, rank=2, alpha=4, targets=targets, rng=0)
    assert_same(model(TOKENS), before, 0)
    wanted = [id(p) for p in adapters.parameters()]
    assert wanted == [id(p) for p in model.parameters() if p.requires_grad]
    assert len(wanted) == 2 * count
    trained(model, adapters)
    assert np.abs(model(TOKENS).numpy() - before).max() > 1e-3
    new = model.state_dict()
    for path, array in old.items():
        assert_same(new[f"{path}.W" if path in adapters.weights else path], array, 0, path)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_merged_equals_wrapped_and_is_an_ordinary_model(dtype, tolerance, tmp_path):
    model = language_model(dtype=dtype)
    names = {path: (a.shape, a.dtype) for path, a in model.state_dict().items()}
    adapters = trained(model, L.lora(model, 3, alpha=6, targets="*", rng=0))
    wrapped, state = model(TOKENS).numpy(), model.state_dict()
    adapters.merge()
    assert_same(model(TOKENS), wrapped, tolerance)
    assert {path: (a.shape, a.dtype) for path, a in model.state_dict().items()} == names
    mg.save(tmp_path / "merged.npz", model=model)
    plain = language_model(dtype=dtype)
    mg.load(tmp_path / "merged.npz", model=plain)
    assert_same(plain(TOKENS), model(TOKENS), 0)
    assert_same(adapters.unmerge().model.state_dict(), state, 0)
    with pytest.raises(ArgumentError, match=r"unmerge: .* not merged"):
        adapters.unmerge()
    L.lora(adapters.merge().model, rank=2, rng=1)
    with pytest.raises(ArgumentError, match="has been replaced since merge, by other adapters"):
        adapters.unmerge()
    with pytest.raises(ArgumentError, match="merged already"):
        adapters.merge().merge()


@kinds(ROWS, WITH_CONTEXT, OF_TOKENS, OF_ARRAYS)
def test_every_kind_of_layer_takes_adapters(name, rng):
    layer, *inputs = drawn(rng, name)
    layer = copy.deepcopy(layer)
    if any(p.name[0] in "WV" and p.ndim == 2 for p in layer.parameters()):
        adapters = L.lora(layer, 1, targets="*", rng=rng)
        for weight in adapters.weights.values():
            weight.B.assign_(rng.normal(size=weight.B.shape))
        expected = call(layer, *inputs).numpy()
        mg.sum(call(layer, *inputs)).backward()
        assert all(p.grad is not None for p in adapters.parameters())
        adapters.merge()
        assert_same(call(layer, *inputs), expected, 1e-9)


def test_a_trace_names_the_adapters_and_holds_them_against_the_formula(tmp_path):
    model = L.SelfAttention(7, 5, 3, rng=0)
    L.lora(model, 2, alpha=3, targets="W_[QO]", rng=0).weights["W_Q"].B.assign_(np.ones((2, 5)))
    assert model.W_Q.s.item() == 3 / 2  # α / rank
    x = mg.tensor(np.random.default_rng(1).normal(size=(2, 3, 7)), requires_grad=True)
    with mg.trace() as t:
        (model(x) ** 2).sum().backward()
    checks = t.check()
    assert [check.symbol for check in checks.measured] == ["B", "A", "B", "A"]
    assert checks.ok
    paths = {entry.path for entry in t.entries}
    assert {f"self_attention/W_Q/{name}" for name in "ABHD"} <= paths
    assert {f"self_attention/{name}" for name in ("W_Q", "Q", "A", "out")} <= paths
    picture = t.draw(tmp_path / "g.svg").read_text()
    assert "self_attention/W_Q/B" in picture


def test_dropout_is_on_the_adapters_input_and_in_training_alone():
    layer = L.Linear(100, 3, use_bias=False, rng=0)
    base = layer.W.numpy().copy()
    L.lora(layer, 1, alpha=1, targets="W", dropout=0.5, rng=0)
    layer.W.A.assign_(np.ones((100, 1)))
    layer.W.B.assign_(np.ones((1, 3)))
    x = np.eye(1, 100)
    found = {round(float((layer(x).numpy() - x @ base)[0, 0]), 9) for _ in range(20)}
    assert found == {0.0, 2.0}
    layer.eval()
    np.testing.assert_allclose(layer(x).numpy() - x @ base, 1.0)


def test_adapters_are_saved_alone_with_their_scale(tmp_path):
    model = language_model()
    whole = mg.save(tmp_path / "whole.npz", model=model)
    adapters = trained(model, L.lora(model, 1, alpha=8, rng=0))
    path = mg.save(tmp_path / "adapters.npz", adapters=adapters)
    assert path.stat().st_size < whole.stat().st_size / 2
    other = language_model()
    mg.load(path, adapters=L.lora(other, 1, alpha=1, rng=7))
    assert_same(other(TOKENS), model(TOKENS), 0)
    with pytest.raises(ArgumentError, match=r"(?s)was written, for Adapters.*W_O.A: missing"):
        mg.load(path, adapters=L.lora(language_model(), 1, targets="W_[QVO]"))
    with pytest.raises(ArgumentError, match=r"A: shape must be \(8, 2\), got \(8, 1\)"):
        mg.load(path, adapters=L.lora(language_model(), 2))


def test_a_compiled_step_gives_adapters_the_gradients_of_an_eager_one():
    model = language_model()
    adapters = L.lora(model, 2, alpha=4, rng=0)

    def step(tokens):
        loss = mg.cross_entropy(model(tokens)[0, :-1], tokens[0, 1:])
        loss.backward()
        return loss

    assert_compiles(step, adapters.parameters(), *[(TOKENS,)] * 3)


def test_a_model_with_adapters_is_watched_cast_copied_and_saved(tmp_path):
    model = language_model()
    adapters = L.lora(model, 2, alpha=4, rng=0)
    with mg.watch(model) as flow:
        trained(model, adapters, steps=2)
    assert "W_Q/A" in flow.table()
    twin = copy.deepcopy(model)
    assert_same(twin(TOKENS), model(TOKENS), 0)
    mg.load(mg.save(tmp_path / "run.npz", model=model), model=twin)
    merged = L.Adapters(twin).merge().model(TOKENS).numpy()
    assert_same(model.to(np.float32)(TOKENS), merged.astype(np.float32), 1e-5)


def test_a_matrix_shared_by_two_layers_has_one_adapter_and_stays_shared(rng):
    model = L.Sequential(L.Linear(5, 5, rng=rng), mg.tanh, L.Linear(5, 5, rng=rng))
    model[2].W = model[0].W
    with pytest.raises(ArgumentError, match=r"layers.2.W is the same matrix as a chosen one"):
        L.lora(model, 2, targets="layers.0")
    adapters = L.lora(model, 2, targets="W", rng=rng)
    assert model[0].W is model[2].W
    assert list(adapters.weights) == ["layers.0.W"]
    adapters.merge()
    assert model[0].W is model[2].W
    assert list(model.state_dict()) == ["layers.0.W", "layers.0.b", "layers.2.b"]


@pytest.mark.parametrize("train", [False, True], ids=["integers", "rounded in training"])
@pytest.mark.parametrize("adapters_first", [False, True], ids=["quantized first", "adapters first"])
def test_a_quantized_model_is_trained_through_adapters_of_full_precision(
    rng, train, adapters_first
):
    x = rng.normal(size=(2, 3, 8))
    model = L.TransformerBlock(8, 2, rng=0)
    if adapters_first:
        before = L.quantize(model, x, train=train)(x).numpy()
        L.lora(model, 2, rng=0)
        model = L.quantize(model, x, train=train)
        adapters = L.Adapters(model)
    else:
        model = L.quantize(model, x, train=train)
        before = model(x).numpy()
        adapters = L.lora(model, 2, rng=0)
    assert_same(model(x), before, 0)
    optimizer, losses = Adam(adapters.parameters(), 0.05), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = ((model(x) - 1.0) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    with pytest.raises(ArgumentError, match="merge: W_Q is quantized"):
        adapters.merge()


class OwnProduct(L.Module):
    def __init__(self):
        self.W = mg.tensor(np.ones((3, 3)), requires_grad=True)

    def forward(self, x):
        return x @ self.W


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"targets": ["W_Q", "what"]}, "no path has 'what'"),
        ({"targets": []}, "no path has ''"),
        ({"targets": "embedding"}, "no path has 'embedding'"),
        ({"alpha": 0}, "alpha must be more than 0, got 0"),
        ({"alpha": np.nan}, "alpha must be more than 0, got nan"),
        ({"alpha": np.inf}, "alpha must be more than 0, got inf"),
        ({"rank": 0}, "rank must be an integer of at least 1"),
        ({"rank": 9}, r"rank must be at most that of .*W_Q \(8, 8\), got 9"),
        ({"dropout": 2.0}, "p must lie in"),
    ],
    ids=str,
)
def test_a_refused_call_says_why_and_changes_nothing(wrong, text):
    model = language_model()
    with pytest.raises(ArgumentError, match=text):
        L.lora(model, **{"rank": 2} | wrong)
    assert all(p.requires_grad for p in model.parameters())
    assert not any(isinstance(m, L.LowRankWeight) for m in model.modules())


test_what_has_adapters_or_none_is_refused = refusals(
    (lambda: L.lora(L.lora(language_model(), 2).model, 2), ArgumentError, "the model has adapters"),
    (lambda: L.Adapters(language_model()), ArgumentError, r"call lora\(model, rank\) first"),
    (lambda: L.lora(OwnProduct(), 2, targets="W").model(np.ones(3)), GradientError,
     "only layers.linear"),
)  # fmt: skip

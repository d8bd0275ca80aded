"""Parts that are not trained, and models of another dtype."""

import copy

import numpy as np
import pytest

import layers as L
import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, GradientError
from minigrad.optim import SGD, Adam
from tests.compare import assert_same


@pytest.fixture
def mlp():
    return L.Sequential(
        L.Linear(3, 5, rng=0), mg.tanh, L.Linear(5, 7, rng=1), mg.tanh, L.Linear(7, 2, rng=2)
    )


def trained(model):
    return [path for path, p in model.named_parameters() if p.requires_grad]


# ---------------------------------------------------------------- frozen


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ((), []),
        (("layers.0", "layers.4.W"), ["layers.2.W", "layers.2.b", "layers.4.b"]),
        (("W",), ["layers.0.b", "layers.2.b", "layers.4.b"]),
        (("layers.[24]",), ["layers.0.W", "layers.0.b"]),
        (("lay*W",), ["layers.0.b", "layers.2.b", "layers.4.b"]),
    ],
)
def test_a_pattern_freezes_what_stands_between_dots_of_the_path(mlp, patterns, left):
    paths, state = trained(mlp), list(mlp.state_dict())
    assert trained(mlp.freeze(*patterns)) == left
    assert repr(mlp).count(" frozen") == len(paths) - len(left)
    assert list(mlp.state_dict()) == state
    assert trained(mlp.unfreeze()) == paths


def test_a_pattern_that_no_path_has_is_refused_with_those_there_are(mlp):
    with pytest.raises(ArgumentError, match=r"freeze: no path has 'layer'; .*layers.0.W"):
        mlp.freeze("W", "layer")
    assert len(trained(mlp)) == 6


def test_buffers_are_never_trained():
    norm = L.BatchNorm(3).unfreeze()
    assert trained(norm) == ["weight", "bias"]
    assert not norm.running_mean.requires_grad


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_frozen_parameter_loses_its_gradient_and_an_optimizer_passes_it_over(mlp, kind):
    optimizer = kind(mlp.parameters(), lr=0.1)
    mlp(mg.tensor(np.ones((4, 3)))).sum().backward()
    mlp.freeze("layers.0")
    assert mlp[0].W.grad is None
    before = mlp.state_dict()
    optimizer.step()
    moved = [p for p, a in mlp.state_dict().items() if not np.array_equal(a, before[p])]
    assert moved == ["layers.2.W", "layers.2.b", "layers.4.W", "layers.4.b"]
    with pytest.raises(ArgumentError, match=r"W\) of shape \(3, 5\) needs no gradient"):
        kind(mlp.parameters())


def test_what_only_frozen_layers_need_is_not_saved(mlp):
    def saved(model):
        with mg.trace() as t:
            model(mg.tensor(np.ones((11, 3)))).sum().backward()
        return sum(t[i].saved_bytes for i in t.forward_steps)

    every = saved(mlp)
    x, first, second = 11 * 3 * 8, 11 * 5 * 8, 11 * 7 * 8  # what each Linear's W needs
    assert every == x + first + second + (5 * 7 + 7 * 2) * 8  # tanh keeps them too; and W
    assert saved(mlp.freeze("layers.0", "layers.2")) == second


def test_a_computed_tensor_cannot_be_frozen(mlp):
    assert mlp[0].W.requires_grad_(False) is mlp[0].W
    with pytest.raises(GradientError, match="detach"):
        (mlp[2].W * 2).requires_grad_(False)
    with pytest.raises(DTypeError, match="only real floating"):
        mg.tensor(np.arange(3)).requires_grad_()


def test_a_compiled_step_notices_what_was_frozen_and_thawed(mlp):
    def step(x):
        mlp.zero_grad()
        loss = (mlp(x) ** 2).sum()
        loss.backward()
        return loss

    compiled, x = mg.compile(step), mg.tensor(np.ones((4, 3)))
    for change in (mlp.train, lambda: mlp.freeze("layers.0", "b"), mlp.unfreeze):
        for _ in range(3):
            change()
            compiled(x)
            found = [p.grad for p in mlp.parameters()]
            step(x)
            for p, gradient in zip(mlp.parameters(), found, strict=True):
                assert (p.grad is None) == (gradient is None) == (not p.requires_grad)
                if p.requires_grad:
                    assert_same(gradient, p.grad)


def test_two_networks_frozen_in_turn_within_a_step_train_compiled_as_eagerly():
    maker, judge = L.Linear(3, 3, rng=0), L.Linear(3, 1, rng=1)
    first, second = SGD(maker.parameters(), 0.1), SGD(judge.parameters(), 0.1)

    def step(x):
        judge.freeze()
        first.zero_grad()
        fooled = (judge(maker(x)) ** 2).sum()
        fooled.backward()
        first.step()
        judge.unfreeze()
        second.zero_grad()
        told = ((judge(maker(x).detach()) - 1) ** 2).sum()
        told.backward()
        second.step()
        return (fooled + told).detach()

    compiled, start = mg.compile(step), (maker.state_dict(), judge.state_dict())
    runs = []
    for run in (step, compiled):
        maker.load_state_dict(start[0]), judge.load_state_dict(start[1])
        runs.append([run(mg.tensor(np.ones((2, 3)))).item() for _ in range(6)])
    assert_same(runs[1], runs[0])
    assert compiled.reasons == []


# ---------------------------------------------------------------- cast


def language_model(dtype=np.float64):
    options = {"position": L.Rotary(4), "norm": L.RMSNorm, "gated": True, "use_bias": False}
    return L.LanguageModel(11, 8, 2, 2, rng=0, dtype=dtype, **options)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, "float64", "float"])
def test_a_cast_model_computes_as_one_made_so(dtype):
    model, made = language_model().to(dtype), language_model(dtype)
    tokens = np.array([[3, 1, 4, 1, 5]])
    for one in (model, made):
        logits = one(tokens)
        assert logits.dtype == dtype
        mg.cross_entropy(logits[:, :-1].reshape(-1, 11), tokens[0, 1:]).backward()
    assert {p.dtype for p in model.parameters()} == {np.dtype(dtype)}
    assert_same([p.grad for p in model.parameters()], [p.grad for p in made.parameters()], 0)


def test_arrays_are_cast_on_their_way_in_and_buffers_and_epsilon_with_the_model():
    norm = L.BatchNorm(3).to(np.float32).eval()
    assert_same(norm(np.ones((5, 3))), np.full((5, 3), 1 / np.sqrt(1 + 1e-5), np.float32), 1e-6)
    assert {array.dtype for array in norm.state_dict().values()} == {np.dtype(np.float32)}
    small = L.RMSNorm(3, eps=None).to(np.float32)(np.full((2, 3), 1e-4))  # ε is the dtype's own
    np.testing.assert_allclose(small.numpy(), 1e-4 / np.sqrt(1e-8 + 2**-23), rtol=1e-5)


@pytest.mark.parametrize("dtype", [int, "complex128", "longdouble", None, object, "what"])
def test_any_other_dtype_is_refused_and_nothing_is_cast(mlp, dtype):
    mlp.to(np.float32)
    with pytest.raises(DTypeError, match=r"Sequential.to\(dtype\): dtype must be float16"):
        mlp.to(dtype)
    assert {p.dtype for p in mlp.parameters()} == {np.dtype(np.float32)}
    with pytest.raises(DTypeError, match="only floating leaves"):
        mlp[0].W.cast_(np.int64)
    with pytest.raises(DTypeError, match="only floating leaves"):
        mg.tensor(np.arange(3)).cast_(np.float64)


@pytest.mark.parametrize("kind", [lambda p: SGD(p, 0.1, momentum=0.9), lambda p: Adam(p, 0.1)])
@pytest.mark.parametrize(
    ("first", "then"), [("f8", "f4"), ("f4", "f8"), ("f4", "f2"), ("f2", "f4")]
)
def test_an_optimizer_goes_on_with_a_cast_model_as_one_of_that_dtype(rng, kind, first, then):
    """Its state is cast: held against an optimizer of the cast model that loads that state."""
    model = L.Linear(3, 2, rng=rng).to(first)
    optimizer = kind(model.parameters())

    def step(model, optimizer):
        optimizer.zero_grad()
        (model(np.ones((5, 3))) ** 2).sum().backward()
        optimizer.step()

    step(model, optimizer)
    model.to(then)
    assert model.W.grad is None
    other = copy.deepcopy(model)
    fresh = kind(other.parameters())
    fresh.load_state_dict(optimizer.state_dict())
    for _ in range(3):
        step(model, optimizer)
        step(other, fresh)
    assert model.W.dtype == then
    assert_same(model.W, other.W, 0)
    kept = optimizer.state_dict()["parameters"][0]["kept"]
    wide = np.result_type(then, np.float32)
    assert {a.dtype for name, a in kept.items() if name != "count"} == {wide}


def test_a_compiled_step_is_recorded_anew_for_a_cast_model(mlp):
    compiled = mg.compile(lambda x: mlp(x).detach())
    x = np.ones((4, 3))
    for dtype in (np.float64, np.float32, np.float16, np.float64):
        mlp.to(dtype)
        for _ in range(3):
            assert_same(compiled(x.astype(dtype)), mlp(x.astype(dtype)), 1e-3)


def test_a_backward_after_the_cast_gives_the_gradient_of_the_forward_before_it(mlp):
    loss = (mlp(np.ones((4, 3))) ** 2).sum()
    loss.backward(retain_graph=True)
    wide = mlp[0].W.grad
    mlp.to(np.float32)
    loss.backward()
    assert mlp[0].W.grad.dtype == np.float32
    np.testing.assert_allclose(mlp[0].W.grad, wide, rtol=1e-6)


def test_a_file_of_another_dtype_is_refused_until_the_model_is_cast(mlp, tmp_path):
    path = mg.save(tmp_path / "run.npz", model=copy.deepcopy(mlp).to(np.float32))
    with pytest.raises(ArgumentError, match=r"(?s)got float32.*model.to\(dtype\)"):
        mg.load(path, model=mlp)
    mg.load(path, model=mlp.to(np.float32))
    assert mlp.to(np.float64)[0].W.dtype == np.float64


def test_a_cache_of_another_dtype_is_refused():
    model, cache = language_model(), [L.KVCache(), L.KVCache()]
    with mg.no_grad():
        model(np.array([[3, 1]]), cache=cache)
        model.to(np.float32)
        with pytest.raises(DTypeError, match=r"KVCache: it holds float64, got float32; reset\(\)"):
            model(np.array([[4]]), cache=cache)
        for one in cache:
            one.reset()
        assert model(np.array([[3, 1]]), cache=cache).dtype == np.float32

"""Module: what is found by attribute, what a call remembers, and what is changed as a whole."""

import numpy as np
import pytest

import layers as L
import minigrad as mg
from layers import Linear, Module, Sequential
from minigrad.errors import ArgumentError, DTypeError, GradientError
from tests.compare import assert_same, refusals


class Model(Module):
    """Parameters in every place where they are found."""

    buffers = ("mean",)

    def __init__(self):
        self.scale = mg.tensor(2.0, requires_grad=True)
        self.mean = mg.tensor(np.zeros(3))
        self.blocks = [Linear(3, 3, rng=0), {"last": Linear(3, 3, False, rng=1)}]
        self.extra = (mg.tensor(np.ones(3), requires_grad=True),)
        self.tied = self.blocks[0]
        self.again = self.scale

    def forward(self, x, *, shift=0.0):
        self.seen = x  # what a forward notes is no parameter
        H = self.blocks[1]["last"](mg.tanh(self.blocks[0](x)))
        return H * self.scale + self.extra[0] + shift - self.mean


PATHS = ["scale", "blocks.0.W", "blocks.0.b", "blocks.1.last.W", "extra.0"]


def test_parameters_are_found_in_lists_tuples_and_dicts_each_once_by_path(rng):
    model = Model()
    for _ in range(2):
        assert sorted(path for path, _ in model.named_parameters()) == sorted(PATHS)
        model(mg.tensor(rng.normal(size=(2, 3)), requires_grad=True))
    assert {*model.state_dict()} == {*PATHS, "mean"}
    assert [path for path, _ in model.named_modules()] == ["", "blocks.0", "blocks.1.last"]
    model.late = Linear(3, 2)
    model.blocks.append(Linear(3, 2))
    assert len(model.parameters()) == len(PATHS) + 4
    assert repr(model).startswith("Model: 41 parameters\n  scale ()\n")


def test_names_of_scopes_are_attributes_and_kinds(rng):
    with mg.trace() as t:
        Sequential(Model(), Linear(3, 2, rng=0))(rng.normal(size=(2, 3)))
    paths = {entry.path.rpartition("/")[0] for entry in t if entry.op}
    assert "sequential/layers.0/blocks.1.last" in paths
    assert "sequential/layers.1" in paths


def test_a_list_of_tensors_goes_to_forward_as_a_list_and_numbers_as_an_array():
    class Fuse(Module):
        def forward(self, xs, *rest):
            return xs[0] * xs[1] + sum(rest)

    a = mg.tensor([1.0, 2.0], requires_grad=True)
    for context in (mg.enable_grad(), mg.no_grad()):
        with context:
            assert_same(Fuse()([a * 2, a * 3]).numpy(), [6.0, 24.0])
    out = Fuse()([a * 2, a * 3])
    out.sum().backward()
    assert_same(a.grad, [12.0, 24.0])
    layer = Fuse()
    assert_same(layer([[1.0, 2.0], [3.0, 4.0]]).numpy(), [3.0, 8.0])
    assert_same(layer.backward([1.0, 1.0]), [[3.0, 4.0], [1.0, 2.0]])


def test_an_array_is_cast_to_the_layers_dtype_and_its_gradient_made_only_on_demand():
    layer = Linear(3, 2, rng=0, dtype=np.float32)
    for X in (np.ones((1, 3), int), [[1, 1, 1]], np.ones((1, 3))):
        assert layer(X).dtype == np.float32
    assert layer.backward(np.ones((1, 2)), retain_graph=True).dtype == np.float32
    assert layer.backward(np.ones((1, 2))).shape == X.shape
    with pytest.raises(mg.errors.FreedGraphError):
        layer.backward(np.ones((1, 2)))


def test_forward_of_a_base_is_its_body_within_a_call_and_one_set_later_is_called(rng):
    class Twice(Linear):
        def forward(self, x):
            return super().forward(x) * 2

    X, layer = rng.normal(size=(5, 3)), Twice(3, 2, rng=0)
    expected = 2 * (X @ layer.W.numpy())
    with mg.trace() as t:
        assert_same(layer.forward(X).numpy(), expected)
    assert {entry.path.count("/") for entry in t if entry.op} == {1}
    layer.forward = lambda x: x * 3
    assert_same(layer(X).numpy(), 3 * X)


def test_an_array_assigned_over_a_parameter_is_written_into_it():
    layer = Linear(3, 2, rng=0)
    W = layer.W
    layer.W = np.ones((3, 2))
    assert layer.W is W
    assert_same(W.numpy(), np.ones((3, 2)))
    layer.W = [[1, 2], [3, 4], [5, 6]]
    layer.b = [7, 7]
    assert_same(W.numpy()[2], [5.0, 6.0])
    assert_same(layer.b.numpy(), [7.0, 7.0])
    layer.seen = given = mg.tensor(np.ones(2) * 2, requires_grad=True) * 1.0
    layer.seen = np.zeros(2)  # what is no parameter is bound anew
    assert given.numpy()[0] == 2
    other = mg.tensor(np.zeros((3, 2)), requires_grad=True)
    layer.W = other
    assert layer.parameters()[0] is other
    layer.b = None
    assert layer.parameters() == [other]
    assert layer.grad_b is None


def test_weights_are_loaded_whole_or_not_at_all_and_what_is_skipped_is_returned():
    source, target = Model(), Model()
    for p in source.parameters():
        p.assign_(np.full(p.shape, 7.0))
    state = source.state_dict()
    assert target.load_state_dict(state) == []
    assert_same(target.state_dict(), state, 0)
    state["scale"] = np.array(9.0)
    broken = state | {"extra.0": np.ones(4), "other": np.ones(1)}
    with pytest.raises(ArgumentError, match=r"extra\.0: must be \(3,\) float64, got \(4,\)"):
        target.load_state_dict(broken, strict=False)
    del broken["extra.0"]
    with pytest.raises(ArgumentError, match=r"extra\.0: missing\n  other: unexpected"):
        target.load_state_dict(broken)
    assert target.scale.item() == 7.0
    skipped = target.load_state_dict(broken, strict=False)
    assert skipped == ["extra.0: missing", "other: unexpected"]
    assert target.scale.item() == 9.0
    with pytest.raises(ArgumentError, match="float64, got"):
        target.load_state_dict({k: v.astype("f4") for k, v in state.items()})


def test_frozen_parameters_stay_in_their_place_and_get_no_gradient(rng):
    model = Model().freeze("blocks.0", "sc*")
    model(rng.normal(size=(2, 3))).sum().backward()
    with_gradient = {path for path, p in model.named_parameters() if p.grad is not None}
    assert with_gradient == {"blocks.1.last.W", "extra.0"}
    assert len(model.parameters()) == len(PATHS)
    assert " frozen" in repr(model)
    assert all(p.requires_grad for p in model.unfreeze().parameters())
    frozen = [path for path, p in model.freeze("b").named_parameters() if not p.requires_grad]
    assert frozen == ["blocks.0.b"]
    with pytest.raises(ArgumentError, match=r"no path has 'head'; there are \["):
        model.freeze("head")


def test_the_mode_reaches_every_layer_and_averages_move_in_training_alone(rng):
    model = Sequential(L.BatchNorm(3, momentum=0.25), L.Dropout(0.5, rng=0))
    x = rng.normal(size=(5, 3))
    model(x)
    norm = model[0]
    assert_same(norm.running_mean.numpy(), x.mean(axis=0) / 4)
    assert_same(norm.running_var.numpy(), 0.75 + x.var(axis=0, ddof=1) / 4)
    before = norm.state_dict()
    out = model.eval()(x).numpy()
    mean, var = (norm.state_dict()[f"running_{s}"] for s in ("mean", "var"))
    assert_same(out, (x - mean) / np.sqrt(var + 1e-5))
    assert_same(norm.state_dict(), before, 0)
    assert all(module.training for module in model.train().modules())


def test_weights_are_drawn_by_their_variance():
    assert abs(Linear(200, 500, rng=0).W.numpy().std() / (2 / 700) ** 0.5 - 1) < 0.02
    assert abs(L.Conv1d(40, 500, 5, rng=0).weight.numpy().std() / 0.1 - 1) < 0.02


@pytest.mark.parametrize(
    "name", [x for x in dir(L) if Module in getattr(vars(L)[x], "__mro__", ())]
)
def test_an_argument_that_no_layer_of_the_kind_takes_is_refused(name):
    with pytest.raises(DTypeError, match=f"^{name}: .*leave it out"):
        getattr(L, name)(batch_first=True)


test_what_is_refused = refusals(
    (lambda: Linear(3, 2)(np.ones((1, 3), complex)), DTypeError, "Linear: x must be real numbers"),
    (lambda: Linear(3, 2)(np.ones((1, 3), object)), DTypeError, "must be real numbers, got obj"),
    (lambda: Linear(3, 2)(np.ma.masked_array(np.ones(3), [1, 0, 0])), DTypeError, "masked array"),
    (lambda: Linear(3, 2)(type("Array", (), {"__dlpack__": None})()), DTypeError,
     "which copies it"),
    (lambda: setattr(Linear(3, 2), "W", mg.ones(3, 2, requires_grad=True) * 2), GradientError,
     r"Linear\.W: a Tensor that is computed, or needs no gradient, cannot take a trained"),
    (lambda: setattr(Linear(3, 2), "requires_grad", False), ArgumentError, r"layer\.freeze\(\)"),
    (lambda: setattr(Linear(3, 2), "W", mg.ones(3, 2)), GradientError, r"or layer\.freeze\('W'\)"),
    (lambda: setattr(Model(), "late", {Linear(3, 2)}), DTypeError, "layers in a set are not found"),
    (lambda: L.MultiHeadAttention(8, 2).forward(np.ones((1, 3, 8)), attn_mask=0), DTypeError,
     "mask=, where True is: may attend"),
    (lambda: Linear(3, 2).backward(np.ones(2)), GradientError, "the last call kept no graph"),
    (lambda: Linear(3, 2).to("cpu"), DTypeError, "float32 or float64, got 'cpu'"),
    (lambda: L.LSTM(2, 3)(np.ones((1, 4, 5))), mg.errors.ShapeError, r"\(B, T, 2\) .* got \(1, 4"),
    (lambda: Linear(3, True), ArgumentError, "d_out must be an integer of at least 1, got True"),
    (lambda: Module()(np.ones(2)), NotImplementedError, "Module has no forward"),
    (lambda: Sequential([Linear(3, 2)]), DTypeError, "layer 0 must be a function, got list"),
    (lambda: L.Embedding(5, 2)([0.5]), DTypeError, "tokens must be integers"),
    (lambda: L.BatchNorm(3)(np.ones((1, 3))), mg.errors.ShapeError, "two values a channel"),
    (lambda: L.GroupNorm(3, 6)(np.ones((4, 1))), mg.errors.ShapeError, r"be \(N, 6, …\), got"),
    (lambda: L.GroupNorm(2, 5), ArgumentError, "groups must divide channels, got 2 and 5"),
    (lambda: L.MaxPool2d(2)(np.ones((2, 5, 5))), mg.errors.ShapeError, r"\(N, C, height, width\)"),
    (lambda: L.Conv1d(3, 4, 3, groups=2), ArgumentError, "groups must divide d_in and d_out"),
    (lambda: L.GRU(3, 4)(np.ones((2, 7, 3)), mask=np.ones((2, 7))),
     mg.errors.ShapeError, "boolean"),
    (lambda: L.LSTM(3, 4)(np.ones((2, 7, 3)), np.ones((1, 2, 4))), mg.errors.ShapeError,
     r"state must be \(h, c\), each \(2, 4\)"),
    (lambda: L.RNN(3, 4)(np.ones((2, 7, 3)), np.ones((2, 2, 4))), mg.errors.ShapeError,
     r"state must be \(1, B, d_hidden\)"),
    (lambda: L.LSTM(3, 4, method="slow"), ArgumentError, '"fused" or "steps", got'),
)  # fmt: skip

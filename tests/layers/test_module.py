"""Module: what it finds, names, saves and loads, and how long it keeps a graph."""

import copy
import gc
import pickle
import weakref
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pytest

import layers as L
import minigrad as mg
from minigrad.errors import (
    ArgumentError,
    FreedGraphError,
    GradientError,
    OutOfRangeError,
    ShapeError,
)
from tests.compare import assert_same, refusals


class Block(L.Module):
    """Children of every kind (attribute, list, tuple in a dict) and a parameter of its own."""

    def __init__(self, rng):
        self.enter = L.Linear(3, 5, rng=rng)
        self.gain = mg.tensor(np.ones(5), requires_grad=True)
        self.layers = [L.Linear(5, 5, rng=rng), L.Linear(5, 5, use_bias=False, rng=rng)]
        self.heads = {"main": (L.Linear(5, 2, rng=rng),)}

    def forward(self, x):
        x = self.enter(x) * self.gain
        for layer in self.layers:
            x = mg.tanh(layer(x))
        return self.heads["main"][0](x)


PATHS = ["gain", "enter.W", "enter.b", "layers.0.W", "layers.0.b", "layers.1.W",
         "heads.main.0.W", "heads.main.0.b"]  # fmt: skip


@pytest.fixture
def block(rng):
    return Block(rng)


@pytest.fixture
def no_collector():
    """Without the garbage collector only reference counts free memory, so a cycle would show."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# ---------------------------------------------------------------- what it finds


def test_parameters_are_found_by_attribute_in_order_and_inside_containers(block):
    assert [path for path, _ in block.named_parameters()] == PATHS
    assert [id(p) for p in block.parameters()] == [id(p) for _, p in block.named_parameters()]


def test_children_are_found_where_they_are_held(block):
    children = dict(block.named_children())
    assert list(children) == ["enter", "layers.0", "layers.1", "heads.main.0"]
    assert list(block.modules()) == [block, *children.values()]


def test_a_shared_parameter_and_a_shared_module_come_once_and_are_shared_by_a_copy(rng):
    first, second = L.Linear(3, 3, rng=rng), L.Linear(3, 3, rng=rng)
    tied = L.Sequential(first, second, first)
    second.W = first.W
    for model in (tied, copy.deepcopy(tied)):
        paths = [path for path, _ in model.named_parameters()]
        assert paths == ["layers.0.W", "layers.0.b", "layers.1.b"]


def test_layers_that_are_equal_dataclasses_are_two(rng):
    @dataclass
    class Scale(L.Module):
        width: int

        def __post_init__(self):
            self.w = mg.tensor(np.ones(self.width), requires_grad=True)

        def forward(self, x):
            return x * self.w

    model = L.Sequential(Scale(3), Scale(3))
    assert [path for path, _ in model.named_parameters()] == ["layers.0.w", "layers.1.w"]
    assert repr(model).count("Scale: 3 parameters") == 2


def test_a_computed_tensor_is_no_parameter(rng):
    layer = L.Linear(3, 2, rng=rng)
    layer.seen = layer.W * 2
    assert [path for path, _ in layer.named_parameters()] == ["W", "b"]


def pickled(layer):
    return pickle.loads(pickle.dumps(layer))


def test_what_forward_keeps_to_look_at_is_no_parameter():
    class Watched(L.Module):
        buffers = ("seen",)

        def __init__(self):
            self.linear, self.scale = L.Linear(3, 2, rng=0), mg.tensor([2.0])

        def forward(self, x):
            self.hidden = self.linear(x)
            self.seen = mg.sum(x)
            return self.hidden * self.scale

    layer = Watched()
    layer(mg.tensor(np.ones((1, 3)), requires_grad=True))
    expected = ["scale", "seen", "linear.W", "linear.b"]
    assert list(layer.state_dict()) == expected  # a buffer is saved though it was computed
    layer.linear.freeze()
    with mg.no_grad():
        layer(mg.tensor(np.ones((1, 3))))
    assert layer.hidden.is_leaf
    assert list(layer.state_dict()) == list(copy.deepcopy(layer).state_dict()) == expected


@pytest.mark.parametrize("around", [nullcontext, mg.trace])
def test_an_input_that_forward_keeps_is_no_parameter(around):
    class Keeping(L.Module):
        def __init__(self):
            self.linear = L.Linear(3, 2, rng=0)

        def forward(self, x):
            self.x, self.seen = x, [x]
            return self.linear(x)

    layer = Keeping()
    leaf = mg.tensor(np.zeros((1, 3)), requires_grad=True)
    for given in (np.ones((1, 3)), leaf, mg.tensor(np.ones((1, 3)))):
        with around():
            layer(given)
        for kept in (layer, copy.deepcopy(layer)):
            assert list(kept.state_dict()) == ["linear.W", "linear.b"]
    np.testing.assert_array_equal(leaf.numpy(), 0)  # the next input is not written into it
    layer.x = leaf
    assert list(layer.state_dict()) == ["x", "linear.W", "linear.b"]


def test_parameters_in_lists_and_dicts_are_trained_saved_and_frozen(rng):
    class Own(L.Module):
        def __init__(self):
            self.shared, self.constants = [], [mg.tensor([2.0])]
            self.weights = [mg.tensor(rng.normal(size=3), requires_grad=True) for _ in range(2)]
            self.more = {"b": (mg.tensor(0.0, requires_grad=True),)}
            self.linear = L.Linear(3, 2, rng=rng)
            self.shared += self.linear.parameters()  # they keep the name that the layer gives them

        def forward(self, x):
            return self.linear(x * self.weights[0] + self.weights[1] + self.more["b"][0])

    layer = Own()
    layer.weights.append(mg.tensor([1.0], requires_grad=True))
    expected = ["weights.0", "weights.1", "weights.2", "more.b.0", "linear.W", "linear.b"]
    assert [path for path, _ in layer.named_parameters()] == expected
    assert layer.weights[1].name == "weights.1"
    assert "\n  weights.1 (3,)\n" in repr(layer)
    layer.freeze("weights")
    mg.sum(layer(np.ones((1, 3)))).backward()
    assert [p.grad is None for p in layer.parameters()] == [True] * 3 + [False] * 3
    again = copy.deepcopy(layer)
    assert list(again.state_dict()) == expected
    again.load_state_dict({path: array + 1 for path, array in layer.state_dict().items()})
    np.testing.assert_array_equal(again.weights[0].numpy(), layer.weights[0].numpy() + 1)


def test_a_parameter_that_forward_makes_stays_one_when_it_is_frozen():
    class Lazy(L.Module):
        w = None

        def forward(self, x):
            if self.w is None:
                self.w = mg.tensor(np.ones(x.shape[-1]), requires_grad=True)
            return x * self.w

    layer = Lazy()
    layer(np.ones((1, 3)))
    assert list(layer.freeze().state_dict()) == ["w"]


def test_what_forward_keeps_after_it_called_its_super_class_is_no_parameter():
    class Watched(L.Linear):
        def forward(self, x):
            out = super().forward(x)
            self.limit = mg.tensor(np.ones(2))
            return out

    layer = Watched(3, 2, rng=0)
    layer(np.ones((1, 3)))
    assert list(layer.state_dict()) == ["W", "b"]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_a_copy_has_detached_what_was_computed_and_kept(rng, copied):
    layer = L.Sequential(L.Linear(3, 2, rng=rng))
    layer.hidden = layer(mg.tensor(rng.normal(size=(5, 3))))
    layer.seen = {"hidden": [layer.hidden, layer.hidden * 2.0], "note": "last"}
    twin = copied(layer)
    assert list(twin.state_dict()) == list(layer.state_dict()) == ["layers.0.W", "layers.0.b"]
    assert_same(twin.hidden.numpy(), layer.hidden.numpy(), 0)
    assert_same(twin.seen["hidden"][1].numpy(), 2 * layer.hidden.numpy(), 0)
    assert not twin.hidden.requires_grad
    mg.sum(layer.hidden).backward()  # the layer itself has its graph still
    assert layer.layers[0].grad_W is not None


def test_a_module_that_holds_itself_is_walked_once(rng):
    layer = L.Linear(3, 2, rng=rng)
    layer.me = [layer]
    assert len(layer.parameters()) == 2
    assert repr(layer).endswith("me.0: Linear: 8 parameters (shown above)")


# ---------------------------------------------------------------- names


def test_assigning_names_what_has_no_name_yet():
    layer = L.Module()
    layer.weight = mg.tensor([1.0], requires_grad=True)
    layer.bias = mg.tensor([1.0], requires_grad=True, name="offset")
    assert (layer.weight.name, layer.bias.name) == ("weight", "offset")


def test_scopes_follow_the_path_of_attributes_under_the_class_name_of_the_root(block, rng):
    with mg.trace() as t:
        block(mg.tensor(rng.normal(size=(7, 3)), requires_grad=True))
    names = {"enter", "layers.0", "layers.1", "heads.main.0"}
    seen = {entry.scope for entry in t if entry.kind == "op"}
    assert seen == {"block", *(f"block/{name}" for name in names)}


@pytest.mark.parametrize(
    ("name", "scope"),
    [("SelfAttention", "self_attention"), ("MLP", "mlp"), ("GPT2Block", "gpt2_block"),
     ("RMSNorm", "rms_norm")],
)  # fmt: skip
def test_a_root_scope_is_the_class_name_in_snake_case(name, scope):
    made = type(name, (L.Module,), {"forward": lambda self, x: x * 2})()
    assert made(mg.tensor([1.0], requires_grad=True)).node.scope == scope


def test_an_array_assigned_over_a_parameter_is_written_into_it(rng):
    layer = L.Linear(2, 2, rng=rng, dtype=np.float32)
    held = layer.W
    layer.W = np.eye(2, dtype=int)
    assert layer.W is held
    assert layer.W.dtype == np.float32
    np.testing.assert_array_equal(layer.W.numpy(), np.eye(2))
    with pytest.raises(ShapeError):
        layer.W = np.eye(3)
    layer.W = [[1, 2], [3, 4]]
    assert layer.W is held
    np.testing.assert_array_equal(held.numpy(), [[1, 2], [3, 4]])


def test_a_number_assigned_over_a_parameter_is_written_into_it():
    """NumPy's arithmetic on an array without axes gives a number: so does a step by hand."""
    layer = L.Module()
    layer.w, layer.last = mg.tensor(2.0, requires_grad=True), mg.tensor(1.0)
    layer.w.grad = np.array(10.0)
    held = layer.w
    layer.w = layer.w.numpy() - 0.1 * layer.grad_w
    assert layer.w is held
    assert held.item() == 1.0
    layer.w = 3
    assert layer.w is held
    assert held.item() == 3.0
    layer.w = layer.last = None
    layer.last = 0.5  # where nothing is trained, it takes the place of what was there
    assert (layer.w, layer.last) == (None, 0.5)


def test_a_layer_of_ones_own_may_be_annotated_for_type_checkers_alone():
    class Scaled(L.Module):
        def __init__(self, w, **options):
            self.w, self.options = mg.tensor(w, requires_grad=True), options

    Scaled.__init__.__annotations__ = {"w": "OnlyForTypeCheckers", "options": "Any"}
    assert Scaled(w=2.0, more=3).options == {"more": 3}


def test_repr_is_a_tree_of_shapes_and_counts(rng):
    class Pair(L.Module):
        def __init__(self):
            self.first = L.Linear(3, 2, rng=rng)
            self.rest = [L.Linear(2, 500, use_bias=False, rng=rng, dtype=np.float32)]

    assert repr(Pair()).splitlines() == [
        "Pair: 1,008 parameters",
        "  first: Linear: 8 parameters",
        "    W (3, 2)",
        "    b (2,)",
        "  rest.0: Linear: 1,000 parameters",
        "    W (2, 500) float32",
    ]


# ---------------------------------------------------------------- forward and backward


def test_backward_gives_the_gradients_of_an_ordinary_backward(block, rng):
    x, g = rng.normal(size=(7, 3)), rng.normal(size=(7, 2))
    block.forward(x)
    found = [block.backward(g), *(p.grad for p in block.parameters())]
    block.zero_grad()
    assert [p.grad for p in block.parameters()] == [None] * len(PATHS)
    X = mg.tensor(x, requires_grad=True)
    block(X).backward(g)
    assert_same(found, [X.grad, *(p.grad for p in block.parameters())], 0)


def test_backward_replaces_gradients_and_grad_names_read_them(rng):
    layer, x = L.Linear(3, 2, rng=rng), rng.normal(size=(7, 3))
    assert layer.grad_W is None
    for _ in range(2):
        layer.forward(x)
        layer.backward(np.ones((7, 2)))
        np.testing.assert_allclose(layer.grad_b, [7.0, 7.0], rtol=0)
    assert layer.grad_W is layer.W.grad
    assert L.Linear(3, 2, use_bias=False).grad_b is None


def test_the_input_may_be_an_array_a_list_or_a_keyword():
    layer = L.Linear(2, 2, rng=0)
    layer.W = np.eye(2)
    for given in (([[1, 2]],), {"x": np.array([[1, 2]])}, {"x": [[1.0, 2.0]]}):
        out = layer(**given) if isinstance(given, dict) else layer(*given)
        assert_same(out, [[1.0, 2.0]], 0)
        assert_same(layer.backward(np.array([[3.0, 5.0]])), [[3.0, 5.0]], 0)


def test_writing_to_the_array_after_forward_changes_no_gradient(rng):
    layer, x = L.Linear(3, 2, rng=rng), rng.normal(size=(7, 3))
    expected = np.repeat(x.sum(axis=0)[:, None], 2, axis=1)
    layer.forward(x)
    x[:] = np.nan
    layer.backward(np.ones((7, 2)))
    assert_same(layer.grad_W, expected)


def backward_after(*within, shape=(7, 2), times=1, **given):
    """A backward of this shape, so many times, after a forward in each of these surroundings."""
    layer = L.Linear(3, 2, rng=0)
    for around in within:
        with around():
            layer.forward(np.ones((7, 3)))
    return [layer.backward(np.ones(shape), **given) for _ in range(times)]


test_what_is_refused = refusals(
    (backward_after, GradientError, r"Linear\.backward.*no forward has recorded"),
    (lambda: backward_after(mg.enable_grad, mg.no_grad), GradientError, "no forward has recorded"),
    (lambda: backward_after(mg.enable_grad, shape=(7, 3)), ShapeError, r"\(7, 3\).*\(7, 2\)"),
    (lambda: backward_after(mg.enable_grad, times=2), FreedGraphError, "freed by an earlier"),
    (lambda: L.Module()(np.ones(3)), NotImplementedError, "Module has no forward"),
    (lambda: L.Linear(3, 2).w, AttributeError, "'Linear' object has no attribute 'w'"),
    (lambda: L.Sequential(L.Linear(3, 2)).grad_layers, AttributeError, "grad_layers"),
)


def test_a_graph_that_is_retained_runs_backward_again():
    first, again = backward_after(mg.enable_grad, times=2, retain_graph=True)
    assert_same(again, first, 0)


# ---------------------------------------------------------------- how long a graph lives


def test_called_with_a_tensor_a_layer_keeps_no_graph_alive(rng, no_collector):
    layer = L.SelfAttention(5, 2, 3, rng=rng)
    X = mg.tensor(rng.normal(size=(2, 7, 5)), requires_grad=True)
    node = weakref.ref(layer(X).node)
    assert node() is None
    with pytest.raises(GradientError, match="output is gone"):
        layer.backward(np.ones((2, 7, 5)))
    out = layer(X * 2)
    with pytest.raises(GradientError, match="input is gone"):
        layer.backward(np.ones(out.shape))


def test_called_with_token_ids_a_layer_says_to_hold_on_to_the_output(rng):
    layer = L.Embedding(7, 5, rng=rng)
    layer.forward(np.array([[2, 3]]))
    with pytest.raises(GradientError, match=r"output is gone.*out = layer\.forward\(x\)"):
        layer.backward(np.ones((1, 2, 5)))
    out = layer.forward(np.array([[2, 3]]))
    assert layer.backward(np.ones(out.shape)) is None
    assert layer.grad_W.sum() == 10


def test_called_with_an_array_a_layer_holds_the_last_graph_and_only_that(rng, no_collector):
    layer, X = L.SelfAttention(5, 2, 3, rng=rng), rng.normal(size=(2, 7, 5))
    first = weakref.ref(layer(X).node)
    assert first() is not None
    second = weakref.ref(layer(X).node)
    assert first() is None
    del layer
    assert second() is None


# ---------------------------------------------------------------- state


def test_state_dict_holds_copies(block):
    state = block.state_dict()
    assert list(state) == PATHS
    state["gain"][:] = 7
    np.testing.assert_array_equal(block.gain.numpy(), np.ones(5))


def test_two_parameters_can_be_exchanged_by_their_own_arrays(rng):
    layer = L.SelfAttention(5, 3, 3, rng=rng)
    state = layer.state_dict()
    exchanged = {"W_Q": layer.W_K.numpy(), "W_K": layer.W_Q.numpy()}
    layer.load_state_dict({path: p.numpy() for path, p in layer.named_parameters()} | exchanged)
    assert_same(layer.state_dict(), state | {"W_Q": state["W_K"], "W_K": state["W_Q"]}, 0)


def test_everything_that_does_not_fit_is_reported_at_once_and_nothing_written(block):
    before, state = block.state_dict(), block.state_dict()
    del state["layers.1.W"]
    state |= {"extra": np.ones(1), "enter.W": np.ones((5, 3)), "enter.b": np.ones(5, np.float32)}
    with pytest.raises(ArgumentError) as caught:
        block.load_state_dict(state)
    assert str(caught.value).split("\n  ") == [
        "load_state_dict(state): nothing was written, for Block",
        "layers.1.W: missing",
        "extra: unexpected",
        "enter.W: shape must be (3, 5), got (5, 3)",
        "enter.b: dtype must be float64, got float32",
        "a model of another dtype is made by model.to(dtype)",
    ]
    assert_same(block.state_dict(), before, 0)


def test_not_strict_allows_missing_and_unexpected_but_no_other_shape(block):
    block.load_state_dict({"gain": np.full(5, 7.0), "extra": np.ones(1)}, strict=False)
    np.testing.assert_array_equal(block.gain.numpy(), np.full(5, 7.0))
    with pytest.raises(ArgumentError, match="gain: shape"):
        block.load_state_dict({"gain": np.ones(2)}, strict=False)
    with pytest.raises(ArgumentError, match=r"none of its paths, such as scale, is one of gain"):
        block.load_state_dict({"scale": np.ones(5)}, strict=False)


# ---------------------------------------------------------------- parameters stay where they are


def test_a_computed_tensor_in_a_parameters_place_is_refused_naming_assign(rng):
    """It would be gone from the parameters, and the next step would fail elsewhere."""
    layer = L.Linear(3, 2, rng=rng)
    layer(rng.normal(size=(5, 3))).sum().backward()
    kept = layer.W
    with pytest.raises(GradientError, match=r"no_grad\(\):`, or by W\.assign_\(array\)"):
        layer.W -= 0.1 * layer.grad_W
    with pytest.raises(GradientError, match=r"Linear\.W: .* computed by subtract"):
        layer.W = layer.W - 0.1 * layer.grad_W
    assert layer.W is kept
    assert [name for name, _ in layer.named_parameters()] == ["W", "b"]


def test_without_recording_the_new_values_are_written_into_the_parameter(rng):
    layer = L.Linear(3, 2, rng=rng)
    kept, before, step = layer.W, layer.W.numpy().copy(), rng.normal(size=(3, 2))
    with mg.no_grad():
        layer.W -= step
        layer.b = layer.b + 1.0
    layer.W = mg.tensor(layer.W.numpy() * 2)
    assert layer.W is kept
    assert kept.requires_grad
    assert_same(layer.W, (before - step) * 2)
    assert_same(layer.b, np.ones(2))


def test_another_leaf_or_the_parameter_cut_from_the_graph_takes_its_place(rng):
    """Another parameter, and one that is frozen."""
    layer, other = L.Linear(3, 2, rng=rng), mg.tensor(np.ones((3, 2)), requires_grad=True)
    layer.W = other
    assert layer.W is other
    layer.W = layer.W.detach()
    assert not layer.W.requires_grad


def test_a_seed_for_all_layers_gives_the_same_model_and_leaves_numpys_alone():
    """Weights, and what is dropped; each layer draws by itself, and rng= goes before."""
    before = np.random.get_state()[1].copy()  # noqa: NPY002

    def made(number):
        L.seed(number)
        model = L.Sequential(L.Linear(3, 4), L.Linear(3, 4), L.LSTM(4, 2), L.Dropout(0.5))
        return model.state_dict(), model[3](np.ones((2, 3))).numpy()

    first, *others = made(5), made(5), made(None)
    assert_same(others[0], first, 0)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    drawn = [first[0]["layers.0.W"], first[0]["layers.1.W"], others[1][0]["layers.0.W"]]
    assert len({W.tobytes() for W in drawn}) == 3
    assert_same(L.Linear(3, 4, rng=0).W, L.Linear(3, 4, rng=0).W, 0)


# ---------------------------------------------------------------- copies and files


def test_a_state_goes_through_npz_and_safetensors_whatever_its_order(rng, tmp_path):
    """Fortran order would be written scrambled, without a word."""
    layer, twin = L.Linear(3, 5, rng=rng), L.Linear(3, 5, rng=1)
    layer.W = mg.tensor(np.asfortranarray(rng.normal(size=(3, 5))), requires_grad=True)
    state = layer.state_dict()
    np.savez(tmp_path / "state.npz", **state)
    with np.load(tmp_path / "state.npz") as loaded:
        assert_same(dict(loaded), state)
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file(state, tmp_path / "state.safetensors")
    twin.load_state_dict(safetensors.load_file(tmp_path / "state.safetensors"))
    assert_same(twin(np.eye(3)), layer(np.eye(3)))


# ---------------------------------------------------------------- an array's gradient


class Doubled(L.Module):
    def __init__(self):
        self.w = mg.tensor([2.0, 3.0], requires_grad=True)

    def forward(self, X):
        return mg.scale(X, 2.0) * self.w


def test_an_arrays_gradient_is_computed_only_where_it_is_asked_for(plant):
    """A step that reads only the parameters' gradients does not pay for X's; a Tensor's, and one
    that a trace shows, are there."""
    ran, X = [], np.array([5.0, 7.0])
    plant("scale", "x", lambda gradient: ran.append(gradient.shape) or gradient)
    layer = Doubled()
    layer(X).sum().backward()
    assert_same(layer.grad_w, [10.0, 14.0])
    assert ran == []
    layer(X)
    assert_same(layer.backward(np.ones(2)), [4.0, 6.0])
    assert_same(layer.grad_w, [10.0, 14.0])
    assert ran == [(2,)]
    x = mg.tensor(X, requires_grad=True)
    layer(x).sum().backward()
    assert_same(x.grad, [4.0, 6.0])
    with mg.trace() as t:
        layer(X).sum().backward()
    assert len(ran) == 3
    assert sum(entry.op == "scale" for entry in t) == 1


# ---------------------------------------------------------------- token ids


@pytest.mark.parametrize("compiled", [False, True])
def test_a_token_that_is_no_row_is_refused_at_every_call(compiled):
    """A negative one would train a row from the end."""
    embedding = L.Embedding(5, 3, rng=0)

    def train(tokens):
        loss = embedding(tokens).sum()
        loss.backward()
        return loss.detach()

    step = mg.compile(train) if compiled else train
    for _ in range(3):
        step(np.array([0, 4]))
    for wrong in ([0, -1], [5, 0]):
        with pytest.raises(OutOfRangeError, match=r"\[0, 5\)"):
            step(np.array(wrong))


# ---------------------------------------------------------------- what a record says they are


def test_a_leaf_that_nothing_holds_is_no_parameter_and_is_counted_apart(tmp_path):
    """Data with a gradient, or weights without a Module; an optimizer makes parameters of them."""
    layer = L.FeedForward(6, 7)
    X = mg.tensor(np.ones((3, 6)), requires_grad=True, name="X")
    W = mg.tensor(np.ones((6, 5)), requires_grad=True, name="W")
    bias = mg.tensor(np.zeros(6), requires_grad=True, name="bias")
    with mg.trace() as t:
        loss = mg.sum(layer((X * 2.0 + bias) * 1.0) @ W)
        loss.backward()
        mg.optim.SGD([W], lr=0.1)
    kinds = {entry.name: entry.kind for entry in t if entry.op is None and entry.needs}
    held = sum(p.size for p in layer.parameters()) + W.size
    assert (kinds["X"], kinds["bias"], kinds["W"]) == ("leaf", "leaf", "parameter")
    said = f"{held} parameter values · {X.size + bias.size} values of leaves with a gradient"
    assert said in t.draw(tmp_path / "g.svg").read_text()
    copied = copy.deepcopy(layer)
    with mg.trace() as t:
        copied.W_1 * 1.0
    assert t[0].kind == "parameter"

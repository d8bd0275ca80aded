"""Other values in place of a run's tensors: by path, with the right gradients, never in silence."""

from contextlib import ExitStack

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import minigrad as mg
from layers import LanguageModel, MultiHeadAttention, in_tiles
from minigrad.engine.context import current
from minigrad.errors import ArgumentError, DTypeError, GradientError, ShapeError
from minigrad.optim import SGD

TOKENS = np.array([[3, 1, 4, 1, 5], [2, 7, 1, 8, 2]])
A = "blocks.1/attention/A"


def gpt(**options):
    return LanguageModel(11, d_model=6, n_heads=3, n_layers=2, max_len=7, rng=0, **options)


def results(model, *around):
    """Logits, and the gradients of all parameters."""
    for p in model.parameters():
        p.grad = None
    with ExitStack() as stack:
        for one in around:
            stack.enter_context(one)
        logits = model(TOKENS)
        mg.sum(logits * np.sin(np.arange(logits.size)).reshape(logits.shape)).backward()
    return {"logits": logits.numpy()} | {
        path: np.zeros(p.shape) if p.grad is None else p.grad
        for path, p in model.named_parameters()
    }


def test_ablating_a_head_is_zeroing_its_rows_of_the_output_projection():
    model, cut = gpt(), gpt()
    W_O = cut.decoder.blocks[1].attention.W_O
    W_O.assign_(np.where(np.arange(6)[:, None] // 2 == 1, 0, W_O.numpy()))
    ours, wanted = results(model, mg.ablate(A, index=np.s_[:, 1])), results(cut)
    rows = "decoder.blocks.1.attention.W_O"
    wanted[rows] = np.where(np.arange(6)[:, None] // 2 == 1, 0, wanted[rows])  # of what was cut off
    for name, array in wanted.items():
        assert_allclose(ours[name], array, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("index", [None, np.s_[:, 2], np.s_[0, 1, 2:], np.s_[..., ::2]], ids=str)
@pytest.mark.parametrize("same", [lambda A: None, lambda A: A, lambda A: A * 1.0])
def test_putting_back_the_same_value_changes_no_bit(same, index):
    model = gpt()
    wanted = results(model)
    for name, array in results(model, mg.replace("*/A", same, index=index)).items():
        assert_array_equal(array, wanted[name], err_msg=name)


@pytest.mark.parametrize("index", [None, np.s_[:, 1], np.s_[[0, 2], 3:]])
def test_gradients_after_a_replacement_agree_with_numeric_ones(index, rng):
    def run(x, value):
        with (
            mg.replace("h", lambda h: mg.sin(h) * value, index=index),
            mg.replace("k", value * x[0, :2], index=(1, slice(2))),
        ):
            h = mg.exp(x).named("h")
            return mg.sum(h * h * (x * 3.0).named("k")).named("out")

    x, value = rng.normal(size=(3, 5)), rng.normal(size=1)
    assert mg.gradcheck(lambda v: run(x + 0 * v, v), value)
    assert mg.gradcheck(lambda x: run(x, value), x)


def test_gradients_reach_the_tensor_put_in_and_not_what_it_overwrote(rng):
    x, P = (mg.tensor(rng.normal(size=(2, 3)), requires_grad=True) for _ in range(2))
    with mg.replace("h", P):
        mg.sum(mg.exp(x).named("h") ** 2).backward()
    assert_allclose(P.grad, 2 * P.numpy())
    assert x.grad is None


AROUND = {
    "trace": lambda: (mg.trace(),),
    "no_grad": lambda: (mg.no_grad(),),
    "trace of no_grad": lambda: (mg.trace(), mg.no_grad()),
    "no_grad of trace": lambda: (mg.no_grad(), mg.trace(check="ops")),
    "anomaly": lambda: (mg.anomaly(),),
}


@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_it_acts_whatever_else_surrounds_the_run(around, inner):
    model, change = gpt(), mg.ablate(A, index=np.s_[:, 1])
    with change:
        wanted = model(TOKENS).numpy()
    with ExitStack() as stack:
        for one in (*around(), change) if inner else (change, *around()):
            stack.enter_context(one)
        assert_array_equal(model(TOKENS).numpy(), wanted)


@pytest.mark.parametrize("within", [mg.enable_grad, mg.no_grad])
def test_a_trace_shows_what_was_put_in_under_the_name(within):
    model = gpt()
    with mg.trace() as t, within(), mg.replace(A, np.eye(5)):
        model(TOKENS)
    assert_array_equal(
        t[A].value if A in t else t["language_model/decoder/" + A].value[0, 0], np.eye(5)
    )
    (edge,) = t.uses(t["language_model/decoder/" + A])
    assert t[edge.target].name == "O"
    assert [e.name for e in t.entries if e.op == "softmax"] == ["A", None]


def test_a_trace_tells_the_ops_of_a_replacement_from_those_of_the_run():
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with mg.trace() as t, mg.replace("h", lambda h: h * h):
        mg.sum(mg.exp(x).named("h"))
    ran = [(entry.op, entry.inserted) for entry in t.entries if entry.op]
    assert [op for op, inserted in ran if not inserted] == ["exp", "sum"]
    assert ("multiply", True) in ran


def test_a_replaced_run_is_checked_step_by_step_but_not_against_a_formula_it_left():
    model = gpt()
    with mg.trace() as t, mg.replace(A, lambda A: A * 0.5, index=np.s_[:, 1]):
        mg.sum(model(TOKENS)).backward()
    checks = t.check(ops=True)
    assert checks.ok
    attention = {check.scope for check in checks if check.scope.endswith("attention")}
    assert {scope.split("/")[2] for scope in attention} == {"blocks.0"}


def test_compiled_steps_run_eagerly_within_and_refuse_it_inside():
    model = gpt()
    optimizer = SGD(model.parameters(), lr=0.0)

    def step(tokens):
        optimizer.zero_grad()
        loss = mg.mean(model(tokens) ** 2)
        loss.backward()
        optimizer.step()
        return loss

    compiled = mg.compile(step)
    plain = [compiled(TOKENS).item() for _ in range(3)][-1]
    with mg.ablate("*/A"):
        other = compiled(TOKENS).item()
        assert other == step(TOKENS).item()
    assert abs(other - plain) > 1e-6
    assert_allclose(compiled(TOKENS).item(), plain, rtol=1e-14)

    put = [1.0]

    @mg.compile
    def inside(x):
        with mg.replace("h", lambda h: h * put[0]):
            return mg.sum((mg.tensor(x) * 2.0).named("h"))

    with pytest.warns(mg.CompileWarning, match="is used within the step"):
        assert inside(np.ones(3)).item() == 6
    put[0] = 5.0
    assert inside(np.ones(3)).item() == 30


ENDS = {
    "item": lambda y: y.item(),
    "array": lambda y: float(np.asarray(y)),
    "comparison": lambda y: 7.0 if y == 7.0 else 0.0,
    "detach": lambda y: y.detach().item(),
    "op": lambda y: (y + 0.0).item(),
    "list": lambda y: mg.sum([y, y]).item() / 2,
    "assign": lambda y: mg.tensor(1.0).assign_(y).item(),
}


@pytest.mark.parametrize("read", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("path", ["out", "end/out", "/model/end/out", "*/en?/out"])
def test_whoever_uses_the_last_tensor_gets_what_was_put_in(read, path):
    with mg.replace(path, 7.0), mg.scope("model"), mg.scope("end"), mg.no_grad():
        y = mg.sum(mg.tensor([1.0, 2.0])).named("out")
        assert read(y) == 7.0


def test_backward_and_grad_start_from_what_was_put_in():
    x = mg.tensor(3.0, requires_grad=True)
    for start in (lambda y: mg.grad(y, x), lambda y: y.backward() or x.grad):
        with mg.replace("multiply", lambda y: y * y):
            assert start(x * x) == 4 * 27
    with mg.ablate("multiply"), pytest.raises(GradientError, match="requires no gradient"):
        (x * x).backward()
    kept = x * x
    with mg.replace("add", 5.0):
        y = x + kept  # used by none within
    assert y.item() == 5.0


def test_the_inner_of_two_has_the_last_word_and_several_act_at_once():
    x = mg.tensor(2.0)
    with mg.replace("h", 3.0), mg.replace("h", lambda h: h * 10), mg.replace("k", lambda k: k + 1):
        assert ((x * 1).named("h") + (x * 5).named("k")).item() == 41
    with mg.replace("h", lambda h: h * 10), mg.replace("h", 3.0):
        assert (x * 1).named("h").item() == 3


def test_what_was_put_in_keeps_its_name_beside_another_intervention():
    """Of one scope, its first use is in another, where a tensor of the same name is replaced."""

    def steps():
        h = mg.tensor([1.0, 2.0], requires_grad=True)
        for t in range(2):
            with mg.scope(f"t{t}"):
                h = mg.tanh(h).named("h")
        return h

    with mg.ablate("t1/h", index=0), mg.replace("t0/h", np.array([3.0, 4.0])):
        assert_array_equal(steps().numpy(), [0.0, np.tanh(4.0)])


def test_a_path_that_is_met_again_is_replaced_again_or_only_at_one_call():
    def loop():
        h, seen = mg.tensor(1.0), []
        for _ in range(5):
            with mg.scope("cell"):
                h = (h * 2).named("h")
            seen.append(h.item())
        return seen

    with mg.replace("cell/h", 1.0):
        assert loop() == [1.0] * 5
    with mg.replace("cell/h", 1.0, call=3):
        assert loop() == [2.0, 4.0, 8.0, 1.0, 2.0]


def test_ablating_to_the_mean_keeps_what_all_examples_share(rng):
    model, taken = gpt(), rng.normal(size=(5, 5))
    with mg.capture("*/A") as before:
        model(TOKENS)
    with mg.ablate(A, to="mean", index=np.s_[:, 1]), mg.capture("*/A") as found:
        model(TOKENS)
    old, new = before[A].value, found[A].value
    assert_allclose(new[:, 1], np.broadcast_to(old[:, 1].mean(0), (2, 5, 5)))
    assert_array_equal(new[:, ::2], old[:, ::2])
    with mg.ablate(A, to=taken), mg.capture("*/A") as found:
        model(TOKENS)
    assert_array_equal(found[A].value, np.broadcast_to(taken, (2, 3, 5, 5)))


def test_a_record_keeps_values_and_gradients_as_a_trace_does():
    model = gpt()
    with mg.capture("blocks.*/attention/A") as found:
        loss = mg.mean(model(TOKENS) ** 2)
    with mg.trace() as t:
        mg.mean(model(TOKENS) ** 2).backward()
    assert [met.gradient for met in found] == [None, None]
    loss.backward()
    assert len(found) == 2
    for met in found:
        assert_array_equal(met.value, t[met.path].value)
        assert_array_equal(met.gradient, t[met.path].gradient)
    with pytest.raises(ArgumentError, match=r"\['A'\]: 2 have this path; nearest: A"):
        found["A"]


def test_a_function_may_only_look_on_and_hooks_of_the_model_see_what_was_put_in():
    seen = []
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with mg.replace("h", lambda h: seen.append(h.numpy().sum())), mg.replace("h", lambda h: h * 2):
        h = (x * x).named("h")
        h.retain_grad()
        mg.sum(h**2).backward()
    assert seen == [5.0]
    assert_allclose(h.grad, 4 * x.numpy() ** 2)  # 2 h, of the h that was put in
    assert_allclose(x.grad, 16 * x.numpy() ** 3)


REFUSED = {
    "no such path": (lambda: mg.ablate("blocks.1/attention/AA"), ArgumentError, "nearest: blocks"),
    "several": (lambda: mg.ablate("A"), ArgumentError, r"blocks.0/attention/A and .*'\*/A'"),
    "several at a call": (lambda: mg.ablate("A", call=0), ArgumentError, r"'\*/A' for all"),
    "twice in a call": (lambda: mg.ablate("blocks.0/X"), ArgumentError, "call=0 is the first"),
    "twice about no_grad": (lambda: mg.ablate("two"), ArgumentError, "call=0 is the first"),
    "call": (lambda: mg.ablate(A, call=3), ArgumentError, "was met 1 times"),
    "shape": (lambda: mg.replace(A, np.ones(7)), ShapeError, r"\(2, 3, 5, 5\), got shape \(7,\)"),
    "complex": (lambda: mg.replace(A, 1j), DTypeError, "complex128 cannot stand for float64"),
    "text": (lambda: mg.replace(A, "mean"), DTypeError, "a value of <U4 cannot stand"),
    "to": (lambda: mg.ablate(A, to="zero"), ArgumentError, '"mean" or a value'),
    "path": (lambda: mg.ablate(3), ArgumentError, "non-empty string"),
    "leaf": (lambda: mg.capture("blocks.1/attention/W_O"), ArgumentError, "is a leaf, which no op"),
    "argument": (lambda: mg.ablate("*/scale", of="fact"), ArgumentError, "it has x, factor"),
    "op": (lambda: mg.ablate("blocks.1/attention/scales", of="x"), ArgumentError, "no op .*/scale"),
    "entry": (lambda: mg.ablate("*/scale", of="factor", index=0), ArgumentError, "no entries"),
    "halves": (lambda: mg.replace("*/take", 0.5, of="indices"), DTypeError, "stand for int64"),
    "nothing ran": (lambda: mg.ablate("A"), ArgumentError, "no op ran within"),
    "one example": (lambda: mg.ablate("one", to="mean"), ArgumentError, "two; give the mean"),
}


def two_of_one_name(model):
    x = mg.tensor([1.0])
    with mg.scope("block"):
        (x * 2.0).named("two").numpy()
        with mg.no_grad():
            (x * 3.0).named("two").numpy()


RAN = {
    "twice about no_grad": two_of_one_name,
    "nothing ran": lambda model: None,
    "one example": lambda model: (mg.tensor([[1.0]]) * 2).named("one").numpy(),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_done_is_refused_in_words(what):
    made, kind, said = REFUSED[what]
    model = gpt()
    with pytest.raises(kind, match=said), made():
        RAN.get(what, lambda model: model(TOKENS))(model)
    assert not current().listeners
    change = mg.ablate("h")
    with pytest.raises(ArgumentError, match="is entered already"), change, change:
        pass


@pytest.mark.parametrize("around", [mg.enable_grad, mg.no_grad])
def test_a_name_that_comes_after_the_first_use_is_an_error(around):
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    late = pytest.raises(ArgumentError, match="m/h was used before it got this name")
    with late, mg.ablate("h"), around(), mg.scope("m"):
        h = x * x
        mg.exp(h)
        h.named("h")
    with mg.ablate("h"), around(), mg.scope("m"):
        h = (x * x).named("h")
        y = mg.sum(h)
        h.named("h")  # again
    assert y.item() == 0


def test_weights_that_tiles_never_hold_are_an_error_that_names_the_method():
    layer = MultiHeadAttention(6, 3, attend=in_tiles, rng=0)
    with pytest.raises(ArgumentError, match='no A; method="exact" has'), mg.ablate("A"):
        layer(np.ones((1, 5, 6)))


# ---------------------------------------------------------------- leaves and arguments


def test_a_leaf_holds_the_value_until_the_block_ends_and_has_its_gradient_there(rng):
    array, entry = rng.normal(size=(3, 5)), (1, 2)
    W = mg.tensor(array, requires_grad=True, name="W")
    wanted = np.array(array)
    wanted[entry] = 7.0
    with mg.replace("W", 7.0, index=entry):
        for _ in range(2):  # a second run in the block meets the same leaf
            loss = mg.sum(mg.exp(W) * W)
        loss.backward()
        assert_array_equal(W.numpy(), wanted)
    assert_array_equal(W.numpy(), array)
    assert_allclose(W.grad, np.exp(wanted) * (1 + wanted))
    with pytest.raises(ShapeError), mg.replace("W", 5.0):
        W @ np.ones(7)
    assert_array_equal(W.numpy(), array)  # after an error too


def test_a_constant_that_was_replaced_is_not_a_leaf_to_be_replaced_again():
    with mg.no_grad(), mg.replace("h", lambda h: 10.0 * h):
        h = mg.exp(mg.tensor([0.0])).named("h")
        assert (h * 1.0).item() == h.detach().item() == (h + 0.0).item() == 10.0


ARGUMENTS = {
    "a setting": ("scale", "factor", 0.5, None, lambda x, y, m: 0.5 * (x + y) + m + y),
    "an array": ("add", "b", 9.0, 1, lambda x, y, m: 3 * (x + y) + np.where([0, 1], 9.0, m) + y),
    "one use of a tensor": ("add", "b", 0.0, None, lambda x, y, m: 3 * (x + y) + m),
}


@pytest.mark.parametrize("what", ARGUMENTS)
def test_an_argument_of_one_op_is_replaced_at_that_use_alone(what, rng):
    op, name, value, index, formula = ARGUMENTS[what]
    x, y, m = rng.normal(size=(3, 2))
    X, Y = (mg.tensor(array, requires_grad=True) for array in (x, y))
    call = {"a setting": None, "an array": 1, "one use of a tensor": 2}[what]
    with mg.replace(op, value, of=name, index=index, call=call):
        out = mg.scale(X + Y, 3.0) + m + Y
    mg.sum(out).backward()
    assert_allclose(out.numpy(), formula(x, y, m))
    slope = formula(x, y + 1, m) - formula(x, y, m)
    assert_allclose(Y.grad, slope)


def test_the_old_name_of_capture_works_and_says_the_new_one():
    with pytest.warns(DeprecationWarning, match=r"mg\.capture"), mg.record("h") as found:
        (mg.tensor([1.0]) * 2.0).named("h").numpy()
    assert found["h"].value == 2

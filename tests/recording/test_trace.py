"""The record of a run: its entries, edges, order and states, and why a gradient is missing."""

import json
import pickle

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, SelfAttention
from minigrad.errors import DTypeError, GradientError
from minigrad.recording.record import rms
from minigrad.recording.trace import TraceRecord
from tests.compare import assert_same


@pytest.fixture
def x():
    return mg.tensor([1.0, 2.0], requires_grad=True, name="x")


LEAVES = (("x", (5, 3)), ("w", (3, 2)))


def _ops(t):
    return [entry.label for entry in t.entries if entry.kind == "op"]


# ---------------------------------------------------------------- structure


def test_entries_and_steps_are_numbered_in_the_order_they_ran(x):
    with mg.trace() as t:
        y = mg.exp(x)
        (y * x).sum().backward()
        y.named("late")
    assert [(e.id, e.kind, e.label) for e in t] == [
        (0, "leaf", "x"), (1, "op", "late"), (2, "op", "multiply"), (3, "op", "sum"),
    ]  # fmt: skip
    assert t["late"].op == "exp"
    assert (t.forward_steps, t.backward_steps, t.roots) == ([1, 2, 3], [3, 2, 1], [3])
    assert [t[i].backward_seconds is not None for i in range(4)] == [False, True, True, True]
    assert len(t) == 4


def test_every_use_is_an_edge_and_contributions_add_up_to_the_gradient(rng):
    a = mg.tensor(rng.normal(size=(3, 5)), requires_grad=True)
    with mg.trace() as t:
        h = mg.tanh(a).named("h")
        (h * h + h.sum(axis=0) + mg.concatenate([h, h])[3:]).sum().backward()
    for entry in t:
        parts = [e.contribution for e in t.uses(entry) if e.contribution is not None]
        if parts:
            np.testing.assert_allclose(sum(parts), entry.gradient, rtol=1e-14)
    first, second, *others = t.uses(t["h"])
    assert len(others) == 3
    assert [(e.target, e.input) for e in (first, second)] == [(2, "a"), (2, "b")]
    assert t.into(t[2]) == [first, second]


def test_an_entry_holds_what_a_view_shows(x):
    with mg.trace() as t, mg.scope("layer"):
        mg.sum(mg.reshape(x, (2, 1)).named("R"), axis=0)
    entry = t["layer/R"]
    found = (entry.op, entry.scope, entry.shape, entry.dtype)
    assert found == ("reshape", "layer", (2, 1), "float64")
    assert entry.settings == {"shape": "(2, 1)"}
    assert "<x>" in entry.tex
    assert "<g>" in entry.vjp_tex["x"]
    assert entry.flops == 0
    assert "test_trace.py:" in entry.place
    np.testing.assert_allclose(entry.value, [[1], [2]])
    np.testing.assert_allclose(entry.value_rms, np.sqrt(2.5))
    assert t["layer/sum"].flops == 2


def test_an_unknown_name_lists_the_known_ones(x):
    with mg.trace() as t, mg.scope("s"):
        (x * 2).named("y")
    with pytest.raises(KeyError, match="no entry named 'z'; names: s/x, s/y"):
        t["z"]


def test_what_a_node_saved_is_counted_and_points_to_its_entry(x):
    with mg.trace() as t:
        mg.exp(x * 3.0) * x
    multiply, exp, product = (t[i] for i in t.forward_steps)
    assert multiply.saved == []
    assert (exp.saved, exp.saved_bytes) == ([("out", exp.id)], 16)
    assert product.saved == [("b", 0), ("a", exp.id)]
    assert product.saved_bytes == 16  # of x: what exp returned, exp keeps already


def test_memory_counts_each_array_once_and_its_peak_as_long_as_arrays_are_used():
    """Of a chain of four arrays two live at once, x beside them; what is kept stays, once."""
    x = np.zeros((25, 40))
    with mg.trace() as chain:
        mg.exp(mg.exp(mg.exp(mg.tensor(x) + 1.0)))
    assert chain.memory.peak == 3 * x.nbytes
    leaf = mg.tensor(x, requires_grad=True)
    with mg.trace() as t:
        y = mg.exp(leaf)
        ((y * y) * y.reshape(40, 25).reshape(25, 40)).sum().backward()
    assert sum(entry.saved_bytes for entry in t.entries) == 2 * x.nbytes  # y, and y * y
    assert t.memory.peak == 4 * x.nbytes + 8  # x, y, y * y, their product and its sum


def test_parts_of_an_array_that_are_saved_count_each_and_together_no_more_than_the_array():
    x, w = (mg.tensor(np.ones(shape), requires_grad=True) for shape in ((3, 5), 5))
    with mg.trace() as t:
        for part in (x[0], x[1], x[1], mg.broadcast_to(x[0], (7, 5)), x):
            part * w
    saved = [t[i].saved_bytes for i in t.forward_steps if t[i].op == "multiply"]
    assert saved == [40 + 40, 40, 0, 40, 0]


def test_every_op_can_be_traced(invoke):
    """Each sample of each op, forward and backward."""
    with mg.trace() as t:
        count = 0
        for op in list(mg.registry.values()):
            for sample in op.samples(np.random.default_rng(0)):
                inputs, settings = op.bind(*sample.args, **sample.kwargs)
                tensors = [
                    mg.tensor(v, requires_grad=v.dtype.kind == "f")
                    if isinstance(v, np.ndarray)
                    else v
                    for v in inputs
                ]
                invoke(op, tensors, settings).sum().backward()
                count += 1
    assert len(t.backward_steps) == 2 * count
    assert json.dumps(t.to_dict(), allow_nan=False)
    checks = t.check(ops=True)
    assert [step for step in checks.steps if not step.ok] == []
    assert len(checks.steps) > 0.95 * len(t.backward_steps)


# ---------------------------------------------------------------- states, and why there is none


STATES = {
    1.0: "ok", 0.0: "zero", 1e-9: "vanishing", 1e5: "exploding",
    np.inf: "non-finite", np.nan: "non-finite",
}  # fmt: skip


@pytest.mark.parametrize(("factor", "state"), STATES.items())
def test_the_state_is_read_off_the_gradient(factor, state, x):
    with mg.trace() as t, np.errstate(all="ignore"):
        (x * factor).backward(np.ones(2))
    assert t["x"].state == state
    assert t.explain_missing(t["x"]) != "frozen"


def test_a_computed_value_that_grad_names_is_where_backward_ended(x):
    with mg.trace() as t:
        h = (x * 2).named("h")
        mg.grad(mg.sum(mg.tanh(h)), h)
    assert [t.explain_missing(t[name]) for name in "xh"] == ["unreached", "backward ended here"]


def test_why_a_value_has_no_gradient(x):
    frozen = mg.tensor([3.0, 4.0], name="frozen")
    with mg.trace() as t:
        aside = (x * 5).named("aside")
        assert t.explain_missing(t["x"]) == "backward not run"
        cut = aside.detach()
        y = x * frozen + cut * np.array([1.0, 2.0])
        with mg.no_grad():
            (x * 7).named("unrecorded")
        y.sum().backward()
    why = {e.label: t.explain_missing(e) for e in t if e.state == "none" and e.kind != "detached"}
    assert why["frozen"] == "frozen"
    assert why["aside"] == "unreached"
    assert why["unrecorded"] == "not recorded"
    detached = next(e for e in t if e.kind == "detached")
    assert t.explain_missing(detached) == "detached"
    assert {e.kind for e in t} == {"leaf", "input", "constant", "detached", "op"}
    aside = next(e for e in t if (e.name, e.kind) == ("aside", "op"))
    assert [(e.source, e.input) for e in t.into(detached)] == [(aside.id, "detach")]
    constant = next(e for e in t if e.kind == "constant")
    assert why[constant.label] == "constant"


def test_what_was_computed_before_the_trace_is_an_input(x):
    y = mg.exp(x).named("y")
    with mg.trace() as t:
        y.sum().backward()
    assert (t["y"].kind, t["y"].op) == ("input", None)
    np.testing.assert_allclose(t["y"].gradient, [1, 1])


# ---------------------------------------------------------------- the record stays as it was


@pytest.mark.parametrize("leaf_first", [True, False])
def test_the_record_stays_when_leaves_seeds_and_gradients_are_overwritten(x, leaf_first):
    seed = np.ones(2)
    with mg.trace() as t:
        y = mg.exp(x) * x if leaf_first else x * mg.exp(x)
        y.retain_grad()
        (y * 2.0 + y + y).backward(seed)
        x.assign_(np.array([10.0, 20.0]))
    held = [e.value for e in t], [e.gradient for e in t], [e.contribution for e in t.edges]
    kept = [[None if a is None else np.array(a) for a in part] for part in held]
    np.testing.assert_array_equal(t["x"].value, [1, 2])
    seed[...] = x.grad[...] = y.grad[...] = 7.0
    for arrays, copies in zip(held, kept, strict=True):
        np.testing.assert_equal(arrays, copies)


def _assign(y):
    y.assign_(np.zeros(2))


def _set_item(y):
    y[0] = 0.0


def _set_item_of_data(y):
    y.data[0] = 0.0


def _subtract_from_data(y):
    y.data -= 1.0


@pytest.mark.parametrize("write", [_assign, _set_item, _set_item_of_data, _subtract_from_data])
@pytest.mark.parametrize("through", ["itself", "a view", "a detached copy"])
def test_the_record_stays_when_what_was_computed_is_overwritten(x, write, through):
    with mg.trace() as t, mg.no_grad():
        y = mg.exp(x).named("y")
        y[::-1].named("other")
        views = {"itself": y, "a view": mg.reshape(y, (2,)), "a detached copy": y.detach()}
        write(views[through])
        mg.sum(y).named("after")
    np.testing.assert_array_equal(t["y"].value, np.exp([1.0, 2.0]))
    np.testing.assert_array_equal(t["other"].value, np.exp([2.0, 1.0]))
    assert t["after"].value == y.numpy().sum() != np.exp([1.0, 2.0]).sum()


@pytest.mark.parametrize("keep", ["arrays", "summaries"])
def test_a_buffer_that_is_filled_again_is_another_value(x, keep):
    """A batch's memory, used for the next batch; what holds NaN stays one value all the same."""
    batch, mask = np.empty((3, 2)), np.array([np.nan, 1.0])
    with mg.trace(keep=keep, check="ops") as t:
        for number in (1.0, 2.0):
            batch[...] = number
            mg.tanh(batch @ x).sum().backward()
            mg.multiply(mask, x)
    batches = [e.value_rms for e in t.entries if e.kind == "constant" and e.shape == (3, 2)]
    assert batches == [1.0, 2.0]
    assert len([e for e in t.entries if e.kind == "constant"]) == 3
    assert t.check(ops=True).agree


def _by_optimizer(w, number):
    mg.optim.SGD([w], lr=0.25).step()


def _by_assign(w, number):
    w.assign_(np.full(2, number))


def _by_data(w, number):
    w.data[...] = number


@pytest.mark.parametrize("keep", ["arrays", "summaries"])
@pytest.mark.parametrize("cleared", [True, False])
@pytest.mark.parametrize("write", [_by_optimizer, _by_assign, _by_data])
def test_a_leaf_that_is_written_to_between_two_uses_has_an_entry_for_each_value(
    write, cleared, keep
):
    w, held, slopes = mg.tensor([1.0, 2.0], requires_grad=True, name="w"), [], []
    with mg.trace(keep=keep, check="ops") as t, mg.scope("s"):
        for number in (5.0, 7.0, 11.0):
            held.append(w.numpy().copy())
            slopes.append(2 * held[-1] + 1)
            if cleared:
                w.grad = None
            mg.sum(w * w + w).backward()
            write(w, number)
    values = [e for e in t if e.name == "w"]
    assert [e.path for e in values] == ["s/w", "s/w (value 2)", "s/w (value 3)"]
    assert {e.leaf for e in values} == {0}
    assert t["w"] is t["s/w"] is t["s/w (value 3)"] is values[-1]
    for entry, value, slope in zip(values, held, slopes, strict=True):
        assert entry.value_rms == pytest.approx(rms(value))
        if cleared and entry is not values[-1]:
            assert t.explain_missing(entry) == "only in an earlier pass"
        else:
            assert entry.gradient_rms == pytest.approx(rms(slope))
    assert t.check(ops=True).ok


def test_a_parameter_that_is_cast_between_two_uses_has_an_entry_for_each_dtype(rng):
    layer = Linear(3, 2, rng=rng)
    with mg.trace() as t:
        for dtype in (np.float64, np.float32):
            mg.sum(layer.to(dtype)(np.ones((5, 3), dtype))).backward()
    dtypes = [[entry.dtype for entry in t if entry.name == name] for name in "Wb"]
    assert dtypes == [["float64", "float32"]] * 2
    assert t["W"].gradient.dtype == layer.W.grad.dtype


def test_a_gradient_that_reaches_two_values_of_a_leaf_is_parted_by_their_uses(rng):
    b = mg.tensor(np.zeros(2), requires_grad=True, name="b")
    first, second = rng.normal(size=(2, 3, 2))
    with mg.trace() as t:
        total = mg.sum((first + b) * first)
        b.assign_(np.ones(2))
        (total + mg.sum((second + b) * second)).backward()
    before, after = (e.gradient for e in t if e.name == "b")
    np.testing.assert_allclose(before, first.sum(axis=0))
    np.testing.assert_allclose(after, second.sum(axis=0))
    np.testing.assert_allclose(before + after, b.grad)


def test_a_copy_of_a_leaf_that_is_written_to_is_a_copy_of_its_latest_value(x):
    with mg.trace() as t:
        copy = x.detach()
        y = x + copy
        x.assign_(np.array([5.0, 7.0]))
        mg.sum(y + copy).backward()
    copies = [e for e in t if e.kind == "detached"]
    origins = [t[t.into(e)[0].source] for e in copies]
    assert [e.label for e in origins] == ["x", "x (value 2)"]
    np.testing.assert_array_equal([e.value for e in copies], [[1, 2], [5, 7]])


def test_the_steps_of_a_training_loop_equal_those_derived_by_hand(rng):
    """What a layer must equal depends on the weights that it had in that step."""
    layer, X = SelfAttention(5, 2, 3, rng=0), rng.normal(size=(2, 7, 5))
    optimizer = mg.optim.SGD(layer.parameters(), lr=0.1)
    with mg.trace() as t:
        for _ in range(3):
            mg.sum(layer(X) ** 2.0).backward()
            optimizer.step()
    checks = t.check(ops=True)
    assert checks.agree
    assert len(checks.of("by hand")) == 3 * 17


def test_summaries_have_the_values_of_their_own_run(x):
    for number in (1.0, 2.0):
        x.assign_(np.full(2, number))
        with mg.trace(keep="summaries") as t:
            mg.sum(x * x).backward()
        assert t["x"].value_rms == number


def test_a_second_backward_adds_to_the_record(x):
    with mg.trace() as t:
        y = (x * x).sum()
        y.backward(retain_graph=True)
        y.backward()
    np.testing.assert_allclose(t["x"].gradient, 4 * x.data)
    np.testing.assert_allclose(x.grad, 4 * x.data)
    np.testing.assert_allclose(sum(e.contribution for e in t.uses(t["x"])), x.grad)
    assert t.check(ops=True).ok


def _sweeps_of(x, w, case):
    """Runs backward several times; w.grad is what its last sweeps left there."""
    if case == "second order":
        both = mg.grad(mg.tanh(x @ w).sum(), [x, w], create_graph=True)
        sum(mg.sum(slope * slope) for slope in both).backward()
        return
    for power in (2, 3, 4):
        mg.mean((x @ w) ** power).backward()
        if case == "zeros" and power < 4:
            w.grad[...] = x.grad[...] = 0.0
        elif case == "cleared" and power < 4:
            w.grad = x.grad = None


@pytest.mark.parametrize("keep", ["arrays", "summaries"])
@pytest.mark.parametrize("sweeps", ["second order", "added", "cleared", "zeros"])
def test_a_leaf_has_the_gradient_that_the_program_has(rng, sweeps, keep):
    x, w = (mg.tensor(rng.normal(size=s), requires_grad=True, name=n) for n, s in LEAVES)
    with mg.trace(keep=keep, check="ops") as t:
        _sweeps_of(x, w, sweeps)
    assert t.check(ops=True).ok
    missing = {t.explain_missing(e) for e in t if e.op and e.gradient is None}
    assert ("only in an earlier pass" in missing) == (sweeps != "added")
    if keep == "arrays":
        for leaf in (x, w):
            sent = [e.contribution for e in t.uses(t[leaf.name]) if e.contribution is not None]
            np.testing.assert_allclose(t[leaf.name].gradient, leaf.grad, rtol=1e-12)
            np.testing.assert_allclose(sum(sent), leaf.grad, rtol=1e-12)
    elif sweeps != "added":  # a summary of a sum is that of its last part
        np.testing.assert_allclose(t["w"].gradient_rms, rms(w.grad), rtol=1e-12)


# what runs over one graph: a backward, or mg.grad of some values
SEVERAL_SWEEPS = {
    "grad, backward": ("xw", "."),
    "backward, grad": (".", "xw"),
    "grad of all, of one, backward": ("xw", "w", "."),
    "grad of one, of all, backward": ("w", "xw", "."),
    "grad of a computed value, twice, backward": ("h", "h", "."),
    "backward, grad, backward": (".", "w", "."),
    "backward, grad of a computed value, backward": (".", "h", "."),
}


@pytest.mark.parametrize("sweeps", SEVERAL_SWEEPS.values(), ids=SEVERAL_SWEEPS)
def test_what_several_sweeps_over_one_graph_found_is_counted_once(rng, sweeps):
    x, w = (mg.tensor(rng.normal(size=s), requires_grad=True, name=n) for n, s in LEAVES)
    with mg.trace() as t:
        h = mg.tanh(x @ w)
        y = mg.mean(h * h)
        for sweep in sweeps:
            if sweep == ".":
                y.backward(retain_graph=True)
            else:
                mg.grad(y, [{"x": x, "w": w, "h": h}[name] for name in sweep], retain_graph=True)
    for leaf in (x, w):
        np.testing.assert_allclose(t[leaf.name].gradient, leaf.grad)
    for entry in t:
        sent = [edge.contribution for edge in t.uses(entry) if edge.contribution is not None]
        assert len(sent) == len(t.uses(entry))
        if sent:
            np.testing.assert_allclose(sum(sent), entry.gradient)
    assert t.check(ops=True).ok


def test_a_backward_that_failed_and_ran_again_is_counted_once(x):
    with mg.trace() as t:
        mg.sum(x * x).backward()
        h = mg.tanh(x)
        y = mg.sum(h * h).named("y")
        failing = h.register_hook(lambda gradient: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            y.backward(retain_graph=True)
        failing.remove()
        y.backward()
    assert t["y"].gradient == 1
    np.testing.assert_allclose(t["x"].gradient, x.grad)


def test_a_gradient_penalty_in_each_of_two_steps_is_checked_as_it_ran(rng):
    """So is it in a copy of the record, with the steps of the first sweeps."""
    x, w = (mg.tensor(rng.normal(size=s), requires_grad=True, name=n) for n, s in LEAVES)
    with mg.trace() as t:
        for _ in range(2):
            slopes = mg.grad(mg.mean(mg.tanh(x @ w) ** 3), [x], create_graph=True)
            mg.sum(slopes[0] ** 2).backward()
    back = pickle.loads(pickle.dumps(t))
    assert t.check(ops=True).ok
    assert len(back.check(ops=True).steps) == len(t.check(ops=True).steps)


def test_a_trace_that_is_looked_at_between_two_sweeps_is_analyzed_anew(rng):
    """Softmax does not see b, so its gradient is rounding, of which the second sweep has more."""
    x, b = (mg.tensor(rng.normal(size=s), requires_grad=True, name="b") for s in ((3, 5), ()))
    with mg.trace() as t:
        y = mg.sum(mg.softmax(x + b) * rng.normal(size=(3, 5)))
        y.backward(retain_graph=True)
        assert t["b"].state == "cancels"
        x.grad = b.grad = None
        y.backward(1000.0)
    assert t["b"].state == "cancels"


def test_a_parameter_that_was_frozen_at_its_first_use_is_one_all_the_same(rng):
    """As in a loop of two models, where one is frozen while the other learns."""
    layer = Linear(3, 2, rng=rng)
    with mg.trace() as t:
        layer.freeze()
        target = layer(rng.normal(size=(5, 3)))
        layer.unfreeze()
        mg.mean((layer(rng.normal(size=(5, 3))) - target) ** 2).backward()
    assert [(t[name].kind, t[name].needs, t[name].state) for name in "Wb"] == [
        ("parameter", True, "ok"), ("parameter", True, "ok"),
    ]  # fmt: skip


def test_a_gradient_of_zero_is_no_cleared_one():
    """Of two layers that begin as zeros one gets nothing, and the other's gradients add up."""
    W, V = (mg.tensor(np.zeros(s), requires_grad=True, name=n) for n, s in LEAVES)
    data = np.ones((7, 5))
    with mg.trace() as t:
        for _ in range(3):
            mg.sum((mg.exp(data @ W) @ V - 1.0) ** 2).backward()
    assert not W.grad.any()
    np.testing.assert_allclose(t[V.name].gradient, V.grad)


def test_a_trace_ends_with_its_block_and_records_one_run(x):
    with mg.trace() as t:
        y = x * 2
    (y * 3).sum().backward()
    assert len(t) == 2
    assert t["x"].gradient is None
    with pytest.raises(GradientError, match=r"make another: mg\.trace\(\)"), t:
        pass
    assert len(t) == 2


def test_a_trace_comes_back_from_its_pickle_and_shows_the_same(tmp_path, rng):
    layer = SelfAttention(5, 2, 3, rng=0)
    X = mg.tensor(rng.normal(size=(2, 7, 5)), requires_grad=True, name="X")
    with mg.trace() as t:
        mg.sum(layer(X)).backward()
    back = pickle.loads(pickle.dumps(t))
    assert_same(back.to_dict(), t.to_dict(), 1e-14)  # arrays come back in another order of memory
    assert back.table() == t.table()
    assert t.draw(tmp_path / "t.dot").read_text() == back.draw(tmp_path / "b.dot").read_text()
    assert back.check(ops=True).ok
    np.testing.assert_array_equal(back["Q"].gradient, t["Q"].gradient)


# ---------------------------------------------------------------- the record of a graph that stands


def test_a_record_of_a_standing_graph_has_its_structure(x):
    w = mg.tensor([3.0, 4.0], requires_grad=True, name="w")
    with mg.scope("s"):
        out = mg.concatenate([x * w, x]).named("out")
    t = TraceRecord.of(out)
    known = [(e.kind, e.label) for e in t]
    assert known == [("leaf", "x"), ("leaf", "w"), ("op", "multiply"), ("op", "out")]
    uses = [(e.source, e.target, e.input) for e in t.edges]
    assert uses == [(0, 2, "a"), (1, 2, "b"), (2, 3, "arrays0"), (0, 3, "arrays1")]
    assert t.roots == [3]
    assert t.backward_steps == []


def test_a_record_of_a_long_chain_needs_no_recursion():
    y = mg.tensor(1.0, requires_grad=True)
    for _ in range(3_000):
        y = y + 1.0
    assert len(TraceRecord.of(y)) == 3_001


def test_only_a_tensor_can_be_drawn():
    with pytest.raises(
        DTypeError, match=r"draw\(output, path\): output must be a Tensor, got ndarray"
    ):
        mg.draw(np.ones(3), "g.svg")


def test_dir_shows_what_users_call(x):
    with mg.trace() as t:
        (x * x).sum().backward()
    shown = {name for name in dir(t) if callable(getattr(t, name))}
    assert {"attention", "check", "derivation", "draw", "html", "table"} <= shown
    assert not {"forward", "backward", "arrived", "expect_gradients"} & shown
    for option in ("theme", "scale", "style", "direction", "depth", "focus", "fold", "check"):
        assert f"{option}: " in (mg.Trace.draw.__doc__ or "")

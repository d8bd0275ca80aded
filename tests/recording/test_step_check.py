"""Backward steps against numeric derivatives: right rules pass, wrong ones are named."""

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, Sequential, quantize
from minigrad.views.colors import LIGHT
from tests.planted import wrong_rules

rng = np.random.default_rng(5)
X, W = rng.normal(size=(3, 5)), rng.normal(size=(5, 7))
V = rng.normal(size=7)
TARGETS = np.array([0, 4, 2])

RUNS = {
    "layer_norm": lambda x, w: mg.layer_norm(x @ w, V, V),
    "gelu": lambda x, w: mg.gelu(x @ w),
    "cross_entropy": lambda x, w: mg.cross_entropy(x @ w, TARGETS),
    "softmax": lambda x, w: mg.softmax(x @ w) * V,
    "matmul": lambda x, w: mg.tanh(x @ w),
    "einsum": lambda x, w: mg.einsum("ij,jk->ik", x, w),
    "getitem": lambda x, w: (x @ w)[[0, 2, 2], 1:],
    "concatenate": lambda x, w: mg.concatenate([x @ w, x, x * 2.0], axis=1),
    "var": lambda x, w: mg.var(x @ w, axis=-1),
    "mask_add": lambda x, w: mg.softmax(mg.mask_add(x @ w, np.arange(7) < 5)) * V,
    "relu": lambda x, w: mg.relu(x @ w),
    "max": lambda x, w: mg.max(x @ w, axis=0),
}


def leaves(dtype=np.float64):
    pairs = (X, "x"), (W, "w")
    return (mg.tensor(a.astype(dtype), requires_grad=True, name=name) for a, name in pairs)


def run(name, dtype=np.float64):
    rng = np.random.default_rng(5)
    x, w = leaves(dtype)
    with mg.trace(check="ops") as t, mg.scope("block"):
        y = RUNS[name](x, w)
        (y * rng.normal(size=y.shape).astype(dtype)).sum().named("loss").backward()
    return t


@pytest.mark.parametrize("dtype", [np.float32, np.longdouble])
@pytest.mark.parametrize("name", RUNS)
def test_every_step_of_a_run_agrees_with_its_own_op_in_other_precisions_too(name, dtype):
    """In double precision: every sample of every op, in test_trace.py."""
    t = run(name, dtype)
    checks = t.check()
    assert checks.ok
    assert len(checks.steps) == len(set(t.backward_steps))
    assert checks.unchecked == {}


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, np.float64) for name in RUNS), ("matmul", np.longdouble)]
)
def test_a_rule_that_is_a_thousandth_off_is_red_and_named(name, dtype, tmp_path):
    with wrong_rules(name):
        t = run(name, dtype)
    checks = t.check()
    assert not checks.ok
    assert {step.op for step in checks.steps if not step.ok} == {name}
    assert checks.wrong_step is not None
    assert t.entries[checks.wrong_step.step].state == "wrong"
    picture = t.draw(tmp_path / "g.dot", theme="light").read_text(encoding="utf-8")
    for text in (str(checks), t.table(200), picture):
        assert "WRONG" in text
        assert f"the rule of {name} for" in " ".join(text.split())
    assert LIGHT.alarm in picture


def test_outside_an_ops_domain_no_rule_is_called_wrong():
    x = mg.tensor([-1.0, 2.0], requires_grad=True, name="x")
    with mg.trace(check="ops") as t, np.errstate(all="ignore"):
        (mg.log(x) * 2.0).sum().backward()
    checks = t.check(ops=True)
    assert [step for step in checks.steps if not step.ok] == []
    assert checks.unchecked["not finite"] >= 1
    assert not checks.ok


def test_what_was_not_measured_is_counted_with_its_reason():
    x = mg.tensor([0.0, 1.0], requires_grad=True, name="x")
    with mg.trace() as t, np.errstate(all="ignore"):
        y = mg.sqrt(x)
        y.node.register_hook(lambda parts, g: None)
        (y * 2.0).sum().backward()
    checks = t.check(ops=True)
    assert len(checks.steps) == 2
    assert checks.unchecked == {"a hook may have changed its gradients": 1}


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_the_step_of_a_difference_is_of_the_size_of_what_it_moves(size):
    """A step of one size for all would cross every kink of small numbers, and prove nothing."""
    x = mg.tensor(size * X, requires_grad=True)
    with wrong_rules("relu"), mg.trace(check="ops") as t:
        mg.sum(mg.relu(x) * 3.0).backward()
    assert [step.op for step in t.check().steps if not step.ok] == ["relu"]


TIES = rng.normal(size=(2, 3, 4, 4)) * (rng.uniform(size=(2, 3, 4, 4)) < 0.5)


@pytest.mark.parametrize("factor", [1.0, 1.001, -1.0])
@pytest.mark.parametrize(
    ("name", "f"),
    [
        ("max_pool", lambda x: mg.max_pool(mg.relu(x), 2)),
        ("max", lambda x: mg.max(mg.relu(x), axis=-1)),
    ],
)
def test_at_kinks_the_rule_is_checked_beside_them(name, f, factor):
    """Zeros tie, and between the slopes of both sides anything would pass."""
    rng = np.random.default_rng(5)
    x = mg.tensor(TIES, requires_grad=True)
    with wrong_rules(name, factor), mg.trace(check="ops") as t:
        y = f(x)
        (y * rng.normal(size=y.shape)).sum().backward()
        checks = t.check()
    assert checks.unchecked == {}
    wrong = {step.op for step in checks.steps if not step.ok}
    assert wrong == (set() if factor == 1.0 else {name})


@pytest.mark.parametrize("train", [True, False])
def test_of_a_quantized_model_all_but_the_rounding_is_checked(train):
    model = quantize(Sequential(Linear(5, 7, rng=0), mg.relu, Linear(7, 2, rng=1)), X, train=train)
    with mg.trace() as t:
        mg.mean(model(mg.tensor(X, requires_grad=True)) ** 2).backward()
    checks = t.check(ops=True)
    assert checks.ok
    assert set(checks.unchecked) == {"at kinks, where there is no derivative"}


@pytest.mark.parametrize(("seed", "shift"), [(0, 0.0), (1, 0.3)])
def test_a_few_windows_of_zeros_do_not_blur_the_check_of_a_pool(seed, shift):
    """What a small convolutional network does: a rule a tenth off would have passed."""
    own = np.random.default_rng(seed)
    x = mg.tensor(own.normal(size=(2, 3, 6, 6)) + shift, requires_grad=True)
    with mg.trace(check="ops") as t:
        y = mg.max_pool(mg.relu(x), 2)
        (y * own.normal(size=y.shape)).sum().backward()
    [pool] = [step for step in t.check().steps if step.op == "max_pool"]
    assert pool.difference < 1e-6


def test_each_of_two_sweeps_has_its_own_numbers_and_checks():
    """The second derivative's sweep goes again through ops that the first one went through."""
    x, w = leaves()
    with mg.trace() as t:
        slope = mg.grad(mg.tanh(x @ w).sum(), x, create_graph=True)
        (slope * slope).sum().backward()
    assert t.check(ops=True).ok
    assert len(set(t.backward_steps)) == len(t.backward_steps)
    for leaf in (x, w):
        np.testing.assert_allclose(t[str(leaf.name)].gradient, leaf.grad, rtol=1e-12)


def test_a_wrong_rule_of_an_earlier_sweep_stays_red():
    x, w = leaves()
    with mg.trace() as t:
        y = mg.tanh(x @ w).sum()
        mg.grad(y, x, create_graph=True)
        [sent] = t.into(t["tanh"])
        sent.contribution = sent.contribution * 1.001  # planted: what its rule gave
        (y * 2.0).backward()
    assert {step.op for step in t.check(ops=True).steps if not step.ok} == {"tanh"}


def test_gradients_of_one_output_by_two_calls_are_one_set_of_numbers():
    x, w = leaves()
    with mg.trace() as t:
        y = mg.tanh(x @ w).sum()
        found = mg.grad(y, x, create_graph=True).numpy(), mg.grad(y, w)
    assert t.check(ops=True).ok
    np.testing.assert_array_equal(t["x"].gradient, found[0])
    np.testing.assert_array_equal(t["w"].gradient, found[1])


def test_ops_run_again_with_what_they_were_given_and_the_numbers_they_drew():
    """A leaf that was overwritten between two steps, and a generator that dropout moved on."""
    w, generator = mg.tensor([2.0, 3.0], requires_grad=True, name="w"), np.random.default_rng(7)
    with mg.trace() as t:
        for _ in range(2):
            (mg.dropout(w * w * w, 0.5, generator) * 3.0).sum().backward()
            w.assign_(w.data * 0.5)
    assert t.check(ops=True).ok
    assert generator.random() != np.random.default_rng(7).random()
    calls = [(entry, t.call_of(entry)) for entry in t if entry.op == "dropout"]
    for entry, call in calls * 2:
        np.testing.assert_array_equal(call.run(t.inputs_of(call)), entry.value)


@pytest.mark.parametrize(
    "use",
    [
        lambda w, ids: mg.take(w, ids, axis=0),
        lambda w, ids: w[ids],
        lambda w, ids: w[ids, 0],
        lambda w, ids: mg.cross_entropy(w, ids),
    ],
    ids=["take", "index", "index of two axes", "targets"],
)
def test_ids_that_are_filled_again_for_the_next_batch_leave_the_check_as_it_was(use):
    w, ids = mg.tensor([[2.0, 3.0], [4.0, 7.0]], requires_grad=True), np.array([0, 1])
    with mg.trace() as t:
        mg.sum(use(w, ids) ** 2).backward()
    ids[...] = 1
    assert t.check(ops=True).ok


@pytest.mark.parametrize("check", ["ops", None])
def test_an_array_written_to_before_backward_is_blamed_and_not_the_rule(check, tmp_path):
    w, x = mg.tensor([2.0, 3.0], requires_grad=True, name="w"), np.array([5.0, 7.0])
    with mg.trace(check=check) as t:
        y = mg.sum(w * x)
        x[0] = 0.0
        y.backward()
    assert not t.check(ops=True).ok
    found = " ".join(t.table(100).split())
    assert "the rule of multiply for a took b, which was written to after it, relative" in found
    written_out = t.derivation(tmp_path / "d.md").read_text(encoding="utf-8")
    assert "for `a` took b, which was written to after it" in written_out


def test_summaries_keep_sizes_and_no_array_and_check_all_the_same():
    x, w = leaves()

    def record(**options):
        with mg.trace(**options) as t:
            mg.mean(mg.tanh(x @ w)).named("loss").backward()
        return t

    few, all_of_it = record(keep="summaries", check="ops"), record(check="ops")
    assert few.to_dict() == all_of_it.to_dict()
    kept = [a for e in few.entries for a in (e.value, e.gradient)]
    assert not any(isinstance(a, np.ndarray) for a in kept)
    assert len(few.check().steps) == 3
    assert "3 of 3 backward steps agree" in few.table(100)


@pytest.mark.parametrize("options", [{"check": "all"}, {"keep": "nothing"}])
def test_other_options_are_refused(options):
    with pytest.raises(mg.errors.ArgumentError, match=r"trace\(check=None or 'ops'"):
        mg.trace(**options)

"""A watch measures every N-th step, finds planted problems, and nothing in healthy runs."""

import json
import weakref

import numpy as np
import pytest

import minigrad as mg
from layers import LanguageModel, Linear, Module, MultiHeadAttention
from minigrad.errors import ArgumentError, DTypeError
from minigrad.optim import SGD, Adam
from minigrad.record.heads import heads
from minigrad.record.training import TrainingRecord
from tests.compare import assert_same

from .models import Net, leaf, linears


def mlp(rng, f=mg.relu, depth=3, gain=1.0, shift=0.0, branch=""):
    layers = linears(rng, *[8] * (depth + 1))
    for layer in layers:
        layer.W.assign_(layer.W.numpy() * gain)
        layer.b.assign_(layer.b.numpy() + shift)

    def called(x, layers, out, more=None):
        for layer in layers:
            x = f(layer(x))
        if branch == "detached":
            x = x + more(x).detach()
        if branch == "no_grad":
            with mg.no_grad():
                more(x)
        return out(x)

    more = {"more": Linear(8, 8, rng=rng)} if branch else {}
    return Net(called, layers=layers, out=Linear(8, 3, rng=rng), **more)


def train(
    *,
    lr=1e-2,
    optimizer=Adam,
    steps=60,
    every=4,
    seed=0,
    labels="true",
    loss=mg.cross_entropy,
    clear="before",
    spoil=lambda net: None,
    trained=Module.parameters,
    net=None,
    **model,
):
    rng = np.random.default_rng(seed)
    net = mlp(rng, **model) if net is None else net
    W = rng.normal(size=(8, 3))
    moved = optimizer(trained(net), lr=lr)
    with mg.watch(net, every=every) as flow, np.errstate(all="ignore"):
        for step in range(steps):
            x = rng.normal(size=(64, 8))
            y = (x @ W).argmax(axis=-1) if labels == "true" else rng.integers(0, 3, 64)
            if step == 22 and labels == "nan":
                x[0, 0] = np.nan
            if clear == "before":
                net.zero_grad()
            cost = loss(net(x), y)
            cost.backward()
            if clear == "between":
                net.zero_grad()
            spoil(net)
            moved.step()
            flow.log(loss=cost)
    return flow


def turned(net):
    for p in net.parameters():
        p.grad = -p.grad


def log_of_zero(out, y):
    p = mg.relu(out)
    return -mg.mean(mg.log(p)[np.arange(len(y)), y])


def without_the_first(net):
    """Freeze the first matrix; the parameters that are left to train."""
    net.layers[0].W.requires_grad = False
    return [p for p in net.parameters() if p.requires_grad]


PLANTED = {
    "not finite": [{"loss": log_of_zero}],
    "vanishing": [{"f": lambda x: mg.tanh(x) * 0.05, "depth": 6}],
    "exploding": [{"f": mg.relu, "depth": 8, "gain": 6.0, "optimizer": SGD, "lr": 1e-4}],
    "dead": [{"shift": -30.0}, {"shift": -30.0, "f": mg.gelu}],
    "saturated": [
        {"f": mg.tanh, "gain": 40.0},
        {"f": mg.sigmoid, "gain": 100.0, "depth": 2},
        {"f": mg.tanh, "gain": 40.0, "depth": 1, "steps": 600, "every": 20},  # the last one learns
    ],
    "no gradient": [{"trained": lambda net: net.out.parameters()}],
    "zero gradient": [{"f": lambda x: mg.relu(x) * 0.0}],
    "update ratio": [
        {"lr": 1e-7},
        {"lr": 1e-9, "optimizer": SGD},
        {"optimizer": SGD, "lr": 10.0, "f": mg.tanh, "depth": 1},
    ],
    "diverging": [{"spoil": turned}, {"optimizer": SGD, "lr": 10.0, "f": mg.tanh, "depth": 1}],
    "plateau": [{"labels": "shuffled", "lr": 1e-3}],
}
HEALTHY = [
    {},
    {"f": mg.tanh},
    {"f": mg.gelu},
    {"optimizer": SGD, "lr": 0.1},
    {"depth": 5},
    {"f": mg.sigmoid, "depth": 1, "steps": 150},
    {"seed": 1},
    {"every": 1},
    {"every": 10, "steps": 120},
    {"trained": without_the_first},
]


@pytest.mark.parametrize(
    ("kind", "settings"), [(kind, s) for kind, several in PLANTED.items() for s in several]
)
def test_a_planted_problem_is_found(kind, settings):
    assert kind in train(**settings).diagnose().kinds


@pytest.mark.parametrize("settings", HEALTHY)
def test_nothing_is_found_in_a_healthy_run(settings):
    assert str(train(**settings).diagnose()) == "nothing found"


@pytest.mark.parametrize(
    ("branch", "why"),
    [
        ("unused", "no op of the step takes it"),
        ("detached", "ops take it, but no gradient comes back"),
        ("no_grad", "ops take it under no_grad alone"),
    ],
)
def test_a_parameter_without_a_gradient_has_the_reason(branch, why):
    (finding,) = train(branch=branch, steps=8).diagnose()
    assert finding.text.startswith(why)
    assert finding.path.endswith("W") or "more" in finding.path


def test_a_finding_prints_its_step_and_what_to_try():
    lines = str(train(labels="nan").diagnose()).splitlines()
    assert lines[0].startswith("step 22: not finite: ")
    assert lines[1].startswith("  try: mg.anomaly() around that step")


def test_what_does_not_last_three_looks_is_no_finding():
    flow, dead = train(), train(shift=-30.0)
    flow.moments[5:7] = dead.moments[5:7]
    assert flow.diagnose() == []
    flow.moments[7] = dead.moments[7]
    assert flow.diagnose().kinds == ["dead"]


class Wide(Module):
    """One layer of 32 relus."""

    def __init__(self, dead=0, scale=1.0):
        self.h, self.out = Linear(8, 32, rng=0), Linear(32, 3, rng=1)
        self.h.b.assign_(np.where(np.arange(32) < dead, -50.0, 0.0))
        for p in self.parameters():
            p.assign_(p.numpy() * scale)

    def forward(self, x):
        return self.out(mg.relu(self.h(x)))


@pytest.mark.parametrize(
    ("net", "settings", "kind", "words"),
    [
        ({"dead": 27}, {"lr": 0.5}, "dead", "84% units dead"),
        ({"scale": 0.0}, {}, "zero gradient", "its weights are 0 and stay 0"),
        ({}, {"clear": "between"}, "no gradient", "cleared before the update"),
        ({}, {"clear": "never", "lr": 0.01}, "not cleared", "of earlier steps"),
    ],
)
def test_what_was_said_wrong_or_not_at_all_is_found_alone(net, settings, kind, words):
    flow = train(net=Wide(**net), optimizer=SGD, **{"lr": 0.1, **settings})
    (finding,) = flow.diagnose()
    assert finding.kind == kind
    assert words in finding.text


def test_a_summed_loss_is_no_problem():
    def summed(out, y):
        return mg.cross_entropy(out, y) * 512.0

    assert train(net=Wide(), optimizer=SGD, lr=0.1 / 512, loss=summed).diagnose() == []


@pytest.mark.parametrize(("name", "counts"), [("value_loss", True), ("val_loss", False)])
def test_a_loss_is_known_by_its_name(name, counts):
    flow = TrainingRecord()
    flow.logged = {name: [(0, 2.0)]}
    assert flow.losses == ([(0, 2.0)] if counts else [])


def test_rows_are_those_of_the_watched_model_alone():
    G, D = Wide(), Wide()
    with mg.watch(G, every=1) as flow:
        mg.mean(D(mg.concatenate([G(leaf(4, 8)), leaf(4, 5)], axis=1)) * 1e3).backward()
        flow.log(loss=1.0)
    rows = flow.moments[0].readings
    assert {path for path in rows if path.startswith("wide")} >= {"wide/h/W", "wide/relu"}
    assert not any("relu[1]" in path or path.startswith("wide (2)") for path in rows)


# ---------------------------------------------------------------- what is measured


def test_the_best_guess_is_of_the_targets_that_count():
    w = mg.tensor(np.zeros((4, 3)), requires_grad=True)
    with mg.watch([w], every=1) as flow:
        mg.cross_entropy(w, np.array([0, 1, -1, 0]), ignore_index=-1).backward()
        flow.log(loss=1.0)
    assert_same(flow.moments[0].guess, np.log(3) - 2 / 3 * np.log(2))


def test_readings_are_those_of_the_step():
    w = leaf(3, 5, name="w")
    optimizer = SGD([w], lr=0.1)
    with mg.watch([w], every=2) as flow:
        for _ in range(3):
            before = w.numpy().copy()
            optimizer.zero_grad()
            with mg.scope("net"):
                h = mg.tanh(w).named("h")
            loss = mg.sum(h * h)
            loss.backward()
            gradient = w.grad.copy()
            optimizer.step()
    assert [moment.step for moment in flow.moments] == [0, 2]
    last, values = flow.moments[-1], np.tanh(before)
    one = last.readings["net/w"]
    assert_same(one.value**2, np.mean(before**2))
    assert_same(one.gradient**2, np.mean(gradient**2))
    assert_same((one.update * one.value) ** 2, np.mean((w.numpy() - before) ** 2))
    assert_same(last.readings["net/h"].value ** 2, np.mean(values**2))
    assert_same(last.loss, np.sum(values**2))
    assert flow.steps == 3


def test_without_an_optimizer_a_step_ends_where_something_is_logged():
    w = leaf(1, name="first")
    with mg.watch([w], every=1) as flow:
        for _ in range(3):
            w.grad = None
            mg.sum(w * w).backward()
            w.assign_(w.numpy() - 0.1 * w.grad)
            flow.log(loss=1.0)
    assert [moment.step for moment in flow.moments] == [0, 1, 2]
    assert flow.logged == {"loss": [(0, 1.0), (1, 1.0), (2, 1.0)]}
    assert flow.parameters == ["first"]


def test_between_moments_nothing_observes_and_a_compiled_step_runs_as_compiled():
    w = leaf(5)
    optimizer = SGD([w], lr=0.1)

    @mg.compile
    def step(x):
        optimizer.zero_grad()
        loss = mg.mean((w * x - 1.0) ** 2.0)
        loss.backward()
        optimizer.step()
        return loss

    step(np.ones(5))
    with mg.watch([w], every=4) as flow:
        for _ in range(9):
            flow.log(loss=step(np.ones(5)))
    assert [moment.step for moment in flow.moments] == [0, 4, 8]
    assert flow.steps == 9
    assert step.reasons == []


def test_a_gradient_that_is_zero_in_theory_is_no_problem(rng):
    layer = MultiHeadAttention(6, 2, use_bias=True, rng=rng)
    optimizer = SGD(layer.parameters(), lr=0.1)
    with mg.watch(layer, every=1) as flow:
        for _ in range(4):
            layer.zero_grad()
            mg.mean((layer(rng.normal(size=(3, 5, 6))) - 1.0) ** 2.0).backward()
            optimizer.step()
    path = "multi_head_attention/b_K"
    assert flow.in_theory == [path]
    for moment in flow.moments:  # as rounding may have it
        moment.readings[path] = moment.readings[path]._replace(gradient=0.0)
    assert flow.diagnose() == []
    assert len(flow.moments[0].heads) == 2


def test_a_loop_over_time_has_readings_of_the_first_times():
    cell = Linear(3, 3, rng=0)
    with mg.watch(cell, every=1) as flow:
        h = mg.tensor(np.ones((2, 3)))
        for _ in range(20):
            h = mg.tanh(cell(h)).named("h")
        mg.sum(h).backward()
        SGD(cell.parameters(), lr=0.1).step()
    known = [p for p in flow.moments[0].readings if p.startswith("h")]
    assert known == ["h", *(f"h[{k}]" for k in range(1, 8))]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: mg.watch("model"), DTypeError, "got str"),
        (lambda: mg.watch([]), ArgumentError, "no parameters"),
        (lambda: mg.watch([leaf(1)], every=0), ArgumentError, "whole number from 1"),
        (lambda: mg.watch([leaf(1)], baseline="none.json"), ArgumentError, "is no file that flow"),
        (lambda: mg.watch([leaf(1)], baseline=TrainingRecord()), ArgumentError, "no requests"),
    ],
)
def test_what_cannot_be_watched_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_what_is_logged_is_one_number():
    with mg.watch([leaf(1)]) as flow, pytest.raises(ArgumentError, match="must be one number"):
        flow.log(loss=[1.0, 2.0])


# ---------------------------------------------------------------- attention in production


def served(model, requests, seed=0, every=1, **options):
    rng = np.random.default_rng(seed)
    with mg.watch(model, every=every, **options) as flow, mg.no_grad():
        for _ in range(requests):
            model(rng.integers(0, 11, (2, int(rng.integers(5, 9)))))
    return flow


@pytest.fixture
def model():
    return LanguageModel(11, 12, 3, 2, max_len=9, rng=0)


def test_each_request_is_a_moment_with_figures_of_each_head(model, tmp_path):
    flow = served(model, 5)
    assert [moment.step for moment in flow.requests] == [0, 1, 2, 3, 4]
    assert [path[-4:] for path in flow.requests[0].heads] == ["A[0]", "A[1]", "A[2]"] * 2
    assert (flow.moments, flow.diagnose()) == ([], [])
    path = flow.save(tmp_path / "flow.json")
    assert TrainingRecord.baseline_of(path).to_dict()["requests"] == flow.to_dict()["requests"]
    assert json.loads(path.read_text()) == flow.to_dict()
    assert [moment.step for moment in served(model, 21, every=10).requests] == [0, 10, 20]


def test_nothing_of_an_answer_is_kept(model):
    with mg.watch(model, every=1), mg.no_grad():
        answer = weakref.ref(model(np.zeros((2, 5), int)))
        assert answer() is None


def test_entropy_and_sparsity_of_requests_are_in_series_table_and_csv(model, tmp_path):
    flow = served(model, 3)
    path = "language_model/decoder/blocks.0/attention/A[1]"
    (_, first), *_ = flow.series(path, "entropy")
    assert first == flow.requests[0].heads[path].entropy
    assert f"{first:.3g}" in flow.table(120)
    rows = flow.csv(tmp_path / "f.csv").read_text().splitlines()
    assert rows[0].endswith("entropy,sparsity")
    assert len(rows) == 1 + 3 * 2 * 3  # requests, layers, heads


def test_a_head_that_drifts_is_named_with_when_and_by_how_much(model, tmp_path):
    baseline = served(model, 20).save(tmp_path / "baseline.json")
    rng = np.random.default_rng(2)
    with mg.watch(model, every=1, baseline=baseline) as flow, mg.no_grad():
        for request in range(20):
            if request == 12:  # head 2 of block 1 now looks at what is like itself, sharply
                attention = model.decoder.blocks[1].attention
                W_Q = attention.W_Q.numpy().copy()
                W_Q[:, 8:12] = attention.W_K.numpy()[:, 8:12] * 200
                attention.W_Q.assign_(W_Q)
            model(rng.integers(0, 11, (2, 7)))
    (finding,) = flow.diagnose()
    assert (finding.kind, finding.first) == ("drift", 12)
    assert finding.path.endswith("blocks.1/attention/A[2]")
    assert "bits (Jensen–Shannon" in finding.text


def test_figures_of_heads_are_those_of_the_weights(rng):
    A = rng.dirichlet(np.ones(5), size=(2, 3, 5)) * np.tri(5)
    A /= A.sum(axis=-1, keepdims=True)
    own, head = A[:, 1], heads(A, "A")["A[1]"]
    assert_same(head.entropy, -(own * np.log(np.where(own > 0, own, 1))).sum(-1).mean())
    seen = np.tri(5, dtype=bool)  # a head that never looks ahead is causal
    assert_same(head.sparsity, (own[:, seen] < 0.01).mean())
    assert_same(sum(head.distances), 1.0)
    _, itself, *_ = head.distances
    assert_same(itself, np.trace(own, axis1=1, axis2=2).sum() / 10)

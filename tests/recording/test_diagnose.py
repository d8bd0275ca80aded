"""What `flow.diagnose()` says of planted problems, and that it says nothing of healthy runs."""

import numpy as np
import pytest

import minigrad as mg
from benchmarks.findings import MODELS, PROBLEMS, train
from benchmarks.findings_models import GPT, Settings
from layers import Linear, MultiHeadAttention, Sequential, lora
from minigrad.optim import SGD, Adam, LossScale
from minigrad.recording.diagnose import diagnose
from minigrad.recording.record import rms

from .watched import run_of, watched

QUICK = (
    "vanishing", "exploding", "dead units", "oscillating", "slow", "dead gelu", "wrong sign",
    "weight decay too large", "clipped to nothing", "schedule at 0", "weights all equal",
    "embedding rows unused", "deep without norms", "vanishing through time",
    "exploding through time", "labels constant", "sorted batches", "no causal mask",
    "dropout in evaluation", "evaluation mode in training", "no zero_grad", "detached branch",
    "unused branch", "branch under no_grad", "not in the optimizer",
)  # fmt: skip
FALLING = np.geomspace(2.0, 0.1, 40)
NOISE = np.random.default_rng(0).normal(1, 0.05, size=40)


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(p, marks=[] if p in QUICK else [pytest.mark.slow])
        for p in PROBLEMS
        if p != "vanishing through time, GRU"  # takes long, and is an LSTM's problem too
    ],
)
def test_a_planted_problem_is_named_as_the_one_cause(problem):
    """In all models, over many seeds: python -m benchmarks.findings."""
    kinds, models, settings = PROBLEMS[problem]
    enough = {"steps": 80 if problem == "labels shuffled" else 40}  # that nothing is learned
    found = train(models[0], enough | settings, seed=0).diagnose()
    assert found.kinds[0] in kinds
    assert len(found.kinds) == 1


@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_found_in_a_healthy_run(model):
    assert train(model, {}, seed=0).diagnose() == []


def test_what_follows_from_a_cause_stands_under_it_in_order():
    (found,) = train("MLP", PROBLEMS["exploding"][-1], seed=0).diagnose()
    assert found.kind == "exploding"
    assert "values grow by depth" in found.text
    assert "dead units" in {symptom.kind for symptom in found.symptoms}
    assert f"so also: {found.follows}" in str(found)
    two = train("MLP", {"branch": "unused", "lr": 1e-6}, seed=0).diagnose()
    assert two.kinds == ["no gradient", "slow"]
    assert repr(two) == "Findings: 2 (no gradient, slow), which print() tells"


# ---------------------------------------------------------------- what the loss shows


@pytest.mark.parametrize(
    ("kind", "step", "words", "flow"),
    [
        ("plateau", 0, "began at 2 and ended at 2", run_of(np.full(40, 2.0))),
        ("diverging", 2, "ended at 9.19", run_of(np.linspace(1, 10, 40), [{"ratio": 0.05}] * 6)),
        ("slow", 0, "1,000 times", run_of(NOISE, [{"ratio": 1e-6, "drift": 1e-5}] * 6)),
        ("update ratio", 0, "0.3 of their size", run_of(NOISE, [{"ratio": 0.3}] * 6)),
        ("oscillating", 0, "-0.60", run_of(NOISE, [{"cosine": -0.6, "ratio": 0.04}] * 6)),
        ("exploding", 8, "rms is 1e+03", run_of(NOISE, [{}, {}, *[{"gradient": 1e3}] * 4])),
        (
            "overfitting",
            19,
            "val_loss was 0.5 at its best",
            run_of(FALLING, val_loss=0.5 + np.abs(np.arange(40) - 19) / 100),
        ),
    ],
)
def test_what_the_loss_shows_is_found_with_its_step(kind, step, words, flow):
    (finding,) = (one for one in diagnose(flow) if one.kind == kind)
    assert finding.step == step
    assert words in str(finding)


def swinging(seed):
    """A held-out loss that falls still, from one batch to the next by chance."""
    noise = np.random.default_rng(seed).normal(0, 0.12, size=40)
    return np.linspace(1.0, 0.8, 40) * np.exp(noise)


@pytest.mark.parametrize(
    "flow",
    [
        run_of([]),
        run_of(FALLING),
        run_of(FALLING * NOISE),
        run_of([*FALLING, *[0.1] * 60]),  # converged
        run_of(FALLING, [{"gradient": 500.0}] * 6),  # of a sum over a large batch
        run_of(FALLING, val_loss=FALLING * 1.2),
        run_of(FALLING, [{"ratio": 0.0}] + [{"ratio": 0.4}] * 5),  # began as zeros
        run_of(FALLING * np.random.default_rng(1).uniform(0.3, 1.7, size=40)),  # batches of one
        run_of([0.1, *np.random.default_rng(2).exponential(size=40) * FALLING + 0.05]),
        *(run_of(FALLING, val_loss=swinging(seed)) for seed in range(60)),
    ],
)
def test_nothing_is_found_where_the_loss_falls(flow):
    assert diagnose(flow) == []
    assert str(diagnose(flow)) == "nothing found"


def test_noise_of_the_batches_is_no_divergence():
    for seed in range(50):
        losses = np.random.default_rng(seed).exponential(size=60) + 0.2
        assert set(diagnose(run_of(losses)).kinds) <= {"plateau"}


def test_an_oscillation_begins_where_the_loss_begins_to_swing():
    calm = np.linspace(1.0, 0.9, 60)
    wild = 0.9 + 0.5 * (-1.0) ** np.arange(60)
    (finding,) = diagnose(run_of([*calm, *wild], [{"cosine": -0.6, "ratio": 0.04}] * 6))
    assert finding.kind == "oscillating"
    assert 55 <= finding.step <= 65


def test_an_accuracy_that_rises_is_no_divergence_and_a_loss_of_any_name_is_known():
    flow = run_of([])
    for step in range(40):
        flow.add("logged", {"step": step, "accuracy": 0.25 + step / 53})
    flow.steps = 40
    assert diagnose(flow) == []
    for sample in flow.samples:
        sample.loss = 1.0 + sample.step
    for step in range(40):
        flow.add("logged", {"step": step, "mse": 1.0 + step})
    assert diagnose(flow).kinds == ["diverging"]


def test_a_loss_that_backward_takes_with_a_minus_is_named():
    flow = run_of(NOISE)
    for sample in flow.samples:
        sample.loss = -float(NOISE[sample.step])
    assert "wrong sign" in diagnose(flow).kinds


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("learns", [False, True])
def test_what_ends_no_better_than_a_constant_guess_is_named(numbers, learns, rng):
    """The loss falls a lot, from scores or an offset far off, and says nothing of the inputs."""
    layer = Linear(5, 1 if numbers else 3, rng=rng)
    layer.b.assign_(np.full(1, 9.0) if numbers else np.array([9.0, 0.0, -9.0]))
    optimizer = Adam(layer.parameters(), lr=0.5)

    def loss(step):
        optimizer.lr = 0.5 * 0.95**step
        x, noise = rng.normal(size=(64, 5)), rng.normal(size=(64, 5))
        from_inputs, out = x if learns else noise, layer(mg.tensor(x))
        if numbers:
            return mg.mean((out - 3 * from_inputs[:, :1]) ** 2)
        return mg.cross_entropy(out, from_inputs[:, :3].argmax(axis=1))

    flow = watched(layer, loss, 120, optimizer, every=4)
    assert flow.samples[0].guess == pytest.approx(9.0 if numbers else np.log(3), rel=0.4)
    assert ("no better than guessing" in flow.diagnose().kinds) == (not learns)


# ---------------------------------------------------------------- not finite


def test_the_first_nan_is_named_with_its_op_and_operands():
    w = mg.tensor([4.0, 1.0], requires_grad=True, name="w")

    def loss(step):
        with mg.scope("head"):
            return mg.sum(mg.log(w))

    flow = watched([w], loss, 6, SGD([w], lr=0.5))
    finding = flow.diagnose()[0]
    assert (finding.kind, finding.path) == ("not finite", "head/log")
    assert "log made it from finite operands" in finding.text
    assert finding.step == next(i for i, x in flow.logs("loss") if not np.isfinite(x))


@pytest.mark.parametrize(
    ("start", "op", "name", "loss"),
    [
        (0.0, "sqrt", "x", lambda w: mg.sum(mg.sqrt(w))),
        (1e-300, "multiply", "b", lambda w: mg.sum(mg.multiply(np.array([1e200]), w) * 1e200)),
    ],
)
def test_a_rule_that_makes_the_first_infinity_is_named(start, op, name, loss):
    w = mg.tensor([start], requires_grad=True, name="w")
    finding = watched([w], lambda step: loss(w), 3).diagnose()[0]
    assert (finding.step, finding.path) == (0, op)
    assert f"backward of {op} at " in finding.text
    assert f"{op} made it from finite operands" in finding.text
    assert f"the gradient of {name}: " in finding.text


def test_a_nan_between_the_steps_looked_at_has_its_step_and_a_remedy():
    w = mg.tensor([1.0], requires_grad=True, name="w")
    flow = watched([w], lambda step: mg.sum(w * (np.nan if step == 3 else 1.0)), 9, every=5)
    finding = flow.diagnose()[0]
    assert (finding.kind, finding.step) == ("not finite", 3)
    assert "mg.anomaly() from step 2 on" in finding.remedy


def test_a_step_that_loss_scale_skips_is_not_looked_at():
    w = mg.tensor(np.float16([1.0, 2.0]), requires_grad=True, name="w")
    scaler = LossScale(SGD([w], lr=1e-3), scale=2.0**15)
    with mg.watch([w], every=1) as flow, np.errstate(all="ignore"):
        for step in range(8):
            w.grad = None
            big = np.float16(100.0 if step == 0 else 1e-3)
            scaler.backward((w * w * big).sum())
            scaler.step()
    assert scaler.skipped > 0
    assert "not finite" not in flow.diagnose().kinds


# ---------------------------------------------------------------- parameters


def test_units_that_are_copies_of_each_other_are_found(rng):
    first, last = Linear(3, 4, rng=rng), Linear(4, 2, rng=rng)
    first.W, last.W = np.arange(3.0)[:, None] * np.ones((3, 4)), np.full((4, 2), 0.2)
    net = Sequential(first, mg.tanh, last)

    def loss(step):
        return mg.mean((net(mg.tensor(rng.normal(size=(5, 3)))) - np.array([1.0, -1.0])) ** 2)

    (finding,) = watched(net.parameters(), loss, 4).diagnose()
    assert (finding.kind, finding.path) == ("symmetric", "sequential/layers.0/W")


@pytest.mark.parametrize(
    ("adapted", "method"),
    [
        (False, "exact"),
        pytest.param(False, "tiled", marks=pytest.mark.needs_fast("attention in tiles")),
        (True, "exact"),
    ],
)
def test_the_gradient_of_a_keys_bias_frozen_parameters_and_adapters_are_no_problem(
    adapted, method, rng
):
    """That gradient is 0 in theory: softmax does not see what all keys share."""
    layer = MultiHeadAttention(8, 2, use_bias=not adapted, method=method, rng=rng)
    if adapted:
        lora(layer, 2, rng=0)
        layer.W_O.requires_grad = False
    optimizer = SGD([p for p in layer.parameters() if p.requires_grad], lr=0.1)

    def loss(step):
        return mg.mean((layer(rng.normal(size=(3, 5, 8))) - 1) ** 2)

    flow = watched(layer, loss, 4, optimizer)
    notes = flow.samples[0].notes
    if adapted:
        assert "frozen" in notes.values()
        assert "no gradient" not in flow.diagnose().kinds
    else:
        assert notes == {"multi_head_attention/b_K": "cancels"}
        assert flow.diagnose() == []


# ---------------------------------------------------------------- loops of other kinds


@pytest.mark.parametrize("scaled", [False, True])
def test_a_summed_or_scaled_loss_is_no_explosion(scaled):
    """A sum of 256 terms, or multiplied by 4,096 for the backward."""
    rng = np.random.default_rng(0)
    net = GPT(Settings(), rng)
    optimizer = Adam(net.parameters(), lr=1e-4)
    scaler = LossScale(optimizer) if scaled else None
    with mg.watch(net, every=4, traces=0) as flow:
        for _ in range(60):
            x, y, _ = net.batch(rng)
            optimizer.zero_grad()
            loss = mg.cross_entropy(net(x), y)
            if scaler is not None:
                scaler.backward(loss)
                scaler.step()
            else:
                (loss * len(y)).backward()
                optimizer.step()
            flow.log(loss=loss)
    assert "exploding" not in flow.diagnose().kinds
    if scaled:
        figures = next(x for path, x in flow.samples[0].rows.items() if path.endswith("W_Q"))
        assert figures["gradient"] < 1
        assert all(row.get("gradient", 0.0) < 1 for row in flow.samples[0].rows.values())
        assert "clipped" not in figures
        assert flow.samples[0].loss == pytest.approx(flow.logs("loss")[0][1])


def test_two_optimizers_on_one_model_are_both_heard(rng):
    net = Sequential(Linear(3, 4, rng=rng), mg.tanh, Linear(4, 2, rng=rng))
    a, b = net.layers[0], net.layers[2]
    optimizers, weights = (SGD(a.parameters(), lr=0.1), Adam(b.parameters(), lr=1e-2)), []
    with mg.watch(net.parameters(), every=1) as flow:
        for _ in range(4):
            weights.append(b.W.numpy().copy())
            net.zero_grad()
            loss = mg.mean((net(mg.tensor(rng.normal(size=(5, 3)))) - 1) ** 2)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            flow.log(loss=loss)
    assert flow.steps == 4
    assert flow.diagnose() == []
    path = next(row.path for row in flow.rows.values() if row.shape == (4, 2) and row.is_matrix)
    moved = float(np.sqrt(np.mean((weights[1] - weights[0]) ** 2)))
    assert flow.series(path, "update")[0] == (0, pytest.approx(moved))


@pytest.mark.parametrize("part", ["both", "critic", "maker"])
def test_a_loop_of_two_models_has_no_stale_gradients(part, rng):
    maker = Sequential(Linear(3, 4, rng=rng), mg.relu, Linear(4, 2, rng=rng))
    critic = Sequential(Linear(2, 5, rng=rng), mg.tanh, Linear(5, 1, rng=rng))
    parts = {"maker": maker.parameters(), "critic": critic.parameters()}
    parts["both"] = parts["maker"] + parts["critic"]
    optimizers = {name: SGD(parts[name], lr=1e-2) for name in ("maker", "critic")}
    with mg.watch(parts[part], every=1) as flow:
        for _ in range(5):
            fake = maker(mg.tensor(rng.normal(size=(7, 3))))
            optimizers["critic"].zero_grad()
            real = mg.tensor(rng.normal(size=(7, 2)))
            (mg.mean((critic(real) - 1) ** 2) + mg.mean(critic(fake.detach()) ** 2)).backward()
            optimizers["critic"].step()
            optimizers["maker"].zero_grad()
            mg.mean((critic(fake) - 1) ** 2).backward()
            optimizers["maker"].step()
    assert flow.diagnose() == []


def test_a_model_that_another_optimizer_moves_within_a_step_is_measured_whole(rng):
    """The critic is used before its update and after; its figures are from before."""
    maker, critic = Linear(3, 2, rng=rng), Linear(2, 1, rng=rng)
    slow, fast = (SGD(layer.parameters(), lr=0.1) for layer in (maker, critic))
    weights = []
    with mg.watch([*maker.parameters(), *critic.parameters()], every=1) as flow:
        for step in range(3):
            weights.append(critic.W.numpy().copy())
            with mg.scope("critic"):
                mg.mean(mg.tanh(critic(rng.normal(size=(7, 2)))) ** 2).backward()
            if step:  # in the first one the slow optimizer becomes the one that counts steps
                fast.step()
            with mg.scope("critic"):
                mg.mean(mg.tanh(critic(maker(rng.normal(size=(7, 3)))))).backward()
            slow.step()
            slow.zero_grad()
            fast.zero_grad()
    assert {"critic/tanh", "critic/tanh[1]"} <= {*flow.samples[-1].rows}
    rows = [sample.rows["critic/linear/W"] for sample in flow.samples]
    assert [row["value"] for row in rows] == pytest.approx([*map(rms, weights)])


def test_another_model_in_the_loop_has_no_rows(rng):
    mine, other = Linear(3, 2, rng=rng), Linear(3, 2, rng=rng)
    optimizers = [SGD(layer.parameters(), lr=0.1) for layer in (mine, other)]
    with mg.watch(mine, every=1) as flow, np.errstate(all="ignore"):
        for _ in range(3):
            for layer, optimizer, size in zip(
                (mine, other), optimizers, (1.0, np.nan), strict=True
            ):
                optimizer.zero_grad()
                with mg.scope("mine" if layer is mine else "other"):
                    out = mg.relu(layer(mg.tensor(rng.normal(size=(5, 3)) * size)))
                    mg.mean((out - 1) ** 2).backward()
                optimizer.step()
    assert all(path.startswith("mine/") for path in flow.rows)
    assert flow.events == []

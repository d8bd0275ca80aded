"""Optimizers follow PyTorch's updates."""

import copy

import numpy as np
import pytest

import minigrad as mg
from layers import LayerNorm, Linear, Sequential
from minigrad.errors import ArgumentError, DTypeError, OverwrittenError, ShapeError
from minigrad.optim import (
    SGD,
    Adam,
    AdamW,
    MovingAverage,
    RMSprop,
    clip_grad_norm,
    clip_grad_value,
    schedule,
)
from minigrad.optim import optimizer as optim
from tests.compare import assert_same, refusals

CASES = [
    (SGD, {}),
    (SGD, {"momentum": 0.9}),
    (SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (Adam, {}),
    (Adam, {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.01}),
    (AdamW, {}),
    (AdamW, {"weight_decay": 0.1}),
    (RMSprop, {}),
    (RMSprop, {"alpha": 0.9, "momentum": 0.8, "weight_decay": 0.01}),
    (RMSprop, {"eps": 1e-3, "centered": True}),
    (RMSprop, {"momentum": 0.8, "centered": True, "weight_decay": 0.01}),
]


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_a_hundred_steps_equal_pytorchs(kind, settings):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    start, target = rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    w = mg.tensor(start, requires_grad=True)
    theirs = torch.tensor(start, requires_grad=True)
    optimizer = kind([w], lr=0.03, **settings)
    reference = getattr(torch.optim, kind.__name__)([theirs], lr=0.03, **settings)
    for _ in range(100):
        optimizer.zero_grad()
        ((w - target) ** 4).sum().backward()
        optimizer.step()
        reference.zero_grad()
        ((theirs - torch.tensor(target)) ** 4).sum().backward()
        reference.step()
    np.testing.assert_allclose(w.data, theirs.detach().numpy(), rtol=1e-12, atol=1e-12)


def test_a_parameter_without_gradient_is_left_alone():
    w, still = (mg.tensor([1.0], requires_grad=True) for _ in range(2))
    (w * w).sum().backward()
    Adam([w, still], lr=0.1).step()
    assert still.data[0] == 1.0
    assert w.data[0] != 1.0


def test_a_step_makes_older_graphs_refuse_to_run_backward():
    w = mg.tensor([1.0], requires_grad=True)
    loss = (w * w).sum()
    w.grad = np.ones(1)
    SGD([w], lr=0.1).step()
    with pytest.raises(OverwrittenError, match="overwritten at"):
        loss.backward()


def test_an_optimizer_shows_its_settings():
    w = mg.tensor(np.ones((2, 3)), requires_grad=True)
    said = "SGD(lr=0.1, momentum=0.9, weight_decay=0.0, nesterov=False): 1 parameter of 6 numbers"
    assert repr(SGD([w], 0.1, 0.9)) == f"{said}, 0 steps taken"


def test_a_parameter_given_twice_is_refused():
    w = mg.tensor([[1.0, 2.0]], requires_grad=True, name="w")
    v = mg.tensor([1.0], requires_grad=True)
    said = r"SGD\(parameters\): parameter 0 \(w\) of shape \(1, 2\) comes again at 2"
    with pytest.raises(ArgumentError, match=said):
        SGD([w, v, w])
    with pytest.raises(ArgumentError, match="comes again"):
        SGD([{"parameters": [w]}, {"parameters": [w]}])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_a_parameter_moved_in_parts_moves_as_a_whole_one_does(kind, settings, order, monkeypatch):
    """Parts of 4 entries of 35 that lie in order; of others, the whole at once."""
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=(5, 7)), rng.normal(size=(3, 5, 7))
    moved = []
    for part in (4, 1 << 17):
        monkeypatch.setattr(optim, "PART", part)
        w = mg.tensor(np.asarray(start, order=order), requires_grad=True)
        optimizer = kind([w], lr=0.1, **settings)
        for g in gradients:
            w.grad = g
            optimizer.step()
        moved.append(w.data)
    np.testing.assert_array_equal(*moved)
    assert not np.array_equal(moved[0], start)


# ---------------------------------------------------------------- subclasses and compiled steps


class SignedSGD(SGD):
    """Moves by the gradient's sign alone."""

    def update(self, settings, t, scratch, w, g, *state):
        super().update(settings, t, scratch, w, np.sign(g), *state)


def descent(optimizer, w, **more):
    """A step on Σ w², and what else it is to call."""

    def step(x):
        optimizer.zero_grad()
        loss = mg.sum(w * w * x)
        loss.backward()
        found = [call() for call in more.values()]
        optimizer.step()
        return (loss, *[one for one in found if one is not None])

    return step


def test_a_subclass_has_its_own_update():
    w = mg.tensor([3.0, -5.0], requires_grad=True)
    optimizer = SignedSGD([w], lr=0.5)
    descent(optimizer, w)(np.ones(2))
    np.testing.assert_array_equal(w.numpy(), [2.5, -4.5])


@pytest.mark.needs_fast("the step is compiled")
def test_clipping_and_a_schedule_within_a_compiled_step_do_what_they_do_eagerly():
    ends = []
    for compiled in (True, False):
        w = mg.tensor([3.0, -5.0], requires_grad=True)
        optimizer = Adam([w], lr=0.1)
        decay = schedule.cosine(optimizer, steps=8, warmup=2)
        average = MovingAverage([w], decay=0.5)
        step = descent(
            optimizer, w, clip=lambda w=w: clip_grad_norm([w], 1.0), schedule=decay.step,
            average=average.step,
        )  # fmt: skip
        step = mg.compile(step) if compiled else step
        norms = [step(np.ones(2))[1].item() for _ in range(6)]
        with average.weights():
            ends.append([norms, [optimizer.lr], w.numpy().tolist()])
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize("kind", [SGD, RMSprop, Adam, AdamW])
def test_groups_move_as_pytorchs_do(kind):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    starts = [rng.normal(size=(3, 5)), rng.normal(size=7)]
    ours = [mg.tensor(start, requires_grad=True) for start in starts]
    theirs = [torch.tensor(start, requires_grad=True) for start in starts]
    settings = [{"lr": 0.02, "weight_decay": 0.1}, {"weight_decay": 0.0}]
    optimizer = kind([{"parameters": [w]} | s for w, s in zip(ours, settings, strict=True)], 0.01)
    reference = getattr(torch.optim, kind.__name__)(
        [{"params": [w]} | s for w, s in zip(theirs, settings, strict=True)], 0.01
    )
    for _ in range(20):
        for w, t in zip(ours, theirs, strict=True):
            w.grad = rng.normal(size=w.shape)
            t.grad = torch.tensor(w.grad)
        optimizer.step()
        reference.step()
    assert_same(ours, theirs, 1e-12)


@pytest.mark.parametrize("rule", [True, lambda p: p.name == "bias" or p.ndim < 2])
@pytest.mark.parametrize("kind", [SGD, RMSprop, Adam, AdamW])
def test_biases_and_norms_without_weight_decay_in_one_call_move_as_pytorchs_groups(kind, rule):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    model = Sequential(Linear(3, 5, rng=0), LayerNorm(5), Linear(5, 2, rng=1))
    ours = kind(model.parameters(), lr=0.01, weight_decay=0.3, no_decay=rule)
    pairs = [(p, torch.tensor(p.numpy(), requires_grad=True)) for p in model.parameters()]
    groups = [
        {"params": [t for p, t in pairs if p.ndim == 2]},
        {"params": [t for p, t in pairs if p.ndim < 2], "weight_decay": 0.0},
    ]
    theirs = getattr(torch.optim, kind.__name__)(groups, lr=0.01, weight_decay=0.3)
    for _ in range(5):
        for p, t in pairs:
            p.grad = rng.normal(size=p.shape)
            t.grad = torch.tensor(p.grad)
        ours.step()
        theirs.step()
    assert_same(*map(list, zip(*pairs, strict=True)), 1e-12)
    other = kind(model.parameters(), lr=0.3, weight_decay=0.1, no_decay=rule)
    other.load_state_dict(ours.state_dict())
    assert [group.settings for group in other.groups] == [{}, {"weight_decay": 0.0}]


def test_a_group_keeps_its_own_weight_decay():
    W, b = (mg.tensor(np.ones(n), requires_grad=True) for n in ((2, 3), 3))
    groups = [{"parameters": [W, b], "weight_decay": 0.2, "lr": 0.1}]
    (group,) = AdamW(groups, lr=0.2, no_decay=True).groups
    assert group.settings == {"weight_decay": 0.2}
    _, spared = AdamW([{"parameters": [W, b], "lr": 0.1}], lr=0.2, no_decay=True).groups
    assert (spared.lr_scale, spared.settings) == (0.5, {"weight_decay": 0.0})


# ---------------------------------------------------------------- what is kept


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_an_optimizer_loaded_goes_on_as_one_that_never_stopped(kind, settings):
    rng = np.random.default_rng(0)
    w, v = (mg.tensor(np.ones((3, 5)), requires_grad=True) for _ in range(2))
    first, second = kind([w], lr=0.1, **settings), kind([v], lr=0.3, **settings)
    for i in range(6):
        w.grad = rng.normal(size=(3, 5))
        first.step()
        if i == 2:
            v.assign_(w.numpy())
            second.load_state_dict(first.state_dict())
        elif i > 2:
            v.grad = w.grad
            second.step()
    np.testing.assert_array_equal(v.numpy(), w.numpy())
    assert (second.steps, second.lr) == (6, 0.1)


def test_a_copy_of_model_and_optimizer_goes_on_as_the_original():
    w = mg.tensor([3.0, -5.0], requires_grad=True)
    optimizer = Adam([w], lr=0.1)
    for i in range(5):
        if i == 2:
            v, second = copy.deepcopy((w, optimizer))
        for x, o in [(w, optimizer), *([(v, second)] if i >= 2 else [])]:
            x.grad = np.array([1.0, i])
            o.step()
    np.testing.assert_array_equal(v.numpy(), w.numpy())


def test_a_state_that_does_not_fit_is_refused_whole():
    w, v = mg.tensor([1.0], requires_grad=True), mg.tensor(np.ones((2, 3)), requires_grad=True)
    optimizer, other = SGD([w], lr=0.5), Adam([v], lr=0.1)
    with pytest.raises(ArgumentError) as error:
        optimizer.load_state_dict(other.state_dict())
    assert str(error.value).splitlines() == [
        "load_state_dict(state): nothing was loaded, for SGD",
        "  kind: Adam in the state",
        "  parameter 0: shape (1,) here, (2, 3) in the state",
    ]
    assert optimizer.lr == 0.5
    (v * v).sum().backward()
    other.step()
    for name in ("square", "count"):
        lacking = other.state_dict()
        del lacking["kept"]["0"][name]
        with pytest.raises(ArgumentError, match=f"parameter 0: the state has no {name}"):
            other.load_state_dict(lacking)
    with pytest.raises(ArgumentError, match="this is no state of an optimizer"):
        optimizer.load_state_dict({"lr": 3})


# ---------------------------------------------------------------- clipping


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e18, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clipping_by_norm_scales_all_gradients_by_one_factor(dtype, scale):
    ps = [mg.tensor(np.ones(shape, dtype), requires_grad=True) for shape in ((2, 3), (), (5,))]
    rng = np.random.default_rng(0)
    before = [np.asarray(rng.normal(size=p.shape) * scale, dtype) for p in ps]
    for p, g in zip(ps, before, strict=True):
        p.grad = g
    whole = np.concatenate([g.reshape(-1) for g in before]).astype(np.float64)
    expected = scale * np.linalg.norm(whole / scale)
    norm = clip_grad_norm(ps, expected / 2)
    np.testing.assert_allclose(norm.item(), expected, rtol=1e-6)
    for p, g in zip(ps, before, strict=True):
        np.testing.assert_allclose(p.grad, g / 2, rtol=1e-6)
        assert p.grad.dtype == dtype


def test_small_gradients_and_none_are_left_as_they_are():
    w, still = (mg.tensor([3.0, 4.0], requires_grad=True) for _ in range(2))
    w.grad = mine = np.array([0.3, 0.4])
    assert clip_grad_norm([w, still], 1.0).item() == pytest.approx(0.5)
    assert w.grad is mine
    assert still.grad is None


def test_a_gradient_that_is_not_finite_is_told_by_its_norm_and_kept():
    w = mg.tensor([3.0, 4.0], requires_grad=True)
    w.grad = np.array([np.inf, 1.0])
    assert clip_grad_norm([w], 1.0).item() == np.inf
    np.testing.assert_array_equal(w.grad, [np.inf, 1.0])
    w.grad = np.array([np.nan, 1.0])
    assert np.isnan(clip_grad_norm([w], 1.0).item())


# ---------------------------------------------------------------- schedules


def rates(make, steps, lr=0.5):
    optimizer = SGD([mg.tensor([1.0], requires_grad=True)], lr=lr)
    made, found = make(optimizer), []
    for _ in range(steps):
        found.append(optimizer.lr)
        optimizer.step()
        made.step()
    return found


TORCHS = {
    "cosine": (
        lambda o: schedule.cosine(o, steps=20),
        lambda torch, o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20),
    ),
    "linear": (
        lambda o: schedule.linear(o, steps=20, end=0.25),
        lambda torch, o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.25, 20),
    ),
    "step": (
        lambda o: schedule.step(o, every=7, factor=0.3),
        lambda torch, o: torch.optim.lr_scheduler.StepLR(o, 7, 0.3),
    ),
    "exponential": (
        lambda o: schedule.exponential(o, 0.9),
        lambda torch, o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    ),
    "one_cycle": (
        lambda o: schedule.one_cycle(o, steps=20),
        lambda torch, o: torch.optim.lr_scheduler.OneCycleLR(
            o, 0.5, total_steps=20, cycle_momentum=False
        ),
    ),
}


@pytest.mark.parametrize("name", TORCHS)
def test_a_schedule_gives_the_learning_rates_of_pytorchs(name):
    torch = pytest.importorskip("torch")
    ours, theirs = TORCHS[name]
    reference = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    made, expected = theirs(torch, reference), []
    for i in range(20):
        expected.append(reference.param_groups[0]["lr"])
        reference.step()
        if i < 19:
            made.step()
    np.testing.assert_allclose(rates(ours, 20), expected, rtol=1e-9, atol=1e-15)


PLATEAUS = [
    {},
    {"mode": "max"},
    {"patience": 2, "factor": 0.5, "cooldown": 3, "threshold": 0.1},
    {"patience": 0, "factor": 0.3, "end": 0.01},
]


@pytest.mark.parametrize("settings", PLATEAUS)
def test_on_a_plateau_the_learning_rate_falls_as_pytorchs_does_also_when_loaded(settings):
    torch = pytest.importorskip("torch")
    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    known = {k: v for k, v in settings.items() if k != "end"}
    known |= {"min_lr": settings.get("end", 0.0) * 0.5}
    wanted = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **known)
    ours, other = (SGD([mg.tensor([1.0], requires_grad=True)], lr=0.5) for _ in range(2))
    found = schedule.plateau(ours, **settings)
    losses = np.cumsum(np.random.default_rng(3).normal(size=60)) / 3 + 4
    for n, loss in enumerate(losses):
        if n == 30:
            again = schedule.plateau(other, **settings)
            again.load_state_dict(found.state_dict())
            found, ours = again, other
        found.step(mg.tensor(loss) if n % 2 else loss)
        wanted.step(loss)
        np.testing.assert_allclose(ours.lr, theirs.param_groups[0]["lr"], rtol=1e-12)
    assert ours.lr < 0.5


@pytest.mark.parametrize(
    "make",
    [
        lambda o: schedule.constant(o, warmup=4),
        lambda o: schedule.cosine(o, steps=20, warmup=4),
        lambda o: schedule.linear(o, steps=20, warmup=4),
        lambda o: schedule.step(o, every=3, warmup=4),
    ],
)
def test_a_warm_up_rises_evenly_to_the_highest_rate(make):
    found = rates(make, 30)
    np.testing.assert_allclose(found[:5], [0.125, 0.25, 0.375, 0.5, 0.5])
    assert max(found) == 0.5
    assert all(rate >= 0 for rate in found)


def test_a_schedule_ends_where_it_says_and_stays_there():
    np.testing.assert_allclose(
        rates(lambda o: schedule.cosine(o, steps=6, warmup=2, end=0.1), 12)[6:], 0.05
    )


def test_a_schedule_loaded_goes_on_where_it_was():
    first, second = (SGD([mg.tensor([1.0], requires_grad=True)], lr=lr) for lr in (0.5, 0.1))
    one, other = (schedule.cosine(o, steps=9, warmup=2) for o in (first, second))
    for _ in range(4):
        one.step()
    other.load_state_dict(one.state_dict())
    assert second.lr == first.lr
    one.step()
    other.step()
    assert second.lr == first.lr


# ---------------------------------------------------------------- averages


def test_an_average_is_the_weighted_sum_of_all_weights_so_far():
    w = mg.tensor(np.float32([1.0, 2.0]), requires_grad=True)
    average = MovingAverage([w], decay=0.75)
    expected = w.numpy().copy()
    for i in range(5):
        w.assign_(np.float32([i, -i]))
        average.step()
        expected = 0.75 * expected + 0.25 * w.numpy()
    with average.weights():
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-6)
        assert w.dtype == np.float32
    np.testing.assert_array_equal(w.numpy(), [4.0, -4.0])


def test_an_average_loaded_goes_on_and_another_models_is_refused():
    w = mg.tensor([1.0], requires_grad=True)
    one, other = (MovingAverage([w], decay=0.5) for _ in range(2))
    w.assign_([5.0])
    one.step()
    other.load_state_dict(one.state_dict())
    with other.weights():
        assert w.item() == 3.0
    with pytest.raises(ArgumentError, match="has shapes"):
        other.load_state_dict({"0": np.ones(3)})


W = mg.tensor([1.0], requires_grad=True)


def step_with_a_gradient_of(shape):
    w = mg.tensor([1.0, 2.0], requires_grad=True, name="w")
    w.grad = np.ones(shape)
    SGD([w]).step()


test_what_is_refused = refusals(
    (lambda: SGD([W], lr=-1), ArgumentError, "lr must be at least 0, got -1"),
    (lambda: step_with_a_gradient_of(3), ShapeError, r"w has shape \(2,\), its gradient \(3,\)"),
    *((lambda make=make: make(SGD([W]), steps=5, warmup=5), ArgumentError,
       "steps must exceed warmup, got 5 and 5")
      for make in (schedule.cosine, schedule.linear, schedule.one_cycle)),
    (lambda: schedule.step(SGD([W]), every=0), ArgumentError, "every must be at least 1"),
    (lambda: SGD([W], nesterov=True), ArgumentError, "nesterov needs a momentum"),
    (lambda: Adam([W], betas=(0.9, 1.0)), ArgumentError, r"betas must lie in \[0, 1\)"),
    (lambda: Adam([]), ArgumentError, "got no parameters"),
    (lambda: Adam([W], lr="1e-3"), DTypeError, "got '1e-3'; write lr=float"),
    (lambda: Adam([W * 2]), DTypeError, "each must be a leaf Tensor"),
    (lambda: Adam(W), DTypeError, r"must be a list of Tensors, got a Tensor; write \[w\]"),
    (lambda: Adam(3), DTypeError, r"got a int; write model\.parameters\(\)"),
    (lambda: RMSprop([W], alpha=1.0), ArgumentError, r"alpha must lie in \[0, 1\)"),
    (lambda: AdamW([W], no_decay="bias"), DTypeError, "write no_decay=lambda p: p.ndim < 2"),
    (lambda: schedule.plateau(W), DTypeError, "the first argument is an optimizer"),
    (lambda: schedule.plateau(SGD([W])).step([1.0, 2.0]), DTypeError, r"one number, got \[1.0,"),
    (lambda: schedule.plateau(SGD([W])).step(mg.tensor([1.0, 2.0])), DTypeError, "one number"),
    (lambda: schedule.plateau(SGD([W]), mode="up"), ArgumentError, 'must be "min" or "max"'),
    (lambda: schedule.plateau(SGD([W]), factor=2.0), ArgumentError, "0 <= factor < 1"),
    (lambda: schedule.plateau(SGD([W])).load_state_dict({"lr": 1.0}), ArgumentError,
     "no state of a Plateau: it has no best, waited, resting, lowest"),
    (lambda: schedule.constant(SGD([W])).load_state_dict({}), ArgumentError, "it has no lr, steps"),
    (lambda: schedule.constant(W), DTypeError, "the first argument is an optimizer, got a Tensor"),
    (lambda: SGD([mg.tensor([1.0])]), ArgumentError, r"parameter 0 of shape .* needs no gradient"),
    (lambda: SGD([{"parameters": [W], "momentun": 0.9}]),
     ArgumentError, "has no setting 'momentun'; it has lr, momentum,"),
    (lambda: SGD([{"params": [W]}]), ArgumentError, 'a group is a dict with "parameters"'),
    (lambda: SGD([{"parameters": [W], "weight_decay": -1}]),
     ArgumentError, "weight_decay must be at least 0, got -1"),
    (lambda: clip_grad_norm([W], 0), ArgumentError, "max_norm must be above 0, got 0"),
    (lambda: clip_grad_value([W], -1), ArgumentError, "max_value must be above 0, got -1"),
)  # fmt: skip

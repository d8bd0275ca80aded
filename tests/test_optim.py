"""Optimizers follow PyTorch's updates."""

from copy import deepcopy

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, OverwrittenError, ShapeError
from minigrad.optim import (
    SGD,
    Adam,
    AdamW,
    LossScale,
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


def leaf(values, **named):
    return mg.tensor(values, requires_grad=True, **named)


def moved(optimizer, gradients):
    """Steps of an optimizer of one parameter, along these gradients."""
    for g in gradients:
        optimizer.parameters[0].grad = g
        optimizer.step()


# ---------------------------------------------------------------- steps, and groups


def biases_and_norms(p):
    return p.name == "b" or p.ndim < 2


@pytest.mark.parametrize(
    "grouped",
    [None, "groups", True, biases_and_norms],
    ids=["alone", "groups", "no_decay", "chosen"],
)
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_steps_equal_pytorchs(kind, settings, grouped, rng):
    """Of two parameters in one group; in groups; with biases that spare themselves the decay."""
    torch = pytest.importorskip("torch")
    ours = [leaf(rng.normal(size=(3, 5))), leaf(rng.normal(size=7), name="b"), leaf(np.ones(3))]
    theirs = [torch.tensor(p.numpy(), requires_grad=True) for p in ours]
    settings = settings | ({"weight_decay": 0.3} if callable(grouped) or grouped is True else {})
    own = [{}, {"weight_decay": 0.0}]
    if grouped == "groups":
        own = [{"lr": 0.02, "weight_decay": 0.1}, {"weight_decay": 0.0}]
    parts = [theirs] if grouped is None else [theirs[:1], theirs[1:]]
    reference = getattr(torch.optim, kind.__name__)(
        [{"params": part} | more for part, more in zip(parts, own, strict=False)],
        lr=0.03,
        **settings,
    )
    given = ours
    if grouped == "groups":
        given = [{"parameters": ours[:1]} | own[0], {"parameters": ours[1:]} | own[1]]
    spared = {} if grouped in (None, "groups") else {"no_decay": grouped}
    optimizer = kind(given, lr=0.03, **settings, **spared)
    for _ in range(20):
        for p, t in zip(ours[:2], theirs, strict=False):  # the third has no gradient
            p.grad = rng.normal(size=p.shape)
            t.grad = torch.tensor(p.grad)
        optimizer.step()
        reference.step()
    assert_same(ours, theirs, 1e-12)
    np.testing.assert_array_equal(ours[2].numpy(), np.ones(3))


def test_a_group_keeps_its_own_weight_decay_and_its_rate_in_proportion():
    W, b = leaf(np.ones((2, 3))), leaf(np.ones(3))
    groups = [{"parameters": [W, b], "weight_decay": 0.2, "lr": 0.1}]
    (group,) = AdamW(groups, lr=0.2, no_decay=True).groups
    assert group.settings == {"weight_decay": 0.2}
    first = AdamW([{"parameters": [W, b], "lr": 0.1}], lr=0.2, no_decay=True)
    assert (first.groups[1].lr_scale, first.groups[1].settings) == (0.5, {"weight_decay": 0.0})
    other = AdamW([W, b], lr=0.3, weight_decay=0.1, no_decay=True)
    other.load_state_dict(first.state_dict())
    assert [group.lr_scale for group in other.groups] == [0.5, 0.5]
    assert [group.settings for group in other.groups] == [{}, {"weight_decay": 0.0}]


def test_a_step_makes_older_graphs_refuse_to_run_backward():
    w = leaf([1.0])
    loss = (w * w).sum()
    moved(SGD([w], lr=0.1), [np.ones(1)])
    with pytest.raises(OverwrittenError, match="overwritten at"):
        loss.backward()


def test_a_step_that_fails_has_moved_nothing():
    v, w = leaf([1.0]), leaf([1.0, 2.0])
    v.grad, w.grad = np.ones(1), np.ones(3)
    optimizer = SGD([v, w], lr=0.1)
    with pytest.raises(ShapeError):
        optimizer.step()
    assert (v.item(), optimizer.steps) == (1.0, 0)


def test_an_optimizer_shows_its_settings():
    said = "SGD(lr=0.1, momentum=0.9, weight_decay=0.0, nesterov=False): 1 parameter of 6 numbers"
    assert repr(SGD([leaf(np.ones((2, 3)))], 0.1, 0.9)) == f"{said}, 0 steps taken"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_a_parameter_moved_in_parts_moves_as_a_whole_one_does(
    kind, settings, order, monkeypatch, rng
):
    """Parts of 4 entries of 35 that lie in order; of others, the whole at once."""
    start, gradients = rng.normal(size=(5, 7)), rng.normal(size=(3, 5, 7))
    ends = []
    for part in (4, 1 << 17):
        monkeypatch.setattr(optim, "ENTRIES_PER_PART", part)
        w = leaf(np.asarray(start, order=order))
        moved(kind([w], lr=0.1, **settings), gradients)
        ends.append(w.data)
    np.testing.assert_array_equal(*ends)
    assert not np.array_equal(ends[0], start)


# ---------------------------------------------------------------- subclasses and compiled steps


class SignedSGD(SGD):
    """Moves by the gradient's sign alone."""

    def update(self, settings, t, scratch, w, g, *state):
        super().update(settings, t, scratch, w, np.sign(g), *state)


def test_a_subclass_has_its_own_update():
    w = leaf([3.0, -5.0])
    moved(SignedSGD([w], lr=0.5), [np.array([6.0, -10.0])])
    np.testing.assert_array_equal(w.numpy(), [2.5, -4.5])


@pytest.mark.parametrize("decays_first", [True, False])
def test_clipping_and_a_schedule_within_a_compiled_step_do_what_they_do_eagerly(decays_first):
    """Also at a call that is compared, after lr was set by hand."""
    ends = []
    for compiled in (True, False):
        w = leaf([3.0, -5.0])
        optimizer = Adam([w], lr=0.1)
        decay = schedule.cosine(optimizer, steps=8, warmup=2)
        average = MovingAverage([w], decay=0.5)

        def step(x, w=w, optimizer=optimizer, decay=decay, average=average):
            optimizer.zero_grad()
            loss = mg.sum(w * w * x)
            loss.backward()
            norm = clip_grad_norm([w], 1.0)
            updates = [decay, average, optimizer]
            for one in updates if decays_first else reversed(updates):
                one.step()
            return loss, norm

        step, norms = mg.compile(step) if compiled else step, []
        for call in range(9):
            if call == 7:
                optimizer.lr = 0.4
            norms.append(step(np.ones(2))[1].item())
        with average.weights():
            ends.append([norms, [optimizer.lr], w.numpy().tolist()])
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


# ---------------------------------------------------------------- what is kept


def reloaded(w, optimizer, kind, settings):
    v = leaf(w.numpy().copy())
    second = kind([v], lr=0.3, **settings)
    second.load_state_dict(optimizer.state_dict())
    return v, second


def reloaded_in_another_order_of_memory(w, optimizer, kind, settings):
    v = leaf(w.numpy().copy())
    second, state = kind([v], lr=0.3, **settings), optimizer.state_dict()
    turned = {name: np.asarray(x, order="F") for name, x in state["kept"]["0"].items()}
    second.load_state_dict(state | {"kept": {"0": turned | {"count": turned["count"].item()}}})
    return v, second


def copied(w, optimizer, kind, settings):
    return deepcopy((w, optimizer))


@pytest.mark.parametrize("again", [reloaded, reloaded_in_another_order_of_memory, copied])
@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_an_optimizer_loaded_or_copied_goes_on_as_one_that_never_stopped(
    kind, settings, again, monkeypatch, rng
):
    monkeypatch.setattr(optim, "ENTRIES_PER_PART", 4)
    w, gradients = leaf(np.ones((3, 5))), rng.normal(size=(6, 3, 5))
    first = kind([w], lr=0.1, **settings)
    moved(first, gradients[:3])
    v, second = again(w, first, kind, settings)
    for one in (first, second):
        moved(one, gradients[3:])
    np.testing.assert_array_equal(v.numpy(), w.numpy())
    assert (second.steps, second.lr) == (6, 0.1)


def test_a_state_that_does_not_fit_is_refused_whole():
    optimizer, other = SGD([leaf([1.0])], lr=0.5), Adam([leaf(np.ones((2, 3)))], lr=0.1)
    with pytest.raises(ArgumentError) as error:
        optimizer.load_state_dict(other.state_dict())
    assert str(error.value).splitlines() == [
        "load_state_dict(state): nothing was loaded, for SGD",
        "  kind: Adam in the state",
        "  parameter 0: shape (1,) here, (2, 3) in the state",
    ]
    assert optimizer.lr == 0.5


# ---------------------------------------------------------------- clipping


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e18, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clipping_by_norm_scales_all_gradients_by_one_factor(dtype, scale, rng):
    ps = [leaf(np.ones(shape, dtype)) for shape in ((2, 3), (), (5,))]
    before = [np.asarray(rng.normal(size=p.shape) * scale, dtype) for p in ps]
    for p, g in zip(ps, before, strict=True):
        p.grad = g
    whole = np.concatenate([g.reshape(-1) for g in before]).astype(np.float64)
    expected = scale * np.linalg.norm(whole / scale)
    norm = clip_grad_norm([*ps, leaf([1.0])], expected / 2)  # the last has no gradient
    np.testing.assert_allclose(norm.item(), expected, rtol=1e-6)
    for p, g in zip(ps, before, strict=True):
        np.testing.assert_allclose(p.grad, g / 2, rtol=1e-6)
        assert p.grad.dtype == dtype


@pytest.mark.parametrize(("entry", "norm"), [(0.3, 0.5), (np.inf, np.inf), (np.nan, np.nan)])
def test_gradients_that_are_small_or_not_finite_are_told_by_their_norm_and_kept(entry, norm):
    w = leaf([3.0, 4.0])
    w.grad = mine = np.array([entry, 0.4])
    np.testing.assert_allclose(clip_grad_norm([w], 1.0).item(), norm)
    assert w.grad is mine


# ---------------------------------------------------------------- schedules


def made(schedule_of, lr=0.5):
    """An optimizer and a schedule of it."""
    optimizer = SGD([leaf([1.0])], lr=lr)
    return optimizer, schedule_of(optimizer)


def rates(schedule_of, steps):
    optimizer, one = made(schedule_of)
    found = []
    for _ in range(steps):
        found.append(optimizer.lr)
        one.step()
    return found


TORCHS = {
    "cosine": (lambda o: schedule.cosine(o, steps=20), "CosineAnnealingLR", {"T_max": 20}),
    "linear": (lambda o: schedule.linear(o, steps=20, end=0.25), "LinearLR",
               {"start_factor": 1.0, "end_factor": 0.25, "total_iters": 20}),
    "step": (lambda o: schedule.step(o, 7, 0.3), "StepLR", {"step_size": 7, "gamma": 0.3}),
    "step to 0": (lambda o: schedule.step(o, 7, 0.0), "StepLR", {"step_size": 7, "gamma": 0.0}),
    "exponential": (lambda o: schedule.exponential(o, 0.9), "ExponentialLR", {"gamma": 0.9}),
    "one_cycle": (lambda o: schedule.one_cycle(o, steps=20), "OneCycleLR",
                  {"max_lr": 0.5, "total_steps": 20, "cycle_momentum": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", TORCHS)
def test_a_schedule_gives_the_learning_rates_of_pytorchs(name):
    torch = pytest.importorskip("torch")
    ours, theirs, settings = TORCHS[name]
    reference = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    one, expected = getattr(torch.optim.lr_scheduler, theirs)(reference, **settings), []
    for i in range(20):
        expected.append(reference.param_groups[0]["lr"])
        reference.step()
        if i < 19:
            one.step()
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
    ours, found = made(lambda o: schedule.plateau(o, **settings))
    losses = np.cumsum(np.random.default_rng(3).normal(size=60)) / 3 + 4
    for n, loss in enumerate(losses):
        if n == 30:
            state = found.state_dict()
            ours, found = made(lambda o: schedule.plateau(o, **settings))
            found.load_state_dict(state)
        found.step(mg.tensor(loss) if n % 2 else loss)
        wanted.step(loss)
        np.testing.assert_allclose(ours.lr, theirs.param_groups[0]["lr"], rtol=1e-12)
    assert ours.lr < 0.5


@pytest.mark.parametrize(("mode", "sign"), [("min", -1.0), ("max", -1.0), ("max", 1.0)])
def test_a_loss_below_zero_that_stays_is_a_plateau_too(mode, sign):
    """There PyTorch takes an equal loss for a better one."""
    optimizer, waiting = made(lambda o: schedule.plateau(o, patience=1, mode=mode))
    for _ in range(3):
        waiting.step(sign * 5.0)
    assert optimizer.lr == 0.05


WARM = {
    "constant": lambda o: schedule.constant(o, warmup=4),
    "cosine": lambda o: schedule.cosine(o, steps=20, warmup=4, end=0.1),
    "linear": lambda o: schedule.linear(o, steps=20, warmup=4, end=0.1),
    "step": lambda o: schedule.step(o, every=3, warmup=4),
}


@pytest.mark.parametrize("name", WARM)
def test_a_warm_up_rises_evenly_to_the_highest_rate_and_what_follows_ends_where_it_says(name):
    found = rates(WARM[name], 30)
    np.testing.assert_allclose(found[:5], [0.125, 0.25, 0.375, 0.5, 0.5])
    assert max(found) == 0.5
    assert all(rate >= 0 for rate in found)
    if name in ("cosine", "linear"):
        np.testing.assert_allclose(found[20:], 0.05)


# ---------------------------------------------------------------- averages


def test_an_average_is_the_weighted_sum_of_all_weights_so_far_also_when_loaded():
    w = leaf(np.float32([1.0, 2.0]))
    average = MovingAverage([w], decay=0.75)
    expected = w.numpy().copy()
    for i in range(5):
        w.assign_(np.float32([i, -i]))
        average.step()
        expected = 0.75 * expected + 0.25 * w.numpy()
    other = MovingAverage([w], decay=0.5)
    other.load_state_dict(average.state_dict())
    for one in (average, other):
        with one.weights():
            np.testing.assert_allclose(w.numpy(), expected, rtol=1e-6)
            assert w.dtype == np.float32
        np.testing.assert_array_equal(w.numpy(), [4.0, -4.0])


def test_an_average_is_loaded_by_position_in_whatever_order_the_state_lists_them():
    average = MovingAverage([leaf([float(i)]) for i in range(11)])
    other = MovingAverage([leaf([0.0]) for _ in range(11)])
    other.load_state_dict(dict(sorted(average.state_dict().items())))
    assert [x.item() for x in other.state_dict().values()] == [*range(11)]


# ---------------------------------------------------------------- what is refused

W = leaf([[1.0, 2.0]], name="W")


def step_with_a_gradient_of(shape):
    w = leaf([1.0, 2.0], name="w")
    w.grad = np.ones(shape)
    SGD([w]).step()


def lacking(name):
    """The state of an Adam that has moved once, without this entry."""
    v = leaf([1.0])
    v.grad = np.ones(1)
    other = Adam([v])
    other.step()
    state = other.state_dict()
    del state["kept"]["0"][name]
    other.load_state_dict(state)


test_what_is_refused = refusals(
    (lambda: SGD([W], lr=-1), ArgumentError, "lr must be at least 0, got -1"),
    (lambda: step_with_a_gradient_of(3), ShapeError, r"w has shape \(2,\), its gradient \(3,\)"),
    *((lambda make=make: make(SGD([W]), steps=5, warmup=5), ArgumentError,
       "steps must exceed warmup, got 5 and 5")
      for make in (schedule.cosine, schedule.linear, schedule.one_cycle)),
    (lambda: schedule.step(SGD([W]), every=0), ArgumentError, "every must be at least 1"),
    (lambda: schedule.exponential(SGD([W]), -0.1), ArgumentError,
     "factor must be at least 0, got -0.1"),
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
    (lambda: LossScale(SGD([W])).load_state_dict({}), ArgumentError, "no state of a LossScale: it"),
    (lambda: schedule.constant(SGD([W])).load_state_dict({}), ArgumentError, "it has no lr, steps"),
    (lambda: schedule.constant(W), DTypeError, "the first argument is an optimizer, got a Tensor"),
    (lambda: SGD([mg.tensor([1.0])]), ArgumentError, r"parameter 0 of shape .* needs no gradient"),
    (lambda: SGD([{"parameters": [W], "momentun": 0.9}]),
     ArgumentError, "has no setting 'momentun'; it has lr, momentum,"),
    (lambda: SGD([{"params": [W]}]), ArgumentError, 'a group is a dict with "parameters"'),
    (lambda: SGD([{"parameters": [W], "weight_decay": -1}]),
     ArgumentError, "weight_decay must be at least 0, got -1"),
    (lambda: SGD([W, leaf([1.0]), W]), ArgumentError,
     r"SGD\(parameters\): parameter 0 \(W\) of shape \(1, 2\) comes again at 2"),
    (lambda: SGD([{"parameters": [W]}, {"parameters": [W]}]), ArgumentError, "comes again"),
    *((lambda name=name: lacking(name), ArgumentError, f"parameter 0: the state has no {name}")
      for name in ("square", "count")),
    (lambda: SGD([W]).load_state_dict({"lr": 3}), ArgumentError, "no state of an optimizer"),
    (lambda: MovingAverage([W]).load_state_dict({"0": np.ones(3)}), ArgumentError, "has shapes"),
    (lambda: MovingAverage([W], decay=1.0), ArgumentError, r"decay must lie in \[0, 1\), got 1"),
    (lambda: clip_grad_norm([W], 0), ArgumentError, "max_norm must be above 0, got 0"),
    (lambda: clip_grad_value([W], -1), ArgumentError, "max_value must be above 0, got -1"),
)  # fmt: skip

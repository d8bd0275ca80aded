"""Optimizers follow PyTorch's updates; schedules, clipping and float16 what they say."""

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, GradientError, OverwrittenError, ShapeError
from minigrad.optim import SGD, Adam, AdamW, LossScale, RMSprop, clip_grad_norm, schedule
from tests.compare import assert_same, refusals

CASES = [
    (SGD, {}),
    (SGD, {"momentum": 0.9, "weight_decay": 0.01}),
    (Adam, {}),
    (Adam, {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.01}),
    (AdamW, {"weight_decay": 0.1}),
    (RMSprop, {"alpha": 0.9, "weight_decay": 0.01}),
]
each_case = pytest.mark.parametrize(("kind", "settings"), CASES)


def leaf(values, **named):
    return mg.tensor(values, requires_grad=True, **named)


def moved(optimizer, gradients):
    """Steps of an optimizer of one parameter, along these gradients."""
    for g in gradients:
        optimizer.parameters[0].grad = g
        optimizer.step()


# ---------------------------------------------------------------- steps, and groups


@pytest.mark.parametrize("own", [[{}], [{"lr": 0.02, "weight_decay": 0.1}, {"weight_decay": 0.0}]])
@each_case
def test_steps_equal_pytorchs_in_one_group_and_in_two(kind, settings, own, rng):
    torch = pytest.importorskip("torch")
    ours = [leaf(rng.normal(size=(3, 5))), leaf(rng.normal(size=7)), leaf(np.ones(3))]
    theirs = [torch.tensor(p.numpy(), requires_grad=True) for p in ours]
    cuts = [slice(None)] if len(own) == 1 else [slice(0, 1), slice(1, 3)]
    parts = [{"params": theirs[cut]} | more for cut, more in zip(cuts, own, strict=True)]
    reference = getattr(torch.optim, kind.__name__)(parts, lr=0.03, **settings)
    groups = [{"parameters": ours[cut]} | more for cut, more in zip(cuts, own, strict=True)]
    optimizer = kind(ours if len(own) == 1 else groups, lr=0.03, **settings)
    for _ in range(20):
        for p, t in zip(ours[:2], theirs, strict=False):  # the third has no gradient
            p.grad = rng.normal(size=p.shape)
            t.grad = torch.tensor(p.grad)
        optimizer.step()
        reference.step()
    assert_same(ours, theirs, 1e-12)
    np.testing.assert_array_equal(ours[2].numpy(), np.ones(3))


def test_a_groups_rate_stays_in_proportion_and_is_loaded_with_its_settings():
    def groups():
        first = {"parameters": [leaf(np.ones((2, 3)))], "weight_decay": 0.2}
        return [first, {"parameters": [leaf(np.ones(3))], "lr": 0.1}]

    one, other = AdamW(groups(), lr=0.2), AdamW(groups(), lr=0.4)
    other.load_state_dict(one.state_dict())
    for optimizer in (one, other):
        assert [group.lr_scale for group in optimizer.groups] == [1.0, 0.5]
        assert [group.settings for group in optimizer.groups] == [{"weight_decay": 0.2}, {}]
    one.lr = 0.4
    one.parameters[1].grad = np.ones(3)
    one.step()
    np.testing.assert_allclose(one.parameters[1].numpy(), 0.8 * (1 - 0.2 * 0.01 / 0.8), rtol=1e-7)


def test_a_step_makes_older_graphs_refuse_to_run_backward():
    w = leaf([1.0])
    loss = (w * w).sum()
    moved(SGD([w], lr=0.1), [np.ones(1)])
    with pytest.raises(OverwrittenError, match="overwritten at"):
        loss.backward()


def test_a_step_that_fails_has_moved_nothing():
    v, w = leaf([1.0]), leaf([1.0, 2.0], name="w")
    v.grad, w.grad = np.ones(1), np.ones(3)
    optimizer = SGD([v, w], lr=0.1)
    with pytest.raises(ShapeError, match=r"w has shape \(2,\), its gradient \(3,\)"):
        optimizer.step()
    assert (v.item(), optimizer.steps) == (1.0, 0)


@pytest.mark.parametrize("order", ["C", "F"])
@each_case
def test_a_parameter_moved_in_parts_moves_as_a_whole_one_does(
    kind, settings, order, monkeypatch, rng
):
    """Parts of 4 entries of 35 that lie in order; of others, the whole at once."""
    start, gradients, ends = rng.normal(size=(5, 7)), rng.normal(size=(3, 5, 7)), []
    for part in (4, 1 << 17):
        monkeypatch.setattr("minigrad.optim.optimizer.ENTRIES_PER_PART", part)
        w = leaf(np.asarray(start, order=order))
        moved(kind([w], lr=0.1, **settings), gradients)
        ends.append(w.data)
    np.testing.assert_array_equal(*ends)
    assert not np.array_equal(ends[0], start)


# ---------------------------------------------------------------- what is kept


def test_a_state_that_does_not_fit_is_refused_whole():
    optimizer = SGD([leaf([1.0], name="W")], lr=0.5)
    other = Adam([leaf(np.ones((2, 3)), name="b"), leaf([1.0])], lr=0.1)
    with pytest.raises(ArgumentError) as error:
        optimizer.load_state_dict(other.state_dict())
    assert [line.partition("; ")[0] for line in str(error.value).splitlines()] == [
        "load_state_dict(state): nothing was loaded, for SGD",
        "  kind: SGD here, Adam in the state",
        "  parameters: 1 here, 2 in the state",
        "  parameter 0: shape (1,) here, (2, 3) in the state",
        "  parameter 0: W here, b in the state",
    ]
    assert optimizer.lr == 0.5


# ---------------------------------------------------------------- clipping


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
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
    assert clip_grad_norm([leaf([1.0])], 1.0).item() == 0  # without any gradient


# ---------------------------------------------------------------- schedules


T = np.arange(20)


@pytest.mark.parametrize(
    ("kind", "settings", "curve"),
    [
        (schedule.cosine, {"steps": 24, "end": 0.1}, 0.1 + 0.45 * (1 + np.cos(np.pi * T / 20))),
        (schedule.linear, {"steps": 24, "end": 0.25}, 1 - 0.75 * T / 20),
        (schedule.step, {"every": 7, "factor": 0.3}, 0.3 ** (T // 7)),
    ],
)
def test_a_warm_up_rises_evenly_and_then_a_schedule_falls_along_its_curve(kind, settings, curve):
    optimizer = SGD([leaf([1.0])], lr=0.5)
    decay = kind(optimizer, warmup=4, **settings)
    rates = []
    for _ in range(30):
        rates.append(optimizer.lr)
        decay.step()
    np.testing.assert_allclose(rates[:24], 0.5 * np.append([0.25, 0.5, 0.75, 1.0], curve))
    if "end" in settings:
        np.testing.assert_allclose(rates[24:], 0.5 * settings["end"])


# ---------------------------------------------------------------- float16


def half(values):
    return leaf(np.float16(values))


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_thousand_steps_too_small_for_float16_move_a_float16_weight(kind):
    """Also where the optimizer was loaded on the way: the copies of the weights are its state."""
    w = half([1.0])
    optimizer = kind([w], lr=1e-4)
    moved(optimizer, [np.float16([1.0])] * 500)
    other = kind([w], lr=1e-4)
    other.load_state_dict(optimizer.state_dict())
    moved(other, [np.float16([1.0])] * 500)
    np.testing.assert_allclose(w.numpy(), [0.9], atol=1e-3)


def test_what_is_kept_of_a_parameter_that_is_cast_is_cast_with_it():
    w = leaf([1.0, 2.0])
    optimizer = Adam([w], lr=0.1)
    moved(optimizer, [np.ones(2)])
    w._data = w._data.astype(np.float32)
    moved(optimizer, [np.ones(2)])
    (record,) = optimizer.state_dict()["parameters"]
    assert record["kept"]["mean"].dtype == record["kept"]["square"].dtype == w.dtype


def test_a_float16_weight_written_between_steps_goes_on_from_what_was_written():
    w = half([1.0, 2.0])
    optimizer = SGD([w], lr=0.5)
    moved(optimizer, [np.float16([1.0, 1.0])])
    w.assign_(np.float16([4.0, 1.5]))
    optimizer.step()
    np.testing.assert_array_equal(w.numpy(), [3.5, 1.0])


def test_an_overflow_skips_the_step_halves_the_scale_and_begins_the_interval_anew():
    w = half([100.0])
    scaler = LossScale(SGD([w], lr=0.0), scale=2.0**12, interval=2)
    for times in (0.0, 1.0, 0.0):
        w.grad = None
        with np.errstate(over="ignore"):
            scaler.backward((w * w).sum() * np.float16(times))
            scaler.step()
    assert (scaler.scale, scaler.skipped, scaler.optimizer.steps) == (2.0**11, 1, 2)


def test_the_scale_doubles_after_an_interval_without_overflow_up_to_the_largest():
    w, seen = half([1.0]), []
    scaler = LossScale(SGD([w], lr=0.0), scale=4.0, interval=2, largest=16.0)
    for _ in range(8):
        w.grad = None
        scaler.backward((w * w).sum())
        scaler.step()
        seen.append(scaler.scale)
    assert seen == [4, 8, 8, 16, 16, 16, 16, 16]
    other = LossScale(SGD([w], lr=0.0))
    other.load_state_dict(scaler.state_dict())
    assert (other.scale, other.skipped) == (16, 0)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_that_were_unscaled_are_scaled_again_before_more_are_added(compiled):
    """Whether they were cleared since or not."""
    w = leaf([1.0, 2.0])
    scaler = LossScale(SGD([w], lr=1.0), scale=4.0)

    def backward(x):
        scaler.backward(mg.sum(w * x))
        scaler.unscale()

    run = mg.compile(backward) if compiled else backward
    for x in (np.array([1.0, 5.0]), np.array([3.0, 7.0])):
        run(x)
        np.testing.assert_array_equal(w.grad, x)
        w.grad = None
    run(np.array([1.0, 5.0]))
    run(np.array([3.0, 7.0]))
    scaler.unscale()  # which was done already
    np.testing.assert_array_equal(w.grad, [4.0, 12.0])
    scaler.step()
    np.testing.assert_array_equal(w.numpy(), [-3.0, -10.0])


# ---------------------------------------------------------------- what is refused

W = leaf([[1.0, 2.0]], name="W")


def overflow_that_no_scale_can_mend():
    w = half([1.0])
    w.grad = np.float16([np.inf])
    LossScale(SGD([w], lr=1.0), scale=1.0).step()


def a_step_after_the_rate_was_set_to_nan():
    optimizer = SGD([leaf([1.0])])
    optimizer.lr = float("nan")
    optimizer.step()


test_what_is_refused = refusals(
    (a_step_after_the_rate_was_set_to_nan, ArgumentError, "got nan"),
    (lambda: SGD([W], lr=float("inf")), ArgumentError, r"lr must lie in \[0, inf\), got inf"),
    (lambda: schedule.cosine(SGD([W]), steps=5, warmup=5), ArgumentError,
     "got 5 and 5"),
    (lambda: schedule.step(SGD([W]), 2, warmup=-1), ArgumentError, "warmup must be at least 0"),
    (lambda: SGD([{"parameters": [W], "lr": 0.1}], lr=0), ArgumentError, "in proportion to lr"),
    (lambda: schedule.step(SGD([W]), every=0), ArgumentError, "every must be at least 1"),
    (lambda: Adam([{"parameters": [W], "betas": (1.0, 0.9)}]), ArgumentError, "betas must lie"),
    (lambda: Adam([W], lr="1e-3"), DTypeError, "lr must be a number, got '1e-3'"),
    (lambda: Adam([W * 2]), DTypeError, "each must be a leaf Tensor"),
    (lambda: Adam([]), ArgumentError, r"Adam\(parameters\): got no parameters"),
    (lambda: Adam(W), DTypeError, "must be a list of Tensors, .* got a Tensor"),
    (lambda: SGD([mg.tensor([1.0])]), ArgumentError, "parameter 0 .* needs no gradient"),
    (lambda: SGD([{"parameters": [W], "momentun": 0.9}]),
     ArgumentError, "a dict of parameters, lr, momentum, .*, got parameters, momentun"),
    (lambda: SGD([W, leaf([1.0]), W]), ArgumentError,
     r"SGD\(parameters\): parameter 2 \(W\) of shape \(1, 2\) is parameter 0 too"),
    (lambda: clip_grad_norm([W], 0), ArgumentError, "max_norm must be above 0, got 0"),
    (lambda: LossScale(SGD([W]), scale=0.5), ArgumentError, "scale <= largest"),
    (overflow_that_no_scale_can_mend, GradientError, r"mg\.anomaly"),
)  # fmt: skip

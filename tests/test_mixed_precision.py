"""Training in float16: float32 copies of the weights, and a loss that is scaled."""

import logging

import numpy as np
import pytest

import minigrad as mg
from layers import Linear
from minigrad.errors import ArgumentError, GradientError
from minigrad.optim import SGD, Adam, LossScale, clip_grad_norm


def half(values) -> mg.Tensor:
    return mg.tensor(np.float16(values), requires_grad=True)


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_thousand_steps_too_small_for_float16_move_a_float16_weight(kind):
    w = half([1.0])
    optimizer = kind([w], lr=1e-4)
    for _ in range(1000):
        w.grad = np.float16([1.0])
        optimizer.step()
    np.testing.assert_allclose(w.numpy(), [0.9], atol=1e-3)


def test_a_float16_weight_written_between_steps_goes_on_from_what_was_written():
    w = half([1.0, 2.0])
    optimizer = SGD([w], lr=0.5)
    w.grad = np.float16([1.0, 1.0])
    optimizer.step()
    w.assign_(np.float16([4.0, 1.5]))
    optimizer.step()
    np.testing.assert_array_equal(w.numpy(), [3.5, 1.0])


def test_the_copies_of_float16_weights_are_kept_in_the_optimizers_state():
    w = half([1.0])
    first = SGD([w], lr=1e-4)
    w.grad = np.float16([1.0])
    first.step()  # lost on the weight, kept in its copy
    second = SGD([w], lr=1e-4)
    second.load_state_dict(first.state_dict())
    for _ in range(9):
        second.step()
    np.testing.assert_allclose(second.state_dict()["kept"]["0"]["weights"], [0.999], rtol=1e-6)


def test_an_overflow_skips_the_step_halves_the_scale_and_is_logged(caplog):
    w = half([100.0])
    scaler = LossScale(SGD([w], lr=1.0), scale=2.0**12)
    with caplog.at_level(logging.WARNING), np.errstate(over="ignore"):
        scaler.backward((w * w).sum())
        scaler.step()
    assert w.numpy()[0] == 100
    assert (scaler.scale, scaler.skipped) == (2.0**11, 1)
    assert "skipped" in caplog.text


def test_the_scale_doubles_after_an_interval_without_overflow_up_to_the_largest():
    w = half([1.0])
    scaler = LossScale(SGD([w], lr=0.0), scale=4.0, interval=2, largest=16.0)
    seen = []
    for _ in range(8):
        w.grad = None
        scaler.backward((w * w).sum())
        scaler.step()
        seen.append(scaler.scale)
    assert seen == [4, 8, 8, 16, 16, 16, 16, 16]


@pytest.mark.parametrize("compiled", [False, True])
def test_after_a_step_that_was_left_out_gradients_are_divided_by_the_scale_again(compiled):
    """Whether they were cleared since or not."""
    w = mg.tensor([1.0, 2.0], requires_grad=True)
    scaler = LossScale(SGD([w], lr=1.0), scale=4.0)

    def backward(x):
        scaler.backward(mg.sum(w * x))
        scaler.unscale()

    run = mg.compile(backward) if compiled else backward
    for x in (np.array([1.0, 5.0]), np.array([3.0, 7.0]), np.array([2.0, 6.0])):
        run(x)
        np.testing.assert_array_equal(w.grad, x)
        w.grad = None
    run(np.array([1.0, 5.0]))
    run(np.array([3.0, 7.0]))
    np.testing.assert_array_equal(w.grad, [4.0, 12.0])
    assert not compiled or not run.reasons


def test_an_overflow_that_no_scale_can_mend_raises():
    w = half([1.0])
    scaler = LossScale(SGD([w], lr=1.0), scale=1.0)
    w.grad = np.float16([np.inf])
    with pytest.raises(GradientError, match=r"mg\.anomaly"):
        scaler.step()
    with pytest.raises(ArgumentError, match="scale <= largest"):
        LossScale(SGD([w], lr=1.0), scale=0.5)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_float16_model_learns_as_its_float32_twin(compiled, rng):
    X, target = rng.normal(size=(61, 7)), rng.normal(size=(7, 3))
    losses = {}
    for dtype in (np.float32, np.float16):
        model = Linear(7, 3, rng=0, dtype=dtype)
        scaler = LossScale(Adam(model.parameters(), lr=0.05), scale=2.0**8, interval=50)

        def step(x, y, model=model, scaler=scaler):
            for p in model.parameters():
                p.grad = None
            loss = mg.mean((model(x) - y) ** 2)
            scaler.backward(loss)
            scaler.unscale()
            clip_grad_norm(model.parameters(), 5.0)
            scaler.step()
            return loss

        run = mg.compile(step) if compiled else step
        x, y = X.astype(dtype), (X @ target).astype(dtype)
        losses[dtype] = [float(run(x, y).item()) for _ in range(120)]
        if compiled:
            assert not run.reasons
        assert scaler.scale == 2.0**10
    np.testing.assert_allclose(losses[np.float16], losses[np.float32], atol=2e-2)
    assert losses[np.float16][-1] < 0.05

"""Rules about the loss and the size of updates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..engine.types import Array
from .findings import Finding
from .watched_run import FAST, STEPS, STEPS_TO_LEARN, WatchedRun

__all__ = [
    "clipped", "diverging", "guessing", "oscillating", "overfitting", "plateau", "slow", "too_fast",
    "weight_decay", "wrong_sign",
]  # fmt: skip

SLOW, THROWN = 1e-4, 0.3  # update to weight, 1e-3 is usual
AWAY = 3.0  # drift from where weights began
UPHILL, INWARD = 0.3, 0.8  # cosines of an update with the gradient, with −w
WORSE = 1.3  # times the loss of a guess
ONE_BATCH = "can it learn one batch by heart? look at labels, scale of inputs, learning rate"


def oscillating(run: WatchedRun) -> Iterator[Finding]:
    """It swings by more than batches differ while updates are large, or gradients turn about."""
    if not run.known:
        return
    later, start = run.loss[len(run.loss) // 4 :], abs(run.start)
    swing = float(np.median(np.abs(np.diff(later))))
    level = float(np.median(np.abs(later)))
    large = run.ratio > 0.015  # then less of a swing is due to the batches
    wild = large and (swing > 0.25 * start or swing > max(0.8 * level, 0.1 * start))
    wide = swing > (0.12 if large else 0.2) * level and swing > 0.05 * start
    fast = run.ratio > 0.01 or run.cosine < -0.1 or run.drift > 3  # weights far from their start
    wide = wide and fast and not run.learned(0.3)
    against = run.cosine < -0.2 and run.ratio > 0.03 and not run.learned(0.5)
    if wild or wide or against:
        text = (
            f"the loss moves by {swing:.2g} from step to step, around {level:.2g}; updates are "
            f"{run.ratio:.1g} of the weights, the cosine of successive gradients {run.cosine:.2f}"
        )
        remedy = "a smaller learning rate (a third), a larger batch, a warm-up"
        yield Finding("oscillating", run.steps[_since(run.loss, swing / 2)], "", text, remedy)


def _since(loss: Array, swing: float) -> int:
    """From where on the loss swings by this at least: the median of any eight steps."""
    each = np.lib.stride_tricks.sliding_window_view(np.abs(np.diff(loss)), 8)
    calm = np.flatnonzero(np.median(each, axis=1) < swing)
    return int(calm[-1]) + 8 if len(calm) and calm[-1] + 8 < len(loss) else 0


def diverging(run: WatchedRun) -> Iterator[Finding]:
    """The loss is above where it began, and hardly a batch of the later half is as low as then."""
    if not run.known:
        return
    least = float(np.quantile(run.loss[len(run.loss) // 2 :], 0.1))
    begun, first = abs(run.begun), abs(float(run.loss[0]))
    rose = run.end > run.begun + 0.3 * begun and least > run.begun + 0.1 * begun
    at_once = min(run.end, run.begun) > 3 * first and least > 2 * first and run.ratio > 0.01
    if rose or at_once:
        since = int(np.flatnonzero(run.loss > run.start + 0.3 * abs(run.start))[0])
        text = f"the loss began at {run.start:.3g} and ended at {run.end:.3g}"
        remedy = "a smaller learning rate, clip_grad_norm; is the loss minimised, not maximised?"
        yield Finding("diverging", run.steps[since], "", text, remedy)


def too_fast(run: WatchedRun) -> Iterator[Finding]:
    """Usual steps are large, or some few threw the weights to where they do worse than guessing."""
    if run.learned(0.5):
        return
    step, drift = 0, 0.0
    ratio = run.ratio
    if ratio <= FAST:
        level = run.begun if run.guess is None else run.guess
        still = any("zero" in sample.notes.values() for sample in run.samples[-1:])
        if run.known and run.end < WORSE * level and not still:
            return
        for sample in run.samples:
            step = sample.step
            ratio, drift = run.at(sample, "ratio"), run.at(sample, "drift")
            if ratio > THROWN or drift > AWAY:
                break
        else:
            return
    text = f"a step moves weights by {ratio:.1g} of their size, where 1e-3 is usual"
    if drift > AWAY:
        text = f"{text}; they are {drift:.1g} times their first size away from where they began"
    remedy = f"a learning rate {max(ratio, FAST) / 1e-3:,.0f} times smaller"
    yield Finding("update ratio", step, "", text, remedy)


def slow(run: WatchedRun) -> Iterator[Finding]:
    if not run.drifts or run.flow.steps < STEPS or run.learned(0.5):
        return
    still = [sample for sample in run.samples if sample.lr == 0]
    if len(still) > 0.5 * len(run.samples):
        text = f"the learning rate is 0 in {len(still)} of {len(run.samples)} steps looked at"
        yield Finding("slow", still[0].step, "", text, "look at the schedule's number of steps")
    elif 0 < run.ratio < SLOW and max(run.drifts) < 5e-3:
        text = (
            f"a step moves weights by {run.ratio:.1g} of their size, where 1e-3 is usual: "
            f"{max(run.drifts):.1g} in {run.flow.steps} steps"
        )
        yield Finding("slow", 0, "", text, f"a learning rate {1e-3 / run.ratio:,.0f} times larger")


def clipped(run: WatchedRun) -> Iterator[Finding]:
    """So little of the gradients is left that weights hardly move."""
    share = run.typical("clipped")
    if share > 0.99 and run.ratio < SLOW and not run.learned(0.5):
        text = f"clipping takes all but {1 - share:.1g} of the gradient"
        yield Finding("clipped", run.samples[0].step, "", text, "a larger max_norm: 1 is usual")


def wrong_sign(run: WatchedRun) -> Iterator[Finding]:
    """Weights move along the gradient, or what backward began from is the loss with a minus."""
    angle = run.typical("uphill")
    text = f"the update of a weight and its gradient have a cosine of {angle:+.2f}: a step up"
    began = {s.step: s.loss for s in run.samples if s.loss}
    pairs = [(x, began[step]) for step, x in run.flow.logs(run.loss_name) if step in began]
    opposite = len(pairs) > 2 and all(abs(x + loss) < 1e-6 * abs(loss) for x, loss in pairs)
    if opposite:
        text = "backward begins from the loss that was logged with a minus"
    if opposite or (len(run.samples) > 2 and angle > UPHILL):
        remedy = "w -= lr * gradient; loss.backward(), not (-loss).backward()"
        yield Finding("wrong sign", run.samples[0].step, "", text, remedy)


def weight_decay(run: WatchedRun) -> Iterator[Finding]:
    """Updates point at 0: weights shrink by the decay, whatever the gradient."""
    inward = run.typical("inward")
    if inward > INWARD and run.ratio > 1e-3 and not run.learned(0.5):
        text = (
            f"an update has a cosine of {inward:.2f} with −w: it takes {run.ratio:.1g} of each "
            "weight, whatever the gradient says"
        )
        remedy = "a smaller weight_decay: 0.01 is usual"
        yield Finding("weight decay", run.samples[0].step, "", text, remedy)


def overfitting(run: WatchedRun) -> Iterator[Finding]:
    """The held-out loss rose from its best by more than its noise, while the other fell on."""
    held_out = run.flow.logs(run.held_out) if run.held_out else []
    losses = np.array([x for _, x in held_out])
    if len(losses) < 4 or not np.isfinite(losses).all() or not run.known:
        return
    best, width = int(losses.argmin()), max(1, min(9, len(losses) // 4))
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(losses, width), axis=1)
    least, end = float(smooth.min()), float(np.median(losses[-max(2, width) :]))
    noise = float(np.median(np.abs(np.diff(losses)))) / np.sqrt(width)
    at = np.searchsorted(run.steps, held_out[best][0])
    then = float(np.median(run.loss[max(0, at - 2) : at + 3]))
    rose = end > least + max(0.1 * abs(least), 3 * noise if width > 1 else 0.0)
    if rose and run.end < then and best < len(losses) - 2:
        text = (
            f"{run.held_out} was {losses[best]:.3g} at its best and is {end:.3g} at the end, while "
            f"the training loss went from {then:.3g} to {run.end:.3g}"
        )
        remedy = "stop here, more data, dropout, weight decay, a smaller model"
        yield Finding("overfitting", held_out[best][0], "", text, remedy)


def guessing(run: WatchedRun) -> Iterator[Finding]:
    """No better at the end than the best constant guess; while it falls still, clearly worse."""
    if len(run.loss) < STEPS_TO_LEARN or not run.known or run.guess is None or run.guess <= 0:
        return
    quarter = len(run.loss) // 4
    before, last = run.loss[-2 * quarter : -quarter], run.loss[-quarter:]
    falls = float(np.median(last)) < 0.97 * float(np.median(before))
    if run.end > (1.1 if falls else 0.97) * run.guess:
        text = (
            f"the loss began at {run.begun:.3g} and ended at {run.end:.3g}, where the best "
            f"constant guess costs {run.guess:.3g}"
        )
        yield Finding("no better than guessing", run.steps[0], "", text, ONE_BATCH)


def plateau(run: WatchedRun) -> Iterator[Finding]:
    if run.known and run.end > 0.97 * run.begun:
        text = (
            f"the loss began at {run.begun:.3g} and ended at {run.end:.3g}; successive gradients "
            f"have a cosine of {run.cosine:.2f}"
        )
        yield Finding("plateau", run.steps[0], "", text, ONE_BATCH)

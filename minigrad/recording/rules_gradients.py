"""Rules about values and gradients on their way: not finite, growing, fading, dead, saturated.

In a network of relus without biases Σ W ∘ ∂L/∂W is the same for each layer, and residual paths and
norms keep it close to that: so ‖W‖ ‖∂L/∂W‖, the pull on a weight, is compared from layer to layer,
not the gradient's bare size.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from .findings import Finding
from .flow import FlowRow, Sample
from .watched_run import FAST, STEPS_TO_LEARN, WatchedRun

__all__ = ["dead", "exploding", "not_finite", "saturated", "vanishing"]

FADING = 5e-3  # of the pull on the last layers
TIME_FADING, TIME_FADING_EACH = 1e-5, 0.42  # of the gradient at the last time; at each
GROWING = 1e3  # to the first time
HUGE, PULL = 70.0, 300  # an rms (AutoTrainer's); per loss
DEAD = 0.5  # share of units
FLAT, SHARP = 0.7, 0.9  # shares of entries, of rows of weights
LEAST_DEPTH = 6  # values that grow by depth
BY_DEPTH, EACH = 50.0, 1.2  # by so much in all, and each time


def not_finite(run: WatchedRun) -> Iterator[Finding]:
    for event in run.flow.events[:1]:
        step = event["step"]
        if event["text"]:
            text, remedy = event["text"], "keep the op's operands in its domain; a smaller step"
        else:
            text = "a gradient was not finite in a step that was not looked at"
            remedy = (
                f"mg.watch(every=1) or mg.anomaly() from step {max(step - 1, 0)} on names the op"
            )
        yield Finding("not finite", step, event["path"], text, remedy)


def _fading(sample: Sample, run: WatchedRun) -> tuple[float, FlowRow, float, FlowRow] | None:
    """The strongest pull on the first quarter of the weights, far below that on the last."""
    pulls = [(x, row) for row in run.weights if 0 < (x := run.pull(sample, row)) < np.inf]
    quarter = max(1, len(pulls) // 4)
    if len(pulls) < 3:
        return None
    ends = (max(part, key=lambda pair: pair[0]) for part in (pulls[:quarter], pulls[-quarter:]))
    (first, row), (last, end) = ends
    return (first, row, last, end) if first < FADING * last else None


def vanishing(run: WatchedRun) -> Iterator[Finding]:
    for path, step, first, last, count in _through_time(run):
        each = (first / last) ** (1 / (count - 1))
        if first < TIME_FADING * last and not run.learned(0.5 if each < TIME_FADING_EACH else 0.8):
            text = f"back through {count} times from {last:.2g} to {first:.2g}, {each:.2g} each"
            remedy = "a forget gate's bias of 1 or more, a shorter sequence, orthogonal weights"
            yield Finding("vanishing", step, path, text, remedy)
            return
    remedy = "relu or gelu in place of sigmoid and tanh, residual connections, a norm, He's weights"
    if began := run.lasting(partial(_fading, run=run)):
        sample, (first, row, last, end) = began
        text = (
            f"the pull ‖W‖·‖∂L/∂W‖ is {last:.2g} at {end.path} and {first:.2g} at {row.path}, "
            f"{last / first:,.0f} times less"
        )
        yield Finding("vanishing", sample.step, row.path, text, remedy)
    elif run.known and len(run.loss) >= STEPS_TO_LEARN and not run.learned(0.97):
        for sample, path, text in _grown(run, -1):
            yield Finding("vanishing", sample.step, path, text, remedy)


def _through_time(run: WatchedRun) -> Iterator[tuple[str, int, float, float, int]]:
    """Of values that a line, or an op, makes again and again: gradients of the first and last."""
    for path in run.flow.rows:
        fused = any("first" in sample.rows.get(path, {}) for sample in run.samples[:1])
        again = fused or f"{path}[last]" in run.flow.rows
        if again and (began := run.lasting(partial(_ends, path=path))):
            yield path, began[0].step, *began[1]


def _ends(sample: Sample, path: str) -> tuple[float, float, int] | None:
    one, other = (sample.rows.get(p, {}) for p in (path, f"{path}[last]"))
    first, last = one.get("gradient", 0.0), other.get("gradient", 0.0)
    if "first" in one:  # an op that takes all steps itself
        first = one["first"]
        last = one["last"]
        other = one
    known = 0 < first < np.inf and 0 < last < np.inf
    return (first, last, int(other.get("count", 2))) if known else None


def _by_depth(sample: Sample, run: WatchedRun) -> tuple[float, FlowRow, float, FlowRow, int] | None:
    """Values that grow, or shrink, from layer to layer: the first, the most extreme, how many."""
    rows = [row for row in run.flow.rows.values() if row.kind == "value" and not row.saturates]
    sizes = [(sample.rows.get(row.path, {}).get("value", 0.0), row) for row in rows]
    known = [(x, row) for x, row in sizes if 0 < x < np.inf]
    if len(known) < LEAST_DEPTH:
        return None
    logs = np.log([x for x, _ in known])
    end = int(np.abs(logs - logs[0]).argmax())
    way = np.diff(logs[: end + 1]) * np.sign(logs[end] - logs[0])
    least = max(np.log(BY_DEPTH), np.log(EACH) * end)
    if end < LEAST_DEPTH - 1 or abs(logs[end] - logs[0]) < least:
        return None
    return (*known[0], *known[end], end) if np.mean(way > 0) >= 0.65 else None


def _grown(run: WatchedRun, way: int) -> Iterator[tuple[Sample, str, str]]:
    """In the first sample, before any update: values that grow by depth, or shrink (way -1)."""
    for sample in run.samples[:1]:
        found = _by_depth(sample, run)
        if found is not None and (found[2] - found[0]) * way > 0:
            first, row, last, end, count = found
            each = (last / first) ** (1 / count)
            text = (
                f"values {'grow' if way > 0 else 'shrink'} by depth, from {first:.2g} at {row.path}"
                f" to {last:.2g} at {end.path}, {each:.2g} times each"
            )
            yield sample, end.path, text


def exploding(run: WatchedRun) -> Iterator[Finding]:
    remedy = "He's or Xavier's weights, a norm, clip_grad_norm, a smaller learning rate"
    in_trouble = run.ratio > FAST or (run.known and not run.learned(0.5))
    for path, step, first, last, _ in _through_time(run):
        if first > GROWING * last and in_trouble:
            text = f"back through time from {last:.2g} to {first:.2g}"
            yield Finding("exploding", step, path, text, remedy)
            return
    if in_trouble or not run.known:
        for sample, path, text in _grown(run, 1):
            yield Finding("exploding", sample.step, path, text, remedy)
            return
    for sample in run.samples:
        for row in run.weights:
            figures = sample.rows.get(row.path, {})
            size, ratio = figures.get("gradient", 0.0), figures.get("ratio", 0.0)
            pull = run.pull(sample, row) / run.first_loss() if run.known else 0.0
            steep = size > HUGE * run.unit(sample) and (in_trouble or ratio > FAST)
            if steep or (np.inf > pull > PULL and in_trouble):
                moves = f", ‖W‖·‖∂L/∂W‖ is {pull:,.0f} times the loss" if pull > PULL else ""
                text = f"its gradient's rms is {size:.3g}, its own {figures['value']:.2g}{moves}"
                yield Finding("exploding", sample.step, row.path, text, remedy)
                return


# ------------------------------------------------------------------ units that let nothing back


def _stuck(run: WatchedRun, what: str, limit: float) -> Iterator[tuple[FlowRow, Sample, float]]:
    """Rows of which this share is at its limit or above, and since when."""
    for row in run.flow.rows.values():
        if row.saturates.startswith(what) and (
            began := run.lasting(partial(_share, path=row.path, limit=limit))
        ):
            yield row, *began


def _share(sample: Sample, path: str, limit: float) -> float | None:
    share = sample.rows.get(path, {}).get("saturated", 0.0)
    return share if share >= limit else None


def dead(run: WatchedRun) -> Iterator[Finding]:
    remedy = "a smaller learning rate, biases that begin at 0, leaky_relu or gelu"
    for row, since, share in _stuck(run, "units", 0.95 if run.learned(0.7) else DEAD):
        units = row.shape[1] if len(row.shape) > 3 else row.shape[-1] if row.shape else 1
        if share < min(0.95, DEAD + units**-0.5):  # of few, many are so by chance
            continue
        text = (
            f"{share:.0%} of the units of {row.op} are 0 for a whole batch and let no gradient back"
        )
        yield Finding("dead units", since.step, row.path, text, remedy)


def saturated(run: WatchedRun) -> Iterator[Finding]:
    if run.learned(0.5):
        return
    remedy = "smaller weights or inputs before it, a norm, scores divided by √d_k"
    for row, since, share in _stuck(run, "entries", FLAT):
        text = f"{share:.0%} of the entries lie where {row.op} is flat"
        yield Finding("saturated", since.step, row.path, text, remedy)
    for row, since, share in _stuck(run, "rows", SHARP):
        text = f"{share:.0%} of the rows of {row.op} look at one place alone"
        yield Finding("saturated", since.step, row.path, text, remedy)

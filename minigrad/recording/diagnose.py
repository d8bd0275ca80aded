"""What went wrong in a training run, in words: the figures, the step where it began, what to try.

A limit is relative to the run itself wherever theory gives one. In a network of relus without
biases Σ W ∘ ∂L/∂W is the same for each layer, and residual paths and norms keep it close to that:
so ‖W‖ ‖∂L/∂W‖, the pull on a weight, is compared from layer to layer, not the gradient's bare size.
Gradients that theory says are 0 (a key's bias) are told apart while they are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from .flow import FlowRecord, Row, Sample
from .requests import distances_of, divergence

__all__ = ["Finding", "Findings", "diagnose"]

FADING = 5e-3  # of the pull on the last layers
TIME_FADING, TIME_FADING_EACH = 1e-5, 0.42  # of the gradient at the last time; at each
GROWING = 1e3
HUGE = 70.0
PULL = 300  # to the first time; an rms (AutoTrainer's); per loss
DEAD = 0.5
FLAT = 0.7
SHARP = 0.9  # shares of units, of entries, of rows of weights
FAST, SLOW = 0.1, 1e-4  # update to weight; 1e-3 is usual
STEPS = 20  # a loss of fewer steps says nothing
PATIENCE = 50  # in fewer steps a model may not have learned anything yet


@dataclass(frozen=True)
class Finding:
    """One problem: its kind in a word or two, where it began, the row where it is seen."""

    kind: str
    step: int
    path: str
    text: str
    remedy: str

    def __str__(self) -> str:
        where = f", {self.path}" if self.path else ""
        return f"step {self.step}: {self.kind}{where}: {self.text}\n  try: {self.remedy}"


class Findings(list[Finding]):
    """All findings; printed, a few lines each, or that there are none."""

    def __str__(self) -> str:
        return "\n".join(map(str, self)) if self else "nothing found"

    def __repr__(self) -> str:
        kinds = ", ".join(self.kinds)
        return f"Findings: {len(self)} ({kinds}), which print() tells" if self else str(self)

    @property
    def kinds(self) -> list[str]:
        return [*dict.fromkeys(finding.kind for finding in self)]


def diagnose(flow: FlowRecord) -> Findings:
    """Every problem that the record shows; a plateau only where nothing else explains it."""
    run = _Run(flow)
    found = Findings(one for rule in RULES if (one := _merged([*rule(run)])))
    return found or Findings(_guessing(run)) or Findings(_plateau(run))


def _merged(alike: list[Finding]) -> Finding | None:
    """What a rule found in several rows: the first of them, and where else."""
    if len(alike) < 2:
        return alike[0] if alike else None
    first = min(alike, key=lambda finding: finding.step)
    others = ", ".join(finding.path for finding in alike if finding is not first)
    return replace(first, text=f"{first.text}; and {len(alike) - 1} more: {_short(others)}")


def _short(names: str) -> str:
    return names if len(names) < 120 else f"{names[:119]}…"


class _Run:
    """What several rules ask of a record."""

    def __init__(self, flow: FlowRecord) -> None:
        end = flow.events[0]["step"] if flow.events else flow.steps
        self.flow, self.samples = flow, [s for s in flow.samples if s.step <= end]
        self.weights = [row for row in flow.rows.values() if row.is_matrix]
        names = flow.log_names
        self.held_out = next((n for n in names if ("val" in n and "loss" in n) or n == "val"), None)
        losses = [n for n in names if "loss" in n and n != self.held_out]
        losses += [n for n in names if n != self.held_out and self._is_loss(n)]
        self.loss_name = losses[0] if losses else ""
        logged = flow.logs(self.loss_name)
        self.steps, self.loss = [s for s, _ in logged], np.array([x for _, x in logged], float)
        width = max(1, min(8, len(logged) // 5))
        self.known = len(logged) >= STEPS and bool(np.isfinite(self.loss).all())
        self.start = self.begun = self.end = 1.0
        if self.known:
            self.begun, self.end = (
                float(np.median(part)) for part in (self.loss[:width], self.loss[-width:])
            )
            self.start = min(self.begun, float(self.loss[0]))
        ratio = [self.middle(row, "ratio") for row in self.weights if self._began_nonzero(row)]
        angle = [self.middle(row, "cosine") for row in self.weights]
        self.ratio = float(np.median([x for x in ratio if x is not None] or [1e-3]))
        self.cosine = float(np.median([x for x in angle if x is not None] or [0.0]))
        drifts = (flow.series(row.path, "drift") for row in self.weights)
        self.drifts = [found[-1][1] for found in drifts if found]
        self.drift = float(np.median(self.drifts or [0.0]))

    @property
    def guess(self) -> float | None:
        """The loss of the best constant guess, if what was logged is what backward began from."""
        known = [s.guess for s in self.samples if s.guess is not None]
        told = known and self.loss_name and self._is_loss(self.loss_name)
        return float(np.mean(known)) if told else None

    def _is_loss(self, name: str) -> bool:
        """Whether what was logged under a name is what backward began from; an accuracy is not."""
        began = {s.step: s.loss for s in self.samples if s.loss is not None}
        pairs = [(x, began[step]) for step, x in self.flow.logs(name) if step in began]
        return bool(pairs) and all(abs(x - loss) <= 1e-3 * abs(loss) for x, loss in pairs)

    def unit(self, sample: Sample) -> float:
        """The scale of the loss up to a step, where that of a mean cross-entropy is 1."""
        units = (s.unit or 0.0 for s in self.samples if s.step <= sample.step)
        return max(1.0, max((x for x in units if np.isfinite(x)), default=0.0) / 2)

    def first_loss(self) -> float:
        """The size of the loss at first, as it was logged or as backward began from it."""
        began = [abs(s.loss) for s in self.samples[:1] if s.loss is not None]
        return max([abs(self.start), *(x for x in began if np.isfinite(x))]) or 1.0

    def learned(self, share: float) -> bool:
        """Whether the loss fell below this share of where it began."""
        return self.known and self.end < share * self.start

    def middle(self, row: Row, figure: str) -> float | None:
        found = [x for _, x in self.flow.series(row.path, figure)]
        return float(np.median(found)) if found else None

    def _began_nonzero(self, row: Row) -> bool:
        """Weights that begin as zeros move by more than they are."""
        ratio = self.flow.series(row.path, "ratio")
        return bool(ratio) and ratio[0][1] > 0

    def pull(self, sample: Sample, row: Row) -> float:
        """‖W‖ ‖∂L/∂W‖."""
        figures = sample.rows.get(row.path, {})
        return figures.get("value", 0.0) * figures.get("gradient", 0.0) * prod(row.shape)

    def lasting(self, holds: Callable[[Sample], Any]) -> tuple[Sample, Any] | None:
        """Where something began to hold for three samples in a row, and what it was there.

        Of fewer samples, all.
        """
        found = [holds(sample) for sample in self.samples]
        need = min(3, len(found))
        for i in range(len(found) - need + 1):
            if need and all(found[i : i + need]):
                return self.samples[i], found[i]
        return None


# ------------------------------------------------------------------ what is not finite


def _not_finite(run: _Run) -> Iterator[Finding]:
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


# ------------------------------------------------------------------ the graph of the first step

REMEDIES = {
    "double softmax": "give cross_entropy the scores themselves; it has a softmax of its own",
    "last activation": "no activation after the last layer, or one that reaches all targets",
    "no activation": "relu, gelu or tanh between them",
    "input scale": "inputs of mean 0 and size 1: (x - x.mean(axis=0)) / x.std(axis=0)",
    "broadcast": "the same shape for both: out.reshape((-1,))",
}


def _structure(run: _Run) -> Iterator[Finding]:
    for one in run.flow.structure:
        kind = one["kind"]
        if kind != "input scale" or not run.learned(0.1):
            yield Finding(kind, int(one["step"]), one["path"], one["text"], REMEDIES[kind])


# ------------------------------------------------------------------ gradients along a path


def _fading(sample: Sample, run: _Run) -> tuple[float, Row, float, Row] | None:
    """The strongest pull on the first quarter of the weights, far below that on the last."""
    pulls = [(x, row) for row in run.weights if 0 < (x := run.pull(sample, row)) < np.inf]
    quarter = max(1, len(pulls) // 4)
    if len(pulls) < 3:
        return None
    ends = (max(part, key=lambda pair: pair[0]) for part in (pulls[:quarter], pulls[-quarter:]))
    (first, row), (last, end) = ends
    return (first, row, last, end) if first < FADING * last else None


def _vanishing(run: _Run) -> Iterator[Finding]:
    remedy = "relu or gelu in place of sigmoid and tanh, residual connections, a norm, He's weights"
    if began := run.lasting(partial(_fading, run=run)):
        sample, (first, row, last, end) = began
        text = (
            f"the pull ‖W‖·‖∂L/∂W‖ is {last:.2g} at {end.path} and {first:.2g} at {row.path}, "
            f"{last / first:,.0f} times less"
        )
        yield Finding("vanishing", sample.step, row.path, text, remedy)
        return
    for path, step, first, last, count in _through_time(run):
        each = (first / last) ** (1 / (count - 1))
        if first < TIME_FADING * last and not run.learned(0.5 if each < TIME_FADING_EACH else 0.8):
            text = f"back through {count} times from {last:.2g} to {first:.2g}, {each:.2g} each"
            remedy = "a forget gate's bias of 1 or more, a shorter sequence, orthogonal weights"
            yield Finding("vanishing", step, path, text, remedy)
            return


def _through_time(run: _Run) -> Iterator[tuple[str, int, float, float, int]]:
    """Of values that one line makes again and again: the gradients of the first and the last."""
    for path in run.flow.rows:
        if f"{path}[last]" in run.flow.rows and (began := run.lasting(partial(_ends, path=path))):
            yield path, began[0].step, *began[1]


def _ends(sample: Sample, path: str) -> tuple[float, float, int] | None:
    one, other = (sample.rows.get(p, {}) for p in (path, f"{path}[last]"))
    first, last = one.get("gradient", 0.0), other.get("gradient", 0.0)
    known = 0 < first < np.inf and 0 < last < np.inf
    return (first, last, int(other.get("count", 2))) if known else None


def _exploding(run: _Run) -> Iterator[Finding]:
    remedy = "He's or Xavier's weights, a norm, clip_grad_norm, a smaller learning rate"
    in_trouble = run.ratio > FAST or (run.known and not run.learned(0.5))
    for path, step, first, last, _ in _through_time(run):
        if first > GROWING * last and in_trouble:
            text = f"back through time from {last:.2g} to {first:.2g}"
            yield Finding("exploding", step, path, text, remedy)
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


def _stuck(run: _Run, what: str, limit: float) -> Iterator[tuple[Row, Sample, float]]:
    """Rows of which this share is at its limit or above, and since when."""
    for row in run.flow.rows.values():
        if row.saturates.startswith(what) and (
            began := run.lasting(partial(_share, path=row.path, limit=limit))
        ):
            yield row, *began


def _share(sample: Sample, path: str, limit: float) -> float | None:
    share = sample.rows.get(path, {}).get("saturated", 0.0)
    return share if share >= limit else None


def _dead(run: _Run) -> Iterator[Finding]:
    remedy = "a smaller learning rate, biases that begin at 0, leaky_relu or gelu"
    for row, since, share in _stuck(run, "units", DEAD):
        text = (
            f"{share:.0%} of the units of {row.op} are 0 for a whole batch and let no gradient back"
        )
        yield Finding("dead units", since.step, row.path, text, remedy)


def _saturated(run: _Run) -> Iterator[Finding]:
    if run.learned(0.5):
        return
    remedy = "smaller weights or inputs before it, a norm, scores divided by √d_k"
    for row, since, share in _stuck(run, "entries", FLAT):
        text = f"{share:.0%} of the entries lie where {row.op} is flat"
        yield Finding("saturated", since.step, row.path, text, remedy)
    for row, since, share in _stuck(run, "rows", SHARP):
        text = f"{share:.0%} of the rows of {row.op} look at one place alone"
        yield Finding("saturated", since.step, row.path, text, remedy)


# ------------------------------------------------------------------ parameters that do not learn

WHY = {
    "unused": ("no op of the step takes it", "use it, or take it out of the model"),
    "detached": (
        "ops take it, but no gradient comes back",
        "look for detach(), numpy() or a branch that the loss does not depend on",
    ),
    "no_grad": ("ops take it under no_grad alone", "call the layer outside of no_grad()"),
    "zero": ("its gradient is exactly 0", "look at what lies between it and the loss"),
    "not given": ("the optimizer does not have it", "optimizer over model.parameters()"),
    "stale": ("the last step's gradient is still in it", "optimizer.zero_grad() in each step"),
    "symmetric": ("all of its units are copies of each other", "random weights"),
}


def _not_learning(why: str) -> Callable[[_Run], Iterator[Finding]]:
    words, remedy = WHY[why]
    kind = {"stale": "stale gradient", "symmetric": "symmetric"}.get(why, "no gradient")

    def rule(run: _Run) -> Iterator[Finding]:
        count = len(run.samples)
        enough = max(min(3, count), count // 2) if why == "zero" else count - (why == "stale")
        for row in run.flow.rows.values():
            steps = [s.step for s in run.samples if s.notes.get(row.path) == why]
            if steps and len(steps) >= enough and not (why == "zero" and any(_dead(run))):
                yield Finding(kind, steps[0], row.path, f"{why}: {words}", remedy)

    return rule


# ------------------------------------------------------------------ the loss


def _oscillating(run: _Run) -> Iterator[Finding]:
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


def _since(loss: Any, swing: float) -> int:
    """From where on the loss swings by this at least: the median of any eight steps."""
    each = np.lib.stride_tricks.sliding_window_view(np.abs(np.diff(loss)), 8)
    calm = np.flatnonzero(np.median(each, axis=1) < swing)
    return int(calm[-1]) + 8 if len(calm) and calm[-1] + 8 < len(loss) else 0


def _diverging(run: _Run) -> Iterator[Finding]:
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


def _too_fast(run: _Run) -> Iterator[Finding]:
    if run.ratio > FAST and not run.learned(0.5):
        text = f"a step moves weights by {run.ratio:.1g} of their size, where 1e-3 is usual"
        yield Finding(
            "update ratio", 0, "", text, f"a learning rate {run.ratio / 1e-3:,.0f} times smaller"
        )


def _slow(run: _Run) -> Iterator[Finding]:
    if not run.drifts or run.flow.steps < STEPS or run.learned(0.5):
        return
    if 0 < run.ratio < SLOW and max(run.drifts) < 5e-3:
        text = (
            f"a step moves weights by {run.ratio:.1g} of their size, where 1e-3 is usual: "
            f"{max(run.drifts):.1g} in {run.flow.steps} steps"
        )
        yield Finding("slow", 0, "", text, f"a learning rate {1e-3 / run.ratio:,.0f} times larger")


def _overfitting(run: _Run) -> Iterator[Finding]:
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


def _guessing(run: _Run) -> Iterator[Finding]:
    """No better at the end than the best constant guess; while it falls still, clearly worse."""
    if len(run.loss) < PATIENCE or not run.known or run.guess is None or run.guess <= 0:
        return
    quarter = len(run.loss) // 4
    before, last = run.loss[-2 * quarter : -quarter], run.loss[-quarter:]
    falls = float(np.median(last)) < 0.97 * float(np.median(before))
    if run.end > (1.1 if falls else 0.97) * run.guess:
        text = (
            f"the loss began at {run.begun:.3g} and ended at {run.end:.3g}, where the best "
            f"constant guess costs {run.guess:.3g}"
        )
        remedy = "can it learn one batch by heart? look at labels, scale of inputs, learning rate"
        yield Finding("no better than guessing", run.steps[0], "", text, remedy)


def _plateau(run: _Run) -> Iterator[Finding]:
    if run.known and run.end > 0.97 * run.begun:
        text = (
            f"the loss began at {run.begun:.3g} and ended at {run.end:.3g}; successive gradients "
            f"have a cosine of {run.cosine:.2f}"
        )
        remedy = "can it learn one batch by heart? look at labels, scale of inputs, learning rate"
        yield Finding("plateau", run.steps[0], "", text, remedy)


# ------------------------------------------------------------------ attention in production

MOVED, MOVED_BY = 0.05, 3.0  # bits, and times the most that the baseline moves by itself


def _attention_moved(run: _Run) -> Iterator[Finding]:
    """A head whose weights lie elsewhere than in the baseline, for several requests in a row."""
    baseline = run.flow.baseline
    if baseline is None or not baseline.requests:
        return
    for path in baseline.requests[0].rows:
        before = [distances_of(s.rows[path]) for s in baseline.requests if path in s.rows]
        usual = np.mean(before, axis=0)
        most = max(divergence(one, usual) for one in before)
        limit = max(MOVED, MOVED_BY * most)
        now = [s for s in run.flow.requests if path in s.rows]
        moved = [divergence(distances_of(s.rows[path]), usual) for s in now]
        need = min(3, len(moved))
        for i in range(len(moved) - need + 1):
            if need and all(by > limit for by in moved[i : i + need]):
                entropy = float(np.mean([s.rows[path]["entropy"] for s in baseline.requests]))
                text = (
                    f"its weights moved by {moved[i]:.2f} bits (Jensen–Shannon, over distances) "
                    f"from the baseline, which itself moves by at most {most:.2f}; entropy "
                    f"{entropy:.2f} → {now[i].rows[path]['entropy']:.2f}"
                )
                remedy = "compare the requests, then the weights, with those of the baseline"
                yield Finding("attention moved", now[i].step, path, text, remedy)
                break


RULES = (
    _attention_moved, _structure,
    _not_finite, *map(_not_learning, WHY), _dead, _saturated, _exploding, _vanishing, _slow,
    _diverging, _oscillating, _too_fast, _overfitting,
)  # fmt: skip

"""What went wrong in a training run, in words: the figures, the step where it began, what to try.

`diagnose` asks each of RULES, which stand at the end, where it holds in what was measured.

A limit is relative to the run itself wherever theory gives one. In a network of relus without
biases Σ W ∘ ∂L/∂W is the same for each layer, and residual paths and norms keep it close to that:
so ‖W‖ ‖∂L/∂W‖, the pull on a weight, is compared from layer to layer, not the gradient's bare size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf, isfinite, prod
from sys import maxsize
from textwrap import shorten
from typing import TypeAlias

import numpy as np

from .heads import divergence
from .training import Finding, Findings, Moment, TrainingRecord

__all__ = ["diagnose"]

Place: TypeAlias = tuple[str, int, str]  # where, in which step, what was measured
Places: TypeAlias = Iterator[Place]

LEAST_STEPS = 20  # a loss of fewer steps says nothing
STEPS_TO_LEARN = 50  # in fewer steps a model may not have learned anything yet
FAST, SLOW = 0.1, 1e-4  # update to weight; 1e-3 is usual
FADING = 5e-3  # of the pull on the last layers
PULL = 300.0  # over the loss
FAR_IN_TIME = 1e4  # from the last step in time to the first
MOVED, MOVED_BY = 0.05, 3.0  # bits, and times the most that the baseline moves by itself


def diagnose(flow: TrainingRecord) -> Findings:
    """What a run shows, what began first before the rest; of a healthy run nothing.

    It asks each of RULES, at the end of this file.
    """
    run, findings = Evidence(flow), Findings()
    for kind, rule, remedy in RULES:
        if findings and rule in IF_NOTHING_ELSE:
            continue
        places = [*rule(run)]
        if places:
            path, step, text = min(places, key=lambda place: place[1])
            if others := [other for other, *_ in places if other != path]:
                text += f"; and {len(others)} more: {shorten(', '.join(others), 120)}"
            findings.append(Finding(kind, path, step, text, remedy))
    findings.sort(key=lambda finding: finding.first)  # of one step, in the order of the rules
    return findings


class Evidence:
    """A flow up to its first NaN, as the rules read it."""

    def __init__(self, flow: TrainingRecord) -> None:
        self.flow = flow
        broken = [step for step, x in flow.losses if not isfinite(x)]
        broken += [m.step for m in flow.moments if not all(r.finite for r in m.readings.values())]
        self.broken = min(broken, default=maxsize)  # the step of the first NaN
        self.moments = [m for m in flow.moments if m.step < self.broken]
        self.matrices = [p for p in flow.parameters if len(flow.shapes[p]) > 1]
        losses = [(step, x) for step, x in flow.losses if step < self.broken]
        self.steps = [step for step, _ in losses]
        self.loss = np.array([x for _, x in losses], float)
        self.known = flow.steps >= LEAST_STEPS and len(losses) >= 4
        loss = self.loss if self.known else np.ones(1)
        width = max(1, min(8, len(loss) // 5))
        self.start = float(min(np.median(loss[:width]), loss[0]))
        self.end = float(np.median(loss[-width:]))
        guesses = [m.guess for m in self.moments if m.guess]
        self.guess = float(np.mean(guesses or [inf]))
        moved = [m.readings[p] for m in flow.moments for p in self.matrices if p not in m.missing]
        ratios = [reading.update for reading in moved if reading.update is not None]
        self.ratio = float(np.median(ratios or [1e-3]))
        self.zero_weights = [p for p in self.matrices if {x for _, x in self.values(p)} == {0}]

    def values(self, path: str, figure: str = "value") -> list[tuple[int, float]]:
        """A figure of a path, by step."""
        return [(step, x) for step, x in self.flow.series(path, figure) if step < self.broken]

    def learned(self, share: float) -> bool:
        """Whether the loss fell below this share of where it began, and of the best guess."""
        return self.known and self.end < share * min(self.start, self.guess)

    def pull_on(self, path: str, moment: Moment) -> float:
        """‖W‖ ‖∂L/∂W‖."""
        value, gradient, *_ = moment.readings.get(path, (0.0, None))
        return value * (gradient or 0.0) * prod(self.flow.shapes[path])


def lasting(looks: Iterable[Place]) -> Places:
    """The first of three in a row in which something was measured; of fewer looks, of all."""
    each = [*looks]
    for i, place in enumerate(each[: max(1, len(each) - 2)]):
        if all(text for *_, text in each[i : i + 3]):
            yield place
            return


# ------------------------------------------------------------------ values and gradients


def no_gradient(run: Evidence) -> Places:
    for path in run.flow.parameters:
        why = [m.missing.get(path, "") for m in run.moments]
        if why and all(why) and why[0] != "frozen":
            yield path, run.moments[0].step, why[0]


def not_finite(run: Evidence) -> Places:
    if run.broken < maxsize:
        readings = next((m.readings for m in run.flow.moments if m.step == run.broken), {})
        paths = [path for path, reading in readings.items() if not isfinite(reading.value)]
        paths += [path for path, reading in reversed(readings.items()) if not reading.finite]
        yield (paths or [""])[0], run.broken, "the first value that is not finite"


def saturated(run: Evidence) -> Places:
    if run.learned(0.5):
        yield from _stuck(run, "entries", 0.85)  # nearly all of them; other layers learn
    else:
        yield from _stuck(run, "entries", 0.7)
        yield from _stuck(run, "rows", 0.9)


def dead(run: Evidence) -> Places:
    if not run.zero_weights:
        yield from _stuck(run, "units", 0.65 if run.learned(0.7) else 0.5)


def _stuck(run: Evidence, what: str, limit: float) -> Places:
    """Paths of which this share is dead or saturated, and since when."""
    for path, words in run.flow.words.items():
        shape = run.flow.shapes[path]
        units = shape[1] if len(shape) > 3 else shape[-1] if shape else 1
        least = min(0.95, limit + units**-0.5) if what == "units" else limit  # few, by chance
        if words.startswith(what):
            yield from lasting(
                (path, step, f"{share:.0%} {words}" if share >= least else "")
                for step, share in run.values(path, "share")
            )


def exploding(run: Evidence) -> Places:
    if run.learned(0.5):
        return
    for moment in run.moments:
        loss = abs(moment.loss or run.start) or 1e-30
        for path in run.matrices:
            if run.known and PULL < (times := run.pull_on(path, moment) / loss) < inf:
                yield path, moment.step, f"‖W‖·‖∂L/∂W‖ is {times:,.0f} times the loss"
                return
    yield from _through_time(run, "grows", lambda first, last: first > FAR_IN_TIME * last)


def vanishing(run: Evidence) -> Places:
    """The strongest pull on the first quarter of the weights is far below that on the last."""
    looks = list[Place]()
    for moment in run.moments:
        pulls = [(run.pull_on(path, moment), path) for path in run.matrices]
        pulls = [(pull, path) for pull, path in pulls if 0 < pull < inf]
        quarter = max(1, len(pulls) // 4)
        first, path = max(pulls[:quarter], default=(0.0, ""))
        last, end = max(pulls[-quarter:], default=(0.0, ""))
        text = f"the pull ‖W‖·‖∂L/∂W‖ is {first:.2g} here and {last:.2g} at {end}"
        fades = len(pulls) > 2 and first < FADING * last
        looks.append((path, moment.step, text if fades else ""))
    yield from lasting(looks)


def vanishing_through_time(run: Evidence) -> Places:
    if not run.learned(0.5):
        yield from _through_time(run, "vanishes", lambda first, last: FAR_IN_TIME * first < last)


def _through_time(run: Evidence, verb: str, is_far: Callable[[float, float], bool]) -> Places:
    """Gradients that change from the last step in time to the first."""
    for path in {path: None for m in run.moments for path in m.through_time}:
        looks = list[Place]()
        for m in run.moments:
            first, last, steps = m.through_time.get(path, (0.0, 0.0, 0))
            text = f"∂L {verb} through time: {last:.2g} at step {steps}, {first:.2g} at step 1"
            looks.append((path, m.step, text if is_far(first, last) else ""))
        yield from lasting(looks)


def zero_weights(run: Evidence) -> Places:
    for path in run.zero_weights:
        yield path, run.moments[0].step, "its weights are 0 and stay 0: nothing tells units apart"


def zero_gradient(run: Evidence) -> Places:
    if run.zero_weights:
        return
    for path in run.flow.parameters:
        known = run.flow.series(path, "gradient")
        zero = [step for step, x in known if x == 0]
        if len(zero) > len(known) / 2 and path not in run.flow.in_theory:
            yield path, zero[0], f"it is exactly 0 in {len(zero)} of {len(known)} steps looked at"


def not_cleared(run: Evidence) -> Places:
    stale = [m for m in run.moments if m.stale]
    if len(stale) > 1 and len(stale) >= len(run.moments) - 1:
        yield stale[0].stale[0], stale[0].step, "gradients of earlier steps are added to its own"


# ------------------------------------------------------------------ updates, the loss, attention


def fast(run: Evidence) -> Places:
    if len(run.moments) > 1 and run.ratio > FAST:
        yield from _moves(run)


def slow(run: Evidence) -> Places:
    if run.known and run.ratio < SLOW:
        yield from _moves(run)


def _moves(run: Evidence) -> Places:
    if not run.learned(0.5):
        text = f"a step moves weights by {run.ratio:.1g} of their size, where 1e-3 is usual"
        yield "", run.moments[0].step, text


def diverging(run: Evidence) -> Places:
    """The loss is above where it began; or it swings by more than batches differ."""
    if not run.known or len(run.loss) < LEAST_STEPS:
        return
    start, later = abs(run.start), run.loss[len(run.loss) // 4 :]
    least = float(np.quantile(run.loss[len(run.loss) // 2 :], 0.1))
    swing, level = float(np.median(np.abs(np.diff(later)))), float(np.median(np.abs(later)))
    wide = swing > max(0.2 * level, 0.05 * start) and not run.learned(0.3)
    if run.end > run.start + 0.3 * start and least > run.start + 0.1 * start:
        since = int(np.flatnonzero(run.loss > run.start + 0.3 * start)[0])
        yield "", run.steps[since], _from_start_to_end(run)
    elif run.ratio > 0.01 and (wide or swing > 0.25 * start):
        yield "", run.steps[0], f"the loss oscillates by {swing:.2g} around {level:.2g}"


def plateau(run: Evidence) -> Places:
    """The loss ends where it began, or where the best constant guess is."""
    quarter = len(run.loss) // 4
    if run.known and run.guess < inf and len(run.loss) >= STEPS_TO_LEARN:
        before, last = run.loss[-2 * quarter : -quarter], run.loss[-quarter:]
        falls = float(np.median(last)) < 0.97 * float(np.median(before))
        if run.end > (1.1 if falls else 0.97) * run.guess:
            guess = f"where the best constant guess costs {run.guess:.3g}"
            yield "", run.steps[0], f"the loss ended at {run.end:.3g}, {guess}"
            return
    if run.known and run.end > 0.97 * run.start:
        yield "", run.steps[0], _from_start_to_end(run)


def _from_start_to_end(run: Evidence) -> str:
    return f"the loss began at {run.start:.3g} and ended at {run.end:.3g}"


def drift(run: Evidence) -> Places:
    """A head whose weights lie elsewhere than in the baseline, for several requests in a row."""
    if run.flow.baseline is None:
        return
    before = run.flow.baseline.requests
    for path in before[0].heads:
        baseline = [np.hstack(m.heads[path]) for m in before if path in m.heads]
        usual = np.mean(baseline, axis=0)  # entropy, sparsity, and shares of each distance
        most = max(divergence(figures[2:], usual[2:]) for figures in baseline)
        looks = list[Place]()
        for request in run.flow.requests:
            if path in request.heads:
                figures = np.hstack(request.heads[path])
                moved = divergence(figures[2:], usual[2:])
                text = f"its weights moved by {moved:.2f} bits (Jensen–Shannon) from the baseline, "
                text += f"which moves by at most {most:.2f}; entropy {usual[0]:.2f} → "
                text += f"{figures[0]:.2f}, sparsity {usual[1]:.0%} → {figures[1]:.0%}"
                is_far = moved > max(MOVED, MOVED_BY * most)
                looks.append((path, request.step, text if is_far else ""))
        yield from lasting(looks)


# ------------------------------------------------------------------ what is looked for


Rule: TypeAlias = Callable[[Evidence], Places]

NEARER = "a learning rate nearer to it; look at weight_decay, clipping and the schedule"
RULES: list[tuple[str, Rule, str]] = [  # kind, where it holds, what to try
    (
        "no gradient",
        no_gradient,
        "use it, give it to the optimizer, or look for detach(), numpy() or no_grad()",
    ),
    (
        "not finite",
        not_finite,
        "mg.anomaly() around that step names the op; a smaller learning rate",
    ),
    (
        "saturated",
        saturated,
        "smaller weights or inputs before it, a norm, scores divided by √d_k",
    ),
    (
        "exploding",
        exploding,
        "He's or Xavier's weights, a norm, clip_grad_norm, a smaller learning rate",
    ),
    (
        "vanishing",
        vanishing,
        "relu or gelu in place of sigmoid and tanh, residual connections, a norm, He's weights",
    ),
    (
        "vanishing",
        vanishing_through_time,
        "fewer steps, a gated cell whose forget gate begins open, attention",
    ),
    ("dead", dead, "a smaller learning rate, biases that begin at 0, leaky_relu or gelu"),
    (
        "zero gradient",
        zero_weights,
        "weights drawn at random, as He's or Xavier's; biases may begin at 0",
    ),
    ("zero gradient", zero_gradient, "look at what lies between it and the loss"),
    ("not cleared", not_cleared, "optimizer.zero_grad() in each step, before backward()"),
    ("update ratio", fast, NEARER),
    (
        "diverging",
        diverging,
        "a smaller learning rate (a third), clip_grad_norm, a larger batch, a warm-up; "
        "is the loss minimised, not maximised?",
    ),
    ("drift", drift, "compare the requests, then the weights, with those of the baseline"),
    ("update ratio", slow, NEARER),
    (
        "plateau",
        plateau,
        "can it learn one batch by heart? look at labels, scale of inputs, learning rate",
    ),
]
IF_NOTHING_ELSE = (slow, plateau)  # hold in many a run that has another fault

"""What went wrong in a training run, in words: the figures, the step where it began, what to try.

A limit is relative to the run itself wherever theory gives one. In a network of relus without
biases Σ W ∘ ∂L/∂W is the same for each layer, and residual paths and norms keep it close to that:
so ‖W‖ ‖∂L/∂W‖, the pull on a weight, is compared from layer to layer, not the gradient's bare size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import isfinite, prod
from typing import TypeVar

import numpy as np

from .flow import Finding, Findings, FlowRecord, Moment
from .heads import divergence

__all__ = ["diagnose"]

T = TypeVar("T")

STEPS = 20  # a loss of fewer steps says nothing
STEPS_TO_LEARN = 50  # in fewer steps a model may not have learned anything yet
FAST, SLOW = 0.1, 1e-4  # update to weight; 1e-3 is usual
FADING = 5e-3  # of the pull on the last layers
TIME_FADING = 1e-5  # of the gradient at the last time
PULL, GROWN = 300.0, 50.0  # the pull over the loss; values from the first layer to the last
LEAST_DEPTH = 6  # values that grow by depth
DEAD, FLAT, SHARP = 0.5, 0.7, 0.9  # shares of units, of entries, of rows
MOVED, MOVED_BY = 0.05, 3.0  # bits, and times the most that the baseline moves by itself
ONE_BATCH = "can it learn one batch by heart? look at labels, scale of inputs, learning rate"


class Run:
    """A flow up to its first NaN, as the rules read it."""

    def __init__(self, flow: FlowRecord) -> None:
        self.flow = flow
        self.broken = min(
            [*_broken_losses(flow), *(m.step for m in flow.moments if _broken(m))], default=None
        )
        self.moments = [m for m in flow.moments if self.broken is None or m.step < self.broken]
        self.matrices = [p for p in flow.parameters if len(flow.shapes.get(p, ())) > 1]
        known = [(s, x) for s, x in flow.losses if self.broken is None or s < self.broken]
        self.steps, self.loss = [s for s, _ in known], np.array([x for _, x in known], float)
        width = max(1, min(8, len(known) // 5))
        self.known = flow.steps >= STEPS and len(known) >= 4
        self.begun = self.end = self.start = 1.0
        if self.known:
            self.begun, self.end = (
                float(np.median(x)) for x in (self.loss[:width], self.loss[-width:])
            )
            self.start = min(self.begun, float(self.loss[0]))
        guesses = [m.guess for m in self.moments if m.guess]
        self.guess = float(np.mean(guesses)) if guesses else None
        moved = [p for p in self.matrices if not any(p in m.missing for m in self.moments)]
        self.ratio = _median([self.middle(path) for path in moved], 1e-3)

    def middle(self, path: str) -> float | None:
        found = [x for _, x in self.flow.series(path, "update")]
        return float(np.median(found)) if found else None

    def learned(self, share: float) -> bool:
        """Whether the loss fell below this share of where it began, and of the best guess."""
        known = [x for x in (self.start, self.guess) if x is not None]
        return self.known and self.end < share * min(known)

    def pull(self, moment: Moment, path: str) -> float:
        """‖W‖ ‖∂L/∂W‖."""
        one = moment.readings.get(path)
        return (
            0.0
            if one is None or one.gradient is None
            else one.value * one.gradient * prod(self.flow.shapes[path])
        )

    def lasting(self, holds: Callable[[Moment], T | None]) -> tuple[Moment, T] | None:
        """The moment where something began to hold three times in a row; of fewer, all times."""
        found = [holds(moment) for moment in self.moments]
        need = min(3, len(found))
        for i in range(len(found) - need + 1) if need else ():
            first = found[i]
            if first is not None and all(x is not None for x in found[i : i + need]):
                return self.moments[i], first
        return None

    def finding(self, kind: str, path: str, step: int, text: str, remedy: str) -> Finding:
        return Finding(kind, path, step, self.flow.steps, text, remedy)


def diagnose(flow: FlowRecord) -> Findings:
    """What the record of a run shows, what began first before the rest; of a healthy run
    nothing."""
    run = Run(flow)
    rules = (no_gradient, not_finite, saturated, exploding, vanishing, dead, zero_gradient,
             update_ratio, diverging, drift)  # fmt: skip
    found = [one for rule in rules for one in _merged([*rule(run)])]
    found.sort(key=lambda one: one.first)  # of one step, in the order of the rules
    return Findings(found or [*slow(run)] or [*plateau(run)])


def _merged(alike: Sequence[Finding]) -> list[Finding]:
    """What a rule found in several places: the first of them, and where else; for each kind."""
    by_text: dict[str, list[Finding]] = {}
    for one in alike:
        by_text.setdefault(one.kind, []).append(one)
    merged = []
    for ones in by_text.values():
        first = min(ones, key=lambda one: one.first)
        others = ", ".join(one.path for one in ones if one is not first)
        others = others if len(others) < 120 else f"{others[:119]}…"
        more = f"; and {len(ones) - 1} more: {others}" if others else ""
        merged.append(replace(first, text=first.text + more))
    return merged


def _broken(moment: Moment) -> bool:
    loss = moment.loss is not None and not isfinite(moment.loss)
    return loss or any(not one.finite for one in moment.readings.values())


def _broken_losses(flow: FlowRecord) -> Iterator[int]:
    return (step for step, x in flow.losses if not isfinite(x))


def _median(numbers: Iterable[float | None], otherwise: float = 0.0) -> float:
    known = [x for x in numbers if x is not None and isfinite(x)]
    return float(np.median(known)) if known else otherwise


# ------------------------------------------------------------------ values and gradients


def not_finite(run: Run) -> Iterator[Finding]:
    if run.broken is None:
        return
    moment = next((m for m in run.flow.moments if m.step == run.broken), None)
    path = "" if moment is None else _first_broken(moment)
    text = f"{path} is the first value that is not finite" if path else "the loss is not finite"
    remedy = f"mg.anomaly() around step {run.broken} names the op; a smaller learning rate"
    yield run.finding("not finite", path, run.broken, text, remedy)


def _first_broken(moment: Moment) -> str:
    values = (path for path, one in moment.readings.items() if not isfinite(one.value))
    gradients = (path for path, one in reversed(moment.readings.items()) if not one.finite)
    return next(values, next(gradients, ""))


def no_gradient(run: Run) -> Iterator[Finding]:
    remedies = {
        "no op of the step takes it": "use it, or take it out of the model",
        "ops take it under no_grad alone": "call the layer outside of no_grad()",
        "the optimizer does not have it": "optimizer over model.parameters()",
    }
    otherwise = "look for detach(), numpy() or a branch that the loss does not depend on"
    for path in run.flow.parameters:
        steps = [(m.step, m.missing[path]) for m in run.moments if path in m.missing]
        if steps and len(steps) == len(run.moments) and steps[0][1] != "frozen":
            step, why = steps[0]
            yield run.finding("no gradient", path, step, why, remedies.get(why, otherwise))


def zero_gradient(run: Run) -> Iterator[Finding]:
    for path in run.flow.parameters:
        known = run.flow.series(path, "gradient")
        zero = [step for step, x in known if x == 0]
        if (
            zero
            and len(zero) >= max(min(3, len(known)), len(known) // 2)
            and path not in run.flow.in_theory
        ):
            text = f"its gradient is exactly 0 in {len(zero)} of {len(known)} steps looked at"
            yield run.finding(
                "zero gradient", path, zero[0], text, "look at what lies between it and the loss"
            )


def _fading(moment: Moment, run: Run) -> tuple[float, str, float, str] | None:
    """The strongest pull on the first quarter of the weights, far below that on the last."""
    pulls = [(x, path) for path in run.matrices if 0 < (x := run.pull(moment, path)) < np.inf]
    if len(pulls) < 3:
        return None
    quarter = max(1, len(pulls) // 4)
    (first, path), (last, end) = max(pulls[:quarter]), max(pulls[-quarter:])
    return (first, path, last, end) if first < FADING * last else None


def vanishing(run: Run) -> Iterator[Finding]:
    for path in run.flow.kinds:
        began = run.lasting(lambda m, path=path: _through_time(m, path))  # type: ignore[misc]
        if began and not run.learned(0.8):
            text = f"back through time from {began[1][1]:.2g} to {began[1][0]:.2g}"
            remedy = "a forget gate's bias of 1 or more, a shorter sequence, orthogonal weights"
            yield run.finding("vanishing", path, began[0].step, text, remedy)
            return
    began_depth = run.lasting(lambda m: _fading(m, run))
    if began_depth is not None:
        moment, (first, path, last, end) = began_depth
        text = (
            f"the pull ‖W‖·‖∂L/∂W‖ is {last:.2g} at {end} and {first:.2g} at {path}, "
            f"{last / first:,.0f} times less"
        )
        remedy = (
            "relu or gelu in place of sigmoid and tanh, residual connections, a norm, He's weights"
        )
        yield run.finding("vanishing", path, moment.step, text, remedy)


def _through_time(moment: Moment, path: str) -> tuple[float, float] | None:
    """Of a value that one line makes again and again: gradients of the first and the last, if that
    of the first is far smaller."""
    again = [p for p in moment.readings if p.startswith(f"{path}[")]
    if not again:
        return None
    first, last = (moment.readings[p].gradient or 0.0 for p in (path, again[-1]))
    return (first, last) if 0 < first < TIME_FADING * last < np.inf else None


def exploding(run: Run) -> Iterator[Finding]:
    remedy = "He's or Xavier's weights, a norm, clip_grad_norm, a smaller learning rate"
    if run.learned(0.5):
        return
    for moment in run.moments[:1]:
        if (found := _grown(moment, run)) is not None:
            first, path, last, end = found
            text = f"values grow by depth, from {first:.2g} at {path} to {last:.2g} at {end}"
            yield run.finding("exploding", end, moment.step, text, remedy)
            return
    scale = max(abs(run.start), 1e-30)
    for moment in run.moments:
        for path in run.matrices:
            if np.inf > (pull := run.pull(moment, path)) > PULL * scale and run.known:
                gradient = moment.readings[path].gradient
                times = f"‖W‖·‖∂L/∂W‖ is {pull / scale:,.0f} times the loss"
                text = f"its gradient's rms is {gradient:.3g}, and {times}"
                yield run.finding("exploding", path, moment.step, text, remedy)
                return


def _grown(moment: Moment, run: Run) -> tuple[float, str, float, str] | None:
    """Values that grow from layer to layer: the first, and the largest."""
    kinds, words = run.flow.kinds, run.flow.words
    values = [
        (one.value, path)
        for path, one in moment.readings.items()
        if kinds[path] != "parameter" and path not in words and 0 < one.value < np.inf
    ]
    if len(values) < LEAST_DEPTH:
        return None
    logs = np.log([x for x, _ in values])
    end = int(logs.argmax())
    steps = np.diff(logs[: end + 1])
    deep = end >= LEAST_DEPTH - 1 and float(np.mean(steps > 0)) >= 0.65
    return (*values[0], *values[end]) if deep and logs[end] - logs[0] > np.log(GROWN) else None


# ------------------------------------------------------------------ units that let nothing back


def _stuck(run: Run, what: str, limit: float) -> Iterator[tuple[str, Moment, float]]:
    """Paths of which this share is at its limit or above, and since when."""
    for path, words in run.flow.words.items():
        if words.startswith(what):
            began = run.lasting(lambda m, path=path: _share(m, path, limit))  # type: ignore[misc]
            if began:
                yield path, *began


def _share(moment: Moment, path: str, limit: float) -> float | None:
    one = moment.readings.get(path)
    return one.share if one is not None and one.share is not None and one.share >= limit else None


def dead(run: Run) -> Iterator[Finding]:
    for path, since, share in _stuck(run, "units", 0.95 if run.learned(0.7) else DEAD):
        shape = run.flow.shapes[path]
        units = shape[1] if len(shape) > 3 else shape[-1] if shape else 1
        if share >= min(0.95, DEAD + units**-0.5):  # of few, many are so by chance
            units_of = f"{share:.0%} of the units of {run.flow.kinds[path]}"
            text = f"{units_of} are 0 for a whole batch and let no gradient back"
            remedy = "a smaller learning rate, biases that begin at 0, leaky_relu or gelu"
            yield run.finding("dead", path, since.step, text, remedy)


def saturated(run: Run) -> Iterator[Finding]:
    if run.learned(0.5):
        return
    remedy = "smaller weights or inputs before it, a norm, scores divided by √d_k"
    for what, limit, text in (
        ("entries", FLAT, "of the entries lie where {} is flat"),
        ("rows", SHARP, "of the rows of {} look at one place alone"),
    ):
        for path, since, share in _stuck(run, what, limit):
            said = f"{share:.0%} {text.format(run.flow.kinds[path])}"
            yield run.finding("saturated", path, since.step, said, remedy)


# ------------------------------------------------------------------ updates and the loss


def update_ratio(run: Run) -> Iterator[Finding]:
    if not run.learned(0.5) and run.ratio > FAST and len(run.moments) > 1:
        text = f"a step moves weights by {run.ratio:.1g} of their size, where 1e-3 is usual"
        remedy = f"a learning rate {run.ratio / 1e-3:,.0f} times smaller"
        yield run.finding("update ratio", "", run.moments[0].step, text, remedy)


def slow(run: Run) -> Iterator[Finding]:
    if run.known and not run.learned(0.5) and run.ratio < SLOW:
        text = f"a step moves weights by {run.ratio:.1g} of their size, where 1e-3 is usual"
        remedy = "a larger learning rate; look at weight_decay, clipping and the schedule"
        yield run.finding("update ratio", "", run.moments[0].step, text, remedy)


def diverging(run: Run) -> Iterator[Finding]:
    """The loss is above where it began; or it swings by more than batches differ."""
    if not run.known or len(run.loss) < STEPS:
        return
    later, begun = run.loss[len(run.loss) // 2 :], abs(run.begun)
    least = float(np.quantile(later, 0.1))
    first = abs(float(run.loss[0]))
    rose = run.end > run.begun + 0.3 * begun and least > run.begun + 0.1 * begun
    at_once = min(run.end, run.begun) > 3 * first and least > 2 * first and run.ratio > 0.01
    if rose or at_once:
        since = int(np.flatnonzero(run.loss > run.start + 0.3 * abs(run.start))[0])
        text = f"the loss began at {run.start:.3g} and ended at {run.end:.3g}"
        remedy = "a smaller learning rate, clip_grad_norm; is the loss minimised, not maximised?"
        yield run.finding("diverging", "", run.steps[since], text, remedy)
        return
    swing = float(np.median(np.abs(np.diff(run.loss[len(run.loss) // 4 :]))))
    level = float(np.median(np.abs(run.loss[len(run.loss) // 4 :])))
    wild = swing > max(0.25 * abs(run.start), 0.0) and run.ratio > 0.015
    wide = swing > 0.2 * level and swing > 0.05 * abs(run.start) and run.ratio > 0.01
    if wild or (wide and not run.learned(0.3)):
        text = (
            f"the loss moves by {swing:.2g} from step to step, around {level:.2g}; updates are "
            f"{run.ratio:.1g} of the weights: it oscillates"
        )
        yield run.finding(
            "diverging",
            "",
            run.steps[0],
            text,
            "a smaller learning rate (a third), a larger batch, a warm-up",
        )


def plateau(run: Run) -> Iterator[Finding]:
    """The loss ends where it began, or where the best constant guess is."""
    if not run.known:
        return
    if run.guess and len(run.loss) >= STEPS_TO_LEARN:
        quarter = len(run.loss) // 4
        before, last = run.loss[-2 * quarter : -quarter], run.loss[-quarter:]
        falls = float(np.median(last)) < 0.97 * float(np.median(before))
        if run.end > (1.1 if falls else 0.97) * run.guess:
            guess = f"the best constant guess costs {run.guess:.3g}"
            text = f"the loss ended at {run.end:.3g}, where {guess}"
            yield run.finding("plateau", "", run.steps[0], text, ONE_BATCH)
            return
    if run.end > 0.97 * run.begun:
        text = f"the loss began at {run.begun:.3g} and ended at {run.end:.3g}"
        yield run.finding("plateau", "", run.steps[0], text, ONE_BATCH)


# ------------------------------------------------------------------ drift of attention


def drift(run: Run) -> Iterator[Finding]:
    """A head whose weights lie elsewhere than in the baseline, for several requests in a row."""
    baseline = run.flow.baseline
    for path, head in _heads_of(baseline.requests) if baseline is not None else ():
        assert baseline is not None
        before = [one for m in baseline.requests if (one := _head(m, path, head)) is not None]
        now = [(m, one) for m in run.flow.requests if (one := _head(m, path, head)) is not None]
        if not before or not now:
            continue
        usual = np.mean([one.distances for one in before], axis=0)
        most = max(divergence(np.array(one.distances), usual) for one in before)
        moved = [divergence(np.array(one.distances), usual) for _, one in now]
        limit = max(MOVED, MOVED_BY * most)
        need = min(3, len(moved))
        began = next(
            (i for i in range(len(moved) - need + 1) if min(moved[i : i + need]) > limit), None
        )
        if began is None:
            continue
        moment, one = now[began]
        entropy, sparsity = (
            float(np.mean([getattr(x, f) for x in before])) for f in ("entropy", "sparsity")
        )
        text = (
            f"its weights moved by {moved[began]:.2f} bits (Jensen–Shannon, over distances) from "
            f"the baseline, which itself moves by at most {most:.2f}; entropy {entropy:.2f} → "
            f"{one.entropy:.2f}, sparsity {sparsity:.0%} → {one.sparsity:.0%}"
        )
        remedy = "compare the requests, then the weights, with those of the baseline"
        yield Finding("drift", f"{path}[{head}]", moment.step, now[-1][0].step, text, remedy)


def _heads_of(requests: Sequence[Moment]) -> list[tuple[str, int]]:
    return (
        [(path, h) for path, found in requests[0].heads.items() for h in range(len(found))]
        if requests
        else []
    )


def _head(moment: Moment, path: str, head: int):  # type: ignore[no-untyped-def]
    found = moment.heads.get(path, [])
    return found[head] if head < len(found) else None

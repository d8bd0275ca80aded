"""What went wrong in a training run, in words: the figures, the step where it began, what to try.

A limit is relative to the run itself wherever theory gives one. In a network of relus without
biases Σ W ∘ ∂L/∂W is the same for each layer, and residual paths and norms keep it close to that:
so ‖W‖ ‖∂L/∂W‖, the pull on a weight, is compared from layer to layer, not the gradient's bare size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, isfinite, prod
from typing import TypeAlias

import numpy as np

from .flow import Finding, Findings, FlowRecord, Moment
from .heads import Head, divergence

__all__ = ["diagnose"]

Said: TypeAlias = "tuple[str, str] | None"  # where, and what was measured
Found: TypeAlias = Iterator[tuple[str, int, str]]  # where, since which step, what was measured

LEAST_STEPS = 20  # a loss of fewer steps says nothing
STEPS_TO_LEARN = 50  # in fewer steps a model may not have learned anything yet
FAST, SLOW = 0.1, 1e-4  # update to weight; 1e-3 is usual
FADING = 5e-3  # of the pull on the last layers
PULL, GROWN = 300.0, 50.0  # the pull over the loss; values from the first layer to the last
LEAST_DEPTH = 6  # values that grow by depth
SHARES = {"units": 0.5, "entries": 0.7, "rows": 0.9}  # that are dead or saturated
MOVED, MOVED_BY = 0.05, 3.0  # bits, and times the most that the baseline moves by itself


class Evidence:
    """A flow up to its first NaN, as the rules read it."""

    def __init__(self, flow: FlowRecord) -> None:
        self.flow = flow
        broken = [step for step, x in flow.losses if not isfinite(x)]
        broken += [m.step for m in flow.moments if not all(r.finite for r in m.readings.values())]
        self.end_step = min(broken, default=flow.steps)
        self.is_broken = bool(broken)
        self.moments = [m for m in flow.moments if m.step < self.end_step]
        self.matrices = [p for p in flow.parameters if len(flow.shapes.get(p, ())) > 1]
        known = [(step, x) for step, x in flow.losses if step < self.end_step]
        self.steps, self.loss = [s for s, _ in known], np.array([x for _, x in known], float)
        width = max(1, min(8, len(known) // 5))
        self.known = flow.steps >= LEAST_STEPS and len(known) >= 4
        ends = (self.loss[:width], self.loss[-width:]) if self.known else (np.ones(1), np.ones(1))
        self.begun, self.end = (float(np.median(end)) for end in ends)
        self.start = min(self.begun, float(self.loss[0])) if self.known else 1.0
        guesses = [m.guess for m in self.moments if m.guess]
        self.guess = float(np.mean(guesses)) if guesses else None
        moved = [p for p in self.matrices if not any(p in m.missing for m in self.moments)]
        ratios = [np.median([x for _, x in flow.series(p, "update")] or [1e-3]) for p in moved]
        self.ratio = float(np.median(ratios)) if ratios else 1e-3

    def learned(self, share: float) -> bool:
        """Whether the loss fell below this share of where it began, and of the best guess."""
        return self.known and self.end < share * min(self.start, self.guess or inf)

    def pull(self, moment: Moment, path: str) -> float:
        """‖W‖ ‖∂L/∂W‖."""
        one = moment.readings.get(path)
        size = 0.0 if one is None else one.value * (one.gradient or 0.0)
        return size * prod(self.flow.shapes[path])

    def lasting(self, said: Callable[[Moment], Said]) -> Found:
        """What began to hold three times in a row, and then; of fewer moments, all times.

        Args: said: where it holds in a moment, and what was measured.
        """
        found = [said(moment) for moment in self.moments]
        need = min(3, len(found)) or 1
        for i, one in enumerate(found[: len(found) - need + 1]):
            if one is not None and None not in found[i : i + need]:
                yield one[0], self.moments[i].step, one[1]
                return


def diagnose(flow: FlowRecord) -> Findings:
    """What a run shows, what began first before the rest; of a healthy run nothing."""
    run = Evidence(flow)
    found = [one for kind in RULES if (one := _finding(run, kind, [*RULES[kind](run)]))]
    found.sort(key=lambda one: one.first)  # of one step, in the order of the rules
    for kind, rule in {"update ratio": slow, "plateau": plateau}.items():
        one = None if found else _finding(run, kind, [*rule(run)])
        found += [] if one is None else [one]
    return Findings(found)


def _finding(run: Evidence, kind: str, found: list[tuple[str, int, str]]) -> Finding | None:
    """What a rule found in several places: the first of them, and where else."""
    if not found:
        return None
    first = min(found, key=lambda one: one[1])
    others = ", ".join(path for path, *_ in found if path != first[0])
    others = others if len(others) < 120 else f"{others[:119]}…"
    more = f"; and {len(found) - 1} more: {others}" if others else ""
    return Finding(kind, *first[:2], first[2] + more, REMEDIES[kind])


# ------------------------------------------------------------------ values and gradients


def not_finite(run: Evidence) -> Found:
    if run.is_broken:
        step = run.end_step
        readings = next((m.readings for m in run.flow.moments if m.step == step), {})
        paths = [path for path, one in readings.items() if not isfinite(one.value)]
        paths += [path for path, one in reversed(readings.items()) if not one.finite]
        yield "".join(paths[:1]), step, "the first value that is not finite"


def no_gradient(run: Evidence) -> Found:
    for path in run.flow.parameters:
        why = [m.missing.get(path, "") for m in run.moments]
        if why and all(why) and why[0] != "frozen":
            yield path, run.moments[0].step, why[0]


def zero_gradient(run: Evidence) -> Found:
    for path in run.flow.parameters:
        known = run.flow.series(path, "gradient")
        zero = [step for step, x in known if x == 0]
        often = len(zero) >= max(min(3, len(known)), len(known) // 2)
        if zero and often and path not in run.flow.in_theory:
            yield path, zero[0], f"it is exactly 0 in {len(zero)} of {len(known)} steps looked at"


def vanishing(run: Evidence) -> Found:
    def by_depth(moment: Moment) -> Said:
        """The strongest pull on the first quarter of the weights, far below that on the last."""
        pulls = [(x, path) for path in run.matrices if 0 < (x := run.pull(moment, path)) < inf]
        if len(pulls) < 3:
            return None
        quarter = max(1, len(pulls) // 4)
        (first, path), (last, end) = max(pulls[:quarter]), max(pulls[-quarter:])
        said = f"the pull ‖W‖·‖∂L/∂W‖ is {first:.2g} here and {last:.2g} at {end}"
        return (path, said) if first < FADING * last else None

    yield from run.lasting(by_depth)


def exploding(run: Evidence) -> Found:
    if run.learned(0.5) or not run.moments:
        return
    first = run.moments[0]
    values = [
        (one.value, path)
        for path, one in first.readings.items()
        if run.flow.kinds[path] != "parameter" and path not in run.flow.words and one.value > 0
    ]
    logs = np.log([x for x, _ in values] or [1.0])
    end = int(logs.argmax())
    rises = end >= LEAST_DEPTH - 1 and np.mean(np.diff(logs[: end + 1]) > 0) >= 0.65
    if rises and logs[end] - logs[0] > np.log(GROWN):
        (least, path), (most, last) = values[0], values[end]
        yield last, first.step, f"values grow by depth, from {least:.2g} at {path} to {most:.2g}"
        return
    for moment in run.moments if run.known else ():
        for path in run.matrices:
            times = run.pull(moment, path) / (abs(run.start) or 1e-30)
            if inf > times > PULL:
                yield path, moment.step, f"‖W‖·‖∂L/∂W‖ is {times:,.0f} times the loss"
                return


def _stuck(run: Evidence, what: str, limit: float) -> Found:
    """Paths of which this share is dead or saturated, and since when."""
    for path, words in run.flow.words.items():
        shape = run.flow.shapes[path]
        units = shape[1] if len(shape) > 3 else shape[-1] if shape else 1
        least = min(0.95, limit + units**-0.5) if what == "units" else limit  # few, by chance

        def said(m: Moment, path: str = path, words: str = words, least: float = least) -> Said:
            share = m.readings[path].share or 0.0 if path in m.readings else 0.0
            return (path, f"{share:.0%} {words}") if share >= least else None

        if words.startswith(what):
            yield from run.lasting(said)


def dead(run: Evidence) -> Found:
    yield from _stuck(run, "units", 0.95 if run.learned(0.7) else SHARES["units"])


def saturated(run: Evidence) -> Found:
    for what in ("entries", "rows") if not run.learned(0.5) else ():
        yield from _stuck(run, what, SHARES[what])


# ------------------------------------------------------------------ updates and the loss


def update_ratio(run: Evidence) -> Found:
    if not run.learned(0.5) and run.ratio > FAST and len(run.moments) > 1:
        yield "", run.moments[0].step, _moves(run)


def slow(run: Evidence) -> Found:
    if run.known and not run.learned(0.5) and run.ratio < SLOW:
        yield "", run.moments[0].step, _moves(run)


def _moves(run: Evidence) -> str:
    return f"a step moves weights by {run.ratio:.1g} of their size, where 1e-3 is usual"


def diverging(run: Evidence) -> Found:
    """The loss is above where it began; or it swings by more than batches differ."""
    if not run.known or len(run.loss) < LEAST_STEPS:
        return
    later = run.loss[len(run.loss) // 4 :]
    start, first = abs(run.start), abs(float(run.loss[0]))
    least = float(np.quantile(run.loss[len(run.loss) // 2 :], 0.1))
    rose = run.end > run.begun + 0.3 * abs(run.begun) and least > run.begun + 0.1 * abs(run.begun)
    at_once = min(run.end, run.begun) > 3 * first and least > 2 * first and run.ratio > 0.01
    swing, level = float(np.median(np.abs(np.diff(later)))), float(np.median(np.abs(later)))
    wide = swing > max(0.2 * level, 0.05 * start) and run.ratio > 0.01 and not run.learned(0.3)
    if rose or at_once:
        since = int(np.flatnonzero(run.loss > run.start + 0.3 * start)[0])
        yield "", run.steps[since], f"the loss began at {run.start:.3g} and ended at {run.end:.3g}"
    elif wide or (swing > 0.25 * start and run.ratio > 0.015):
        yield "", run.steps[0], f"the loss oscillates by {swing:.2g} around {level:.2g}"


def plateau(run: Evidence) -> Found:
    """The loss ends where it began, or where the best constant guess is."""
    quarter = len(run.loss) // 4
    if run.known and run.guess and len(run.loss) >= STEPS_TO_LEARN:
        before, last = run.loss[-2 * quarter : -quarter], run.loss[-quarter:]
        falls = float(np.median(last)) < 0.97 * float(np.median(before))
        if run.end > (1.1 if falls else 0.97) * run.guess:
            guess = f"where the best constant guess costs {run.guess:.3g}"
            yield "", run.steps[0], f"the loss ended at {run.end:.3g}, {guess}"
            return
    if run.known and run.end > 0.97 * run.begun:
        yield "", run.steps[0], f"the loss began at {run.begun:.3g} and ended at {run.end:.3g}"


def drift(run: Evidence) -> Found:
    """A head whose weights lie elsewhere than in the baseline, for several requests in a row."""
    usual_requests = run.flow.baseline.requests if run.flow.baseline is not None else []
    for path, count in {p: len(h) for m in usual_requests[:1] for p, h in m.heads.items()}.items():
        for head in range(count):
            before, now = (_heads(m, path, head) for m in (usual_requests, run.flow.requests))
            usual = np.mean([one.distances for _, one in before] or [()], axis=0)
            most, *moved = (
                [divergence(np.array(one.distances), usual) for _, one in some]
                for some in (before, now)
            )
            limit, need = max(MOVED, MOVED_BY * max(most, default=0.0)), min(3, len(now)) or 1
            for i in range(len(now) - need + 1):
                if min(moved[0][i : i + need]) > limit:
                    step, one = now[i]
                    entropy = np.mean([x.entropy for _, x in before])
                    sparsity = np.mean([x.sparsity for _, x in before])
                    said = (
                        f"its weights moved by {moved[0][i]:.2f} bits (Jensen–Shannon, over "
                        f"distances) from the baseline, which itself moves by at most "
                        f"{max(most):.2f}; entropy {entropy:.2f} → {one.entropy:.2f}, sparsity "
                        f"{sparsity:.0%} → {one.sparsity:.0%}"
                    )
                    yield f"{path}[{head}]", step, said
                    break


def _heads(requests: list[Moment], path: str, head: int) -> list[tuple[int, Head]]:
    pairs = ((m.step, m.heads[path][head]) for m in requests if path in m.heads)
    return [(step, one) for step, one in pairs if one is not None]


RULES: dict[str, Callable[[Evidence], Found]] = {
    "no gradient": no_gradient,
    "not finite": not_finite,
    "saturated": saturated,
    "exploding": exploding,
    "vanishing": vanishing,
    "dead": dead,
    "zero gradient": zero_gradient,
    "update ratio": update_ratio,
    "diverging": diverging,
    "drift": drift,
}
REMEDIES = {
    "no gradient": "use it, give it to the optimizer, or look for detach(), numpy() or no_grad()",
    "not finite": "mg.anomaly() around that step names the op; a smaller learning rate",
    "saturated": "smaller weights or inputs before it, a norm, scores divided by √d_k",
    "exploding": "He's or Xavier's weights, a norm, clip_grad_norm, a smaller learning rate",
    "vanishing": "relu or gelu in place of sigmoid and tanh, residual connections, a norm, He's "
    "weights",
    "dead": "a smaller learning rate, biases that begin at 0, leaky_relu or gelu",
    "zero gradient": "look at what lies between it and the loss",
    "update ratio": "a learning rate nearer to it; look at weight_decay, clipping and the schedule",
    "diverging": "a smaller learning rate (a third), clip_grad_norm, a larger batch, a warm-up; is "
    "the loss minimised, not maximised?",
    "plateau": "can it learn one batch by heart? look at labels, scale of inputs, learning rate",
    "drift": "compare the requests, then the weights, with those of the baseline",
}

"""Rules about what a run was given: its graph, its data, its weights, its update."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .findings import Finding
from .guess import entropy
from .watched_run import WatchedRun

__all__ = ["GIVEN", "not_learning", "one_class", "structure", "unused_rows"]

ENOUGH, SORTED = 8, 0.5  # targets of a batch; spread within a batch, of that of all
IDS = 20  # looked up, for each row of a table

REMEDIES = {
    "double softmax": "give cross_entropy the scores themselves; it has a softmax of its own",
    "last activation": "no activation after the last layer, or one that reaches all targets",
    "no activation": "relu, gelu or tanh between them",
    "input scale": "inputs of mean 0 and size 1: (x - x.mean(axis=0)) / x.std(axis=0)",
    "broadcast": "the same shape for both: out.reshape((-1,))",
    "constant inputs": "look at how batches are made",
    "sees the future": "mask=layers.causal, or layers.create_causal_mask(n)",
    "evaluation mode": "model.train() before training",
    "random in evaluation": "model.eval() before evaluating, model.train() after it",
}


def structure(run: WatchedRun) -> Iterator[Finding]:
    for one in run.flow.structure:
        kind = one["kind"]
        unneeded = {"input scale": run.learned(0.1), "random in evaluation": not run.held_out}
        if not unneeded.get(kind, False):
            yield Finding(kind, int(one["step"]), one["path"], one["text"], REMEDIES[kind])


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
GIVEN = [why for why in WHY if why != "zero"]  # the others are known before any step


def not_learning(why: str) -> Callable[[WatchedRun], Iterator[Finding]]:
    words, remedy = WHY[why]
    kinds = {"stale": "stale gradient", "symmetric": "symmetric", "zero": "zero gradient"}
    kind = kinds.get(why, "no gradient")

    def rule(run: WatchedRun) -> Iterator[Finding]:
        count = len(run.samples)
        enough = max(min(3, count), count // 2) if why == "zero" else count - (why == "stale")
        for row in run.flow.rows.values():
            steps = [s.step for s in run.samples if s.notes.get(row.path) == why]
            if steps and len(steps) >= enough:
                yield Finding(kind, steps[0], row.path, f"{why}: {words}", remedy)

    return rule


# ------------------------------------------------------------------ the data


def one_class(run: WatchedRun) -> Iterator[Finding]:
    """Targets that differ little within a batch, though batches differ; or that never differ."""
    seen = [np.array(sample.targets) for sample in run.samples if len(sample.targets) >= ENOUGH]
    if len(seen) < 3:
        return
    of_all = np.concatenate(seen)
    first = run.samples[0].step
    whole = bool((of_all == np.round(of_all)).all())
    if of_all.min() == of_all.max():
        if run.flow.samples[0].guess is None:  # what an adversary is to say may well be 1
            return
        text = f"all targets that were looked at are {of_all[0]:.3g}"
        yield Finding("constant targets", first, "", text, "look at how batches are made")
        return
    spread = entropy if whole else np.var
    within, among = float(np.mean([spread(one) for one in seen])), float(spread(of_all))
    if within < SORTED * among:
        what = "entropy" if spread is entropy else "variance"
        text = f"the {what} of a batch's targets is {within:.2g}, that of all batches' {among:.2g}"
        yield Finding("sorted batches", first, "", text, "draw examples at random in each epoch")


def unused_rows(run: WatchedRun) -> Iterator[Finding]:
    """Rows of a table that ids never name, though there were many ids."""
    for row in run.weights:
        last = next((s.rows[row.path] for s in reversed(run.samples) if row.path in s.rows), {})
        share, ids = last.get("unused", 0.0), last.get("ids", 0.0)
        if share >= 0.5 and ids >= IDS * row.shape[0]:
            text = f"{share:.0%} of its {row.shape[0]:,} rows were never used, in {ids:,.0f} ids"
            remedy = "are the ids those of this table? a smaller one serves as well"
            yield Finding("unused rows", run.samples[0].step, row.path, text, remedy)

"""What `minigrad explain` says of a sentence: summary, gradients, weights, costs, verdict."""

from __future__ import annotations

import math
import textwrap
from typing import Any, NamedTuple

import numpy as np

from layers import flops_by_step, memory_by_array

from ..recording.record import Checks, Entry
from ..recording.trace import Trace
from ..views.attention import attentions
from ..views.attention.matrices import Grid, matrices
from ..views.plain import of_bytes, one_line
from ..views.table import checks_table
from ..views.terminal import Column, Paint, grid
from ..views.verdict import by_derivative
from .explanation import MOST_HEADS, Explanation
from .on_ranks import run_on_ranks
from .sentence import MULTI_HEAD, Settings, forward_backward, tokenize

__all__ = ["SentenceReport"]

MOST_TOKENS = 16  # shown unless all are asked for
ARRAYS = {"Q": "Q", "K": "K", "V": "V", "A": "attention matrix", "O": "output"}
# the step of the closed form that an op belongs to, by the name of what it makes
STEPS = {"S_raw": "scores", "S": "scaling", "S_masked": "mask", "A": "softmax", "O": "values"}
COLUMNS = [Column("step", shrink="end"), Column("counted", right=True), Column("", drop=1)]
COLUMNS += [Column("by formula", right=True)]


class SentenceReport(Explanation):
    """One run of a sentence, its gradients held against the formulas derived by hand."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.tokens = settings, tokenize(settings.text)
        self.vocabulary = sorted({token.lower() for token in self.tokens})
        self.title = f"{settings.layer}: {one_line(' '.join(settings.text.split()), 60)}"
        run_it: Any = forward_backward if settings.ranks == 1 else run_on_ranks
        self.trace, *more = run_it(settings, self.tokens, self.vocabulary)
        more = [] if settings.ranks == 1 else more
        self.weights = np.concatenate([one.A[0] for one in attentions(self.trace)])  # (h, n, n)
        self.loss = float(self.trace["loss"].value) + 0.0  # not −0
        self.checks = self.trace.check()
        self.checks += more[0] if more else []
        self.ranks = more[1:]
        self.flops, self.bytes = _costs(self.trace, settings, len(self.tokens))
        self.different = [c.step for c in [*self.flops, *self.bytes] if c.equal is False]
        self.known = {
            **vars(settings),
            "tokens": self.tokens,
            "vocabulary": self.vocabulary,
            "loss": self.loss,
            "attention_weights": self.weights.tolist(),
            "flops": [cost._asdict() for cost in self.flops],
            "bytes": [cost._asdict() for cost in self.bytes],
        }

    def succeeded(self) -> bool:
        return super().succeeded() and self.checks.ok and not self.different

    def parts(self, width: int, ascii: bool, everything: bool) -> list[str]:
        hint = "a row is the token that asks, a column one it attends to; each row sums to 1"
        hint += f"; {'-' if ascii else '·'} is masked" * self.settings.causal
        sizes = _cost_table("bytes of the layer's arrays", self.bytes, width, ascii)
        return [
            textwrap.fill(self._summary(), width),
            checks_table(self.checks, width, ascii=ascii),
            Paint().bold("attention weights A") + "\n" + textwrap.fill(hint, width),
            self._weights(width, ascii, everything),
            _cost_table("forward FLOPs of the layer", self.flops, width, ascii),
            sizes + "\n" + textwrap.fill(_saved(self.trace), width),
        ]

    def closing(self, width: int) -> list[str]:
        said = _agreement(self.checks)
        if self.different:
            said += f"; costs differ from the closed form: {', '.join(self.different)}"
        kind = "good" if self.succeeded() else "alarm"
        return ["\n".join(Paint()(kind, line) for line in textwrap.wrap(said, width))]

    def _summary(self) -> str:
        """Tokens, sizes and loss in one sentence."""
        s, n, words = self.settings, len(self.tokens), len(self.vocabulary)
        many = s.layer == MULTI_HEAD
        heads = f"{s.heads} head{'s' * (s.heads > 1)} of {s.d_k}"
        facts = [f"{n} token{'s' * (n > 1)} ({words} different)", f"d_model {s.d_model}"]
        facts += [heads if many else f"d_k {s.d_k}, d_v {s.d_v}"]
        facts += self.ranks
        facts += ["causal"] * s.causal + ["biases"] * s.bias + [s.dtype, f"seed {s.seed}"]
        title = f"{s.layer} attention" if many else s.layer
        goal = "the next token" if s.causal else "each token itself"
        loss = f"loss {self.loss:.4f} predicting {goal}, untrained"
        return f"{title}: {', '.join(facts)}; {loss}; guessing evenly gives {math.log(words):.4f}"

    def _weights(self, width: int, ascii: bool, everything: bool) -> str:
        """A map for each head, and a note on what is not shown."""
        heads, tokens, n = len(self.weights), self.tokens, len(self.tokens)
        shown = heads if everything else min(heads, MOST_HEADS)
        titles = [f"head {head + 1}" for head in range(shown)] if heads > 1 else ["weights"]
        masked = ~np.tri(n, dtype=bool) if self.settings.causal else np.zeros((n, n), bool)
        pairs = zip(titles, self.weights[:shown], strict=True)
        grids = [Grid(title, weights, masked, tokens, tokens) for title, weights in pairs]
        most = None if everything else MOST_TOKENS
        maps, notes = matrices(grids, width, ascii=ascii, whole=False, most=most)
        notes += [f"{shown} of {heads} heads shown"] if shown < heads else []
        if not everything and (shown < heads or n > MOST_TOKENS):
            notes.append("--all shows everything, trace.json has it")
        return "\n\n".join([maps, *([textwrap.fill("; ".join(notes), width)] if notes else [])])


def _agreement(checks: Checks) -> str:
    measured = [(c.difference.relative, c.symbol) for c in checks.measured if c.difference]
    wrong = checks.first_wrong
    if wrong is not None and (d := wrong.difference) is not None:
        return (
            f"first wrong: step {wrong.number}, {wrong.title}, gradient of {wrong.symbol} at "
            f"{list(d.index)}: engine {d.engine:.6g}, formula {d.formula:.6g}, "
            f"relative difference {d.relative:.1e}"
        )
    worst, symbol = max(measured, default=(0.0, ""))
    how = f", worst {worst:.1e} at {symbol}" if worst else " to the last bit"
    if checks.wrong_step is not None:
        return by_derivative(checks).said
    return f"all {len(measured)} gradients agree{how}" if measured else "nothing was measured"


# ---------------------------------------------------------------- costs


class Cost(NamedTuple):
    """One line of the account; `closed` is None where the closed form leaves the step out."""

    step: str
    counted: int
    closed: int | None

    @property
    def equal(self) -> bool | None:
        return None if self.closed is None else self.counted == self.closed


def _costs(trace: Trace, s: Settings, n: int) -> tuple[list[Cost], list[Cost]]:
    """FLOPs by step and bytes by array: as recorded, and as `layers` has them in closed form."""
    multi = s.layer == MULTI_HEAD
    scopes = tuple({f"{e.scope}/" for e in trace if e.name == "O"})  # the layer's, on each rank
    widths = {"n_heads": s.heads} if multi else {"d_k": s.d_k, "d_v": s.d_v}
    flops = flops_by_step(1, n, s.d_model, **widths)
    widths |= {"d_model": s.d_model} if multi else {}
    sizes = memory_by_array(1, n, dtype=s.dtype, **widths)
    counted, held = dict.fromkeys(flops, 0) | {"bias": 0}, dict.fromkeys(sizes, 0)
    for e in map(trace.__getitem__, trace.forward_steps):
        if not f"{e.scope}/".startswith(scopes):
            continue
        step, found = _step_of(trace, e), e.flops or 0
        if e.op == "linear":  # a product and a bias
            counted["bias"] += e.size
            found -= e.size
        counted[step] = counted.get(step, 0) + found
        if e.name in ARRAYS:
            held[ARRAYS[e.name]] += _nbytes(e)
    return _account(counted, flops), _account(held, sizes)


def _step_of(trace: Trace, entry: Entry) -> str:
    """Which step an op belongs to, by what it computes and from what."""
    sources = {trace[edge.source].name for edge in trace.into(entry)}
    if sources & {"W_Q", "W_K", "W_V"}:
        return "projections"
    return "output" if "W_O" in sources else STEPS.get(entry.name or "", "other")


def _account(counted: dict[str, int], closed: dict[str, int]) -> list[Cost]:
    """Steps of the closed form, their sum, then what it leaves out and is not nothing."""
    rows = [Cost(step, counted[step], closed[step]) for step in closed]
    rows.append(Cost("sum", sum(counted[step] for step in closed), sum(closed.values())))
    return rows + [Cost(step, n, None) for step, n in counted.items() if step not in closed and n]


def _cost_table(title: str, costs: list[Cost], width: int, ascii: bool) -> str:
    paint, rows = Paint(), []
    for cost in costs:
        mark = {True: "=", False: "!=" if ascii else "≠", None: ""}[cost.equal]
        mark = paint("alarm", mark) if cost.equal is False else mark
        closed = "left out" if cost.closed is None else f"{cost.closed:,}"
        rows.append([cost.step, f"{cost.counted:,}", mark, closed])
    return paint.bold(title) + "\n" + grid(COLUMNS, rows, width)


def _saved(trace: Trace) -> str:
    """What the whole graph keeps for backward."""
    kept = {source for entry in trace.entries for _, source in entry.saved if source is not None}
    total = sum(_nbytes(trace[i]) for i in kept if trace[i].kind != "parameter")
    what = "kept for backward in the whole graph, each array once and parameters aside"
    return f"{what}: {of_bytes(total)}"


def _nbytes(entry: Entry) -> int:
    return entry.size * np.dtype(entry.dtype).itemsize

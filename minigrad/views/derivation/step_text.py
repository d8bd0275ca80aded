"""A step as text: its equations, why terms add, and the sizes of its gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

import numpy as np

from ...recording.checks import KINDS, CheckResult
from ...recording.record import Edge, Entry
from ..fold import is_within
from ..formula import Formula, latex, parse, slots, text
from ..formula.tree import is_negative
from ..model import STATES, ranged
from ..plain import one_line, sized
from ..repeats import repeats
from .equations import Equations
from .markdown import aligned, code, escaped, inline, listed
from .plan import DerivationPlan, DerivationStep
from .symbols import space

__all__ = ["StepText"]

LONGEST_SUM = 220  # characters of a sum whose terms are written out
SHARED_MATRICES = "The {0} matrices along {1} share {2}, so their {0} products add."
REPEATED = "{2} is repeated along {1}: each of its entries is used {0} times, so {0} terms add."
TERMS_ADD = (
    "**The terms add.** {0} is used {1} times{2}. A change of {0} reaches {3} on each of these "
    "ways, so by the chain rule the parts that come back along them add:"
)
TERMS = "Sizes (rms) of the terms: {}; the norm of their sum is {:.0%} of the sum of their norms."
WRONG = "**✗ The {}**: relative difference {:.1e}{}, allowed {:.1e}."
DIFFERS = (
    "**✗** {}{} gives {}, which differs: relative difference {:.1e}, allowed {:.1e}; at {} here "
    "{:.6g}, by the formula {:.6g}"
)


class StepText:
    def __init__(
        self, plan: DerivationPlan, equations: Equations, checks: dict[int, list[CheckResult]]
    ) -> None:
        self.plan = plan
        self.trace = plan.trace
        self.equations = equations
        self.checks = checks

    def forward(self, entries: list[Entry]) -> str:
        """Forward equations, one below the other, each after what it defines for itself."""
        rows = []
        for e in entries:
            formula = self.equations.forward(e)
            rows += [(latex(sign), latex(what), "") for sign, what in reversed(formula.signs)]
            rows.append((self.equations.name(e.id), latex(formula.body), space(e.shape, e.dtype)))
        return aligned(rows)

    def step(self, step: DerivationStep) -> list[str]:
        """A step: the forward equations that it reverses, then the gradients that it gives."""
        within = [i for shown_in in step.through for i in reversed(self.plan.within[shown_in])]
        ops = ", ".join(dict.fromkeys(self._op_with_settings(self.trace[i]) for i in within))
        names = ", ".join(inline(self.equations.name(i)) for i in step.through)
        where = f" in {code(step.scope)}" if step.scope else ""
        signs = self._defined(step)
        rows = [(latex(s), latex(what), "") for s, what in signs if not _in_words(what)]
        reasons = [r for e in step.edges if (r := self._reason(e))]
        here = [inline(f"{latex(s)} = {latex(what)}") for s, what in signs if _in_words(what)]
        reasons += [f"Here {listed(here)}."] if here else []
        measured = (check for i in within for check in self.trace[i].checks.values())
        wrong = [check for check in measured if check.ok is False]
        sources = list(dict.fromkeys(e.source for e in step.edges))
        totals = [part for i in sources for part in self.total(i, step.through)]
        return [
            f"### {step.number}. Through {names}",
            f"*{ops}{where}*",
            *self._words(within, step.edges),
            self.forward([self.trace[i] for i in step.through]),
            aligned([*rows, *map(self._gradient, step.edges)]),
            *([" ".join(reasons)] if reasons else []),
            *map(_wrong_rule, wrong),
            *self._sizes([i for i in sources if len(self.plan.live_uses(i)) == 1]),
            *totals,
        ]

    def _words(self, within: list[int], edges: Sequence[Edge]) -> list[str]:
        """What the ops of a step do, and what their rules do with the gradient, as they say it."""
        back: dict[str, list[str]] = {}
        for edge in edges:
            if says := self.trace[edge.target].rule_says(edge.input):
                back.setdefault(says, []).append(inline(self.equations.name(edge.source)))
        several = len(back) > 1
        to = (f"Back to {listed(names)}: " * several + escaped(s) for s, names in back.items())
        does = dict.fromkeys(escaped(self.trace[i].says) for i in within if self.trace[i].says)
        said = [*does, *to]
        return [" ".join(said)] if said else []

    # ------------------------------------------------------------------ equations

    def _gradient(self, edge: Edge) -> tuple[str, str, str]:
        """What a use sends back, as an equation whose left side is a gradient or a part of one."""
        space_of = space(self.trace[edge.source].shape)
        return self.contribution(edge), latex(self.equations.rule(edge).body), space_of

    def contribution(self, edge: Edge) -> str:
        """What a use sends back: a gradient, or a part of one."""
        alone = len(self.plan.live_uses(edge.source)) == 1
        return self.equations.slope(edge.source) if alone else self._part(edge)

    def _part(self, edge: Edge) -> str:
        shown_in, user = self.plan.shown_in, self.plan.shown_in(edge.target)
        twins = [e for e in self.plan.live_uses(edge.source) if shown_in(e.target) == user]
        which = rf",\,{twins.index(edge) + 1}" if len(twins) > 1 else ""
        slope = self.equations.slope(edge.source)
        return rf"\left.{slope}\right\rvert_{{{self.equations.name(user)}{which}}}"

    def _defined(self, step: DerivationStep) -> list[tuple[Formula, Formula]]:
        """The signs that the rules define for themselves, each once, before it is used."""
        formulas = [self.equations.forward(self.trace[i]) for i in step.through]
        known = [pair for formula in formulas for pair in formula.signs]
        signs = [pair for e in step.edges for pair in self.equations.rule(e).signs]
        return [pair for pair in reversed(dict.fromkeys(signs)) if pair not in known]

    def _op_with_settings(self, entry: Entry) -> str:
        """An op with those of its settings and arrays that its formulas do not show."""
        unsaid = [f"{name} = {one_line(entry.settings[name], 40)}" for name in entry.unsaid]
        named = {n for tex in (entry.tex, *entry.vjp_tex.values()) for n in slots(parse(tex))}
        for edge in self.trace.into(entry):
            if not named & {edge.input, edge.input.rstrip("0123456789")}:
                unsaid.append(f"{edge.input} = {text(self.equations.value(edge.source))}")
        return f"{entry.op} with {code(', '.join(unsaid))}" if unsaid else entry.op or ""

    def _reason(self, edge: Edge) -> str:
        """Why a gradient is a sum over axes."""
        axes = repeats(self.trace, edge)
        if axes is None:
            return ""
        along, name = ", ".join(map(inline, axes.letters)), inline(self.equations.name(edge.source))
        return (SHARED_MATRICES if axes.in_stack else REPEATED).format(
            prod(axes.sizes), along, name
        )

    def total(self, source: int, through: list[int]) -> list[str]:
        """Why the parts of a gradient add, in the step that gives the last of them."""
        shown_in = self.plan.shown_in
        terms = self.plan.sorted_terms(source)
        uses, count = [edge for edge, _ in terms], sum(times for _, times in terms)
        if count < 2 or shown_in(uses[-1].target) not in through:
            return []
        where = space(self.trace[source].shape)
        parts = [_repeated(self._part(edge), times) for edge, times in terms]
        rows = [(self.equations.slope(source), " + ".join(parts), where)]
        if not any(map(self.plan.hidden, (edge.target for edge in uses))):
            rules = [self.equations.rule(edge) for edge in uses]
            spelled = " + ".join(map(_term, (rule.body for rule in rules)))
            plain = not any(rule.signs for rule in rules) and count == len(uses)
            rows += [("", spelled, "")] if plain and len(spelled) <= LONGEST_SUM else []
        name = inline(self.equations.name(source))
        said = TERMS_ADD.format(name, count, self._users(terms), inline("L"))
        return [said, aligned(rows), *self._sizes_of_terms(source, terms), *self._sizes([source])]

    def _users(self, terms: list[tuple[Edge, int]]) -> str:
        """What uses a value: " in $H$", or ", in $H$ (2 times) and $O$"."""
        names = Counter[str]()
        for edge, times in terms:
            copies = f" in each of {times} copies" if times > 1 else ""
            names[inline(self.equations.name(self.plan.shown_in(edge.target))) + copies] += 1
        if len(names) == 1:
            return f" in {next(iter(names))}"
        each = [f"{name} ({n} times)" if n > 1 else name for name, n in names.items()]
        return f", in {listed(each)}"

    # ------------------------------------------------------------------ sizes

    def _sizes(self, sources: Sequence[int]) -> list[str]:
        """The rms of gradients, and the difference from hand-derived ones where it was measured."""
        if not self.plan.ran or not sources:
            return []
        lines = []
        for i in sources:
            entry = self.trace[i]
            glyph, meaning = STATES[entry.state]
            why = f": {entry.why}" if entry.state == "cancels" else ""
            state = "" if entry.state in ("ok", "wrong") else f" ({glyph} {meaning}{why})"
            said = [f"rms of {inline(self.equations.slope(i))}: {sized(entry.gradient_rms)}{state}"]
            said += [self._hand_derived(c) for c in self.checks.get(i, ()) if c.ok is not None]
            lines.append("; ".join(said))
        if any(i in self.checks for i in sources):
            return ["\n".join(f"- {line}" for line in lines)]
        return [f"{'; '.join(lines)}."]

    def _hand_derived(self, check: CheckResult) -> str:
        step = f"hand-derived step {check.number}, {code(check.title)}"
        assert check.step is not None
        uses = self.plan.live_uses(check.step)
        inside = [e for e in uses if self._is_inside(e, check)]
        through = "through" if check.op else "from within"
        part = f"the part {through} {code(check.scope)}: " if len(inside) < len(uses) else ""
        if check.ok:
            how = f"within {check.difference:.1e} of" if check.difference else "equal to"
            return f"✓ {part}{how} {step}"
        formula, place = inline(latex(parse(check.formula))), list(check.index)
        limits = check.difference, check.tolerance
        return DIFFERS.format(part, step, formula, *limits, place, check.measured, check.expected)

    def _is_inside(self, edge: Edge, check: CheckResult) -> bool:
        """Whether a use is by the layer or the op that was checked."""
        if check.op:
            return edge.target == check.symbols["out"]
        return is_within(self.trace[edge.target].scope, check.scope)

    def _sizes_of_terms(self, source: int, terms: list[tuple[Edge, int]]) -> list[str]:
        """The size of each term, and the norm of their sum relative to the sum of their norms."""
        whole = self.trace[source].gradient
        if not self.plan.ran or whole is None:
            return []
        each = ", ".join(map(self._size_of_term, terms))
        norms = sum(_norm(edge.contribution) for edge in self.plan.live_uses(source))
        return [TERMS.format(each, _norm(whole) / norms if norms else 0.0)]

    def _size_of_term(self, term: tuple[Edge, int]) -> str:
        edge, times = term
        name = inline(self.equations.name(self.plan.shown_in(edge.target)))
        copies = f" and its copies, {times} in all," if times > 1 else ""
        sizes = (e.contribution_rms for e in self.plan.alike(edge))
        return f"through {name}{copies} {ranged(size for size in sizes if size is not None)}"


def _wrong_rule(check: CheckResult) -> str:
    kind = KINDS[check.kind]
    said = f"{kind.mark} of {check.op} for {code(check.symbol)} {check.fault or kind.fault} it"
    return WRONG.format(said, check.difference, kind.beside, check.tolerance)


def _repeated(part: str, times: int) -> str:
    """A term that several copies of a block give."""
    return rf"\sum_{{{times}\ \mathrm{{copies}}}} {part}" if times > 1 else part


def _norm(array: object) -> float:
    return float(np.linalg.norm(np.asarray(array, np.float64)))


def _in_words(what: Formula) -> bool:
    """Whether a sign is a number or words, which are written beside the equations."""
    return what.kind in ("number", "text")


def _term(term: Formula) -> str:
    return rf"\left({latex(term)}\right)" if is_negative(term) else latex(term)

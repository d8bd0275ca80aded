"""What the page shows, as plain data: the record, packed arrays, formulas, chapters, attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from ...engine.errors import ArgumentError
from ...recording.checks import BY_HAND, KINDS, CheckResult, Checks
from ...recording.record import Edge, Entry
from ...recording.trace import TraceRecord
from ..attention.record import Tokens
from ..colors import BINS, FIXED, SCALES, Scale
from ..data import Json, node_to_dict, number
from ..fold import prefixes
from ..labels import mark, of_kind, reasons, words
from ..model import STATES, AnnotatedTrace
from ..plain import bare, capital, one_line, one_of
from ..repeats import repeats
from .arrays import ARRAY_KINDS, Arrays
from .formulas import Formulas, chapters, symbols
from .heads import attention_of, tokens_of
from .pictures import Pictures

__all__ = ["page_content"]
LEFT_OUT = ("path", "needs_gradient", "value", "gradient", "checks")
ALONE, COMPARED = "One forward and backward pass", "Two runs: their gradients, there over here"
LINK = "\0"  # where a sentence names a step, which the page links
STRIPS = 4  # blocks of most copies, whose gradient is shown along them
MOST_VALUES = 20_000  # that a browser steps through


def page_content(
    trace: TraceRecord,
    *,
    tokens: Tokens = None,
    title: str | None = None,
    arrays: str = "pooled",
    scale: str = "run",
    against: Any = None,  # a Comparison with another run
    tables: Sequence[Json] = (),  # shown with the whole pass, as Figures.to_dict() gives
) -> tuple[Json, Pictures]:
    """Everything the page needs: what is ready for JSON, and its pictures, not yet drawn.

    Raises: ArgumentError for a record or arrays too large, or unknown values of options.
    """
    if len(trace.entries) > MOST_VALUES:
        raise ArgumentError(
            f"html: this trace holds {len(trace.entries):,} values, a page at most "
            f"{MOST_VALUES:,}; trace fewer steps of the run, or see all of it with t.table() or "
            "t.draw(path, depth=1)"
        )
    one_of("html", SCALES, scale=scale)
    trace.analyze()
    model = AnnotatedTrace(trace, against=against)
    pictures = Pictures(model, scale)
    made = _Content(model, Arrays(arrays), model.scale if scale == "run" else FIXED)
    attention = attention_of(model, made.arrays)
    content = {
        "title": one_line(title or (COMPARED if against is not None else ALONE)),
        **made.graph(),
        "pictures": pictures.contents,
        "marks": pictures.marks,
        "rows": [*made.rows()],
        "strips": [*made.strips()],
        "chapters": chapters(model, made.formulas),
        "skipped": [one_line(scope) for scope in model.checks.skipped],
        "uncovered": [one_line(call) for call in dict.fromkeys(model.checks.uncovered)],
        "kinds": [*_kinds(model.checks)],
        "attention": attention,
        "tokens": tokens_of(tokens, trace, attention),
        "formulas": made.formulas.trees,
        "sentences": [*made.sentences],
        "arrays": made.arrays.packed(),
        "kept": ARRAY_KINDS[arrays].said,
        "tables": list(tables),
        "compared": against is not None,
        "scale": made.scale.bounds,
        "states": {state: [glyph, words] for state, (glyph, words) in STATES.items()},
    }
    return content, pictures


def _kinds(checks: Checks) -> Iterator[Json]:
    """Of each kind of check that found something: its verdict, shown above, and the first wrong."""
    for kind in KINDS.values():
        found, verdict = words(kind, checks), of_kind(kind, checks)
        if found["count"] or (verdict.said and kind.name != BY_HAND):
            wrong = checks.wrong(kind.name)
            why = ", ".join(reasons(kind, checks))
            found |= {"reasons": f" Not measured: {why}." if why else "", "link": LINK}
            said = (kind.page_differs if wrong else kind.page_agrees).format(**found)
            heading = kind.heading_differs if wrong else kind.heading_agrees
            if verdict.ok is None:
                said, heading = f"{capital(verdict.said)}.", kind.heading_nothing
            yield {
                "ok": verdict.ok,
                "said": said.split(LINK),
                "first": wrong[0].step if wrong else None,
                "chapters": kind.name == BY_HAND,
                "heading": heading.format(**found),
            }


def _check(entry: Entry, check: CheckResult) -> Json:
    """A step's check, in words."""
    kind = KINDS[check.kind]
    fault = check.fault or kind.fault
    figures = vars(kind) | {"op": check.op, "symbol": check.symbol, "fault": fault}
    return {
        "ok": check.ok,
        "mark": mark(entry, check),
        "said": (kind.step_agrees if check.ok else kind.step_differs).format(**figures),
        "method": check.method,
        "difference": number(check.difference),
        "tolerance": number(check.tolerance),
    }


class _Content:
    """The graph of a record as plain data; its arrays and formulas are collected on the way."""

    def __init__(self, model: AnnotatedTrace, arrays: Arrays, scale: Scale) -> None:
        self.model = model
        self.arrays = arrays
        self.scale = scale
        self.formulas, self.symbols = Formulas(), symbols(model.trace)
        self.sentences: dict[str, int] = {}

    def say(self, sentence: str) -> int | None:
        """The number of a sentence; each different one is in the page once."""
        return (
            self.sentences.setdefault(one_line(sentence), len(self.sentences)) if sentence else None
        )

    def graph(self) -> Json:
        model, trace = self.model, self.model.trace
        return {
            "nodes": [self.node(entry) for entry in trace.entries],
            "edges": [self.edge(edge) for edge in trace.edges],
            "folds": self.folds(),
            "forward": trace.forward_steps,
            "backward": trace.backward_steps,
            "roots": trace.roots,
            "flow": model.flow,
            "path": [edge.target for edge in model.path.edges] if model.path else [],
        }

    def node(self, entry: Entry) -> Json:
        node = node_to_dict(self.model.trace, entry)
        made = {key: value for key, value in node.items() if key not in LEFT_OUT}
        made |= {"home": self.model.place[entry.id], "scope": self.model.scope_of(entry)}
        made["broken"] = entry.broken or None
        made |= {name: one_line(made[name] or "") for name in ("name", "scope", "home", "place")}
        made["settings"] = {name: bare(text) for name, text in entry.settings.items()}
        made["value"] = self.arrays.add(entry.value, entry.shape)
        made["gradient"] = self.arrays.add(entry.gradient, entry.shape)
        made |= self.copy(entry) | {"symbol": self.formulas.add(self.symbols[entry.id])}
        label = self.model.label(entry)
        if entry.value_number > 1:
            made["name"] = one_line(label)
        made["role"] = "" if label in (entry.name, entry.op, entry.kind) else one_line(label)
        made["unresponsive"] = self.model.unresponsive(entry)
        if entry.gradient is not None:
            made |= self.sized(self.model.size(entry), entry)
        made["checks"] = [_check(entry, c) for c in entry.checks.values() if c.ok is not None]
        made |= self.formulas.of(entry) if entry.tex else {}
        made["says"] = self.say(entry.says)
        return {key: value for key, value in made.items() if value not in (None, "", [], {})}

    def copy(self, entry: Entry) -> Json:
        """Which entry it is a copy of, and its number in each fold around it, if not 0."""
        fold, lead = self.model.fold, self.model.fold.leader(entry.id)
        if lead == entry.id:
            return {}
        numbers = fold.numbers(entry.id).items()
        return {"lead": lead, "copy": {one_line(block): n for block, n in numbers if n}}

    def folds(self) -> Json:
        """Of each scope drawn for several: what each of them is called."""
        fold = self.model.fold
        return {one_line(block): [*map(one_line, names)] for block, names in fold.copies.items()}

    def rows(self) -> Iterator[Json]:
        """Of each parameter and input the gradients of all its copies, as the picture has them."""
        model, fold = self.model, self.model.fold
        for entry in model.trace.entries:
            copies = [e for e in model.copies(entry.id) if e.gradient is not None]
            if entry.op is not None or not copies or fold.leader(entry.id) != entry.id:
                continue
            names = (fold.name(s) for s in prefixes(model.place[entry.id]))
            spread = model.spread(copies)
            yield {
                "scope": one_line("/".join(names)),
                "node": entry.id,
                "bars": [[e.id, self.part(model.size(e))] for e in copies],
                "text": spread.text,
                "state": spread.state,
                "note": one_line(spread.note),
            }

    def strips(self) -> Iterator[Json]:
        """Of the blocks drawn for most copies, the gradient that each hands to its neighbour."""
        most = sorted(self.model.strips.items(), key=lambda item: -len(item[1].sizes))
        for scope, strip in most[:STRIPS]:
            if len(strip.sizes) > 2:
                yield {
                    "name": one_line(self.model.fold.name(scope)),
                    "text": strip.text,
                    "bars": [[self.bin(size or 0.0), self.part(size)] for size in strip.sizes],
                }

    def part(self, size: float | None) -> float:
        """The place of a size on the scale, in percent; 2 at least, to be visible; 0 for zero."""
        return round(max(2.0, 100 * self.scale.place(size)), 1) if size else 0.0

    def edge(self, edge: Edge) -> Json:
        trace = self.model.trace
        made: Json = {"source": edge.source, "target": edge.target, "input": edge.input}
        if (axes := repeats(trace, edge)) is not None:
            made["over"] = ",".join(axes.letters)
        if edge.contribution is not None:
            made["sent"] = self.arrays.add(edge.contribution, trace.entries[edge.source].shape)
            if (says := self.say(trace.entries[edge.target].rule_says(edge.input))) is not None:
                made["says"] = says
            made |= self.sized(self.model.sent(edge), trace.entries[edge.target])
        return made

    def sized(self, size: float | None, by: Entry) -> Json:
        """The colour of a gradient, not finite or wrong in red; and its ratio, if compared."""
        if self.model.against is not None:
            return {} if size is None else {"bin": self.bin(size), "ratio": size}
        return {"bin": BINS if by.state == "wrong" else self.bin(size or 0.0)}

    def bin(self, size: float) -> int:
        return self.scale.bin(size) if isfinite(size) else BINS

"""One run of a source: what is printed of it, what is recorded, what is written."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

from ..engine.errors import MissingDependencyError
from ..playing.run import Run, Source, run_loss
from ..recording.checks import Checks
from ..saving import write
from ..tracing import Trace
from ..views.data import number, trace_to_dict
from ..views.labels import Verdict, by_hand, by_step, by_value
from ..views.page import write_page
from ..views.page.embed import frame, script
from ..views.plain import one_line
from ..views.table import checks_table
from ..views.terminal import Paint
from .attention_report import AttentionReport, attention_report

__all__ = ["EMBEDDED", "FILES", "Report", "run_source"]

PAGE_FILE = "explain.html"
FRAME_FILE = "explain.iframe.html"
SCRIPT_FILE = "explain.script.html"
FILES = {
    "graph.svg": "the graph, forward and backward",
    PAGE_FILE: "a page that steps through it; open it in a browser, ? lists its keys",
    "derivation.md": "the backward pass written out, formula by formula",
    "trace.json": "every step, size and check",
}
EMBEDDED = {
    FRAME_FILE: "the page as an <iframe>, to paste into slides or a web page",
    SCRIPT_FILE: "the same as a <script> that makes the frame where it stands",
}
MOST_STEPS_PRINTED = 60  # of a table that is shown without being asked for
MOST_HEADS_DRAWN = 8


def run_source(source: Source) -> Report:
    """Run the function, and backward from what it returns unless it did so itself.

    Raises: ArgumentError if it returns no loss; whatever it raises, in the words of its source.
    """
    with source.around():
        run = run_loss(source.load(), source.title)
        checks = run.trace.checked()
    return Report(source, run, checks)


@dataclass
class Report:
    """A run, and the checks of its gradients."""

    source: Source
    run: Run
    checks: Checks

    @property
    def trace(self) -> Trace:
        return self.run.trace

    @cached_property
    def attention(self) -> AttentionReport | None:
        """What attention looked at, if there is any. Raises: ArgumentError if names do not fit."""
        return attention_report(self.trace, self.source.tokens, self.source.title)

    def succeeded(self) -> bool:
        """Whether nothing that was measured is wrong."""
        return self.checks.agree is not False and isfinite(self.run.loss)

    # ---------------------------------------------------------------- printed

    def parts(self, width: int, everything: bool) -> Iterator[str]:
        """Paragraphs of the report."""
        yield textwrap.fill(self._summary(), width)
        if self.attention:
            yield from self.attention.parts(width, everything)
        elif self.source.tokens:
            hidden = "no weights named A whose rows sum to 1"
            yield textwrap.fill(f"attention: none is seen in this run: {hidden}", width)
        steps, checks = len(self.trace.forward_steps), self.checks
        if everything or steps <= MOST_STEPS_PRINTED:
            yield self.trace.table(width)
            checks = Checks(checks, checks.skipped, checks.uncovered)  # the table says the others
        else:
            yield textwrap.fill(f"{steps} steps forward: --all shows each, as the page does", width)
        yield from self._checked(checks, width, everything)
        if self.attention:
            yield self.attention.maps(width, None if everything else MOST_HEADS_DRAWN)

    def _summary(self) -> str:
        trace = self.trace
        names = {"parameter": ("parameter",), "leaf": LEAF_WORDS}
        first = [e for e in trace.entries if e.value_number == 1]
        groups = {kind: [e for e in first if e.kind == kind] for kind in names}
        steps = f"{_count(len(trace.forward_steps), 'step')} forward"
        back = f"{len(trace.backward_steps)} backward" + ", run inside it" * self.run.inside
        numbers = "; ".join(
            f"{_count(len(leaves), *names[kind])} of {sum(e.size for e in leaves):,} numbers"
            for kind, leaves in groups.items()
            if leaves
        )
        facts = f"; {', '.join(self.source.facts)}" if self.source.facts else ""
        loss = f"loss {self.run.loss:.6g}"
        return f"{self.source.title}: {loss}; {steps}, {back}; {numbers}{facts}"

    def _checked(self, checks: Checks, width: int, everything: bool) -> Iterator[str]:
        """The hand-derived steps: of many layers the first that is wrong; and the verdicts."""
        wrong = checks.first_wrong
        scopes = dict.fromkeys(check.scope for check in checks)
        shown = checks
        if len(scopes) > 1 and not everything:
            shown = Checks(c for c in checks if wrong is not None and c.scope == wrong.scope)
        if shown:
            yield checks_table(shown, width)
        if len(shown) < len(checks) or not shown:
            yield _verdict(checks, width)
        if not isfinite(self.run.loss):
            yield Paint()("alarm", f"the loss is {self.run.loss}")

    # ---------------------------------------------------------------- written

    def record(self) -> str:
        """The trace and what is known besides, under "explain", as JSON."""
        known = self.source.known | {"loss": self.run.loss, "backward_inside": self.run.inside}
        if self.attention:
            known["attention"] = self.attention.to_dict()
        data = trace_to_dict(self.trace) | {"explain": _finite(known)}
        return json.dumps(data, indent=1, allow_nan=False)

    def write(self, folder: Path, theme: str, depth: int | None, embed: bool) -> str:
        """Write the files; returns which of them could not be drawn and why, if so."""
        write(folder / "trace.json", self.record() + "\n", "explain")
        self.trace.derivation(folder / "derivation.md")
        try:
            page = write_page(self.trace, folder / PAGE_FILE, **self.page_options())
        except MissingDependencyError as error:
            return f"{PAGE_FILE} and graph.svg not drawn: {one_line(str(error).splitlines()[0])}"
        for name, form in ((FRAME_FILE, frame), (SCRIPT_FILE, script)) if embed else ():
            write(folder / name, form(page.read_text(encoding="utf-8")) + "\n", "explain")
        try:
            self.trace.draw(
                folder / "graph.svg", theme=theme, depth=depth, title=self._words or None
            )
        except MissingDependencyError as error:
            return f"graph.svg not drawn: {one_line(str(error).splitlines()[0])}"
        return ""

    @property
    def _words(self) -> str:
        return one_line(" / ".join(" ".join(text) for text in self.source.tokens or ()), 120)

    def page_options(self) -> dict[str, Any]:
        """What the page shows beside the record: a title and names of positions."""
        title = self.source.title
        if self.source.facts[:1] == [f'on "{self._words}"']:  # the title of a function has no words
            title += f": {self._words}"
        return {"tokens": self.source.tokens, "title": title}


def _verdict(checks: Checks, width: int) -> str:
    found = [by_value(checks), *by_step(checks)]
    if not checks and not checks.uncovered:
        why = "nothing declared by what ran, so no gradient was checked"
        if skipped := checks.skipped:
            why = f"not checked: no backward ran through {skipped[0]} in this trace"
        found.append(Verdict(f"hand-derived steps: {why}", None))
    else:
        found.append(by_hand(checks))
    return "\n".join(Paint()(v.paint, textwrap.fill(v.said, width)) for v in found if v.said)


LEAF_WORDS = "leaf with a gradient", "leaves with a gradient"


def _count(n: int, what: str, several: str = "") -> str:
    return f"{n:,} {what if n == 1 else several or f'{what}s'}"


def _finite(value: Any) -> Any:
    """The same data; numbers that JSON has not, such as NaN, by their names."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_finite, value)]
    return number(value) if isinstance(value, float) else value

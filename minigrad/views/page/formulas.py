"""Formulas as the page has them: trees of MathML, each once; with shapes; and as measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TypeAlias

from ...recording.checks import CheckResult
from ...recording.record import Entry
from ...recording.trace import TraceRecord
from ..data import Json
from ..data import number as as_json
from ..derivation.symbols import symbol_of
from ..derivation.symbols import symbols as unique_symbols
from ..formula import Formula, definitions, fill, mathml, number, parse
from ..formula.mathml import Tree
from ..formula.products import gradient_of, symbol_name
from ..formula.tree import EMPTY, EQUALS, items_of, row, script
from ..model import AnnotatedTrace
from ..plain import one_line

__all__ = ["Formulas", "chapters", "symbols", "with_shapes"]


Sizes: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]  # of each symbol its shape

# all runs of one program have the same formulas, and play makes its page again and again
_tree = lru_cache(maxsize=4096)(mathml)


class Formulas:
    def __init__(self) -> None:
        self.trees: list[Tree] = []
        self._known: dict[Formula, int] = {}
        self._filled = cache(self._fill)

    def add(self, formula: Formula) -> int:
        if formula not in self._known:
            self._known[formula] = len(self.trees)
            self.trees.append(_tree(formula))
        return self._known[formula]

    def of_tex(self, tex: str, sizes: Sizes = ()) -> int:
        return self.add(_with_sizes(tex, sizes))

    def of(self, entry: Entry) -> Json:
        """Of an entry: `tex`; `vjp` by input; `where` by the same, what defines their signs."""
        settings = tuple((n, text) for n, text in entry.settings.items() if text != "None")
        texts = {"": entry.tex, **entry.vjp_tex}
        found = {name: self._filled(tex, settings) for name, tex in texts.items()}
        return {
            "tex": found[""][0],
            "vjp": {name: rule for name, (rule, _) in found.items() if name},
            "where": {name: signs for name, (_, signs) in found.items() if signs},
        }

    def _fill(self, tex: str, settings: tuple[tuple[str, str], ...]) -> tuple[int, list[int]]:
        numbers = {name: number(text) for name, text in settings}
        body, signs = definitions(parse(tex))
        lines = (row((*items_of(s), EQUALS, *items_of(fill(it, numbers)))) for s, it in signs)
        return self.add(fill(body, numbers)), [*map(self.add, lines)]


def symbols(trace: TraceRecord) -> dict[int, Formula]:
    """The symbol of each entry, no two alike; a scalar that alone was differentiated is L."""
    ends = [trace.entries[i] for i in trace.roots]
    is_loss = len(ends) == 1 and ends[0].shape == () and ends[0].name in (None, "loss")
    return unique_symbols(trace, range(len(trace.entries)), ends[0].id if is_loss else None)


def with_shapes(tex: str, shapes: Mapping[str, tuple[int, ...]]) -> Formula:
    """The formula with each symbol's shape in its place, and that of ∂L/∂X in its own.

    >>> mathml(with_shapes("O = A V", {"A": (5, 5), "V": (5, 4), "O": (5, 4)}))[1]
    ['shape', '(5, 4)']
    """

    def shape(node: Formula) -> Formula:
        name = symbol_name(gradient_of(node) or node)
        if name == "d_k" and "K" in shapes:
            return Formula("number", str(shapes["K"][-1]))
        if name not in shapes:
            return node.mapped(shape)
        found = Formula("shape", shape_text(shapes[name]))
        above = node.parts[2] if node.kind == "script" else EMPTY
        return found if above == EMPTY else script(found, above=above)

    return shape(parse(tex))


@lru_cache(maxsize=1024)
def _with_sizes(tex: str, sizes: Sizes) -> Formula:
    return with_shapes(tex, dict(sizes)) if sizes else parse(tex)


def shape_text(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def chapters(model: AnnotatedTrace, formulas: Formulas) -> list[Json]:
    """Calls of layers, each with its hand-derived steps, each with the gradients that it finds."""

    calls: dict[int, list[CheckResult]] = {}
    for check in model.checks:
        calls.setdefault(id(check.symbols), []).append(check)
    return [_call(checks, model, formulas) for checks in calls.values()]


def _call(checks: list[CheckResult], model: AnnotatedTrace, formulas: Formulas) -> Json:
    steps: dict[int, Json] = {}
    first_wrong = None
    for check in checks:
        sizes = tuple((s, model.trace.entries[i].shape) for s, i in check.symbols.items())
        equations = check.forward.split(r", \quad ")
        step = steps.setdefault(
            check.number,
            {
                "number": check.number,
                "title": check.title,
                "forward": [(formulas.of_tex(e), formulas.of_tex(e, sizes)) for e in equations],
                "state": "open",
                "gradients": [],
            },
        )
        if check.ok is not None and step["state"] != "wrong":
            step["state"] = "right" if check.ok else "wrong"
        if check.ok is False and first_wrong is None:
            first_wrong = [list(steps).index(check.number), len(step["gradients"])]
        step["gradients"].append(_gradient(check, formulas, sizes))
    scope = checks[0].scope
    entries = (model.trace.entries[check.step] for check in checks if check.step is not None)
    named = next((model.scope_of(entry) for entry in entries if entry.scope == scope), scope)
    known = [check.ok for check in checks if check.ok is not None]
    wrong = known.count(False)
    agree = f"✓ {len(known)} of {len(known)} agree" if known else "not measured"
    return {
        "scope": one_line(named) or "layer",
        "steps": [*steps.values()],
        "first_wrong": first_wrong,
        "tally": f"✗ {wrong} of {len(known)} differ" if wrong else agree,
    }


def _gradient(check: CheckResult, formulas: Formulas, sizes: Sizes) -> Json:
    made: Json = {
        "symbol": check.symbol,
        "sign": formulas.add(symbol_of(check.symbol)),
        "node": check.step,
        "formula": formulas.of_tex(check.formula),
        "shapes": formulas.of_tex(check.formula, sizes),
        "shape": shape_text(check.shape),
        "rms": as_json(check.rms),
        "ok": check.ok,
    }
    if check.ok is not None:
        made |= {"difference": as_json(check.difference)}
    if check.ok is False:
        made |= {
            "tolerance": check.tolerance,
            "index": list(check.index),
            "engine": as_json(check.measured),
            "by_hand": as_json(check.expected),
        }
    return made

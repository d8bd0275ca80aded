"""`mg.trace()`: a record of a run, with a method for each view of it, imported at its first use.

From a run to a picture: `Trace.__enter__` has a Recorder observe (record/recorder.py), which adds
an entry for each op that runs, and to it the gradient that is sent through it. `Trace.__exit__` has
`finish` (record/finish.py) find what the numbers mean, checks by hand among it. `Trace.draw` hands
the record to views/picture.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .engine.context import observe
from .engine.errors import DTypeError, GradientError, MissingDependencyError
from .engine.tensor import Tensor
from .record.finish import check, finish, to_dict
from .record.record import Checks, Entry, Record
from .record.recorder import Recorder, record_graph
from .saving import write

if TYPE_CHECKING:
    from .views.attention import Attentions
    from .views.ledger import PrintedLedger
    from .views.page import Cell

__all__ = ["Trace", "draw", "trace"]


class Trace(Record):
    """The record of what runs within `with mg.trace() as t:`, every op and the last backward.

    It holds one run: a second `with` is refused.

    Attributes: see `Record`. Views are functions of it, and methods here.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    >>> with mg.trace() as t:
    ...     mg.sum(x * x).backward()
    >>> t["x"].gradient, t["multiply"].flops
    (array([2., 4.]), 2)
    >>> [(entry.label, entry.gradient_rms) for entry in t if entry.op]
    [('multiply', 1.0), ('sum', 1.0)]
    """

    def __init__(self, *arguments: object) -> None:
        if arguments:
            raise DTypeError("trace(): run the model within `with mg.trace() as t:`, and give none")
        super().__init__()

    def __enter__(self) -> Self:
        if self.entries:
            raise GradientError("trace(): it holds a run already; begin another: mg.trace()")
        self._observing = observe(Recorder(self)).__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._observing.__exit__()
        del self._observing  # and with it the run's own objects
        if not any(exception):
            finish(self)

    # ------------------------------------------------------------------ what is in it

    def __getitem__(self, key: int | str) -> Entry:
        """An entry by its number, or the last one of a name, a path or the end of a path.

        It has `value`, `gradient`, `flops`, `state`, `equation` and more. Raises: KeyError.
        """
        finish(self)
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Entry]:
        """Leaves and results of ops, in the order they were made."""
        return iter(finish(self).entries)

    def __len__(self) -> int:
        return len(self.entries)

    def check(self, ops: bool = False) -> Checked:
        """Compare the gradients of layers with steps derived by hand, as record/checks.py says.

        The steps of attention stand in layers/hand_derived.py.

        Args: ops: hold every backward step against a numeric derivative of its op as well.
            Where the derived steps leave out a parameter, it is done unasked.
        Raises: GradientError if no backward ran within the trace.
        """
        if not finish(self).backward:
            raise GradientError(
                "check: no backward ran within this trace; call loss.backward() inside "
                "`with mg.trace() as t:`"
            )
        covered = {check.entry for check in self.checks.measured}
        learned = {e.id for e in self.entries if e.learns and e.gradient is not None}
        return Checked(**vars(check(self, ops or not learned or not learned <= covered)))

    def why(self, key: int | str, index: Any = None) -> PrintedLedger:
        """One entry of a gradient as the exact sum of what came to it, followed to the loss.

        Args: key: a name, as in `t[key]`.  index: of the entry; the largest one unless given.
        Raises: KeyError, GradientError or ArgumentError if there is no such gradient, or entry.

        >>> import minigrad as mg
        >>> x = mg.tensor([3.0, 4.0], requires_grad=True, name="x")
        >>> w = mg.tensor([5.0, 6.0], requires_grad=True, name="w")
        >>> with mg.trace() as t:
        ...     (x * w).named("y").sum().backward()
        >>> print(t.why("x", 1))
        ∂L/∂x[1] = 6
          6 = 1 · 6 (w[1]) by multiply to y[1]
        ∂L/∂y[1] = 1
          1 = 1 · 1 by sum to sum
        ∂L/∂sum = 1
          1 where backward began
        """
        from .views.ledger import PrintedLedger

        return PrintedLedger(self, key, index)

    def to_dict(self) -> dict[str, Any]:
        """The record as plain data, without arrays and times; the same for the same program.

        >>> import json, minigrad as mg
        >>> x = mg.tensor([3.0, 4.0], requires_grad=True)
        >>> with mg.trace() as t:
        ...     mg.sum(x * x).backward()
        >>> record = json.loads(json.dumps(t.to_dict(), allow_nan=False))
        >>> record["entries"][0]["gradient"]["high"], record["forward"], record["backward"]
        (8.0, [1, 2], [2, 1])
        """
        return to_dict(finish(self))

    # ------------------------------------------------------------------ views

    def table(self, width: int | None = None) -> str:
        """The record as text: forward then backward steps, shapes, cost and size of gradients."""
        from .views.table import table

        return table(self, width)

    def draw(self, path: str | Path, **options: Any) -> Path:
        """Draw the graph: values flow down, gradients back up.

        Args: path: ends in .svg, .png, .pdf, .dot or .gv.
        Options:
            theme: "auto" (an SVG follows its reader's light or dark), "light" or "dark".
            depth: draw scopes deeper than this as one box each; 0 leaves only the outermost.
                Unless given, as many are open as can be read.
            focus: draw only what lies in scopes of this name or path, and what touches them.
            fold: draw modules that repeat (blocks.0, blocks.1, …) once, with ×N; True unless given.
            title: a line above the picture.
            direction: where values flow, "down" or "right".
            color_by: what colours show, "gradient" or "time".
        Returns: the path.
        Raises: ArgumentError for other values, a missing directory or more than a picture takes;
            MissingDependencyError without a renderer.
        """
        from .views.picture import draw

        return draw(self, path, **options)

    def html(self, path: str | Path, *, tokens: Any = None, title: str = "") -> Path:
        """Write a page that steps forward and backward through the record: one file, no network.

        Args: tokens: a name for each position that attention looks at; one sequence, or one for
            each of the batch.
        Raises: ArgumentError if the folder is missing, or the tokens do not fit any attention.
        """
        return write(path, self.show(tokens=tokens, title=title).page, "html")

    def show(self, *, height: int = 720, tokens: Any = None, title: str = "") -> Cell:
        """The page in a notebook's cell, as the cell's last value. Args: height: in pixels."""
        from .views.page import Cell, content, html_of

        return Cell(html_of(content(self, tokens=tokens, title=title)), height)

    def derivation(self, path: str | Path) -> Path:
        """Write the backward pass out as a person would, in Markdown with LaTeX for GitHub."""
        from .views.derivation import derivation

        return write(path, derivation(self), "derivation")

    def attention(self, tokens: Any = None) -> Attentions:
        """The attention weights A of the record beside ∂L/∂A: print them, or `.draw(path)` them.

        Args: tokens: a name for each position; or two lists, of the queries' and of the keys'.
        Raises: ShapeError if a list of tokens is not as long as the axis it names.
        """
        from .views.attention import attentions

        return attentions(self, tokens)

    def __repr__(self) -> str:
        from .views.words import plural

        if not self.entries:
            return "Trace: nothing recorded yet; run the model within `with mg.trace() as t:`"
        return (
            f"Trace: {plural(len(self.forward), 'step')} forward, {len(self.backward)} backward\n"
            't.table() lists them, t.check() holds them against formulas, t.draw("g.svg") and '
            't.html("g.html") show them'
        )

    def _repr_mimebundle_(self, **wanted: Any) -> dict[str, str]:
        """What a notebook shows: a text, and a picture where there is a renderer."""
        from .views.picture import dot_of, svg_of

        bundle = {"text/plain": repr(self)}
        if self.entries:
            with suppress(MissingDependencyError):
                bundle["image/svg+xml"] = svg_of(dot_of(self))
        return bundle


trace = Trace


class Checked(Checks):
    """The checks of a run; print them for one line each. Attributes: see `Checks`."""

    def __str__(self) -> str:
        from .views.table import checks_table

        return checks_table(self)

    def __repr__(self) -> str:
        from .views.words import verdicts

        sentences = [verdict.sentence for verdict in verdicts(self)] or ["nothing was measured"]
        return "\n".join(["Checks, which print() lists one by one:", *sentences])


def draw(output: Tensor, path: str | Path, **options: Any) -> Path:
    """Draw the graph that computed a tensor, before or without any backward.

    Args: options: those of `Trace.draw`.
    Raises: DTypeError for what is no Tensor; and as `Trace.draw`.
    """
    if not isinstance(output, Tensor):
        raise DTypeError(
            f"draw(output, path): output must be a Tensor, got {type(output).__name__}"
        )
    graph = Trace()
    record_graph(output, graph)
    return graph.draw(path, **options)

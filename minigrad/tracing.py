"""`mg.trace()`: a record of a run, with a method for each view of it, imported at its first use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .engine.errors import ArgumentError, DTypeError
from .engine.listener import Listener
from .engine.refusals import explained
from .engine.tensor import Tensor
from .lazy_imports import in_a_notebook
from .recording import trace as recording
from .recording.checks import Checks

if TYPE_CHECKING:
    from .views.attention import Attentions
    from .views.attention.record import Tokens
    from .views.data import Json
    from .views.notebook import PageCell

__all__ = ["Trace", "draw", "trace"]


class Trace(recording.TraceRecord):
    """Records what runs within `with mg.trace() as t:`, forward and backward, and shows it.

    >>> import minigrad as mg
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    >>> with mg.trace() as t:
    ...     mg.sum(x * x).backward()
    >>> [(entry.label, entry.gradient_rms) for entry in t if entry.op]
    [('multiply', 1.0), ('sum', 1.0)]
    """

    @explained
    def table(self, width: int | None = None, *, times: bool = False, words: bool = False) -> str:
        """The record as text: forward then backward steps, shapes, cost and size of gradients.

        Args: times: also how long each step took, as it ran in this trace. words: also what each
            op that ran does, and its rules with the gradient, in a sentence each.
        """
        from .views.plain import Text
        from .views.table import trace_table

        return Text(trace_table(self, width=width, times=times, words=words))

    @explained
    def draw(
        self,
        path: str | Path,
        *,
        theme: str = "auto",
        scale: str = "run",
        style: str = "standard",
        direction: str | None = None,
        depth: int | None = None,
        focus: str | None = None,
        fold: bool = True,
        saved: bool = False,
        parameters: str | None = None,
        title: str | None = None,
        check: str | None = None,
    ) -> Path:
        """Draw the graph: values flow down, gradients back up; their lines are wider if larger.

        A box shows name and op, shape and dtype, cost, and the rms of its gradient on a colour of a
        log scale, with a glyph for its state. Σ stands where a value is used twice or more, with
        ‖Σg‖ / Σ‖g‖: 1 if all gradients point one way, near 0 if they cancel.

        Args:
            path: ends in .svg, .png, .pdf, .dot or .gv.
            theme: "auto" (an SVG follows its reader's light or dark), "light", "dark" or "print".
            scale: "run", colours from the smallest to the largest gradient of this run, or "fixed",
                1e-8 to 1e4 in every picture.
            style: "standard", "slide" (large type, from left to right, nothing but names and
                gradients), or "full" (costs as well, and every box however many there are).
            direction: "down" or "right", where values flow.
            depth: draw scopes deeper than this as one box each; 0 leaves only the outermost.
            focus: draw only what lies in scopes of this name or path, and what touches them.
            fold: draw blocks that repeat (block0, block1, ...) once, with the range of their
                gradients and a line for what each hands to the next.
            saved: draw a dotted line from what an op saved for backward.
            parameters: "inside" the op that alone takes them, "beside" it in boxes of their own;
                inside from 40 boxes on, if not said.
            title: a line above the picture, such as the sentence that ran.
            check: "ops" measures every backward step first, as `check(ops=True)` does, and marks
                each.
        Returns: the path.
        Raises: ArgumentError for other values, a missing directory or more than a picture takes;
            MissingDependencyError without a renderer.
        """
        from .views.picture import draw_trace

        self._measure("draw", check)
        options: dict[str, Any] = {
            "theme": theme,
            "scale": scale,
            "style": style,
            "direction": direction,
            "depth": depth,
            "focus": focus,
            "fold": fold,
            "saved": saved,
            "parameters": parameters,
            "title": title,
        }
        return draw_trace(self, path, **options)

    @explained
    def html(
        self,
        path: str | Path,
        *,
        tokens: Tokens = None,
        title: str | None = None,
        arrays: str = "pooled",
        scale: str = "run",
        check: str | None = None,
    ) -> Path:
        """Write a page that steps forward and backward through the record: one file, no network.

        Args:
            tokens: a name for each position that attention looks at; one sequence, or one for
                each of the batch.
            arrays: "pooled", a few megabytes in all; "full", every entry; "none", only sizes and
                ranges. Every head of attention is kept in the first two.
            scale: of the colours: "run" spans the gradients of this run, "fixed" is 1e-8 to 1e4
                on every page, for comparing two.
            check: "ops" measures every backward step first, as `check(ops=True)` does, and marks
                each.
        Raises: ArgumentError if the folder is missing, the tokens do not fit any attention in the
            record, or the record or its arrays are larger than a browser can open.
        """
        from .views.page import write_page

        self._measure("html", check)
        options = {"tokens": tokens, "title": title, "arrays": arrays, "scale": scale}
        return write_page(self, path, **options)

    @explained
    def show(self, *, height: int = 720, **options: Any) -> PageCell:
        """The page in a notebook's cell, as the cell's last value; the options are `html`'s.

        Args: height: of the cell, in pixels.
        """
        from .views.notebook import PageCell
        from .views.page import page_html

        self._measure("show", options.pop("check", None))
        return PageCell(page_html(self, **options), height)

    def _measure(self, call: str, check: str | None) -> None:
        """Measure the backward steps first, if a view's `check` says so."""
        if check not in (None, "ops"):
            raise ArgumentError(f"{call}(check=...): check must be None or 'ops', got {check!r}")
        if check:
            self.checked(ops=True)

    def __dir__(self) -> list[str]:
        internal = {*vars(Listener), "into", "uses", "call_of", "inputs_of", "checked", "keep"}
        internal |= {"measure_step", "origin", "sent"}
        return sorted({name for name in super().__dir__() if name[0] != "_"} - internal)

    @explained
    def derivation(self, path: str | Path) -> Path:
        """Write the backward pass out as a person would, in Markdown with LaTeX for GitHub."""
        from .views.derivation import write_derivation

        return write_derivation(self, path)

    @explained
    def attention(self, tokens: Tokens = None) -> Attentions:
        """The attention weights A of the record beside ∂L/∂A: print them, or `.plot(path)` them.

        Args: tokens: a name for each position; or two lists, of the queries' and of the keys'
            positions.
        Raises: ShapeError if a list of tokens is not as long as the axis it names.
        """
        from .views.attention import attentions

        return attentions(self, tokens)

    def to_dict(self, times: bool = False) -> Json:
        """The record as plain data, no arrays; the same for the same program, but for times."""
        from .views.data import trace_to_dict

        return trace_to_dict(self, times=times)

    def __repr__(self) -> str:
        forward, backward = len(self.forward_steps), len(self.backward_steps)
        if not self.entries:
            return "Trace: nothing recorded yet; run the model within `with mg.trace() as t:`"
        leaves = len(self.entries) - forward
        back = f"{backward or 'no'} step{'s' * (backward > 1)} backward"
        return (
            f"Trace: {forward} step{'s' * (forward != 1)} forward, {back}, "
            f"{leaves} {'leaf' if leaves == 1 else 'leaves'}\n"
            't.table() lists them, t.check() holds them against formulas, t.draw("g.svg") and '
            't.html("g.html") show them'
        )

    _repr_mimebundle_ = in_a_notebook("trace_bundle")


trace = Trace


@explained
def draw(output: Tensor, path: str | Path, **options: Any) -> Path:
    """Draw the graph that computed a tensor, before or without any backward.

    Args: options: those of `Trace.draw`.
    Raises: MissingDependencyError without a renderer; ArgumentError for a suffix other than svg,
        png, pdf, dot.
    """
    if not isinstance(output, Tensor):
        raise DTypeError(
            f"draw(output, path): output must be a Tensor, got {type(output).__name__}"
        )
    return Trace.of(output).draw(path, **options)


def _checks_text(checks: Checks) -> str:
    from .views.table import checks_table

    return checks_table(checks)


def _checks_summary(checks: Checks) -> str:
    from .views.labels import verdicts

    said = [verdict.said for verdict in verdicts(checks)] or ["nothing was measured"]
    return "\n".join(["Checks, which print() lists one by one:", *said])


Checks._repr_mimebundle_ = in_a_notebook("checks_bundle")  # type: ignore[attr-defined]
Checks.__repr__ = _checks_summary  # type: ignore[method-assign, assignment]
Checks.__str__ = _checks_text  # type: ignore[method-assign, assignment]

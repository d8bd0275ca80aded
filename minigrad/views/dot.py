"""What a picture looks like: a layout as DOT text, and a title for each part of it.

Values flow down thin grey lines.
Beside them gradients flow back up, wider and in the colours of their sizes.
The main sentence stands first, with a legend of three lines.
Ids are of our own making, never a name; names appear only in labels and titles, escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from math import isfinite
from textwrap import wrap

from ..record.fold import is_within
from ..record.record import Entry, unmarked
from . import words
from .layout import Box, Connection, Layout, with_outer
from .theme import BINS, INKS, Light, Scale

__all__ = ["Dot"]

FONT = "Helvetica"  # the one sans-serif whose widths every renderer knows
SENTENCE = 84  # characters of a line above the picture
LEGEND = 120  # of a line of the legend
NOTE = 24  # of a line in a box
NAME_SIZE, SMALL = 11, 9  # sizes of type
MANY_LINES = 120  # from which on they are straight
STRIP, STRIP_WIDTH = 48, 150  # most cells of a row of colours, and its points


class Dot:
    """DOT text in the light theme, and the titles and the description that its SVG gets.

    Args: title: above the picture, with all that stands there; None for nothing.
    """

    def __init__(
        self,
        plan: Layout,
        title: str | None = None,
        direction: str = "down",
        color_by: str = "gradient",
    ) -> None:
        self.plan = plan
        self.record = record = plan.fold.record
        self.by_time = color_by == "time"
        self.scale = Scale.around(record.gradient_sizes)
        if self.by_time:
            self.scale = Scale.around(box.milliseconds for box in plan.boxes)
        self.titles: dict[str, str] = {}
        self.name = title or "Computation graph"
        self.verdicts = words.verdicts(record.checks)
        self.headline = words.headline(record)
        sentences = [verdict.sentence for verdict in self.verdicts]
        self.summary = " · ".join([self.headline, words.summary(record), *sentences])
        font = f'fontname="{FONT}" fontsize={SMALL} fontcolor="{Light.ink}"'
        above = ""
        if title is not None:
            above = f" label=<{self._head(title)}> labelloc=t labeljust=l"
        lines = [
            "digraph trace {",
            f"graph [{font} rankdir={'LR' if direction == 'right' else 'TB'} "
            f'bgcolor="{Light.paper}" pad=0.15 nodesep=0.16 ranksep=0.18{above}]',
            f'node [{font} shape=box height=0.2 width=0.3 margin="0.05,0.02"]',
            f'edge [{font} arrowsize=0.5 arrowhead=vee color="{Light.line}"]',
        ]
        if len(plan.lines) > MANY_LINES:  # curves around boxes would take minutes
            lines.append("graph [splines=line nslimit=1 nslimit1=1 mclimit=0.2]")
        lines += self._scopes()
        lines += [self._line(line, f"e{number}") for number, line in enumerate(plan.lines)]
        self.text = "\n".join([*lines, "}"])

    # ------------------------------------------------------------------ above the picture

    def _head(self, title: str) -> str:
        """Title, main sentence, verdicts, what the colours mean, and a legend of three lines."""
        rows = [_text(words.one_line(title, 90), Light.ink, 14, bold=True)]
        for line in wrap(self.headline, SENTENCE):
            rows.append(_text(line, Light.ink, NAME_SIZE, bold=True))
        rows += map(_small, wrap("; ".join(self.record.notes), SENTENCE))
        for verdict in self.verdicts:
            written = _alarm if verdict.ok is False else _small
            rows += map(written, wrap(verdict.signed, SENTENCE, subsequent_indent="   "))
        if self.by_time or self.record.backward:
            measure = "ms, forward and backward " if self.by_time else "gradient rms "
            low, _, high = map(_small, self.scale.ends)
            cells = [_patch(colour, 26, 10) for colour in BINS]
            rows.append(_table(1, [_small(measure), low, *cells, high]))
        return _table(2, *([row] for row in [*rows, *self._legend()]), align=True)

    def _legend(self) -> Iterator[str]:
        """What lines and signs mean, of those that there are; and what all boxes share."""
        plan = self.plan
        boxes = self.plan.boxes
        states = {box.state for box in boxes}
        dtypes = {entry.dtype for box in boxes for entry in box.ops}
        signs = {
            "grey ↓ values": True,
            "coloured ⇡ gradients": self.record.backward and not self.by_time,
            "Σ: gradients add; agreement 1: they point one way": any(map(self._sum, boxes)),
            "of: the part by this use, of all": any(
                held.shared for box in boxes for held in box.inside
            ),
            "×: gain on the way": any(map(self._gain, plan.lines)),
            "×N: alike modules, drawn once": plan.fold.copies,
        }
        shared = {
            f"all {min(dtypes, default='')}": len(dtypes) == 1,
            "dashed: takes no part in backward": any(box.idle for box in boxes),
        }
        for state in ("zero in theory", "vanishing", "exploding", "not finite"):
            shared[" ".join(words.STATES[state])] = state in states
        shared[plan.note] = bool(plan.note)
        for texts in (signs, shared):
            shown = [text for text, is_there in texts.items() if is_there]
            yield from map(_small, _wrapped(shown, " · ", LEGEND))

    # ------------------------------------------------------------------ boxes, each in its scope

    def _scopes(self) -> Iterator[str]:
        """A cluster for each scope, the inner ones in the outer."""
        inside: dict[str, list[str]] = {"": []}
        for box in self.plan.boxes:
            for scope in with_outer(box.scope):
                inside.setdefault(scope, [])
            inside[box.scope].append(self._box(box))
        ids = {scope: f"c{number}" for number, scope in enumerate(inside)}

        def written(scope: str) -> Iterator[str]:
            yield from inside[scope]
            for child, id in ids.items():
                if child and child.rpartition("/")[0] == scope:
                    yield f"subgraph cluster_{id} {{"
                    yield self._cluster(child, id)
                    yield from written(child)
                    yield "}"

        return written("")

    def _cluster(self, scope: str, id: str) -> str:
        fold = self.plan.fold
        label = _text(words.one_line(fold.name(scope), 40), Light.ink, SMALL, bold=True)
        ops = [op for op in self.record.ops if is_within(fold.place[op.id], scope)]
        self.titles[id] = f"{words.one_line(scope)}: {', '.join(self._costs(ops))}"
        if copies := fold.copies.get(scope):
            label = _table(1, [label + _times(len(copies))], [self._strip(scope)])
            self.titles[id] += f"; {len(copies)} alike, drawn once"
        look = f'style="rounded,filled" fillcolor="{Light.cluster}" color="{Light.edge}" margin=7'
        return f'graph [label=<{label}> labeljust=l {look} id="{id}" class=scope]'

    def _costs(self, ops: Iterable[Entry]) -> list[str]:
        """What is in a scope, of copies in the first."""
        fold = self.plan.fold
        return words.costs_of(self.record, [op for op in ops if fold.leader(op.id) == op.id])

    def _strip(self, scope: str) -> str:
        """The gradient of what each of the alike modules hands on, as colours."""
        fold = self.plan.fold
        entries = self.record.entries
        last = max(number for number in self.record.forward if scope == fold.copy_of(number).block)
        sizes = [entries[i].gradient_rms for i in fold.twins(last)]
        if self.by_time or not any(sizes):
            return ""
        some = sizes[:: -(-len(sizes) // STRIP)]
        width = min(6, STRIP_WIDTH // len(some))
        fills = [BINS[self.scale.bin(size)] if size else Light.card for size in some]
        first, end = (_small(f" {words.sized(size)} ") for size in (sizes[0], sizes[-1]))
        return _table(0, [first, *(_patch(fill, width, 9) for fill in fills), end])

    def _box(self, box: Box) -> str:
        style = "filled,rounded" if box.kind == "op" else "filled"
        if box.idle or box.kind == "outside":
            style += ",dashed"
        role = {"leaf": "parameter", "scope": "cluster"}.get(box.kind, box.kind)
        size = box.milliseconds if self.by_time else box.size
        pen = self._pen(size) if size else f'color="{Light.border}"'
        if box.state in ("wrong", "not finite"):
            pen = f'color="{Light.alarm}" penwidth=2.5'
        if box.kind == "loss":
            pen += " peripheries=2"
        self.titles[box.id] = self._title(box)
        look = f'style="{style}" fillcolor="{getattr(Light, role, Light.card)}" {pen}'
        named = f'id="{box.id}" class="{box.kind} {box.state}"'
        return f"{box.id} [{named} {look} label=<{self._label(box)}>]"

    def _pen(self, size: float, beside: str = "") -> str:
        """The colour and width that a gradient of this size gives to an outline or a line.

        Args: beside: the colour of the line beside it, that of a value.
        """
        bin = self.scale.bin(size)
        colour = Light.lines[bin] if isfinite(size) else Light.alarm
        if size == 0:
            colour = Light.line
        return f'color="{beside}{colour}" penwidth={1 + 0.3 * bin:.1f}'

    def _label(self, box: Box) -> str:
        """One thing a line: what it is, its gradient, what is odd, and what it alone takes."""
        ink = Light.muted if box.idle else Light.ink
        if box.kind == "scope":
            name = _name(f"▸ {box.label}", ink)
            kind = self.record.classes.get(unmarked(box.path))
            if kind:
                name += _small(f"  {kind}")
            rows = [name, *map(_small, _wrapped(self._costs(box.ops), ", ", NOTE))]
            if copies := self.plan.fold.copies.get(box.path):
                rows[0] += _times(len(copies))
                rows.append(self._strip(box.path))
        else:
            origin = f"  {box.origin}" if box.entry.op != box.entry.label else ""
            form = f"= {box.value}" if box.value else words.shaped(box.entry.shape)
            rows = [_name(box.label, ink) + _small(f"{origin}  {form}  ")]
        if box.kind != "outside":
            measure = self._gradient(box, box.gradient, box.size)
            if self.by_time:
                milliseconds = box.milliseconds
                measure = self._cell(f"{words.sized(milliseconds)} ms", milliseconds)
            rows += [measure, _small(self._sum(box))]
            rows += [_small(line) for note in box.notes for line in wrap(note, NOTE)]
            rows += [_alarm(line) for alarm in box.alarms for line in wrap(alarm, NOTE)]
        return _table(1, *([row] for row in [*rows, *map(self._held, box.inside)]))

    def _held(self, held: Connection) -> str:
        """A leaf inside the box of its op: name, shape and gradient beside one another."""
        box = held.source
        leaf = held.source.entry
        label = held.edges[0].input if leaf.kind == "constant" and not leaf.name else box.label
        if box.value:
            label += f" = {box.value}"
        text = _name(label, Light.muted if box.idle else Light.ink, SMALL)
        if leaf.shape:
            room = "\u00a0" * (len(leaf.shape) // 2)  # browsers draw × wider, too
            text += _small(f" {words.shaped(leaf.shape)} {room}")
        cells = [text]
        if not self.by_time:
            size = max(held.sizes, default=0.0)
            cells.append(self._gradient(box, held.gradient, size))
            if held.shared and size:
                cells.append(_small(f" of {box.gradient}"))
        return _table(1, cells, look=f' BGCOLOR="{Light.parameter}"')

    def _gradient(self, box: Box, text: str, size: float) -> str:
        """The gradient's size on the colour of its bin, or in words why there is none."""
        if size:
            if box.state in ("vanishing", "exploding"):
                text = f"{words.STATES[box.state][0]} {text}"
            return self._cell(text, size, wrong=box.state == "wrong")
        if box.state == "not finite":
            return _alarm(text)
        if box.state == "none" and (box.kind in ("input", "constant") or not self.record.backward):
            return ""
        return "<BR/>".join(map(_small, wrap(text, NOTE)))

    def _cell(self, text: str, size: float, wrong: bool = False) -> str:
        """A measure on the colour of its bin; nothing of 0."""
        if not size:
            return ""
        bin = self.scale.bin(size)
        fill, ink = (Light.alarm, Light.paper) if wrong else (BINS[bin], INKS[bin])
        room = "\u00a0" * (len(text) // 4)
        measure = _text(f"{text}{room}", ink, SMALL, bold=True)
        return _table(2, [measure], look=f' STYLE="ROUNDED" BGCOLOR="{fill}"')

    def _sum(self, box: Box) -> str:
        """That gradients add here, and how far they agree."""
        agreements = [entry.agreement for entry in box.entries]
        known = [agreement for agreement in agreements if agreement is not None]
        if not known or self.by_time or box.kind in ("scope", "outside"):
            return ""
        return f"Σ agreement {words.ranged(known)}"

    def _title(self, box: Box) -> str:
        """All that is known of a box, in one sentence."""
        entry = box.entry
        size = f"gradient rms {box.gradient}" if box.size else f"gradient: {box.gradient}"
        if box.kind == "scope":
            return words.one_line(f"{box.path}: {', '.join(self._costs(box.ops))}, {size}")
        texts = [
            f"{entry.path}: {box.origin}", f"{words.shaped(entry.shape)} {entry.dtype}", size,
            entry.why if entry.needs else "", words.sum_of(self.record, entry),
            words.marks(entry), entry.says, entry.place,
        ]  # fmt: skip
        return words.one_line("; ".join(filter(None, texts)))

    # ------------------------------------------------------------------ lines

    def _line(self, line: Connection, id: str) -> str:
        """A use of a value, and beside it the gradient that it sent back.

        From the end of a block back to its beginning it goes by way of its label, outside.
        """
        edge = line.edges[0]
        gain = self._gain(line)
        size = words.sent_by(line.edges)
        shown = size if self._sum(line.source) or (line.step and not self.by_time) else ""
        rows = [_small(f" {text} ") for text in (line.copies, shown) if text]
        if gain:
            rows.append(_text(f" {gain} ", Light.ink, SMALL, bold=True))
        label = "<BR/>".join(rows)
        used = f"{line.source.label} is used by {line.target.label} as {edge.input}"
        back = f"gradient back: rms {size}" if line.sent else "no gradient back"
        self.titles[id] = "; ".join(filter(None, [used, line.copies, back, edge.says]))
        look, arrow = "class=forward", "none"  # of the gradient
        if line.sent and not self.by_time:
            look = f"class=gradient {self._pen(max(line.sent), f'{Light.line}:')}"
            arrow = "normal"
        source, target = line.source.id, line.target.id
        if not line.step or source == target:
            text = f" label=<{label}>" if label else ""
            return f'{source} -> {target} [id="{id}" {look} dir=both arrowtail={arrow}{text}]'
        turn = f"t{id}"
        self.titles[f"{id}-"] = self.titles[id]
        return "\n".join([
            f'{turn} [id="{turn}" class=turn shape=plaintext label=<{label}>]',
            f'{target} -> {turn} [id="{id}" {look} dir=back arrowtail=vee]',
            f'{turn} -> {source} [id="{id}-" {look} arrowhead={arrow}]',
        ])  # fmt: skip

    def _gain(self, line: Connection) -> str:
        return "" if self.by_time else words.gain_of(line.edges)


# ---------------------------------------------------------------- labels


def _wrapped(texts: Iterable[str], between: str, width: int) -> list[str]:
    """Lines of texts, none of which is broken."""
    lines = wrap(between.join(text.replace(" ", "\u00a0") for text in texts), width)
    return [line.replace("\u00a0", " ") for line in lines]


def _patch(colour: str, width: int, height: int) -> str:
    """A cell without text."""
    return f'<TD BGCOLOR="{colour}" WIDTH="{width}" HEIGHT="{height}"></TD>'


def _table(padding: int, *rows: list[str], look: str = "", align: bool = False) -> str:
    """Rows of cells as an HTML-like label; rows without text are left out."""
    left = ' ALIGN="LEFT"' if align else ""
    body = ""
    for row in filter(any, rows):
        cells = (c if c.startswith("<TD") else f"<TD{left}>{c}</TD>" for c in row)
        body += f"<TR>{''.join(cells)}</TR>"
    frame = f'BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="{padding}"{look}'
    return f"<TABLE {frame}>{body}</TABLE>"


def _text(text: str, colour: str, size: int, bold: bool = False) -> str:
    r"""Escaped text in an HTML-like label, where \N would be a node's name and blanks merge."""
    if not text:
        return ""
    body = escape(text).replace("\\", "&#92;&#92;").replace("  ", "&#160; ")
    body = f"<B>{body}</B>" if bold else body
    return f'<FONT COLOR="{colour}" POINT-SIZE="{size}">{body}</FONT>'


def _small(text: str) -> str:
    return _text(text, Light.muted, SMALL)


def _times(number: int) -> str:
    return _text(f"  ×{number}", Light.muted, SMALL, bold=True)


def _alarm(text: str) -> str:
    return _text(text, Light.alarm, SMALL, bold=True)


def _name(name: str, colour: str, size: int = NAME_SIZE) -> str:
    """A name, and room after it, since browsers draw bold letters wider than Graphviz reckons."""
    return _text(name, colour, size, bold=True) + _text("\u00a0" * (len(name) // 6), colour, size)

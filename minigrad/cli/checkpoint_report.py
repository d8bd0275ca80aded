"""A text through a checkpoint told: guesses, gradients by token and block, attention, checks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from math import isfinite

from ..recording.record import Checks
from ..views.colors import Scale
from ..views.plain import one_line, sized
from ..views.table import checks_table
from ..views.terminal import Column, Paint, bar, grid
from ..views.verdict import by_derivative, by_hand
from .checkpoint import Question
from .checkpoint_figures import MOVES, Token, by_block, by_head, by_token, guesses, shown_heads
from .explanation import Explanation

__all__ = ["CheckpointReport"]

MOST_TOKENS, MOST_HEADS = 24, 6  # shown: rows of tokens, heads of a pattern
TOLD = 0.5  # from where on a head has a pattern
NUMBER, NAME = Column("", right=True), Column("token", shrink="end")
GUESSES = (NUMBER, NAME, Column("probability", right=True), Column("", drop=1))
TOKENS = (
    NUMBER,
    NAME,
    Column("guessed", right=True, drop=3),
    Column("rms of ∂L/∂X", right=True),
    Column("", drop=1),
    Column("∂L/∂X · X", right=True),
    Column("", drop=2),
)
BLOCKS = (
    Column("block", right=True),
    Column("rms of ∂L/∂X", right=True),
    Column("", drop=2),
    Column("∂L/∂weights", right=True, drop=3),
    Column("", drop=1),
    Column("attention", right=True),
    Column("feed-forward", right=True),
)
BY_TOKEN = "X is the vector that the token enters as; ∂L/∂X · X is what the loss does as it grows"
GUESSED = ". Guessed: the probability that the model gave the token after those before it"
BY_BLOCK = "X is what the block hands on; of what attention and feed-forward add, F, ∂L/∂F · F"
BY_HEAD = (
    "5.1 is head 1 of block 5, both from 0. How much of its weight goes to such keys, beyond an "
    f"even spread, from {TOLD} on; {MOVES}: which weights move the loss most"
)


class CheckpointReport(Explanation):
    """One text through a checkpoint, forward and backward."""

    def __init__(self, question: Question) -> None:
        self.question = q = question
        self.title = f"{q.kind} {one_line(q.model, 60)}, {q.loss}"
        model, self.trace, out = q.run()
        self.loss = float(self.trace["loss"].value) + 0.0  # not −0
        self.checks = self.trace.check()
        weights = sum(parameter.size for parameter in model.parameters())
        width = q.ids.shape[1]
        named = not q.writes or len(q.targets) != width  # else both texts would be named by one
        self.tokens = [row + ["(padding)"] * (width - len(row)) for row in q.names] * named or None
        self.page = {"heads": lambda entry: shown_heads(q, entry), "note": self.left_out}
        self.guesses = guesses(q, out)
        found = self.trace.attribute(self.trace["loss"].id)
        self.by_token = by_token(q, self.trace, out, found)
        self.by_block, self.by_head = by_block(self.trace, found), by_head(q, self.trace, found)
        self.known = {
            "model": q.model,
            "family": q.kind,
            "weights": weights,
            "objective": q.loss,
            "loss": self.loss,
            "targets": q.targets,
            "guesses": self.guesses,
            "by_token": [[token._asdict() for token in text] for text in self.by_token],
            "by_block": [block._asdict() for block in self.by_block],
            "by_head": self.by_head,
        }

    def succeeded(self) -> bool:
        return super().succeeded() and self.checks.ok and isfinite(self.loss)

    @property
    def left_out(self) -> str:
        """What neither the page nor the terminal shows, and how to see it."""
        q = self.question
        blocks, heads = q.settings["n_layers"], q.settings["n_heads"]
        if len(q.layers) == blocks and len(q.heads) == heads:
            return ""
        said = (
            f"attention of {len(q.layers)} of {blocks} blocks and {len(q.heads)} of {heads} heads"
        )
        return f"{said}, weights of other blocks held constant: --layers and --heads choose them"

    def parts(self, width: int, ascii: bool, everything: bool) -> list[str]:
        def part(title: str, hint: str, body: str) -> str:
            return "\n".join([Paint().bold(title), *textwrap.wrap(hint, width), body])

        found = [textwrap.fill(self._summary(), width)]
        for place, best in self.guesses.items():
            rows = [
                [str(k), _quoted(name), sized(p), _part(p, ascii)]
                for k, (name, p) in enumerate(best, 1)
            ]
            found.append(part(self._place(place), "", grid(GUESSES, rows, width)))
        for number, text in enumerate(self.by_token, 1):
            of = f" of text {number}" if len(self.by_token) > 1 else ""
            rows = _token_rows(text, ascii)
            shown = grid(TOKENS, rows if everything else _ends(rows), width)
            hint = BY_TOKEN + GUESSED * self.question.causal
            found.append(part(f"gradient by token{of}", hint, shown))
        found.append(part("gradient by block", BY_BLOCK, grid(BLOCKS, self._blocks(ascii), width)))
        found.append(part("heads by what they look at", BY_HEAD, self._looks(width)))
        return (
            found + self._verdict(width, ascii, everything) + [self.left_out] * bool(self.left_out)
        )

    def _summary(self) -> str:
        """Sizes and loss in one sentence."""
        q, known = self.question, self.known
        sizes = f"{q.settings['n_layers']} blocks of {q.settings['n_heads']} heads"
        tokens = " and ".join(f"{n} token{'s' * (n > 1)}" for n in q.lengths)
        goal = ""
        if q.targets:
            goal = f" of {', '.join(_quoted(q.name(i)) for i in q.targets)}"
        said = f"{known['weights']:,} weights in {sizes}, {q.dtype}; {tokens}"
        return f"{q.kind}: {said}; {q.loss} loss{goal} {self.loss:.4f}"

    def _place(self, place: int) -> str:
        q = self.question
        names = ["(start)", *map(q.name, q.targets)] if q.writes else q.names[0]
        before = " ".join(_quoted(name) for name in names[max(place - 3, 0) : place + 1])
        return f"likeliest {'at' if q.loss == 'masked' else 'after'} {before}"

    def _blocks(self, ascii: bool) -> list[list[str]]:
        out = Scale.around(block.gradient for block in self.by_block)
        own = Scale.around(block.of_weights or 0.0 for block in self.by_block)
        return [
            [
                b.name,
                sized(b.gradient),
                bar(b.gradient, ascii, out),
                sized(b.of_weights),
                bar(b.of_weights, ascii, own),
                f"{b.attention:+.2g}",
                f"{b.feed_forward:+.2g}",
            ]
            for b in self.by_block
        ]

    def _looks(self, width: int) -> str:
        lines = []
        for kind, heads in self.by_head.items():
            shown = [head for head in heads if head[1] >= TOLD] if kind != MOVES else heads
            form = "{} {:.2f}" if kind != MOVES else "{} {:+.2g}"
            more = f" and {len(shown) - MOST_HEADS} more" * (len(shown) > MOST_HEADS)
            told = ", ".join(form.format(*head) for head in shown[:MOST_HEADS])
            said = f"{kind:26}{told or 'none; nearest ' + form.format(*heads[0])}{more}"
            lines.append(textwrap.fill(said, width, subsequent_indent="    "))
        return "\n".join(lines)

    def _verdict(self, width: int, ascii: bool, everything: bool) -> list[str]:
        """All that was held against something, and the hand-derived steps of what is wrong."""
        checks = self.checks
        wrong = {c.scope for c in checks.measured if c.difference and not c.difference.ok}
        shown = Checks(c for c in checks if everything or c.scope in wrong)
        said = [by_derivative(checks), by_hand(checks)]
        said += [] if isfinite(self.loss) else [(f"the loss is {self.loss}", False)]
        paint = Paint()
        lines = [
            paint("good" if ok else "alarm", textwrap.fill(line, width))
            for line, ok in said
            if line
        ]
        return [*([checks_table(shown, width, ascii=ascii)] if shown else []), "\n".join(lines)]


def _token_rows(text: Sequence[Token], ascii: bool) -> list[list[str]]:
    scale = Scale.around(token.gradient for token in text)
    most = max(abs(token.share) for token in text) or 1.0
    return [
        [
            str(k),
            _quoted(one.token),
            sized(one.probability),
            sized(one.gradient),
            bar(one.gradient, ascii, scale),
            f"{one.share:+.2g}",
            _part(abs(one.share) / most, ascii),
        ]
        for k, one in enumerate(text)
    ]


def _ends(rows: list[list[str]]) -> list[list[str]]:
    """The first rows and the last, if there are many."""
    half = MOST_TOKENS // 2
    return rows if len(rows) <= MOST_TOKENS else [*rows[:half], ["…"] * len(rows[0]), *rows[-half:]]


def _quoted(token: str) -> str:
    return f'"{one_line(token, 24)}"'


def _part(share: float, ascii: bool) -> str:
    """A share of 1 as a bar."""
    return ("#" if ascii else "█") * round(10 * share) if isfinite(share) else ""

"""A text through a checkpoint told: guesses, gradients by token and block, attention, checks."""

from __future__ import annotations

import textwrap
from math import isfinite

from ..recording.record import Checks, Entry
from ..views.model_figures import MOVES, block_number, by_block, by_head, by_token, likeliest
from ..views.model_tables import block_table, guess_table, head_list, quoted, token_table
from ..views.plain import one_line
from ..views.table import checks_table
from ..views.terminal import Paint
from ..views.verdict import Verdict, by_derivative, by_hand
from .checkpoint import Question
from .explanation import Explanation

__all__ = ["CheckpointReport"]

BEST = 5  # guesses at a place
BY_TOKEN = "X is the vector that the token enters as; ∂L/∂X · X is what the loss does as it grows"
GUESSED = ". Guessed: the probability that the model gave the token after those before it"
BY_BLOCK = "X is what the block hands on; of what attention and feed-forward add, F, ∂L/∂F · F"
BY_HEAD = (
    "5.1 is head 1 of block 5, both from 0. How much of its weight goes to such keys, beyond an "
    f"even spread, from 0.5 on; {MOVES}: which weights move the loss most"
)


class CheckpointReport(Explanation):
    """One text through a checkpoint, forward and backward."""

    def __init__(self, question: Question) -> None:
        self.question = q = question
        self.title = f"{q.kind} {one_line(q.model, 60)}, {q.loss}"
        self.trace, logits = q.run()
        self.loss = float(self.trace["loss"].value) + 0.0  # not −0
        self.checks = self.trace.check()
        width = q.ids.shape[1]
        named = not q.writes or len(q.targets) != width  # else both texts would be named by one
        self.tokens = [row + ["(padding)"] * (width - len(row)) for row in q.names] * named or None
        self.page = {"heads": self._heads, "note": self._left_out()}
        wanted = dict(zip(q.places[::-1], q.targets[::-1], strict=False))
        self.guesses = {k: likeliest(logits[0, k], q.name, BEST, wanted.get(k)) for k in q.places}
        run = self.trace, self.trace.attribute(self.trace["loss"].id)
        texts = q.names, q.ids
        self.by_token = by_token(*run, *texts, logits if q.causal else None)
        self.by_block = by_block(*run)
        self.by_head = by_head(*run, *texts, lambda e: self._heads(e) * self._over_text(e))
        self.known = {
            "model": q.model,
            "family": q.kind,
            "weights": q.weights,
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

    def _heads(self, attention: Entry) -> list[int]:
        """Which were asked for."""
        return self.question.heads if block_number(attention.scope) in self.question.layers else []

    def _over_text(self, attention: Entry) -> bool:
        """Whether queries and keys are the text's, and not of what is written for it."""
        return not (self.question.writes and "decoder/" in attention.scope)

    def _left_out(self) -> str:
        """What the page and the terminal do not show, and how to see it."""
        q = self.question
        blocks, heads = q.settings["n_layers"], q.settings["n_heads"]
        if len(q.layers) >= blocks and len(q.heads) == heads:
            return ""
        shown = f"{len(q.layers)} of {blocks} blocks and {len(q.heads)} of {heads} heads"
        rest = "weights of other blocks held constant: --layers and --heads choose them"
        return f"attention of {shown}, {rest}"

    def parts(self, width: int, ascii: bool, everything: bool) -> list[str]:
        def part(title: str, hint: str, body: str) -> str:
            return "\n".join([Paint().bold(title), *textwrap.wrap(hint, width), body])

        found = [textwrap.fill(self._summary(), width)]
        for place, best in self.guesses.items():
            found.append(part(self._place(place), "", guess_table(best, width, ascii)))
        hint = BY_TOKEN + GUESSED * self.question.causal
        for number, text in enumerate(self.by_token, 1):
            title = "gradient by token" + f" of text {number}" * (len(self.by_token) > 1)
            found.append(part(title, hint, token_table(text, width, ascii, everything)))
        table = block_table(self.by_block, width, ascii)
        found.append(part("gradient by block", BY_BLOCK, table))
        found.append(part("heads by what they look at", BY_HEAD, head_list(self.by_head, width)))
        found += self._verdict(width, ascii, everything)
        return [*found, *filter(None, [textwrap.fill(self._left_out(), width)])]

    def _summary(self) -> str:
        """Sizes and loss in one sentence."""
        q = self.question
        sizes = f"{q.settings['n_layers']} blocks of {q.settings['n_heads']} heads"
        tokens = " and ".join(f"{n} token{'s' * (n > 1)}" for n in map(len, q.names))
        goal = f" of {', '.join(quoted(q.name(i)) for i in q.targets)}" * bool(q.targets)
        said = f"{q.weights:,} weights in {sizes}, {q.dtype}; {tokens}"
        return f"{q.kind}: {said}; {q.loss} loss{goal} {self.loss:.4f}{q.remark}"

    def _place(self, place: int) -> str:
        q = self.question
        names = ["(start)", *map(q.name, q.targets)] if q.writes else q.names[0]
        before = " ".join(map(quoted, names[max(place - 3, 0) : place + 1]))
        return f"likeliest {'at' if q.loss == 'masked' else 'after'} {before}"

    def _verdict(self, width: int, ascii: bool, everything: bool) -> list[str]:
        """All that was held against something, and the steps of the first layer that is wrong."""
        wrong = self.checks.first_wrong
        where = wrong and wrong.scope
        shown = Checks(c for c in self.checks if everything or c.scope == where)
        said = [by_derivative(self.checks)]
        said += [by_hand(self.checks)] if wrong or not shown else []  # else the table's last line
        said += [] if isfinite(self.loss) else [Verdict(f"the loss is {self.loss}", False)]
        lines = [Paint()(one.paint, textwrap.fill(one.said, width)) for one in said]
        return [*([checks_table(shown, width, ascii=ascii)] if shown else []), "\n".join(lines)]

"""`minigrad explain` and `minigrad play`: run a function that returns a loss, and show the run."""

from __future__ import annotations

import json
import textwrap
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..playing.run import LossFunction, run_loss
from ..playing.server import PlayServer
from ..playing.session import PlaySession
from ..record.attention import AttentionWeights
from ..saving import write
from ..tracing import Trace
from ..views import words
from ..views.ledger import headline_lines
from ..views.scores import gradient_times_attention, rollout
from ..views.table import verdict_lines
from ..views.terminal import Column, grid, paint, wide
from . import UsageError
from .sources import source_of

__all__ = ["play", "run"]

MOST_KEYS = 24  # rows of the table of attention
FILES = (
    "trace.json: every step, size and check",
    "derivation.md: the backward pass written out, formula by formula",
    "graph.svg: the graph, forward and backward",
    "explain.html: a page that steps through it; open it in a browser, ? lists its keys",
)


def run(arguments: Namespace) -> int:
    """Run a function that returns a loss, and show its gradients."""
    source = source_of(arguments)
    out = Path(arguments.out)
    record = run_loss(source).record
    record.check(ops=True)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from None
    for paragraph in _report(record, source, wide(None)):
        print(paragraph, end="\n\n")
    _write(record, source, out)
    return int(record.checks.ok is False or bool(record.checks.first_broken))


def play(arguments: Namespace) -> int:
    """Open the page of explain with numbers that can be changed, until Ctrl-C."""
    source = source_of(arguments)
    server = PlayServer(PlaySession(source))
    print(f"{source.title}\nopen {server.address} in a browser; Ctrl-C ends it", flush=True)
    server.wait()
    return 0


# ---------------------------------------------------------------- printed


def _report(record: Trace, source: LossFunction, width: int) -> Iterator[str]:
    """Paragraphs: the loss, the attention of the word that was asked for, what was checked."""
    sentences = [f"{source.title}: {words.headline(record)}", words.summary(record)]
    yield "\n".join(textwrap.fill(line, width) for line in sentences)
    yield "\n".join(headline_lines(record))
    over_itself = [w for w in record.attention(source.tokens) if w.queries == w.keys]
    keys = source.tokens or [key for weights in over_itself[:1] for key in weights.keys]
    if layers := [weights for weights in over_itself if len(weights.keys) == len(keys)]:
        yield _attention_table(record, layers, width)
    yield "\n".join(verdict_lines(record.checks, width))


def _attention_table(record: Trace, layers: list[AttentionWeights], width: int) -> str:
    """Of each key: its weight in each layer, in all together, and by how much it lowers the loss.

    The loss should fall, so that a weight counts by −A ⊙ ∂L/∂A.
    """
    query = record.asked
    keys = layers[0].keys
    titles = [layer.path.removesuffix("/A") for layer in layers]
    maps = [layer.A.mean(axis=(0, 1)) for layer in layers]
    if len(layers) > 1:
        titles.append("rollout")
        maps.append(rollout([layer.A for layer in layers]))
    down = [gradient_times_attention(w.A, -w.dA) for w in layers if w.dA is not None]
    if down:
        titles.append("lowers the loss")
        maps.append(np.sum(down, axis=0))
    whose = "a word on average"
    rows = np.mean(maps, axis=1)
    if query is not None:
        whose = f'"{words.one_line(keys[query], 24)}"'
        rows = np.array(maps)[:, query]
    bars = rows / np.maximum(rows.max(axis=1, keepdims=True), 1e-300)
    most = np.sort(np.argsort(-bars.max(axis=0))[:MOST_KEYS])  # that matter most, in order
    columns = [Column("looks at", shrink="end")]
    for title in titles:
        drop = len(columns)  # the last layers say most
        columns += [Column(words.one_line(title, 18), True, "", drop + 99), Column("", drop=drop)]
    lines = []
    for k in most:
        pairs = zip(rows[:, k], bars[:, k], strict=True)
        cells = [text for x, bar in pairs for text in (f"{x:.2f}", "█" * round(10 * bar))]
        lines.append([words.one_line(keys[k], 24), *cells])
    title = f"attention of {whose}, mean over heads, to {len(most)} of {len(keys)} words"
    if len(layers) > 1:
        title += "; rollout: through all layers, each of which passes on half of its input"
    if down:
        title += "; lowers the loss: −A ⊙ ∂L/∂A where positive"
    title = textwrap.fill(title, width)
    return f"{paint('bold', title)}\n{grid(columns, lines, width)}"


# ---------------------------------------------------------------- written


def _write(record: Trace, source: LossFunction, out: Path) -> None:
    """Write the files, and say so."""
    text = words.one_line(" ".join(source.tokens or ()), 120)
    title = f"{source.title}: {text}".strip(": ")
    data = json.dumps(record.to_dict(), indent=1, allow_nan=False) + "\n"
    write(out / "trace.json", data, "explain")
    record.derivation(out / "derivation.md")
    record.draw(out / "graph.svg", title=text)
    record.html(out / "explain.html", tokens=source.tokens, title=title)
    for line in FILES:
        print(f"wrote {out / line}")

"""`minigrad explain` and `minigrad play`: run a function that returns a loss, and show the run."""

from __future__ import annotations

import json
import textwrap
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from ..engine.errors import ArgumentError, MissingDependencyError
from ..playing.run import LossFunction, Run, run_loss
from ..playing.server import PlayServer
from ..playing.session import PlaySession
from ..record.record import AttentionWeights, Record
from ..saving import write
from ..views import derivation, page, picture, words
from ..views.attention import Attentions
from ..views.figures import gradient_times_attention, rollout
from ..views.table import checks_table, table, verdict_lines
from ..views.terminal import Column, grid, paint, wide
from .sources import source_of

__all__ = ["play", "run"]

FILES = {
    "graph.svg": "the graph, forward and backward",
    "explain.html": "a page that steps through it; open it in a browser, ? lists its keys",
    "derivation.md": "the backward pass written out, formula by formula",
    "trace.json": "every step, size and check",
}
MOST_LAYERS, MOST_KEYS = 4, 24  # columns and rows of the table of attention


def run(arguments: Namespace) -> int:
    if not arguments.out:
        raise ArgumentError("--out needs the name of a folder")
    out, source = Path(arguments.out), source_of(arguments)
    with source.around():
        ran = run_loss(source.load(), source.title)
    record = ran.record
    record.check(ops=True)
    record.finish()
    report = "\n\n".join(_report(ran, source, wide(None), arguments.all))
    missing = _write(record, source, out)
    print(report, end="\n\n")
    for name, what in FILES.items():
        print(
            f"{out / name} not drawn: {missing}"
            if name in missing
            else f"wrote {out / name}: {what}"
        )
    return 0 if record.checks.ok is not False and isfinite(ran.loss) and not missing else 1


def play(arguments: Namespace) -> int:
    """Serve the page until Ctrl-C."""
    source = source_of(arguments)
    server = PlayServer(PlaySession(source))
    print(f"{source.title}\nopen {server.address} in a browser; Ctrl-C ends it", flush=True)
    server.wait()
    return 0


# ---------------------------------------------------------------- printed


def _report(ran: Run, source: LossFunction, width: int, everything: bool) -> Iterator[str]:
    """Paragraphs: the loss, the attention of the word that was asked for, what was checked."""
    record = ran.record
    said = [f"{source.title}: {words.headline(record)}", words.summary(record)]
    text = " ".join(source.tokens[0]) if source.tokens else ""
    said += [f'on "{words.one_line(text, 120)}"'] * bool(text)
    yield "\n".join(textwrap.fill(line, width) for line in said)
    found = _named(record, source)
    if found:
        yield _attention_table(record, found, width)
    if everything:
        yield table(record, width)
        if found:
            yield Attentions(found).text(width)
        yield checks_table(record.checks, width)
    else:
        yield "\n".join(verdict_lines(record.checks, width))
    if not isfinite(ran.loss):
        yield paint("alarm", f"the loss is {ran.loss}")


def _named(record: Record, source: LossFunction) -> list[AttentionWeights]:
    """The attention of a run over square sequences of one length, with its words.

    Raises: ArgumentError if there are words, and no attention is over so many positions.
    """
    found = record.attention()
    lengths = {size for one in found for size in one.A.shape[-2:]}
    text = source.tokens[0] if source.tokens else []
    if text and found and not {len(one) for one in source.tokens or ()} & lengths:
        sizes = ", ".join(map(str, sorted(lengths)))
        raise ArgumentError(
            f"{source.title} names {len(text)} tokens, but its attention is over {sizes} positions"
        )
    square = [one for one in found if len(one.queries) == len(one.keys)]
    square = [one for one in square if len(one.keys) == len(square[0].keys)]
    if not square or len(text) != len(square[0].keys):
        return square
    return [replace(one, queries=tuple(text), keys=tuple(text)) for one in square]


def _attention_table(record: Record, found: list[AttentionWeights], width: int) -> str:
    """Of each key: the weights of the layers, what they carry together, and what lowers the
    loss."""
    query = record.asked

    def row(matrix: Any) -> Any:
        return matrix.mean(axis=0) if query is None else matrix[query]

    shares: dict[str, Any] = {}
    for one in found[:MOST_LAYERS]:
        name = one.path.removesuffix("/A").rpartition("/")[2]
        again = sum(other.partition(" (")[0] == name for other in shares)
        shares[f"{name} ({again + 1})" if again else name] = row(one.A.mean(axis=(0, 1)))
    if len(found) > 1:
        shares["rollout"] = row(rollout([one.A for one in found]))
    reached = [one for one in found if one.dA is not None]
    if reached:  # the loss should fall: a weight counts by how much it lowers it
        down = [gradient_times_attention(one.A, -one.dA) for one in reached if one.dA is not None]
        shares["lowers the loss"] = row(np.sum(down, axis=0))
    keys, rows = found[0].keys, []
    order = [*range(len(keys))]
    if len(keys) > MOST_KEYS:  # those that matter most, in their order
        most = np.max([np.abs(x) / max(np.abs(x).max(), 1e-300) for x in shares.values()], axis=0)
        order = sorted(np.argsort(-most)[:MOST_KEYS].tolist())
    for k in order:
        cells = [words.one_line(keys[k], 24)]
        for values in shares.values():
            part = abs(float(values[k])) / max(float(np.abs(values).max()), 1e-300)
            cells += [f"{values[k]:.2f}", "█" * round(10 * part)]
        rows.append(cells)
    columns = [Column("looks at", shrink="end")]
    for number, title in enumerate(shares):
        columns += [Column(title, right=True, shrink="start"), Column("", drop=9 - number)]
    whose = (
        "of all words, their mean" if query is None else f'of "{words.one_line(keys[query], 24)}"'
    )
    left = f"; {len(keys) - len(rows)} of {len(keys)} left out" if len(rows) < len(keys) else ""
    title = f"attention {whose}, mean over heads; lowers the loss: −A ⊙ ∂L/∂A where positive{left}"
    return "\n".join([paint("bold", textwrap.fill(title, width)), grid(columns, rows, width)])


# ---------------------------------------------------------------- written


def _write(record: Record, source: LossFunction, out: Path) -> str:
    """Write the files; returns which of them could not be drawn and why, if so.

    Raises: ArgumentError if there can be no such folder.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"--out {out}: {error.strerror}") from None
    text = words.one_line(" ".join(source.tokens[0]), 120) if source.tokens else ""
    data = json.dumps(record.to_dict(), indent=1, allow_nan=False)
    write(out / "trace.json", data + "\n", "explain")
    derivation.write(record, out / "derivation.md")
    title = f"{source.title}: {text}" if text else source.title
    try:
        page.write(record, out / "explain.html", tokens=source.tokens, title=title)
        picture.draw(record, out / "graph.svg", title=text)
    except MissingDependencyError as error:
        return f"explain.html, graph.svg: {str(error).splitlines()[0]}"
    return ""

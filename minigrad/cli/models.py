"""`minigrad models`: what is in a checkpoint, before it is loaded."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING

from .. import layers
from ..views.plain import of_bytes, one_line
from ..views.terminal import Column, grid, wide
from .output import show, wrapped

if TYPE_CHECKING:
    from layers.pretrained.describing import Checkpoint, Memory

__all__ = ["run"]

SIZE_WORDS = {
    "n_layers": "block(s)",
    "n_decoder_layers": "block(s) of the decoder",
    "d_model": "wide",
    "n_heads": "head(s)",
    "n_kv_heads": "head(s) of keys and values",
    "d_k": "wide each",
    "d_ff": "wide within feed-forward layers",
    "n_tokens": "token(s) known",
    "max_len": "position(s)",
}
MOST_NAMES_LISTED = 10


def run(arguments: Namespace) -> int:
    pretrained = import_module(".pretrained", layers.__name__)
    found: Checkpoint = pretrained.describe(
        arguments.folder, arguments.tokens, arguments.batch, arguments.dtype
    )
    if arguments.json:
        show(json.dumps(asdict(found), indent=1))
    else:
        show("\n\n".join(_parts(found, wide(None))))
    return 1 if found.problems else 0


def _parts(found: Checkpoint, width: int) -> Iterator[str]:
    known = {what: found.sizes[k] for k, what in SIZE_WORDS.items() if k in found.sizes}
    sizes = ", ".join(f"{n:,} {what.replace('(s)', 's' * (n != 1))}" for what, n in known.items())
    loaded = f", loaded as {found.model}" if found.model else ""
    title = f"{one_line(found.family) or 'no model_type'} in {one_line(found.folder)}{loaded}"
    yield "\n".join(wrapped(line, width) for line in (title, sizes) if line)
    stored = [
        f"{count:,} of {kind}, {of_bytes(size)}" for kind, (count, size) in found.stored.items()
    ]
    files = f"{found.files} file{'s' * (found.files > 1)}"
    yield wrapped(f"Tensors in {files}: {'; '.join(stored)}", width)
    yield _table(found.parts, width, "parameters" if found.model else "entries")
    if found.memory is not None:
        yield _memory(found.memory, width)
    if found.unused:
        yield _listed("Not used", found.unused, width)
    elif not found.problems:
        yield "Nothing is unused."
    if found.problems:
        yield _listed("load_pretrained refuses it", found.problems, width)


def _table(parts: dict[str, int], width: int, counted: str) -> str:
    whole = sum(parts.values())
    rows = [[one_line(part), f"{n:,}", f"{n / max(whole, 1):.1%}"] for part, n in parts.items()]
    columns = [Column("part", shrink="start"), Column(counted, right=True)]
    columns.append(Column("share", right=True, drop=1))
    return grid(columns, [*rows, ["in all", f"{whole:,}", ""]], width)


def _memory(m: Memory, width: int) -> str:
    rows = [
        ["weights", of_bytes(m.weights), ""],
        ["to run", of_bytes(m.run), "with the arrays of a pass that are there at once"],
        ["to generate", of_bytes(m.run + m.cache), "with keys and values of those tokens"],
        ["to train", of_bytes(m.train), "weights, gradients, Adam's two moments, and what backward"
         " needs"],
    ]  # fmt: skip
    rows = [row for row in rows if m.cache or row[0] != "to generate"]
    columns = [Column("memory"), Column("about", right=True), Column("", shrink="end", drop=1)]
    title = f"Of {m.batch:,} × {m.tokens:,} tokens in {m.dtype}:"
    return f"{title}\n{grid(columns, rows, width)}"


def _listed(title: str, names: list[str], width: int) -> str:
    lines = [wrapped(one_line(name), width) for name in names[:MOST_NAMES_LISTED]]
    more = [f"… and {len(names) - MOST_NAMES_LISTED:,} more"] * (len(names) > MOST_NAMES_LISTED)
    return "\n".join([f"{title}:", *(f"  {line}" for line in [*lines, *more])])

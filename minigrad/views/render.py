"""DOT text rendered to bytes, by graphviz-pure or a `dot` on the PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from importlib import metadata
from pathlib import Path

from ..engine.errors import ArgumentError, MinigradError, MissingDependencyError

__all__ = ["FORMATS", "format_of", "render"]

FORMATS = {".svg": "svg", ".png": "png", ".pdf": "pdf", ".dot": "dot", ".gv": "dot"}
RESOLUTION = "144"  # dots per inch of a PNG
INSTALL = "pip install graphviz-pure (or a system Graphviz, whose `dot` must be on the PATH)"


def format_of(path: Path) -> str:
    """What a path's suffix asks for.

    >>> format_of(Path("graph.SVG"))
    'svg'
    """
    if path.suffix.lower() not in FORMATS:
        known = ", ".join(FORMATS)
        raise ArgumentError(f"draw: the path must end in one of {known}, got {str(path)!r}")
    return FORMATS[path.suffix.lower()]


def bundled() -> str | None:
    """The program that the package graphviz-pure installed, wherever it lies."""
    try:
        files = metadata.files("graphviz-pure") or []
    except metadata.PackageNotFoundError:
        files = []
    found = [
        str(f.locate()) for f in files if f.stem == "graphviz-pure" and "bin" in f.parts[-2].lower()
    ]
    found += [os.path.join(sysconfig.get_path("scripts"), "graphviz-pure")]
    return next((f for f in found if os.access(f, os.X_OK)), shutil.which("graphviz-pure"))


def program(format: str) -> str:
    """The program that makes this format. Raises: MissingDependencyError if there is none."""
    ours = bundled()
    found = (ours if format != "pdf" else None) or shutil.which("dot")
    if found is None and ours is not None:
        raise MissingDependencyError(
            "draw: graphviz-pure does not make PDF; install a system Graphviz (its `dot` on the "
            "PATH), or draw an .svg and print that"
        )
    if found is None:
        raise MissingDependencyError(f"draw: no renderer for DOT found: {INSTALL}, or draw to .dot")
    return found


def render(text: str, format: str) -> bytes:
    """DOT text as an SVG, PNG or PDF.

    Raises: MissingDependencyError without a renderer; MinigradError if it fails.
    """
    renderer = program(format)
    dots = [f"-Gdpi={RESOLUTION}"] if format == "png" else []
    done = subprocess.run(
        [renderer, "-Kdot", f"-T{format}", *dots],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode or not done.stdout:
        said = done.stderr.decode(errors="replace").strip()
        raise MinigradError(f"draw: {renderer} failed with status {done.returncode}: {said}")
    return done.stdout

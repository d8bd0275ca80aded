"""What minigrad costs before it does anything: the time to import it, and its size on disk."""

from __future__ import annotations

import marshal
import os
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["dependencies", "imports", "size"]

# NumPy comes first, so that what both need is counted as NumPy's
_CODE = """
from time import perf_counter
import sys
sys.path.insert(0, {path!r})
start = perf_counter()
import numpy
first = perf_counter()
import {modules}
print(first - start, perf_counter() - first)
"""


def imports(path: str, modules: dict[str, str], rounds: int) -> dict[str, float]:
    """Median seconds to import NumPy, and each of the modules after it, in fresh interpreters.

    Modules go in turn. The first round, which compiles bytecode to a folder of its own, does not
    count.

    Raises: ImportError if a module cannot be imported.
    """
    taken: dict[str, list[float]] = {name: [] for name in ("NumPy", *modules)}
    with TemporaryDirectory() as bytecode:
        env = os.environ | {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
        for i in range(rounds + 1):
            for name, module in modules.items():
                command = [sys.executable, "-P", "-c", _CODE.format(path=path, modules=module)]
                done = subprocess.run(command, env=env, capture_output=True, text=True)
                if done.returncode:
                    raise ImportError(f"import {module}: {done.stderr.strip()[-300:]}")
                if i > 0:
                    numpy, beyond = map(float, done.stdout.split())
                    taken["NumPy"].append(numpy)
                    taken[name].append(beyond)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def dependencies(root: str | Path) -> list[str]:
    """What a checkout's pyproject.toml requires, NumPy aside, and what that requires in turn."""
    with open(Path(root, "pyproject.toml"), "rb") as file:
        waiting = [_name(text) for text in tomllib.load(file)["project"]["dependencies"]]
    found: list[str] = []
    for name in waiting:
        if name in found or name == "numpy":
            continue
        found.append(name)
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        waiting += [_name(text) for text in needs if "extra ==" not in text]
    return found


def size(root: str | Path, name: str) -> int | None:
    """Bytes a package takes on disk with its bytecode; None if it is not installed.

    minigrad's own packages are read in the checkout.
    """
    if name == "minigrad":
        folders = [Path(root, package) for package in ("minigrad", "layers")]
        return _bytes(path for folder in folders for path in folder.rglob("*"))
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return None
    return _bytes(Path(str(file.locate())) for file in files)


def _bytes(paths: Iterable[Path]) -> int:
    """Files as they are, and the bytecode that Python makes of each source."""

    def parts() -> Iterator[int]:
        for path in paths:
            if path.is_file() and path.suffix != ".pyc":
                yield path.stat().st_size
                if path.suffix == ".py":
                    yield 16 + len(marshal.dumps(compile(path.read_bytes(), str(path), "exec")))

    return sum(parts())


def _name(requirement: str) -> str:
    """The name alone, as packages are compared.

    >>> _name("Graphviz_Pure>=0.2.1 ; python_version > '3'")
    'graphviz-pure'
    """
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None, requirement
    return re.sub(r"[-_.]+", "-", match.group()).lower()

"""A fresh Python process, which finds the packages of this tree or of another."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "python"]

ROOT = Path(__file__).parents[1]
OWN = ("LC_", "LANG", "PYTHON", "COLUMNS")  # variables that would make it another


def python(
    *arguments: Any, cwd: Path = ROOT, root: Path = ROOT, status: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """What Python printed that was called so, and ended with this status."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=kept | {"PYTHONPATH": str(root)} | variables,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == status, done.stderr
    return done

"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from datetime import date
from typing import Any

import numpy as np

__all__ = ["describe", "machine"]


def machine() -> dict[str, Any]:
    """Date, processor, cores that may be used, system, Python, NumPy and its BLAS."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "date": date.today().isoformat(),
        "processor": _processor(),
        "cores": _cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
    }


def describe(facts: dict[str, Any]) -> str:
    """All of it in a line."""
    return (
        f"{facts['date']}, {facts['processor']}, {facts['cores']} cores, {facts['system']}, "
        f"Python {facts['python']}, NumPy {facts['numpy']} ({facts['blas']})"
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            line = next(line for line in file if line.startswith("model name"))
        return " ".join(line.partition(":")[2].split())
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()

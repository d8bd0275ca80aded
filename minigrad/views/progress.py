"""How far a loop has come: a bar by tqdm where that is installed, plain lines otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from importlib.util import find_spec
from time import perf_counter
from typing import Any, TextIO

__all__ = ["progress"]


def progress(steps: Iterable[Any], title: str = "", *, file: TextIO | None = None) -> Any:
    """Go over `steps` and show how far that has come, on standard error.

    Args:
        steps: what to loop over, as `range(1000)` or `batches(...)`; how many is shown where `len`
            tells it.
        title: stands in front.
        file: where to write instead.
    Returns: an iterable with `log(**numbers)`, which shows numbers beside it.

    >>> bar = progress(range(3), "epoch", file=sys.stdout)  # doctest: +SKIP
    >>> for t in bar:  # doctest: +SKIP
    ...     bar.log(loss=1 / (1 + t))
    """
    kind = _Bar if find_spec("tqdm") is not None else _Lines
    return kind(steps, title, sys.stderr if file is None else file)


class _Lines:
    """A line at the start of a loop's third second, and then ever more rarely; one at the end."""

    def __init__(self, steps: Iterable[Any], title: str, file: TextIO) -> None:
        self.steps, self.title, self.file = steps, title, file
        self.numbers = ""

    def log(self, **numbers: Any) -> None:
        self.numbers = ", ".join(f"{name} {float(x):.4g}" for name, x in numbers.items())

    def __iter__(self) -> Iterator[Any]:
        began, wait, done = perf_counter(), 2.0, 0
        for done, step in enumerate(self.steps, 1):
            yield step
            if perf_counter() - began > wait:
                wait *= 1.5
                self._write(done, perf_counter() - began)
        self._write(done, perf_counter() - began)

    def _write(self, done: int, seconds: float) -> None:
        whole = f"/{len(self.steps)}" if isinstance(self.steps, Sized) else ""
        parts = [f"{self.title} {done}{whole}".strip(), self.numbers, f"{seconds:.1f} s"]
        print("   ".join(filter(None, parts)), file=self.file)


class _Bar(_Lines):
    """The same by tqdm."""

    def log(self, **numbers: Any) -> None:
        super().log(**numbers)
        self.bar.set_postfix_str(self.numbers, refresh=False)

    def __iter__(self) -> Iterator[Any]:
        from tqdm import tqdm

        self.bar = tqdm(self.steps, desc=self.title or None, file=self.file)
        yield from self.bar

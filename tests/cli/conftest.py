"""Running the command within this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from minigrad.__main__ import main


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What was printed, as one line."""
        return " ".join(self.out.split())


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Ran]:
    """Run `minigrad` with these arguments, for a terminal of 100 columns unless told."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: Any, width: int = 100) -> Ran:
        monkeypatch.setenv("COLUMNS", str(width))
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return Ran(status, *capsys.readouterr())

    return run

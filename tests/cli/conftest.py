"""Running the command within this process."""

import sys
from typing import NamedTuple

import pytest

from minigrad.__main__ import main


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def words(self):
        """What was printed, as one line."""
        return " ".join(self.out.split())


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """Run `minigrad` with these arguments, for a terminal of 100 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the function's folder comes first

    def run(*arguments):
        monkeypatch.setenv("COLUMNS", "100")
        capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as stop:  # argparse's
            status = stop.code
        return Ran(status, *capsys.readouterr())

    return run

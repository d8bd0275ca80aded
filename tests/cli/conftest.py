"""Running the command within this process."""

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

    def run(*arguments):
        monkeypatch.setenv("COLUMNS", "100")
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return Ran(status, *capsys.readouterr())

    return run

"""The command, with real processes: `python -m benchmarks`, and what it asks of its peers."""

import json
import os
import sys
from textwrap import dedent

import pytest

from benchmarks import __main__ as command
from benchmarks.cases import TABLE
from benchmarks.contestants import everyone
from benchmarks.processes import PeerError
from benchmarks.remote import ROOT, Remote

PLANTED = """
    import os
    import numpy as np
    from benchmarks.peers import Naive

    class Absent(Naive):
        def load(self):
            import no_such_engine

    class Wrong(Naive):
        def attention(self, case, inputs):
            right = super().attention(case, inputs)
            return lambda: (answer := right()) | {"d_X": answer["d_X"] * 1.01}

    class Once(Naive):
        def attention(self, case, inputs):
            if case.n == 4:
                os._exit(1)
            return super().attention(case, inputs)
"""


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A module of peers with faults, which the child processes can import too."""
    (tmp_path / "planted.py").write_text(dedent(PLANTED))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    import planted

    yield planted
    del sys.modules["planted"]


@pytest.mark.slow
def test_one_command_names_who_is_wrong_and_who_is_missing(planted, monkeypatch, tmp_path, capfd):
    peers = {name: p for name, p in everyone(str(ROOT)).items() if name in ("hand-best", "eager")}
    peers |= {"liar": planted.Wrong("liar", "a liar"), "gone": planted.Absent("gone", "the absent")}
    monkeypatch.setattr(command, "everyone", lambda path: peers)
    options = ["--cases", "tiny", "--rounds", "1", "--patience", "0"]
    assert command.main(["table", *options, "--json", str(tmp_path / "all.json")]) == 0
    out = capfd.readouterr().out
    assert "not here: the absent (No module named 'no_such_engine')" in out
    assert "a liar: wrong answer: d_X is off by 1.0e-02" in out
    (row,) = (
        line for line in out.split("\n") if line.startswith("  single head, tiny (1, 4, 8, 8)  ")
    )
    *_, base, eager, liar = row.split()
    assert float(base.rstrip("~")) > 0
    assert all(float(figure.rstrip("~")) > 0 for figure in eager.split("/"))
    assert liar == "wrong"

    data = json.loads((tmp_path / "all.json").read_text())
    assert data["missing"] == {"gone": "No module named 'no_such_engine'"}
    assert {"date", "processor", "cores", "python", "numpy", "blas"} <= data["machine"].keys()
    (case,) = data["sections"]["table"]["cases"]
    assert case["peers"].keys() == {"hand-best", "eager"}
    assert case["failures"].keys() == {"liar"}


def test_a_process_that_ended_begins_anew_with_the_next_case(planted):
    remote = Remote(planted.Once("once", "once"))
    remote.load()
    with pytest.raises(PeerError, match="its process ended"):
        remote.build(TABLE["tiny"], "float32")
    answer = remote.build(TABLE["small"], "float32")
    assert answer["out"].shape == (2, 16, 32)
    remote.close()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tabel"], "no section tabel; there are table, ops, nodes"),
        (["--cases", "tiny,huge"], "no case huge; there are tiny, small"),
        (["--peers", "numpy"], "no peer numpy; there are hand-best, eager, compiled"),
        (["--minigrad", "/nowhere"], "--minigrad /nowhere: no minigrad/ there"),
        (["--json", "/nowhere/all.json"], "--json /nowhere/all.json: no such folder"),
        (["--rounds", "0"], "must be at least 1, got 0"),
    ],
)
def test_what_is_not_there_is_refused_with_what_there_is(arguments, says, capsys):
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_minigrad_from_elsewhere_is_not_taken_for_the_one_asked_for(tmp_path):
    (tmp_path / "minigrad").mkdir()
    with pytest.raises(ImportError, match="not from"):
        everyone(str(tmp_path))["eager"].load()

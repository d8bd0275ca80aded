"""--out: a folder that gets both files, or nothing at all."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from minigrad.errors import ArgumentError, MissingDependencyError
from minigrad.trace import Trace


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_folder_that_is_not_there_is_made_with_its_parents(command, tmp_path):
    out = tmp_path / "a" / "b"
    ran = command("explain", "--out", out)
    assert ran.status == 0
    assert everything(tmp_path) == ["a", "a/b", "a/b/graph.svg", "a/b/trace.json"]
    assert f"wrote {out / 'graph.svg'}" in ran.out
    assert f"wrote {out / 'trace.json'}" in ran.out
    assert ElementTree.parse(out / "graph.svg").getroot().tag.endswith("svg")
    assert {"nodes", "edges", "checks", "explain"} <= json.loads(
        (out / "trace.json").read_text()
    ).keys()


def test_a_folder_that_is_there_keeps_its_other_files(command, tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    (tmp_path / "trace.json").write_text("old")
    assert command("explain", "--out", tmp_path).status == 0
    assert everything(tmp_path) == ["graph.svg", "mine.txt", "trace.json"]
    assert (tmp_path / "mine.txt").read_text() == "kept"
    assert (tmp_path / "trace.json").read_text() != "old"


def test_the_picture_shows_the_scopes_and_the_symbols(command):
    command("explain", "--causal")
    text = Path("explained/graph.svg").read_text(encoding="utf-8")
    for word in ("embedding", "multi_head_attention", "prediction", "loss", "W_Q", "S_masked"):
        assert word in text


def test_theme_and_depth_change_the_picture(command):
    drawn = set()
    for flags in ([], ["--theme", "dark"], ["--depth", "1"]):
        assert command("explain", *flags).status == 0
        drawn.add(Path("explained/graph.svg").read_text(encoding="utf-8"))
    assert len(drawn) >= 2


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_file_in_the_way_is_one_line_and_status_2(command, tmp_path, below):
    (tmp_path / "file").write_text("mine")
    ran = command("explain", "--out", f"{tmp_path}/file{below}")
    assert ran.status == 2
    assert ran.out == ""
    why = "is a file, or lies below one; a folder is needed"
    assert ran.err == f"minigrad: error: --out {tmp_path}/file{below}: {why}\n"
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_in_the_way_of_a_file_moves_neither(command, tmp_path):
    (tmp_path / "trace.json").mkdir()
    ran = command("explain", "--out", tmp_path)
    assert ran.status == 2
    assert "trace.json is a folder there" in ran.err
    assert everything(tmp_path) == ["trace.json"]


@pytest.mark.parametrize("out", ["", "a\0b", "x" * 300])
def test_a_name_that_cannot_be_is_one_line_and_status_2(command, out, tmp_path):
    ran = command("explain", "--out", out)
    assert ran.status == 2
    assert ran.err.count("\n") == 1
    assert everything(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_one_line_and_status_2(command, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    ran = command("explain", "--out", tmp_path / "locked")
    assert ran.status == 2
    assert ran.err.endswith("permission denied\n")


def test_a_folder_that_cannot_be_made_is_one_line_and_status_2(command):
    ran = command("explain", "--out", "/proc/none/explained")
    assert ran.status == 2
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("minigrad: error: --out /proc/none/explained: ")


@pytest.mark.parametrize("existing", [True, False])
def test_a_failure_half_way_leaves_what_was_there(command, monkeypatch, tmp_path, existing):
    def half(trace, path, **options):
        Path(path).write_text("<svg")
        raise ArgumentError("the pen broke")

    out = tmp_path / "out" / "inner"
    if existing:
        out.mkdir(parents=True)
        (out / "graph.svg").write_text("old")
    before = everything(tmp_path)
    monkeypatch.setattr(Trace, "draw", half)
    ran = command("explain", "--out", out)
    assert (ran.status, ran.out, ran.err) == (2, "", "minigrad: error: the pen broke\n")
    assert everything(tmp_path) == before
    assert not existing or (out / "graph.svg").read_text() == "old"


def test_without_a_renderer_the_rest_is_still_there_and_the_status_1(command, monkeypatch):
    def none(trace, path, **options):
        raise MissingDependencyError("install graphviz-pure")

    monkeypatch.setattr(Trace, "draw", none)
    ran = command("explain")
    assert ran.status == 1
    assert "graph.svg not drawn: install graphviz-pure" in ran.out
    assert "gradients agree" in ran.out
    assert everything(Path("explained")) == ["trace.json"]

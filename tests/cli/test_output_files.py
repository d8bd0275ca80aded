"""--out: a folder that gets all four files, or nothing at all."""

import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from minigrad.errors import ArgumentError, MissingDependencyError
from minigrad.tracing import Trace

FOUR = ["derivation.md", "explain.html", "graph.svg", "trace.json"]


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_folder_that_is_not_there_is_made_with_its_parents(command, tmp_path):
    out = tmp_path / "a" / "b"
    ran = command("explain", "--out", out)
    assert ran.status == 0
    assert everything(tmp_path) == ["a", "a/b", *(f"a/b/{name}" for name in FOUR)]
    assert all(f"wrote {out / name}" in ran.out for name in FOUR)
    assert ElementTree.parse(out / "graph.svg").getroot().tag.endswith("svg")
    assert {"nodes", "edges", "checks", "explain"} <= json.loads(
        (out / "trace.json").read_text()
    ).keys()


def test_a_folder_that_is_there_keeps_its_other_files(command, tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    (tmp_path / "trace.json").write_text("old")
    assert command("explain", "--out", tmp_path).status == 0
    assert everything(tmp_path) == sorted([*FOUR, "mine.txt"])
    assert (tmp_path / "mine.txt").read_text() == "kept"
    assert (tmp_path / "trace.json").read_text() != "old"


def test_the_picture_shows_the_scopes_and_the_symbols(command):
    command("explain", "--causal")
    text = Path("explained/graph.svg").read_text(encoding="utf-8")
    for word in ("embedding", "multi_head_attention", "prediction", "loss", "W_Q", "S_masked"):
        assert word in text


def data_of(page):
    """The record within a page."""
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1])


def test_the_page_names_the_tokens_and_the_derivation_the_weights(command):
    assert command("explain", "--causal", "--text", "the cat </script> sat").status == 0
    data = data_of(Path("explained/explain.html"))
    assert data["tokens"][0] == ["the", "cat", "<", "/", "script", ">", "sat"]
    assert data["title"] == "multi-head: the cat </script> sat"
    text = Path("explained/derivation.md").read_text(encoding="utf-8")
    assert r"\partial W_Q" in text
    assert "✓" in text


def test_a_wrong_rule_is_told_in_every_file(command, plant):
    plant("softmax", "x", lambda gradient: gradient * 1.0005)
    assert command("explain").status == 1
    assert "✗" in Path("explained/derivation.md").read_text(encoding="utf-8")
    assert '"ok":false' in Path("explained/explain.html").read_text(encoding="utf-8")


def test_json_prints_the_record_and_nothing_else_and_writes_the_files(command, plant):
    ran = command("explain", "--json")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == Path("explained/trace.json").read_text(encoding="utf-8")
    assert json.loads(ran.out)["explain"]["seed"] == 0
    assert everything(Path("explained")) == FOUR
    plant("softmax", "x", lambda gradient: gradient * 1.0005)
    wrong = command("explain", "--json")
    assert wrong.status == 1
    assert any(check["ok"] is False for check in json.loads(wrong.out)["checks"])


def test_json_without_a_renderer_says_so_on_stderr(command, monkeypatch):
    def none(trace, path, **options):
        raise MissingDependencyError("install graphviz-pure")

    monkeypatch.setattr(Trace, "draw", none)
    ran = command("explain", "--json")
    assert ran.status == 1
    assert json.loads(ran.out)["nodes"]
    assert ran.err == "minigrad: graph.svg not drawn: install graphviz-pure\n"


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
@pytest.mark.parametrize("view", ["draw", "html", "derivation"])
def test_a_failure_half_way_leaves_what_was_there(command, monkeypatch, tmp_path, existing, view):
    def half(trace, path, **options):
        Path(path).write_text("<svg")
        raise ArgumentError("the pen broke")

    out = tmp_path / "out" / "inner"
    if existing:
        out.mkdir(parents=True)
        (out / "graph.svg").write_text("old")
    before = everything(tmp_path)
    monkeypatch.setattr(Trace, view, half)
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
    assert everything(Path("explained")) == [name for name in FOUR if name != "graph.svg"]

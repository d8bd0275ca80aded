"""--out: a folder that gets all four files, or nothing at all."""

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from minigrad.cli import report
from minigrad.errors import ArgumentError, MissingDependencyError
from minigrad.tracing import Trace

FOUR = ["derivation.md", "explain.html", "graph.svg", "trace.json"]


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def undrawn(trace, path, **options):
    raise MissingDependencyError("install graphviz-pure")


def test_a_folder_that_is_not_there_is_made_with_its_parents(command, tmp_path):
    out = tmp_path / "a" / "b"
    ran = command("explain", "--causal", "--out", "a/b")
    assert ran.status == 0
    assert everything(tmp_path) == ["a", "a/b", *(f"a/b/{name}" for name in FOUR)]
    assert all(f"wrote a/b/{name}" in ran.out for name in FOUR)
    picture = (out / "graph.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    for word in ("embedding", "multi_head_attention", "prediction", "loss", "W_Q", "S_masked"):
        assert word in picture


def test_a_folder_that_is_there_keeps_its_other_files_and_the_page_may_be_pasted(command, tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    (tmp_path / "trace.json").write_text("old")
    ran = command("explain", "--embed", "--out", tmp_path)
    assert ran.status == 0
    two = ["explain.iframe.html", "explain.script.html"]
    assert everything(tmp_path) == sorted([*FOUR, *two, "mine.txt"])
    assert (tmp_path / "mine.txt").read_text() == "kept"
    assert {"nodes", "explain"} <= json.loads((tmp_path / "trace.json").read_text()).keys()
    assert all(f"wrote {tmp_path / name}" in ran.words for name in two)
    frame, script = ((tmp_path / name).read_text(encoding="utf-8") for name in two)
    assert frame.startswith("<iframe")
    assert frame.count("<") == 2
    assert script.startswith("<script>")
    assert script.count("</script>") == 1


@pytest.mark.parametrize(
    ("owner", "view", "lost"),
    [
        (Trace, "draw", ["graph.svg"]),
        (report, "write_page", ["explain.html", "graph.svg"]),
    ],
)
def test_without_a_renderer_the_rest_is_still_there_and_the_status_1(
    command, monkeypatch, owner, view, lost
):
    monkeypatch.setattr(owner, view, undrawn)
    ran = command("explain", "--embed")
    missing = f"{' and '.join(lost)} not drawn: install graphviz-pure"
    assert ran.status == 1
    assert missing in ran.words
    assert "gradients equal the hand-derived steps" in ran.words
    assert not any(f"wrote explained/{name}" in ran.words for name in lost)
    left = everything(Path("explained"))
    assert [name for name in FOUR if name in left] == [name for name in FOUR if name not in lost]
    ran = command("explain", "--json")
    assert json.loads(ran.out)["nodes"]
    assert (ran.status, ran.err) == (1, f"minigrad: {missing}\n")


def test_a_link_in_the_folder_is_followed_and_a_pipe_there_refused_before_any_file_moves(
    command, refused, tmp_path
):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trace.json").symlink_to(tmp_path / "real.json")
    assert command("explain", "--out", "out").status == 0
    assert (tmp_path / "out" / "trace.json").is_symlink()
    assert "nodes" in json.loads((tmp_path / "real.json").read_text())
    (tmp_path / "out" / "graph.svg").unlink()
    os.mkfifo(tmp_path / "out" / "graph.svg")
    page = (tmp_path / "out" / "explain.html").stat().st_mtime_ns
    refused(
        "--out: 'out/graph.svg' is a device or a pipe; name a file\n", "explain", "--out", "out"
    )
    assert (tmp_path / "out" / "explain.html").stat().st_mtime_ns == page


# ---------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("file", "--out file: is a file, or lies below one; a folder is needed"),
        ("file/deeper", "--out file/deeper: is a file, or lies below one; a folder is needed"),
        ("folder", "--out: 'folder/trace.json' is a folder; name a file in it"),
        ("/proc/none/explained", "--out /proc/none/explained: "),
        ("", "--out needs the name of a folder"),
        ("a\0b", "--out a\\x00b: "),
        ("x" * 300, "--out xxx"),
    ],
)
def test_a_folder_that_cannot_be_is_one_line_and_status_2(refused, tmp_path, out, said):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder" / "trace.json").mkdir(parents=True)
    refused(f"minigrad: error: {said}", "explain", "--out", out)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("owner", "view", "existing"),
    [(Trace, "draw", True), (report, "write_page", True), (Trace, "derivation", False)],
)
def test_a_failure_half_way_leaves_what_was_there(
    refused, monkeypatch, tmp_path, existing, owner, view
):
    def half(trace, path, **options):
        Path(path).write_text("<svg")
        raise ArgumentError("the pen broke")

    out = tmp_path / "out" / "inner"
    if existing:
        out.mkdir(parents=True)
        (out / "graph.svg").write_text("old")
    monkeypatch.setattr(owner, view, half)
    refused("minigrad: error: the pen broke\n", "explain", "--out", out)
    assert not existing or (out / "graph.svg").read_text() == "old"

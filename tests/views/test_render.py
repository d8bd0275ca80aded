"""Renderers: which one, what if there is none, and files that are whole or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from minigrad.errors import ArgumentError, MinigradError, MissingDependencyError
from minigrad.files import write
from minigrad.tracing import Trace
from minigrad.views import picture as rendering
from minigrad.views.picture import render

DOT = 'digraph { a -> b [label="é"] }'


def pretend(monkeypatch: pytest.MonkeyPatch, *, ours: str | None, system: str | None) -> None:
    monkeypatch.setattr(rendering, "bundled", lambda: ours)
    monkeypatch.setattr(rendering.shutil, "which", lambda name: system if name == "dot" else None)


def fake_dot(folder: Path, script: str) -> str:
    path = folder / "dot"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_bundled_program_is_found_and_renders() -> None:
    assert rendering.bundled() is not None
    assert b"</svg>" in render(DOT, "svg")
    assert render(DOT, "png").startswith(b"\x89PNG")


def test_without_a_renderer_the_error_says_what_to_install(
    single: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, ours=None, system=None)
    with pytest.raises(MissingDependencyError, match="pip install graphviz-pure"):
        single.draw(tmp_path / "g.svg")
    assert not list(tmp_path.iterdir())
    single.draw(tmp_path / "g.dot")


def test_dot_on_the_path_is_the_alternative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, ours=None, system=fake_dot(tmp_path, 'echo "$@"'))
    assert render(DOT, "svg") == b"-Kdot -Tsvg\n"


def test_pdf_needs_dot_and_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, ours="graphviz-pure", system=None)
    with pytest.raises(MissingDependencyError, match="graphviz-pure does not make PDF"):
        render(DOT, "pdf")
    pretend(monkeypatch, ours="graphviz-pure", system=fake_dot(tmp_path, "echo %PDF"))
    assert render(DOT, "pdf") == b"%PDF\n"


def test_a_renderer_that_fails_is_an_error_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, ours=None, system=fake_dot(tmp_path, "echo broken graph >&2; exit 3"))
    with pytest.raises(MinigradError, match="failed with status 3: broken graph"):
        render(DOT, "svg")


@pytest.mark.parametrize("name", ["g", "g.jpeg", "g.svg.gz"])
def test_another_suffix_is_refused_with_the_list(single: Trace, tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentError, match=r"must end in one of \.svg, \.png, \.pdf, \.dot, \.gv"):
        single.draw(tmp_path / name)


VIEWS = [("draw", "g.dot"), ("html", "g.html"), ("derivation", "g.md")]


@pytest.mark.parametrize(("call", "name"), VIEWS)
def test_a_path_that_cannot_be_written_is_refused_by_the_call_it_was_given_to(
    single: Trace, tmp_path: Path, call: str, name: str
) -> None:
    (tmp_path / name).mkdir()
    suffix = Path(name).suffix
    for path, said in (
        (tmp_path / "nowhere" / name, f"{call}: there is no folder .*nowhere.* to write"),
        (tmp_path / name, f"{call}: .* is a folder; name a file in it"),
        (tmp_path / f"{'n' * 300}{suffix}", f"{call}: no file can be named 'nnn"),
        (tmp_path / f"a\0b{suffix}", f"{call}: no file can be named"),
    ):
        with pytest.raises(ArgumentError, match=said):
            getattr(single, call)(path)
    assert os.listdir(tmp_path) == [name]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "g.svg"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["g.svg"]

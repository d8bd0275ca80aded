"""What is printed fits the terminal: its width, its characters, its colours, its pipes."""

import subprocess
import sys

import pytest

from minigrad.views.terminal import cells
from tests.process import ROOT, python

ODD = "naïve 東京 \u202ewasn\u2019t e\u0301t \x1b[31m \udcff 🙂"


@pytest.mark.parametrize("width", [40, 60, 120])
def test_no_line_is_wider_than_the_terminal(command, width):
    few = [["ops"], ["check", "--op", "exp", "layer_norm"]]
    for arguments in [["explain", "--causal"], *few] if width >= 60 else few:
        ran = command(*arguments, width=width)
        assert ran.status == 0
        titles = "engine against hand-derived steps"  # as wide as it is
        wide = [line for line in ran.out.splitlines() if cells(line) > width and titles not in line]
        assert not wide


def test_a_long_text_shows_its_ends_and_all_of_it_on_request(command):
    text = " ".join(f"w{i}" for i in range(30))
    ran = command("explain", "--text", text, "--heads", 16)
    for said in ("6 more", "4 more heads: --all shows them", "8 of 16 heads shown"):
        assert said in ran.out
    everything = command("explain", "--text", text, "--heads", 16, "--all").out
    assert "more heads" not in everything
    assert "head 15:" in everything


def test_a_terminal_without_unicode_gets_ascii(tmp_path):
    """Whether its encoding says so, or its locale."""
    asked = ("-m", "minigrad", "explain", "--causal", "--text", "naïve 東京", "--heads", "1")
    text = python(*asked, cwd=tmp_path, PYTHONIOENCODING="ascii").stdout
    for said in ("ok", "1.00     -", "2 tokens (2 different)"):
        assert said in text
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ops = python("-m", "minigrad", "ops", cwd=tmp_path, **locale).stdout
    assert "out * (g - rowsum(g * out))" in ops
    assert (text + ops).isascii()
    assert "\\u" not in ops
    assert "\\x" not in ops


def test_characters_that_command_a_terminal_are_spelled_out(command):
    ran = command("explain", "--text", ODD)
    assert ran.status == 0
    assert not {"\x1b", "\u202e", "\udcff"} & set(ran.out)


def test_there_are_no_colours_but_on_a_terminal(command, monkeypatch):
    assert "\x1b" not in command("explain").out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\x1b[32m" in command("check", "--op", "exp").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in command("check", "--op", "exp").out


def test_a_reader_that_leaves_ends_the_command_quietly():
    code = f"{sys.executable} -m minigrad ops | head -1; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[1] in ("141", "0")  # 0 if all of it fitted into the pipe

"""What is printed fits the terminal: its width, its characters, its colours, its pipes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minigrad.views.terminal import cells

ROOT = Path(__file__).parents[2]
ODD = "naïve 東京 \u202ewasn\u2019t e\u0301t \x1b[31m \udcff 🙂"


def run(*arguments, cwd, **variables):
    """The command in a process of its own, with these variables."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("LC_", "LANG", "PYTHON", "COLUMNS"))
    }
    return subprocess.run(
        [sys.executable, "-m", "minigrad", *arguments],
        cwd=cwd,
        env={**kept, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(command, width):
    for arguments in (["explain", "--causal"], ["ops"], ["check", "--op", "exp", "layer_norm"]):
        ran = command(*arguments, width=width)
        assert ran.status == 0
        titles = "engine against hand-derived steps"  # as wide as it is
        wide = [line for line in ran.out.splitlines() if cells(line) > width and titles not in line]
        assert not wide


def test_wide_terminals_show_heads_side_by_side_and_narrow_ones_below_each_other(command):
    assert "head 1" in (wide := command("explain", width=140).out)
    assert any("head 1" in line and "head 2" in line for line in wide.splitlines())
    narrow = command("explain", width=40).out.splitlines()
    assert not any("head 1" in line and "head 2" in line for line in narrow)
    assert "head 1, keys 1 to 8" in narrow
    assert "head 1, keys 9 to 11" in narrow


def test_rows_that_see_nothing_of_a_block_are_left_out_and_that_is_said(command):
    ran = command("explain", "--causal", "--heads", 1, width=40)
    block = ran.out.split("keys 9 to 11")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in block[2:]] == ["was", "too", "tired"]
    assert "rows that may attend to none of the keys" in " ".join(ran.out.split())


def test_a_long_text_shows_its_ends_and_says_so(command):
    text = " ".join(f"w{i}" for i in range(18))
    ran = command("explain", "--text", text, "--heads", 16)
    flat = " ".join(ran.out.split())
    assert "16 of 18 tokens shown, the first 8 and the last 8; 8 of 16 heads shown" in flat
    assert "w7" in ran.out
    assert "w8 " not in ran.out
    everything = command("explain", "--text", text, "--heads", 16, "--all")
    assert "w8 " in everything.out
    assert "head 16" in everything.out
    assert "shown" not in everything.out


@pytest.mark.parametrize(
    "variables",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
    ids=["ascii", "C"],
)
def test_a_terminal_without_unicode_gets_ascii(tmp_path, variables):
    ran = run(
        "explain", "--causal", "--text", "naïve 東京", "--heads", "1", cwd=tmp_path, **variables
    )
    assert ran.returncode == 0, ran.stderr
    text = ran.stdout.decode("ascii")
    assert "ok" in text
    assert "1.0  -" in text
    assert "2 tokens (2 different)" in text
    assert "\\u~" in text  # what fits of a token spelled out
    ops = run("ops", cwd=tmp_path, **variables).stdout.decode("ascii")
    assert "out * (g - rowsum(g * out))" in ops
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


def test_a_reader_that_leaves_ends_the_command_quietly(tmp_path):
    code = f"{sys.executable} -m minigrad ops | head -1; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[1] in ("141", "0")  # 0 if all of it fitted into the pipe

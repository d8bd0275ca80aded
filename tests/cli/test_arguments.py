"""Arguments that cannot be: one clear line on stderr, status 2, nothing written."""

import io
import sys

import pytest

from minigrad.__main__ import main
from tests.process import python

WRONG = [
    (["explain", "--heads", "3"], "--heads must divide --d-model, got 3 and 32"),
    (["explain", "--heads", "0"], "must be an integer of at least 1, got '0'"),
    (["explain", "--heads", "-2"], "must be an integer of at least 1, got '-2'"),
    (["explain", "--heads", "two"], "must be an integer of at least 1, got 'two'"),
    (["explain", "--d-model", "1.5"], "must be an integer of at least 1, got '1.5'"),
    (["explain", "--seed", "-1"], "must be an integer of at least 0, got '-1'"),
    (["explain", "--text", ""], "--text holds no token"),
    (["explain", "--text", " \n\t"], "--text holds no token"),
    (["explain", "--causal", "--text", "alone"], "at least two tokens, got 1"),
    (["explain", "--dtype", "float16"], "invalid choice: 'float16'"),
    (["explain", "--theme", "neon"], "invalid choice: 'neon'"),
    (["explain", "selfattention"], "did you mean self-attention?"),
    (["explain", "convolution"], "it is multi-head, self-attention or FILE.py:FUNCTION"),
    (["explain", "self-attention", "--heads", "2"], "--heads does not go with self-attention"),
    (["explain", "multi-head", "--d-k", "2"], "--d-k does not go with multi-head"),
    (["explain", "model.py"], "which function of 'model.py'? name it FILE.py:FUNCTION"),
    (["explain", ":loss"], "a function is named FILE.py:FUNCTION or package.module:function"),
    (["explain", "model.py:"], "a function is named FILE.py:FUNCTION or package.module:function"),
    (["explain", "model.py:loss"], "no such file: model.py"),
    (["explain", "mo\x1bdel\n.py:loss"], "no such file: mo\\x1bdel\\n.py"),
    (["explain", "a\0b.py:loss"], "package.module:function, got a\\x00b.py:loss"),
    (["explain", "no.such_module:loss"], "no module named 'no.such_module'"),
    (["explain", "..model:loss"], "no module named '..model'"),
    (["explain", "model.py:loss", "--heads", "2"], "--heads is for the two layers"),
    (["explain", "model.py:loss", "--no-bias"], "--bias is for the two layers"),
    (["explain", "model.py:loss", "--seed", "0"], "--seed is for the two layers"),
    (["explain", "--text", "a " * 5000], "has 5000 tokens; with 4 heads at most 512"),
    (["explain", "--d-model", "1" + "0" * 30, "--heads", "1"], "weights; at most"),
    (["explain", "--hat"], "unrecognized arguments: --hat"),
    (["ops", "sofmax"], "no op is named 'sofmax'; did you mean softmax"),
    (["ops", "qqqqqq"], "no op is named 'qqqqqq'; `minigrad ops` lists all"),
    (["ops", "--tex"], "unrecognized arguments: --tex"),
    (["cost"], "invalid choice: 'cost'"),
    (["check", "--op", "softmix"], "no op is named 'softmix'; did you mean softmax"),
    (["check", "--order", "3"], "argument --order: invalid choice"),
    (["expain"], "invalid choice: 'expain'"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG, ids=lambda x: " ".join(x)[:40])
def test_a_wrong_argument_is_one_line_and_status_2(refused, arguments, said):
    refused(said, *arguments)


def test_a_dash_reads_the_text_from_standard_input(command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe"))
    assert "3 tokens" in command("explain", "--text", "-").out


def test_standard_input_that_is_no_text_is_refused(refused, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), encoding="utf-8"))
    refused("--text -: standard input is no text in utf-8", "explain", "--text", "-")


def test_standard_input_that_is_closed_is_refused(refused, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    refused("--text -: standard input is closed", "explain", "--text", "-")


def test_the_first_thing_to_try_is_said_by_the_command_alone_and_by_its_help(command):
    for arguments in ([], ["--help"], ["explain", "--help"]):
        ran = command(*arguments)
        assert ran.status == 0
        assert "minigrad explain examples/pronoun.py:tired" in " ".join(ran.out.split())
    for name in ("ops", "check"):
        assert "usage: minigrad" in command(name, "-h").out


def test_the_module_runs_and_its_status_is_the_processs(tmp_path):
    ran = python("-m", "minigrad", "explain", "--heads", "3", cwd=tmp_path, status=2)
    assert ran.stderr == "minigrad: error: --heads must divide --d-model, got 3 and 32\n"


def test_an_interrupt_ends_without_a_traceback(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("minigrad.cli.catalogue.known_ops", interrupted)
    assert main(["ops"]) == 130

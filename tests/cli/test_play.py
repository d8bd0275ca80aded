"""`minigrad play`: what `explain` runs, with numbers and texts that can be changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from minigrad.cli import explain
from minigrad.cli.arguments import parser
from minigrad.errors import ArgumentError
from minigrad.playing.session import PlaySession

ROOT = Path(__file__).parents[2]


def session(*arguments: str) -> PlaySession:
    return explain.session_of(parser().parse_args(["play", *arguments]))


def program(played: PlaySession, capsys: pytest.CaptureFixture[str]) -> float:
    """What the copied program prints."""
    capsys.readouterr()
    exec(played.python(), {})
    return float(capsys.readouterr().out)


@pytest.mark.parametrize("layer", ["attention", "self-attention", "multi-head"])
def test_another_text_runs_through_the_same_weights(
    layer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    played = session(layer, "--text", "the cat sat on the mat", "--d-model", "12")
    loss = played.run.loss
    played.set_keyword("text", "the dog sat on the mat")
    other = played.run.loss
    assert other != loss
    assert played.page["tokens"] == [["the", "dog", "sat", "on", "the", "mat"]]
    assert program(played, capsys) == other
    played.set_keyword("text", "the cat sat on the mat")
    assert played.run.loss == loss
    with pytest.raises(ArgumentError, match=r"at least one word|text is needed"):
        played.set_keyword("text", " ")


def test_the_word_at_the_end_turns_what_it_stands_for(capsys: pytest.CaptureFixture[str]) -> None:
    """The pronoun of examples/pronoun.py: an animal that is tired, a street that is wide."""
    played = session(f"{ROOT / 'examples/pronoun.py'}:tired")
    words = played.page["tokens"][0]
    assert played.run.loss < -5
    played.set_keyword("words", " ".join([*words[:-1], "wide"]))
    assert played.run.loss > 5
    assert played.page["tokens"][-1] == "wide"
    with pytest.raises(Exception, match=r"raised KeyError: 'dragon'"):
        played.set_keyword("words", " ".join([*words[:-1], "dragon"]))
    assert program(played, capsys) == played.run.loss


def test_a_file_is_there_for_what_its_function_looks_up_in_each_run(tmp_path: Path) -> None:
    """As dataclasses with annotations that are texts do, and pickle."""
    file = tmp_path / "settings.py"
    file.write_text(
        "from __future__ import annotations\n"
        "import pickle\n"
        "from dataclasses import dataclass\n"
        "import minigrad as mg\n"
        "class Settings:\n"
        "    pass\n"
        "def loss(factor=2.0):\n"
        "    @dataclass\n"
        "    class Scale:\n"
        "        factor: float\n"
        "    assert pickle.loads(pickle.dumps(Settings))\n"
        "    x = mg.tensor([3.0], requires_grad=True, name='x')\n"
        "    return mg.sum(x * Scale(factor).factor)\n"
    )
    played = session(f"{file}:loss")
    played.set_keyword("factor", 5)
    assert played.run.loss == 15

"""Questions on a run: their numbers are its own, and nothing is asked that it did not compute."""

import re

import numpy as np

import minigrad as mg
from minigrad.views.questions import questions
from tests.views import conftest as graphs


def test_every_answer_is_the_runs_own_number():
    for t in (graphs.attention(), graphs.attention("multi"), graphs.chain(4)):
        found = questions(t)
        asked = [one for one in found if one.edge is not None]
        assert len(asked) >= 5
        assert questions(t) == found  # the same run, the same questions
        for one in asked:
            edge = t.edges[one.edge]
            sent = float(edge.contribution[one.index])
            assert (one.value, edge.target) == (sent, one.step)
            sign, *size = one.parts
            assert (
                sign.choices[sign.right] == ("negative", "zero", "positive")[int(np.sign(sent)) + 1]
            )
            for part in size:
                about = float(part.choices[part.right].removeprefix("about "))
                assert abs(about - abs(sent)) <= 0.06 * abs(sent)
                assert len({*part.choices}) == 3
            assert float(one.answer.replace("−", "-")) == float(f"{sent:.4g}")
        for whole in (one for one in found if one.step is None):
            (part,) = whole.parts
            largest = max((e for e in t if e.learns), key=lambda e: e.gradient_rms)
            assert part.choices[part.right] == largest.path
            assert whole.value == largest.gradient_rms
    assert questions(graphs.attention())[-1].step is None


def test_nothing_is_asked_of_what_the_run_did_not_compute():
    def steps(t):
        return [one for one in questions(t) if one.edge is not None]

    x = mg.tensor([1.0, -2.0], requires_grad=True, name="x")
    frozen = mg.tensor([3.0, 0.0], name="frozen")
    with mg.trace() as t:
        y = x * frozen
    assert questions(t) == []
    with mg.trace() as t:
        mg.sum(x * frozen).backward()
    assert {t[t.edges[one.edge].source].name for one in steps(t)} <= {"x", None}
    with mg.trace(keep="summaries") as t:
        mg.sum(x * frozen).backward()
    assert steps(t) == []
    with mg.trace() as t, np.errstate(all="ignore"):
        mg.sum(mg.sqrt(x)).backward()
    assert [t[one.step].op for one in steps(t)] == ["sum"]
    assert y.shape == (2,)


def test_a_sheet_asks_the_same_and_answers_at_its_end(tmp_path):
    t = graphs.attention()
    text = t.exercises(tmp_path / "sheet.md").read_text()
    asked, answers = text.split("## Answers")
    found = questions(t)
    assert len(re.findall(r"^## \d+\. ", asked, re.M)) == len(found)
    assert len(re.findall(r"^\d+\. ", answers, re.M)) == len(found)
    for n, one in enumerate(found, 1):
        (line,) = re.findall(rf"^{n}\. (.*)$", answers, re.M)
        plain = line.replace("\\", "")
        assert plain == f"{', '.join(p.choices[p.right] for p in one.parts)}: {one.answer}"
        assert len(one.answer) < 5 or one.answer not in re.split(r"^## ", asked, flags=re.M)[
            n
        ].replace("\\", "")

"""Tables in a terminal."""

import io
import json
import sys

import pytest

import minigrad as mg
from layers import Linear
from minigrad.optim import SGD
from minigrad.recording.checks import Checks
from minigrad.views.plain import sized
from minigrad.views.table import checks_table, trace_table


def test_every_step_has_its_line_forward_and_backward_with_the_sizes_of_the_record(single):
    forward, backward, leaves, _ = trace_table(single, width=200).split("\n\n")
    for part, steps in ((forward, single.forward_steps), (backward, single.backward_steps)):
        lines = part.split("\n")[2:]
        assert len(lines) == len(steps)
        for line, step in zip(lines, steps, strict=True):
            assert single[step].path in line
    assert len(leaves.split("\n")) - 2 == sum(entry.op is None for entry in single)
    for line, step in zip(backward.split("\n")[2:], single.backward_steps, strict=True):
        assert sized(single[step].gradient_rms) in line.split()


def test_layers_of_one_name_are_told_apart_as_in_the_picture(rng):
    first, second = Linear(5, 3, rng=rng), Linear(3, 2, rng=rng)
    with mg.trace() as t:
        mg.sum(second(first(rng.normal(size=(7, 5))))).backward()
    known = [line.split("  ")[0] for line in t.table(200).partition("leaves")[2].split("\n")]
    assert {"linear/W", "linear/b", "linear (2)/W", "linear (2)/b"} <= {*known}
    assert "linear (2)/linear" in t.table(200)


def test_every_view_says_which_value_of_a_parameter_it_shows(tmp_path, rng):
    layer = Linear(5, 3, rng=rng)
    optimizer = mg.optim.SGD(layer.parameters(), lr=0.1)
    with mg.trace() as t:
        for _ in range(2):
            optimizer.zero_grad()
            mg.sum(layer(rng.normal(size=(7, 5))) ** 2.0).backward()
            optimizer.step()
    views = {
        "table": t.table(200),
        "data": json.dumps(t.to_dict()),
        "picture": t.draw(tmp_path / "t.dot").read_text(),
        "page": t.html(tmp_path / "t.html").read_text(),
        "derivation": t.derivation(tmp_path / "t.md").read_text(),
    }
    for name, text in views.items():
        assert "W (value 2)" in text, name
    assert "18 parameter values" in views["picture"]
    assert "(18 numbers in all)" in views["derivation"]
    assert "$`W^{(1)}`$, then $`W^{(2)}`$" in views["derivation"]
    assert "linear (2)" not in "".join(views.values())


@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_lines_fit_the_width(single, width):
    for text in (trace_table(single, width), checks_table(single.check(), width)):
        assert max(map(len, text.split("\n"))) <= width


def test_checks_show_a_tick_for_each_measured_difference(single):
    checks = single.check()
    text = checks_table(checks, 200)
    assert text.count("✓") == len(checks.measured) == len(checks)
    assert "O = A V" in text
    assert "✗" not in text
    assert "17 gradients equal the hand-derived steps" in text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_wrong_rule_turns_its_line_red_and_is_named(single, monkeypatch):
    """Planted: the gradient that O sends to V has the wrong sign."""
    for edge in single.uses(single["V"]):
        edge.contribution = -edge.contribution
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Terminal())
    text = checks_table(single.check(), 200)
    monkeypatch.undo()
    assert text.count("\x1b[31m✗") == 1
    assert "1 of 17 gradients differ from the hand-derived steps, first in step 2" in text


def test_what_was_not_measured_is_no_tick(single):
    """A symbol without a tensor in this run: a dash, and not counted as agreeing."""
    del single._expectations[0].symbols["A"]
    text = checks_table(single.check(), 200)
    assert text.count("–") == 1
    assert "16 gradients equal" in text
    assert "1 had nothing to be measured against" in text


def test_no_layer_no_checks():
    assert checks_table(Checks()) == "no layer with hand-derived steps ran in this trace"


@pytest.mark.parametrize(
    ("stream", "no_colour", "coloured"),
    [(Terminal, "", True), (Terminal, "1", False), (io.StringIO, "", False)],
)
def test_colour_only_in_a_terminal_and_never_with_no_color(
    single, monkeypatch, stream, no_colour, coloured
):
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr(sys, "stdout", stream())
    text = checks_table(single.check())
    monkeypatch.undo()
    assert ("\x1b[" in text) is coloured


def test_times_are_a_column_of_each_steps_own():
    x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    with mg.trace() as t:
        (x * x).sum().backward()
    for entry in t.entries:
        entry.seconds = 2e-3 if entry.op == "multiply" else 3e-6
        entry.backward_seconds = 5e-6
    lines = t.table(160, times=True).splitlines()
    [forward] = [line for line in lines if "  multiply  " in line and "2, 2" in line]
    assert " 2.0 ms " in forward
    assert any("forward: 2 steps" in line and line.endswith("2.0 ms") for line in lines)
    assert any("backward: 2 steps" in line and line.endswith("10 µs") for line in lines)
    assert "time" not in t.table(160)


def test_one_step_is_said_in_the_singular():
    w = mg.tensor([1.0, 2.0], requires_grad=True, name="w")
    with mg.watch([w]) as flow, mg.trace() as t:
        mg.sum(w).backward()
        SGD([w], lr=0.1).step()
    assert "forward: 1 step," in t.table(160)
    assert "backward: 1 step," in t.table(160)
    assert "Trace: 1 step forward, 1 step backward, 1 leaf\n" in repr(t)
    assert "1 step, 1 looked at" in flow.table(160)
    assert "Flow: 1 step, 1 looked at" in repr(flow)

"""The views of a training run: table, heat map, page."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import minigrad as mg
from layers import Linear
from minigrad.errors import ArgumentError
from minigrad.optim import SGD
from minigrad.watching import Flow


def run(name="a", *, nan_at=-1):
    """Eight steps of a layer and of a parameter whose name may be hostile."""
    rng = np.random.default_rng(0)
    layer = Linear(3, 2, rng=rng)
    w = mg.tensor(np.ones(2), requires_grad=True, name=name)
    optimizer = SGD([*layer.parameters(), w], lr=0.1)
    with mg.watch([*layer.parameters(), w], every=2, traces=2) as flow:
        for step in range(8):
            optimizer.zero_grad()
            loss = mg.mean((layer(mg.tensor(rng.normal(size=(5, 3)))) * w) ** 2)
            (loss * (np.nan if step == nan_at else 1.0)).backward()
            optimizer.step()
            flow.log(loss=loss, val_loss=loss.item() * 2)
    return flow


HOSTILE = "</title><script>alert(1)</script>\u202e\"'&"


def test_the_table_has_a_line_for_each_row_and_says_what_was_logged():
    lines = run().table(width=140).splitlines()
    assert lines[0].startswith("8 steps, 4 looked at; loss ")
    assert [line.split()[0] for line in lines[2:]] == [
        "linear/W",
        "linear/b",
        "linear/linear",
        "a",
        "multiply",
    ]
    assert all(len(line) <= 70 for line in run().table(width=70).splitlines()[1:])


def test_the_table_says_how_a_step_ends_where_none_has():
    w = mg.tensor([3.0, -4.0], requires_grad=True, name="w")
    with mg.watch([w], every=np.int64(1)) as flow:
        for _ in range(2):
            w.grad = None
            mg.sum(w * w).backward()
            w.data -= 0.25 * w.grad
    assert "flow.log(...) ends each, after the update" in flow.table(width=140)
    assert "no step has ended" not in run().table(width=140)


def test_the_heat_map_is_whole_xml_with_a_title_and_no_name_breaks_out(tmp_path):
    text = run(HOSTILE).draw(tmp_path / "f.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    names = {tag.tag.rpartition("}")[2] for tag in root.iter()}
    assert "script" not in names
    assert root.attrib["role"] == "img"
    described = {tag.attrib.get("id"): tag.text for tag in root.iter()}
    assert described["flow-title"] == "The gradient over training"
    assert "gradient rms of 5 rows at 4 steps" in str(described["flow-desc"])
    assert "prefers-color-scheme: dark" in text
    assert "\u202e" not in text


def test_two_losses_are_drawn_on_one_scale(tmp_path):
    """Equal heights are equal losses, and no label stands on another."""
    flow = Flow(every=1)
    for step, loss in enumerate((8.0, 4.0, 2.0)):
        flow.add("logged", {"step": step, "loss": loss, "val_loss": loss / 2})
    drawn = flow.draw(tmp_path / "losses.svg").read_text()
    curves = re.findall(r'class="curve curve\d" points="([^"]*)"', drawn)
    train, val = ([float(p.split(",")[1]) for p in points.split()] for points in curves)
    assert train[1:] == val[:2]
    ends = re.findall(r'y="([\d.]+)">(?:val_)?loss<', drawn)
    assert abs(float(ends[0]) - float(ends[1])) > 10


def test_the_same_run_gives_the_same_picture_and_themes_differ(tmp_path):
    flow = run()
    one, again = (flow.draw(tmp_path / f"{i}.svg").read_bytes() for i in range(2))
    light = flow.draw(tmp_path / "l.svg", theme="light").read_bytes()
    assert one == again
    assert one != light
    assert b"prefers-color-scheme" not in light


def test_a_gradient_that_is_only_rounding_does_not_stretch_the_colours(tmp_path):
    flow = run()
    plain = flow.draw(tmp_path / "plain.svg").read_text(encoding="utf-8")
    for sample in flow.samples:
        sample.rows["a"]["gradient"] = 1e-19
        sample.notes["a"] = "cancels"
    text = flow.draw(tmp_path / "f.svg").read_text(encoding="utf-8")
    assert "10⁻¹⁹" not in text
    assert "1e-19" not in text.split("gradient rms</text>")[-1]
    assert plain != text


def test_what_is_not_finite_is_red_from_its_step_on_and_the_finding_is_marked(tmp_path):
    text = run(nan_at=4).draw(tmp_path / "f.svg").read_text(encoding="utf-8")
    left = {
        float(x)
        for x in re.findall(
            r'<rect class="alarm" x="([\d.]+)" y="\d+" width="[\d.]+" height="13"', text
        )
    }
    assert left == {250 + 620 / 4 * 2}
    assert "step 4: not finite" in text


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("f.png", {}, "must end in .svg"),
        ("f.svg", {"theme": "pink"}, "theme must be one of"),
        ("f.svg", {"scale": "log"}, "scale must be one of run, fixed"),
        ("nowhere/f.svg", {}, "there is no folder"),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path, name, options, said):
    with pytest.raises(ArgumentError, match=said):
        run().draw(tmp_path / name, **options)


def test_a_gradient_that_was_zero_at_first_alone_is_not_called_zero_at_last(tmp_path):
    """What lies before a layer that begins as zeros learns from the second step on."""
    rng = np.random.default_rng(3)
    X, W = rng.normal(size=(7, 3)), mg.tensor(rng.normal(size=(3, 5)), requires_grad=True, name="W")
    V = mg.tensor(np.zeros((5, 2)), requires_grad=True, name="V")
    optimizer = SGD([W, V], lr=0.1)
    with mg.watch([W, V], every=1) as flow:
        for _ in range(3):
            optimizer.zero_grad()
            mg.mean((mg.tanh(X @ W) @ V - 1.0) ** 2).backward()
            optimizer.step()
    assert flow.samples[0].notes["W"] == "zero"
    assert "exactly 0" not in flow.table(200)
    assert "exactly 0" not in flow.draw(tmp_path / "f.svg").read_text(encoding="utf-8")

"""The page of a training run as a file, served live, and in headless Chromium."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, Module
from minigrad.optim import Adam
from minigrad.watching import Flow

HOSTILE = '</script><img src=x onerror="window.hurt=1">'


class Net(Module):
    def __init__(self, rng: np.random.Generator) -> None:
        self.layers = [Linear(5, 5, rng=rng) for _ in range(7)]
        self.odd = mg.tensor(np.ones(5), requires_grad=True, name=HOSTILE)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        for layer in self.layers:
            x = mg.sigmoid(layer(x))
        return x * self.odd


def train(during: Callable[[str], None] | None = None) -> tuple[Flow, Module]:
    """Seven sigmoids, one after the other: their gradient vanishes."""
    rng = np.random.default_rng(0)
    model = Net(rng)
    optimizer = Adam(model.parameters(), lr=1e-3)
    with mg.watch(model, every=4, live=during is not None) as flow:
        for _ in range(24):
            optimizer.zero_grad()
            loss = mg.mean((model(mg.tensor(rng.normal(size=(11, 5)))) - 3) ** 2)
            loss.backward()
            optimizer.step()
            flow.log(loss=loss)
            if during is not None:
                during(flow.address)
    return flow, model


def get(address: str, **headers: str) -> tuple[int, str]:
    """Status and text of an answer."""
    with closing(HTTPConnection(urlsplit(address).netloc, timeout=5)) as line:
        line.request("GET", urlsplit(address).path, headers=headers)
        answer = line.getresponse()
        return answer.status, answer.read().decode()


def record_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="record">(.*?)</script>', text, re.S)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def test_the_page_is_one_file_without_network_that_holds_the_figures(tmp_path: Path) -> None:
    flow, _ = train()
    text = flow.html(tmp_path / "flow.html", title="A <b>run").read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)="(?!data:)', text.split("<script")[0])
    record = record_of(text)
    assert record["steps"] == [0, 4, 8, 12, 16, 20]
    row = [row["path"] for row in record["rows"]].index("net/layers.3/W")
    np.testing.assert_allclose(
        [x for _, x in flow.series("net/layers.3/W", "gradient")],
        record["figures"]["gradient"][row],
        rtol=1e-5,
    )
    assert [f["kind"] for f in record["findings"]] == ["vanishing"]
    assert [*record["traces"]] == ["0", "8", "16"]
    assert text == flow.html(tmp_path / "again.html", title="A <b>run").read_text(encoding="utf-8")


def test_only_who_knows_the_token_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[Any] = []

    def ask(address: str) -> None:
        if answers:
            return
        root = address.rsplit("/", 2)[0]
        answers.append(record_of(get(address)[1])["live"])
        answers.append(json.loads(get(f"{address}news")[1])["steps"])
        for wrong in (f"{root}/", f"{root}/guess/news", f"{address}../../etc/passwd"):
            answers.append(get(wrong)[0])
        answers.append(get(address, Host="evil.example")[0])

    flow, _ = train(ask)
    assert answers == [f"{flow.address}news", [], 404, 404, 404, 404]
    assert flow.address.startswith("http://127.0.0.1:")
    assert capsys.readouterr().out == f"mg.watch: the run is at {flow.address}\n"


def test_the_last_state_is_there_for_readers_after_the_end() -> None:
    flow, _ = train(lambda address: get(f"{address}news") and None)
    news = json.loads(get(f"{flow.address}news")[1])
    assert news["steps"] == [sample.step for sample in flow.samples]
    assert news["summary"].startswith("24 steps")


def test_readers_change_nothing_and_may_leave_in_the_middle() -> None:
    """Readers that ask without end, and one that says nothing, while the same run trains again."""
    stop, readers, silent = Event(), list[Thread](), ExitStack()

    def read(address: str) -> None:
        while not stop.is_set():
            with suppress(OSError, HTTPException):
                get(f"{address}news")

    def start(address: str) -> None:
        if not readers:
            where = urlsplit(address)
            silent.enter_context(socket.create_connection((where.hostname, where.port)))
            readers.extend(Thread(target=read, args=(address,)) for _ in range(3))
            for reader in readers:
                reader.start()

    with silent:
        try:
            watched, model = train(start)
        finally:
            stop.set()
    for reader in readers:
        reader.join()
    alone, same = train()
    for one, other in zip(model.parameters(), same.parameters(), strict=True):
        assert np.array_equal(one.numpy(), other.numpy())
    assert watched.to_dict() == alone.to_dict()


# ---------------------------------------------------------------- in a browser


@pytest.mark.slow
def test_in_a_browser_findings_cells_and_graphs_open(browser: Any, tmp_path: Path) -> None:
    flow, _ = train()
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(flow.html(tmp_path / "flow.html").as_uri())
    assert page.locator("#now").inner_text() == "step 20, lr 0.001"
    page.locator(".finding").click()
    assert page.locator("#now").inner_text() == "step 0, lr 0.001"
    assert page.locator("#cell h2").inner_text() == flow.diagnose()[0].path
    page.keyboard.press("p")
    page.keyboard.press("ArrowRight")
    heads = page.locator("#cell th").all_inner_texts()
    assert heads == ["step 4", "step 0", "times"]
    cells = page.locator("#picture g rect").first.bounding_box()
    whole = page.locator("#picture .frame.line").bounding_box()
    page.mouse.click(whole["x"] + whole["width"] * 0.99, cells["y"] + 4)
    assert page.locator("#cell h2").inner_text() == next(iter(flow.rows))
    assert page.locator("#now").inner_text() == "step 20, lr 0.001"
    page.get_by_role("button", name="graph of step 8").click()
    inside = page.frame_locator("#frame")
    inside.locator("#title").wait_for()
    assert inside.locator("#title").inner_text() == "Step 8 of a training run"
    assert "backward" in inside.locator("#now").inner_text().lower()
    assert page.evaluate("window.hurt") is None
    assert errors == []


@pytest.mark.slow
def test_in_a_browser_the_live_page_follows_the_training(browser: Any) -> None:
    page, seen = browser.new_page(), list[str]()

    def follow(address: str) -> None:
        step = len(seen)
        seen.append("")
        if step == 6:
            page.goto(address)
            page.locator("#state", has_text="live").wait_for()
            seen[step] = page.locator("#now").inner_text()
        if step == 20:
            page.locator("#now", has_text="step 16").wait_for()
            seen[step] = page.locator("#now").inner_text()

    train(follow)
    assert [text for text in seen if text] == ["step 4, lr 0.001", "step 16, lr 0.001"]

"""The page of a training run as a file, and served live."""

from __future__ import annotations

import json
import re
import socket
from contextlib import ExitStack, suppress
from http.client import HTTPException
from threading import Event, Thread
from urllib.parse import urlsplit

import numpy as np

import minigrad as mg
from layers import Linear, Module
from minigrad.optim import Adam
from minigrad.views.flow import live
from tests.browsing import answer_of, record_of

HOSTILE = '</script><img src=x onerror="window.hurt=1">'


class Net(Module):
    def __init__(self, rng):
        self.layers = [Linear(5, 5, rng=rng) for _ in range(7)]
        self.odd = mg.tensor(np.ones(5), requires_grad=True, name=HOSTILE)

    def forward(self, x):
        for layer in self.layers:
            x = mg.sigmoid(layer(x))
        return x * self.odd


def train(during=None):
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


def news_of(address):
    return json.loads(answer_of(f"{address}news")[1])


def test_the_page_is_one_file_without_network_that_holds_the_figures(tmp_path):
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


def test_the_page_is_served_while_training_runs_and_for_a_moment_after_it(capsys, monkeypatch):
    monkeypatch.setattr(live, "SECONDS_AFTER_END", 600.0)  # on a slow machine it would be over
    answers = []

    def ask(address):
        if not answers:
            answers.append(record_of(answer_of(address)[1])["live"])
            answers.append(news_of(address)["steps"])

    flow, _ = train(ask)
    assert answers == [f"{flow.address}news", []]
    assert capsys.readouterr().out == f"mg.watch: the run is at {flow.address}\n"
    news = news_of(flow.address)
    assert news["steps"] == [sample.step for sample in flow.samples]
    assert news["summary"].startswith("24 steps")


def test_the_last_state_is_made_also_where_the_run_ends_while_an_answer_is_made():
    states = iter([b"of a run that went on", b"the last"])

    def make():
        state = next(states)
        if state != b"the last":
            fresh.outdate()
        return state

    fresh = live._Fresh(make)
    assert [fresh(), fresh(), fresh()] == [b"of a run that went on", b"the last", b"the last"]


def test_readers_change_nothing_and_may_leave_in_the_middle():
    """Readers that ask without end, and one that says nothing, while the same run trains again."""
    stop, readers, silent = Event(), [], ExitStack()

    def read(address):
        while not stop.is_set():
            with suppress(OSError, HTTPException):
                answer_of(f"{address}news")

    def start(address):
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
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert watched.to_dict() == alone.to_dict()

"""How long `minigrad play` takes from an edit to the page drawn anew.

    python -m benchmarks.playing            a layer of some 50 steps, twenty edits of one entry
    python -m benchmarks.playing --edits 5

Three figures, of which the least of the edits counts, as the others had other load beside them: the
answer of the server, asked in this process (the function's run with every step checked, and the
content of the page); what the page's own thread computes until it is drawn anew, scripts, layout
and paint; and the time from the edit until a headless Chromium has painted the page again. The
first two are CPU time as well, which tells what a machine without other load would take. After each
edit the answer is held against a run of the function with that value.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from typing import Any

import numpy as np

import layers
import minigrad as mg
from minigrad.playing import play
from minigrad.playing.server import PlayServer

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


def block() -> mg.Tensor:
    """A transformer block and attention above it, on 11 tokens: forward to a loss."""
    out = MODEL[0](X, MASK)
    out = MODEL[1](out, MASK)
    return mg.mean(out * out).named("loss")


_RNG = np.random.default_rng(0)
MODEL = [layers.TransformerBlock(32, 4, rng=_RNG), layers.MultiHeadAttention(32, 4, rng=_RNG)]
X = mg.tensor(_RNG.normal(size=(1, 11, 32)), requires_grad=True, name="tokens")
MASK = layers.create_causal_mask(11)
ENTRY = (0, 3, 5)


def expected(value: float) -> float:
    """The loss of a fresh run with that value."""
    array = X.numpy().copy()
    array[ENTRY] = value
    before = X.numpy().copy()
    X.assign_(array)
    try:
        return float(block().item())
    finally:
        X.assign_(before)


def answered(server: PlayServer, value: float) -> tuple[float, float]:
    """Seconds of the server for one edit, and of its CPU."""
    session = server.session
    node = next(e.id for e in session.run.trace.entries if e.name == "tokens")
    edit = {"do": "set", "node": node, "index": [*ENTRY], "value": value}
    question = json.dumps(edit | {"version": session.version}).encode()
    start, cpu = time.perf_counter(), time.process_time()
    server.answer(question)
    seconds = time.perf_counter() - start, time.process_time() - cpu
    assert abs(session.run.loss - expected(value)) < 1e-12
    return seconds


def painted(server: PlayServer, edits: int) -> list[tuple[float, float]]:
    """Milliseconds of each edit in Chromium, as its page measured them, and CPU of its thread."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(server.address)
        page.locator("#panel th button", has_text="tokens").first.click()
        page.locator("#panel [data-kind=value] canvas").first.click()
        field = page.locator(".play-editor input").first
        tools = page.context.new_cdp_session(page)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})
        for k in range(edits):
            value, before = 0.1 * k - 1.0, _cpu(tools)
            field.fill(str(value))
            field.press("Enter")
            page.locator(f".play-bar[data-edits='{k + 1}']").wait_for()
            took = float(page.locator(".play-bar").get_attribute("data-took") or "nan")
            found.append((took, _cpu(tools) - before))
            page.locator(".stale").wait_for(state="detached")
        browser.close()
    return found


def _cpu(tools: Any) -> float:
    metrics = tools.send("Performance.getMetrics")["metrics"]
    return 1e3 * next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edits", type=int, default=20, metavar="N")
    edits = parser.parse_args().edits
    server = play(block)
    steps = len(server.session.run.trace.forward_steps)
    wall, cpu = zip(*(answered(server, 0.1 * k) for k in range(edits)), strict=True)
    print(f"{steps} steps forward, as many back, {edits} edits of one entry of {X.shape}")
    print(f"server's answer        {1e3 * min(wall):6.1f} ms, CPU {1e3 * min(cpu):.1f}")
    took, drawn = zip(*painted(server, edits), strict=True)
    print(f"page's thread                    CPU {min(drawn):.1f} ms")
    print(f"edit to painted page   {min(took):6.1f} ms, median {np.median(took):.1f}")
    server.close()


if __name__ == "__main__":
    main()

"""Training runs to be watched: real ones, and records of one weight with given figures."""

from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.optim import SGD
from minigrad.recording.flow import FlowRecord, FlowRow, Sample
from minigrad.watching import Flow


def watched(
    model: Any,
    loss: Callable[[int], Any],
    steps: int = 1,
    optimizer: Any = None,
    every: int = 1,
    zero_grad: bool = True,
    **options: Any,
) -> Flow:
    """A run of so many steps, each with the loss that its number gives; SGD unless given."""
    parameters = model.parameters() if hasattr(model, "parameters") else [*model]
    optimizer = SGD(parameters, lr=0.1) if optimizer is None else optimizer
    with mg.watch(model, every=every, **options) as flow, np.errstate(all="ignore"):
        for step in range(steps):
            if zero_grad:
                optimizer.zero_grad()
            found = loss(step)
            found.backward()
            optimizer.step()
            flow.log(loss=found)
    return flow


def run_of(losses: Any, samples: list[dict[str, float]] | None = None, **logged: Any) -> FlowRecord:
    """A record of one weight, with a loss at each step."""
    flow = FlowRecord()
    flow.add("rows", FlowRow("W", "weight", shape=(5, 7)))
    usual = {"value": 1.0, "gradient": 0.1, "ratio": 1e-3, "cosine": 0.3, "drift": 0.1}
    for i, own in enumerate(samples or [{}] * 6):
        flow.add("samples", Sample(i * 4, rows={"W": usual | own}))
    for i, loss in enumerate(losses):
        flow.add("logged", {"step": i, "loss": loss} | {n: x[i] for n, x in logged.items()})
    flow.steps = len(losses)
    return flow

"""What is done once to a record: see `finish`. Finished, it can be given as plain data.

Calls are marked (calls.py), what a buffer's update alone needs is set aside, gradients get a state
and the loss its way (meaning.py), layers are held against steps derived by hand (checks.py), and
formulas are written (formulas.py). A record is finished again where more ran after it was.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

import numpy as np

from .calls import mark_calls, set_updates_aside
from .checks import add_checks, by_derivative, by_hand
from .formulas import write_formulas
from .meaning import set_meaning
from .record import Checks, Record, show
from .time import through_time

__all__ = ["check", "finish", "json_ready", "to_dict"]

NOT_DATA = (  # of an entry: what differs from run to run, and edges, which stand by themselves
    "made_at", "seconds", "backward_seconds", "takes", "uses", "facts",
    "value_facts", "gradient_facts",
)  # fmt: skip


def finish(record: Record) -> Record:
    """The record with all that views read, found once for each state of it."""
    state = len(record.entries), len(record.backward), record.backwards
    if record._finished != state:
        record._finished = state
        record.fold = None
        mark_calls(record)
        set_updates_aside(record)
        set_meaning(record)
        add_checks(record, by_hand(record))
        write_formulas(record)
        record.in_time = through_time(record)
    return record


def check(record: Record, ops: bool = False) -> Checks:
    """The checks by hand; with `ops`, also each backward step beside a numeric derivative."""
    finish(record)
    if ops and not record.checks.of("by derivative"):
        add_checks(record, by_derivative(record))
    return record.checks


def to_dict(record: Record) -> dict[str, Any]:
    """All of a finished record but arrays and times; the same for the same program."""
    names = "forward backward roots backwards more_in_grad loss notes asked".split()
    way = record.way and [record.edges.index(edge) for edge in record.way.edges]
    entries = [
        json_ready(entry)
        | {"value": json_ready(entry.value_facts), "gradient": json_ready(entry.gradient_facts)}
        | {"path": entry.path, "place": entry.place}
        for entry in record.entries
    ]
    edges = [json_ready(edge) | {"contribution": json_ready(edge.facts)} for edge in record.edges]
    known = {name: getattr(record, name) for name in names}
    data = {"version": 2, **known, "entries": entries, "edges": edges}
    return data | {"way": way, "checks": json_ready(record.checks)}


def json_ready(x: Any) -> Any:
    """Data that JSON has: dataclasses by field, arrays by shape, what is not finite as text."""
    if isinstance(x, float | np.floating):
        return float(x) if isfinite(x) else str(float(x))
    if isinstance(x, dict):
        return {str(name): json_ready(y) for name, y in x.items()}
    if hasattr(x, "_asdict"):
        return json_ready(x._asdict())
    if is_dataclass(x):
        names = [field.name for field in fields(x)]
        names = [name for name in names if name[0] != "_" and name not in NOT_DATA]
        if hasattr(x, "ok"):
            names.append("ok")
        return {name: json_ready(getattr(x, name)) for name in names}
    if isinstance(x, list | tuple | set):
        return [*map(json_ready, x)]
    return x if x is None or isinstance(x, str | int) else show(x)

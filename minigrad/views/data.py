"""The record as plain data, ready for JSON.

A number that is not finite is one of the strings "nan", "inf" and "-inf": JSON has no such numbers.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, TypeAlias

from ..recording.checks import CheckResult
from ..recording.record import Edge, Entry, Facts
from ..recording.trace import TraceRecord
from .formula import plain

__all__ = ["Json", "node_to_dict", "number", "trace_to_dict"]

Json: TypeAlias = dict[str, Any]
RECORD_VERSION = 1
NODE_FIELDS = "id kind op name path scope dtype place flops saved_bytes".split()
CHECK_FIELDS = "kind step scope op symbol method why number title forward formula ok".split()


def trace_to_dict(trace: TraceRecord, times: bool = False) -> Json:
    """A trace as plain data: nodes, edges, order of steps, roots, checks; seconds if asked for.

    The same program gives the same dict, byte for byte once written as JSON.

    >>> import json, minigrad as mg
    >>> x = mg.tensor([3.0, 4.0], requires_grad=True, name="x")
    >>> with mg.trace() as t:
    ...     mg.sum(x * x).backward()
    >>> record = json.loads(json.dumps(trace_to_dict(t), allow_nan=False))
    >>> record["nodes"][0]["gradient"]["max"], record["forward"], record["backward"]
    (8.0, [1, 2], [2, 1])
    """
    trace.analyze()
    return {
        "version": RECORD_VERSION,
        "nodes": [node_to_dict(trace, entry, times) for entry in trace.entries],
        "edges": [_edge(edge) for edge in trace.edges],
        "forward": list(trace.forward_steps),
        "backward": list(trace.backward_steps),
        "roots": list(trace.roots),
        "checks": [_check(check) for check in trace.checked()],
    }


def node_to_dict(trace: TraceRecord, entry: Entry, times: bool = False) -> Json:
    node = {name: getattr(entry, name) for name in NODE_FIELDS} | {
        "shape": list(entry.shape),
        "settings": dict(entry.settings),
        "saved": [{"name": name, "node": source} for name, source in entry.saved],
        "needs_gradient": entry.needs,
        "value": _measured(entry.value_facts, entry.value_rms),
        "gradient": _measured(entry.gradient_facts, entry.gradient_rms),
        "state": entry.state,
        "why": trace.explain_missing(entry) if entry.state == "none" else entry.why or None,
        "reach": number(entry.reach),
        "checks": [_check(check) for check in entry.checks.values()],
    }
    spent = {"seconds": entry.seconds, "backward_seconds": entry.backward_seconds}
    return node | (spent if times else {})


def _edge(edge: Edge) -> Json:
    ends = {"source": edge.source, "target": edge.target, "input": edge.input}
    return ends | {"contribution_rms": number(edge.contribution_rms)}


def _check(check: CheckResult) -> Json:
    return {name: getattr(check, name) for name in CHECK_FIELDS} | {
        "forward_text": plain(check.forward),
        "formula_text": plain(check.formula),
        "shape": list(check.shape),
        "rms": number(check.rms),
        "measured": number(check.measured),
        "expected": number(check.expected),
        "index": list(check.index),
        "relative_difference": number(check.difference),
        "tolerance": None if check.ok is None else number(check.tolerance),
    }


def _measured(facts: Facts | None, rms: float | None) -> Json | None:
    """Size and range of an array; None where there is no array of numbers."""
    if facts is None:
        return None
    return {"rms": number(rms), "min": number(facts.low), "max": number(facts.high)}


def number(x: float | None) -> float | str | None:
    """A number for JSON, which has no infinities."""
    return x if x is None or isfinite(x) else str(float(x))

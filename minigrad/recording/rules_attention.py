"""The rule about attention in production, held against a baseline."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .findings import Finding
from .requests import distances_of, divergence
from .watched_run import WatchedRun

__all__ = ["attention_moved"]

MOVED, MOVED_BY = 0.05, 3.0  # bits, and times the most that the baseline moves by itself


def attention_moved(run: WatchedRun) -> Iterator[Finding]:
    """A head whose weights lie elsewhere than in the baseline, for several requests in a row."""
    baseline = run.flow.baseline
    if baseline is None or not baseline.requests:
        return
    for path in baseline.requests[0].rows:
        before = [distances_of(s.rows[path]) for s in baseline.requests if path in s.rows]
        usual = np.mean(before, axis=0)
        most = max(divergence(one, usual) for one in before)
        limit = max(MOVED, MOVED_BY * most)
        now = [s for s in run.flow.requests if path in s.rows]
        moved = [divergence(distances_of(s.rows[path]), usual) for s in now]
        need = min(3, len(moved))
        for i in range(len(moved) - need + 1):
            if need and all(by > limit for by in moved[i : i + need]):
                entropy = float(np.mean([s.rows[path]["entropy"] for s in baseline.requests]))
                text = (
                    f"its weights moved by {moved[i]:.2f} bits (Jensen–Shannon, over distances) "
                    f"from the baseline, which itself moves by at most {most:.2f}; entropy "
                    f"{entropy:.2f} → {now[i].rows[path]['entropy']:.2f}"
                )
                remedy = "compare the requests, then the weights, with those of the baseline"
                yield Finding("attention moved", now[i].step, path, text, remedy)
                break

"""Is an answer right? It is held, output and every gradient, against a float64 reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from . import by_hand
from .cases import Attention
from .peers import Peer, Step

__all__ = ["Answer", "WrongAnswer", "answer", "check", "reference"]

Answer = dict[str, Any]


class WrongAnswer(Exception):
    """A peer's step gives other numbers than the reference's."""


def answer(step: Step, peer: Peer) -> Answer:
    """What a fresh step gives, as float64: copies, for steps may use their arrays again."""
    return {name: np.array(peer.numpy(value), np.float64) for name, value in step().items()}


def reference(case: Attention, dtype: DTypeLike) -> Answer:
    """The answer in float64, to the very numbers that peers get in `dtype`."""
    inputs = case.inputs(dtype).astype(np.float64)
    return answer(by_hand.naive(case, inputs), Peer("reference", "reference"))


def check(found: Answer, expected: Answer, dtype: DTypeLike) -> float:
    """The largest error of any array, relative to its largest entry.

    Entries far below those of the other gradients, as those of b_K, which are 0 but for rounding,
    are held against a hundredth of the largest.

    Raises: WrongAnswer naming the array, if that is more than rounding can make.
    """
    if found.keys() != expected.keys():
        missing, strange = expected.keys() - found.keys(), found.keys() - expected.keys()
        raise WrongAnswer(f"wrong answer: without {sorted(missing)}, with {sorted(strange)}")
    gradients = [np.abs(expected[name]).max() for name in expected if name.startswith("d_")]
    floor = 0.01 * max(gradients)
    worst, where = 0.0, ""
    for name, right in expected.items():
        if found[name].shape != right.shape:
            raise WrongAnswer(
                f"wrong answer: {name} has shape {found[name].shape}, not {right.shape}"
            )
        error = np.abs(found[name] - right).max() / max(np.abs(right).max(), floor)
        if not error <= worst:  # NaN is the worst of all
            worst, where = float(error), name
            if np.isnan(error):
                break
    if not worst <= 1e3 * float(np.finfo(dtype).eps):
        raise WrongAnswer(f"wrong answer: {where} is off by {worst:.1e}")
    return worst

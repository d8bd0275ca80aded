"""A sentence through one layer whose heads several ranks share."""

from __future__ import annotations

from typing import Any

import numpy as np

from layers import multi_head_steps
from layers.parallel import shard

from ..check import compare
from ..distributed import run, world
from ..recording.record import Check, rms
from ..tracing import Trace
from .sentence import Settings, forward_backward

__all__ = ["run_on_ranks"]


def run_on_ranks(
    s: Settings, tokens: list[str], vocabulary: list[str]
) -> tuple[Trace, Any, list[Check]]:
    """The record of all ranks, their heads' weights, and their gradients put together, checked."""

    def one_rank() -> tuple[Trace, Any, list[Check]]:
        trace, layer, whole, mask = forward_backward(s, tokens, vocabulary, shard)
        own = np.asarray(layer.part.attention_weights)[0]
        weights = np.concatenate(world().collect(own))  # (h, n, n)
        return trace.of_all_ranks(), weights, _put_together(whole, layer, trace, mask)

    return run(s.ranks, one_rank)[0]  # type: ignore[no-any-return]


def _put_together(whole: Any, layer: Any, trace: Trace, mask: Any) -> list[Check]:
    """The gradients of all ranks' weights against the steps derived by hand for the whole layer."""
    own = dict(layer.part.named_parameters())
    names = [name for name, _ in whole.named_parameters()]
    engine = {
        name: layer.layout.whole(name, own[name].grad if name in own else np.zeros(0))
        for name in names
    }
    engine["X"] = trace["X"].gradient
    known = {name: p.numpy() for name, p in whole.named_parameters()}
    known |= {"X": trace["X"].value, "grad_output": trace["out"].gradient, "mask": mask}
    found = []
    for step in multi_head_steps(n_heads=whole.n_heads, **known):
        for symbol, formula in step.gradients.items():
            if symbol in engine:
                facts = (step.number, step.title, step.forward, symbol, step.formulas[symbol])
                largest = max(float(np.abs(g).max(initial=0.0)) for g in step.gradients.values())
                difference = compare(engine[symbol], formula, largest)
                sizes = formula.shape, rms(formula)
                found.append(Check("all ranks, put together", *facts, *sizes, difference))
    return found

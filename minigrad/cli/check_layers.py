"""Both attention layers' gradients against the formulas of `layers.hand_derived`, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import minigrad as mg

from ..layers import MultiHeadAttention, SelfAttention, create_causal_mask
from .check_ops import CheckResult
from .sentence import MULTI_HEAD, SELF_ATTENTION

__all__ = ["check_layers"]

N = 5  # tokens


def check_layers(seed: int) -> Iterator[CheckResult]:
    """Check each layer with and without biases, under each kind of mask, batched or not.

    >>> [result.ok for result in check_layers(seed=0)]
    [True, True]
    """
    rng = np.random.default_rng(seed)
    single = {f"biases {b}": SelfAttention(7, 3, 5, use_bias=b, rng=rng) for b in (True, False)}
    many = {f"biases {b}": MultiHeadAttention(12, 6, use_bias=b, rng=rng) for b in (True, False)}
    many["2 key-value heads"] = MultiHeadAttention(12, 6, n_kv_heads=2, use_bias=True, rng=rng)
    nowhere = np.tri(N, dtype=bool)
    nowhere[1] = False  # a token that may attend to none
    for name, layers in ((SELF_ATTENTION, single), (MULTI_HEAD, many)):
        result = CheckResult(name, "hand-derived")
        for kind, layer in layers.items():
            for parameter in layer.parameters():  # biases start at zero, which hides much
                parameter.assign_(rng.normal(size=parameter.shape))
            masks = {"none": None, "causal": create_causal_mask(N)}
            masks |= {"boolean, one row forbids all": nowhere, "additive": rng.normal(size=(N, N))}
            for shape in ((2, N, layer.d_model), (N, layer.d_model)):
                for mask_name, mask in masks.items():
                    where = f"{kind}, X {'×'.join(map(str, shape))}, mask {mask_name}"
                    _measure(result, where, layer, rng.normal(size=shape), mask, rng)
        yield result


def _measure(
    result: CheckResult, where: str, layer: Any, X: Any, mask: Any, rng: np.random.Generator
) -> None:
    result.samples += 1
    leaf = mg.tensor(X, requires_grad=True, name="X")
    try:
        with mg.trace() as trace:
            out = layer(leaf, mask)
            out.backward(rng.normal(size=out.shape))
        checks = trace.check()
    except Exception as error:
        result.broke(where, error)
        return
    result.measured += len(checks.measured)
    for check in checks.measured:
        result.note(check.difference or 0.0)
    if (wrong := checks.first_wrong) is not None:
        result.failures.append(
            f"{where}: step {wrong.number}, {wrong.title}, worst at "
            f"{wrong.symbol}{list(wrong.index)}: engine {wrong.measured:.9g}, formula "
            f"{wrong.expected:.9g}, relative error {wrong.difference:.1e}"
        )

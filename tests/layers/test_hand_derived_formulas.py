"""What the hand-derived steps show in LaTeX, evaluated beside the gradients that they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import layers
from layers import hand_derived_ops as ops
from layers.hand_derived import _merge_heads, _split_heads
from minigrad.views.derivation.symbols import symbol_of
from minigrad.views.formula import latex, parse
from minigrad.views.formula.check import _fitted
from minigrad.views.formula.evaluate import evaluate
from minigrad.views.formula.named import FUNCTIONS

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 3, 5))
IMAGE, G = RNG.normal(size=(2, 4, 7, 8)), RNG.normal(size=(2, 3, 5))
FIVE, THREE = RNG.uniform(0.5, 1.5, 5), RNG.uniform(0.5, 1.5, 3)
LOGITS, CLASSES = RNG.normal(size=(6, 5)), np.array([0, 4, 2, 2, 1, 3])
HEADS = {f"W_{p}": RNG.normal(size=(6, 6)) for p in "QKVO"}
BIASES = {f"b_{p}": RNG.normal(size=6) for p in "QKVO"}
TOKENS, OUT = RNG.normal(size=(2, 5, 6)), RNG.normal(size=(2, 5, 6))
MASK = np.tri(5, dtype=bool)
CAME = r"\frac{\partial L}{\partial \mathrm{out}}"

RUNS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "layer_norm": (ops.layer_norm_steps, {"x": X, "weight": FIVE, "bias": FIVE, "grad_output": G}),
    "rms_norm": (ops.rms_norm_steps, {"x": X, "weight": FIVE, "grad_output": G}),
    "batch_norm": (
        ops.batch_norm_steps,
        {"x": X, "weight": THREE, "bias": THREE, "grad_output": G},
    ),
    "batch_norm in evaluation": (
        ops.batch_norm_steps,
        {"x": X, "weight": THREE, "mean": THREE, "var": THREE, "grad_output": G},
    ),
    "cross_entropy": (
        ops.cross_entropy_steps,
        {"logits": LOGITS, "targets": CLASSES, "grad_output": np.array(1.5)},
    ),
    "cross_entropy with weights": (
        ops.cross_entropy_steps,
        {"logits": LOGITS, "targets": CLASSES, "weight": FIVE, "label_smoothing": 0.1,
         "grad_output": np.array(1.5)},
    ),
    "convolution": (
        ops.convolution_steps,
        {"x": IMAGE, "weight": RNG.normal(size=(6, 2, 2, 3)), "bias": RNG.normal(size=6),
         "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2,
         "grad_output": RNG.normal(size=(2, 6, 4, 4))},
    ),
    "attention": (
        layers.self_attention_steps,
        {"X": TOKENS, **HEADS, **BIASES, "mask": MASK, "grad_output": OUT},
    ),
    "attention without biases": (
        layers.self_attention_steps,
        {"X": TOKENS, **HEADS, "mask": MASK, "grad_output": OUT},
    ),
    "attention of many heads": (
        layers.multi_head_steps,
        {"X": TOKENS, **HEADS, **BIASES, "mask": MASK, "n_heads": 2, "grad_output": OUT},
    ),
}  # fmt: skip


def sign(symbol: str) -> str:
    """What formulas call it."""
    return (
        rf"\mathrm{{{symbol}}}"
        if symbol.isalpha() and len(symbol) > 1
        else latex(symbol_of(symbol))
    )


def value(tex: str, steps: Any, given: dict[str, Any], shape: tuple[int, ...]) -> Any:
    """A formula's, by what the steps define: forward, and of each gradient."""
    slots = {name: x for name, x in given.items() if x is not None} | {"g": given["grad_output"]}
    known = [f"{CAME} = <g>", r"\epsilon = <eps>"]
    known += [f"{sign(name)} = <{name}>" for name in given if name != "grad_output"]
    known += ["M = <mask>", f"d_k = {6 // given.get('n_heads', 1)}"]
    for step in steps:
        known.append(step.forward)
        known += [
            rf"\frac{{\partial L}}{{\partial {sign(name)}}} = {formula}"
            for name, formula in step.formulas.items()
        ]
    if "_{n," in tex:  # what has an index is an array
        tex = tex.replace(CAME, "<g>")
        known = [part for step in steps for part in step.forward.split(r", \quad ")[1:]]
    whole = r", \quad ".join([tex, *known])
    for name in ("x", "weight", "bias"):
        for index in ("_{", "_o"):
            whole = whole.replace(sign(name) + index, f"<{name}>{index}")
    found = evaluate(parse(whole), slots | {"eps": 1e-5}, settings=given, shape=shape)
    return _fitted(np.asarray(found), shape)


@pytest.mark.parametrize("run", RUNS)
def test_each_formula_gives_its_gradient(run: str, monkeypatch) -> None:
    monkeypatch.setitem(FUNCTIONS, "merge", lambda call, below, x: _merge_heads(x))
    monkeypatch.setitem(FUNCTIONS, "split", lambda call, below, x: _split_heads(x, 2))
    steps_of, given = RUNS[run]
    steps = steps_of(**given)
    for step in steps:
        for symbol, tex in step.formulas.items():
            expected = step.gradients[symbol]
            found = value(tex, steps, given, expected.shape)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=symbol)


@pytest.mark.parametrize("run", ["layer_norm", "convolution", "attention"])
def test_a_formula_that_is_wrong_is_seen(run: str) -> None:
    steps_of, given = RUNS[run]
    steps = steps_of(**given)
    (symbol, tex), *_ = steps[-1].formulas.items()
    expected = steps[-1].gradients[symbol]
    with pytest.raises(AssertionError, match="Mismatched"):
        np.testing.assert_allclose(value(f"-({tex})", steps, given, expected.shape), expected)

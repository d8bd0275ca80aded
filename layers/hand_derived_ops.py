r"""Norms, cross-entropy and convolution derived by hand: the backward steps of one op each.

As `hand_derived`, this is plain NumPy and knows nothing of the engine. Every function takes what
the op of its name takes, and ∂L/∂out as grad_output. Where a step's symbol is no input of the op,
such as X̂, there is nothing in a run to hold its gradient against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from .hand_derived import Array, Step, step_of
from .hand_derived_recurrent import gru_steps, lstm_steps, rnn_steps

__all__ = [
    "batch_norm_steps",
    "convolution_steps",
    "cross_entropy_steps",
    "layer_norm_steps",
    "rms_norm_steps",
]

Lengths: TypeAlias = int | tuple[int, ...]  # the same along every axis, or one each

_CAME = r"\frac{\partial L}{\partial \mathrm{out}}"
_X_HAT = r"\frac{\partial L}{\partial \hat x}"
_ROWMEAN = r"\operatorname{rowmean}"
_STANDARDIZED = r"\hat x = \tfrac{1}{\sigma} (x - \mu)"

# ------------------------------------------------------------------ norms


def layer_norm_steps(
    *,
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    grad_output: Array,
) -> list[Step]:
    r"""out = x̂ ⊙ weight + bias, x̂ = (x − μ) / σ, σ² = mean((x − μ)²) + ε: each row by itself.

    Shapes: x and grad_output (..., d), weight and bias (d,) or None.
    Source: Ba et al. 2016, arXiv:1607.06450, by the chain rule: μ and σ depend on x too.

    >>> steps = layer_norm_steps(x=np.array([[1.0, 3.0]]), weight=np.ones(2), bias=np.zeros(2),
    ...                          eps=0.0, grad_output=np.array([[1.0, 0.0]]))
    >>> steps[1].gradients["x"]    # a row of two is −1 and 1, whatever its entries are
    array([[0., 0.]])
    """
    mean = x.mean(axis=-1, keepdims=True)
    sigma = np.sqrt(((x - mean) ** 2).mean(axis=-1, keepdims=True) + eps)
    x_hat = (x - mean) / sigma
    scaled = _through_scale(x_hat, weight, bias, grad_output, -1)
    g = scaled.gradients["x_hat"]
    return [scaled, _through_standardization(x_hat, sigma, g, (-1,), _ROWMEAN)]


def rms_norm_steps(
    *, x: Array, weight: Array | None = None, eps: float = 1e-5, grad_output: Array
) -> list[Step]:
    r"""out = x̂ ⊙ weight, x̂ = x / r, r² = mean(x²) + ε: as a layer norm without a mean.

    Source: Zhang & Sennrich 2019, arXiv:1910.07467.

    >>> steps = rms_norm_steps(x=np.array([[3.0, 3.0]]), weight=np.ones(2), eps=0.0,
    ...                        grad_output=np.array([[1.0, -1.0]]))
    >>> steps[0].gradients["weight"], steps[1].gradients["x"].round(4)
    (array([ 1., -1.]), array([[ 0.3333, -0.3333]]))
    """
    root = np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    x_hat = x / root
    scaled = _through_scale(x_hat, weight, None, grad_output, -1)
    g = scaled.gradients["x_hat"]
    along = (g * x_hat).mean(axis=-1, keepdims=True)
    formula = rf"\tfrac{{1}}{{r}} ({_X_HAT} - \hat x \odot {_ROWMEAN}({_X_HAT} \odot \hat x))"
    forward = (
        rf"\hat x = \tfrac{{1}}{{r}} x, \quad r = \sqrt{{{_ROWMEAN}(x^{{\circ 2}}) + \epsilon}}"
    )
    to_x = ("x", formula, (g - x_hat * along) / root)
    title, scale = "divide by the root mean square", _largest(g / root)
    return [scaled, step_of(2, title, forward, to_x, scale=scale)]


def batch_norm_steps(
    *,
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    mean: Array | None = None,
    var: Array | None = None,
    eps: float = 1e-5,
    grad_output: Array,
) -> list[Step]:
    r"""out = x̂ ⊙ weight + bias, x̂ = (x − μ) / σ, of each channel over batch and places.

    In training μ and σ are the batch's, and depend on x; in evaluation mean and var are given, as
    constants, and the gradient is that of an affine map.

    Shapes: x and grad_output (N, C, …); weight, bias, mean and var (C,) or None.
    Source: Ioffe & Szegedy 2015, arXiv:1502.03167, section 3.

    >>> steps = batch_norm_steps(x=np.array([[1.0], [3.0]]), mean=np.zeros(1), var=np.full(1, 4.0),
    ...                          eps=0.0, grad_output=np.ones((2, 1)))
    >>> steps[1].gradients["x"].ravel()
    array([0.5, 0.5])
    """
    places = (0, *range(2, x.ndim))
    across = (-1, *[1] * (x.ndim - 2))
    evaluates = mean is not None and var is not None
    mu = x.mean(axis=places, keepdims=True) if mean is None else mean.reshape(across)
    square = (
        ((x - mu) ** 2).mean(axis=places, keepdims=True) if var is None else var.reshape(across)
    )
    sigma = np.sqrt(square + eps)
    x_hat = (x - mu) / sigma
    scaled = _through_scale(x_hat, weight, bias, grad_output, 1)
    g = scaled.gradients["x_hat"]
    if not evaluates:
        others = ",".join(np.delete(_letters(x), 1))
        mean_of = rf"\operatorname{{mean}}_{{{others}}}"
        return [scaled, _through_standardization(x_hat, sigma, g, places, mean_of)]
    channel = _letters(x)[1]
    spread = rf"\sigma = \sqrt{{\mathrm{{var}}_{channel} + \epsilon}}"
    forward = rf"{_STANDARDIZED}, \quad \mu = \mathrm{{mean}}_{channel}, \quad {spread}"
    to_x = ("x", rf"\tfrac{{1}}{{\sigma}} {_X_HAT}", g / sigma)
    return [scaled, step_of(2, "standardize", forward, to_x)]


def _letters(x: Array) -> list[str]:
    """What formulas call the axes of x, as elsewhere in minigrad."""
    usual = {1: "j", 2: "ij", 3: "bij", 4: "bhij", 5: "bhgij"}
    return list(usual.get(x.ndim, ())) or [f"i_{k}" for k in range(1, x.ndim + 1)]


def _through_scale(
    x_hat: Array, weight: Array | None, bias: Array | None, g: Array, axis: int
) -> Step:
    """out = x̂ ⊙ weight + bias:    ∂x̂ = ∂out ⊙ weight, the others summed where they are shared.

    Args: axis: the one along which weight and bias have their entries.
    """
    axes = _letters(x_hat)
    shared = tuple(np.delete(range(x_hat.ndim), axis))
    below = "" if axis == -1 else f"_{axes[axis]}"
    total = rf"\sum_{{{','.join(np.delete(axes, axis))}}} " if shared else ""
    whole = f"_{{{','.join(axes)}}}" if shared else ""
    across = np.ones(x_hat.ndim, int)
    across[axis] = -1
    scaled = "" if weight is None else rf" \odot \mathrm{{weight}}{below}"
    shifted = "" if bias is None else rf" + \mathrm{{bias}}{below}"
    to_weight = None if weight is None else (g * x_hat).sum(axis=shared)
    return step_of(
        1,
        "scale and shift",
        rf"\mathrm{{out}} = \hat x{scaled}{shifted}",
        ("x_hat", _CAME + scaled, g if weight is None else g * weight.reshape(across)),
        ("weight", rf"{total}({_CAME} \odot \hat x){whole}", to_weight),
        ("bias", rf"{total}({_CAME}){whole}", None if bias is None else g.sum(axis=shared)),
    )


def _through_standardization(
    x_hat: Array, sigma: Array, g: Array, axes: tuple[int, ...], mean_of: str
) -> Step:
    """x̂ = (x − μ) / σ:    ∂x = (∂x̂ − mean(∂x̂) − x̂ ⊙ mean(∂x̂ ⊙ x̂)) / σ.

    The second term is what comes back through μ, the third what comes back through σ.
    """
    variance = rf"{mean_of}((x - \mu)^{{\circ 2}})"
    moments = rf"\quad \mu = {mean_of}(x), \quad \sigma = \sqrt{{{variance} + \epsilon}}"
    back = rf"{_X_HAT} - {mean_of}({_X_HAT}) - \hat x \odot {mean_of}({_X_HAT} \odot \hat x)"
    along = (g * x_hat).mean(axis=axes, keepdims=True)
    grad_x = (g - g.mean(axis=axes, keepdims=True) - x_hat * along) / sigma
    to_x = ("x", rf"\tfrac{{1}}{{\sigma}} ({back})", grad_x)
    forward, scale = f"{_STANDARDIZED}, {moments}", _largest(g / sigma)
    return step_of(2, "standardize", forward, to_x, scale=scale)


def _largest(array: Array) -> float:
    return float(np.abs(array).max(initial=0.0))


# ------------------------------------------------------------------ cross-entropy


def cross_entropy_steps(
    *,
    logits: Array,
    targets: Array,
    axis: int = -1,
    weight: Array | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    grad_output: Array,
) -> list[Step]:
    r"""L_i = −Σ_c q_{i,c} log A_{i,c}, A = softmax(logits), q = ((1 − ε) p + ε / C) ⊙ weight.

    p is 1 at each row's target, or the row's distribution over classes; rows to ignore have q = 0.
    The mean is over N: rows, each weighed as its target is; of distributions all rows.

    Shapes: logits (..., C, ...) with the classes at `axis`; targets without that axis if they are
            integers, as logits if they are floats; weight (C,); grad_output () or (...).
    Source: Goodfellow et al. 2016, section 6.2.2.3; smoothing: Szegedy et al. 2016,
            arXiv:1512.00567.

    >>> steps = cross_entropy_steps(logits=np.zeros((1, 2)), targets=np.array([0]),
    ...                             grad_output=np.ones(()))
    >>> steps[-1].gradients["logits"]
    array([[-0.5,  0.5]])
    """
    rows = np.moveaxis(logits, axis, -1)  # (..., C)
    C = rows.shape[-1]
    targets = np.asarray(targets)
    if targets.dtype.kind == "f":
        p = np.moveaxis(targets, axis, -1)
        counts = np.ones(p.shape[:-1], rows.dtype)
    else:
        counts = np.asarray(True if ignore_index is None else targets != ignore_index)
        counts = np.broadcast_to(counts, targets.shape).astype(rows.dtype)
        p = np.zeros_like(rows)
        places = np.where(counts, targets, 0)[..., None]
        np.put_along_axis(p, places, counts[..., None], axis=-1)
    w = 1 if weight is None else np.asarray(weight)
    plain = weight is None and not label_smoothing
    q = p if plain else ((1 - label_smoothing) * p + label_smoothing / C * counts[..., None]) * w
    weighed = weight is not None and targets.dtype.kind != "f"
    N = (p * w).sum() if weighed else counts.sum()
    A = np.exp(rows - rows.max(axis=-1, keepdims=True))
    A /= A.sum(axis=-1, keepdims=True)
    each = grad_output / (N or 1) if reduction == "mean" else grad_output
    each = np.broadcast_to(each, counts.shape)[..., None]  # ∂L/∂L_i
    grad_rows = each * (A * q.sum(axis=-1, keepdims=True) - q)
    smoothing = rf"\epsilon = {label_smoothing:g}, \quad C = {C}" if label_smoothing else ""
    rows_counted = f"N = {N:.10g}" if reduction == "mean" else ""
    equation = _loss_tex(reduction, weight is not None, targets.dtype.kind == "f", bool(smoothing))
    forward = r", \quad ".join(part for part in (*equation, smoothing, rows_counted) if part)
    share = r"\tfrac{1}{N} " if reduction == "mean" else ""
    row = "A" if plain else r"A \odot \operatorname{rowsum}(q)"
    formula = rf"{share}{_CAME} \odot ({row} - q)"
    to_logits = ("logits", formula, np.moveaxis(grad_rows, -1, axis).reshape(logits.shape))
    return [step_of(1, "softmax and logarithm", forward, to_logits, scale=_largest(each * q))]


def _loss_tex(reduction: str, weighed: bool, distribution: bool, smoothed: bool) -> list[str]:
    """The equation of the loss, of A, of q and of p."""
    sums = {"mean": r"\tfrac{1}{N} \sum_i ", "sum": r"\sum_i "}.get(reduction, "")
    q = r"((1 - \epsilon) p + \tfrac{\epsilon}{C})" if smoothed else "p"
    q += r" \odot \mathrm{weight}" if weighed else ""
    p = r"\mathrm{targets}" if distribution else r"\operatorname{onehot}(\mathrm{targets})"
    return [
        rf"\mathrm{{out}} = -{sums}\sum_c q_{{i,c}} \log A_{{i,c}}",
        r"A = \operatorname{softmax}(\mathrm{logits})",
        f"q = {q}",
        f"p = {p}",
    ]


# ------------------------------------------------------------------ convolution


def convolution_steps(
    *,
    x: Array,
    weight: Array,
    bias: Array | None = None,
    stride: Lengths = 1,
    padding: Lengths | str = 0,
    dilation: Lengths = 1,
    groups: int = 1,
    grad_output: Array,
) -> list[Step]:
    r"""y_{n,o,i} = Σ_{c,k} w_{o,c,k} x_{n,c,s i + d k − p} + b_o, over any number of axes.

    Each entry w_{o,c,k} multiplies x at s i + d k − p for y at i: its gradient is the sum of x ⊙ ∂y
    over all i, and w ⊙ ∂y is added to ∂x at the places that x was read from. The outputs o of a
    group read the channels c of that group alone.

    Shapes: x (N, C, length, …); weight (O, C / groups, K, …); bias (O,); grad_output (N, O,
            length', …); stride, padding and dilation an integer or one an axis, padding also "same"
            or "valid".
    Source: Dumoulin & Visin 2016, arXiv:1603.07285, for s, d and p; by the chain rule.

    >>> steps = convolution_steps(x=np.array([[[1.0, 2.0, 4.0]]]), weight=np.array([[[-1.0, 1.0]]]),
    ...                           grad_output=np.ones((1, 1, 2)))
    >>> steps[0].gradients["x"], steps[0].gradients["weight"]
    (array([[[-1.,  0.,  1.]]]), array([[[3., 6.]]]))
    """
    lengths = x.shape[2:]
    sizes = weight.shape[2:]
    out = grad_output.shape[2:]
    s, d = (np.broadcast_to(value, len(sizes)) for value in (stride, dilation))
    if isinstance(padding, str):
        whole = [
            int(gap) * (k - 1) if padding == "same" else 0 for gap, k in zip(d, sizes, strict=True)
        ]
        pads = [(both // 2, both - both // 2) for both in whole]
    else:
        pads = [(int(p), int(p)) for p in np.broadcast_to(padding, len(sizes))]
    wide = np.pad(x, [(0, 0), (0, 0), *pads])
    grad_wide, grad_weight = np.zeros_like(wide), np.zeros_like(weight)
    reads, makes = x.shape[1] // groups, len(weight) // groups  # channels of a group
    everywhere = (0, *range(2, x.ndim))  # examples and places
    for group in range(groups):
        c, o = (slice(group * n, (group + 1) * n) for n in (reads, makes))
        g = grad_output[:, o]
        for k, at in _places(sizes, out, s, d):
            here: Any = (slice(None), c, *at)
            w: Any = (o, slice(None), *k)
            grad_weight[w] = np.tensordot(g, wide[here], (everywhere, everywhere))
            grad_wide[here] += np.moveaxis(np.tensordot(weight[w], g, (0, 1)), 0, 1)
    inside = tuple(slice(p, p + n) for (p, _), n in zip(pads, lengths, strict=True))
    channel = rf"c + {reads} \operatorname{{floor}}(\tfrac{{o}}{{{makes}}})"
    channel = "c" if groups == 1 else channel
    read, factor = "s i + r k - p", r"\mathrm{weight}_{o,c,k}"
    before = _numbers(p for p, _ in pads)
    settings = rf"\quad s = {_numbers(s)}, \quad r = {_numbers(d)}, \quad p = {before}"
    came = rf"{factor} \odot {_CAME}_{{n,o,i}} \odot [m = {read}]"
    to_x = rf"\sum_{{o,k,i}} {came}"
    if groups > 1:
        to_x = rf"\sum_{{o,c,k,i}} {came} \odot [d = {channel}]"
    forward = rf"\mathrm{{out}} = \sum_{{c,k}} {factor} \odot x_{{n,{channel},{read}}}"
    forward += "" if bias is None else r" + \mathrm{bias}_o"
    to_weight = rf"\sum_{{n,i}} {_CAME}_{{n,o,i}} \odot x_{{n,{channel},{read}}}"
    axes = ",".join("ij"[: len(sizes)])
    to_bias = rf"\sum_{{n,{axes}}} {_CAME}_{{n,o,{axes}}}"
    step = step_of(
        1,
        "windows and weights",
        f"{forward}, {settings}",
        ("x", to_x, grad_wide[(slice(None), slice(None), *inside)]),
        ("weight", to_weight, grad_weight),
        ("bias", to_bias, None if bias is None else grad_output.sum(axis=everywhere)),
    )
    return [step]


def _numbers(values: Iterable[int]) -> str:
    """A setting as one number, or as one an axis."""
    each = [str(value) for value in values]
    return each[0] if len(set(each)) == 1 else f"({', '.join(each)})"


def _places(
    sizes: tuple[int, ...], out: tuple[int, ...], stride: Array, dilation: Array
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each entry k of a window, and where all windows have it: s i + d k for i = 0, 1, …"""
    for k in np.ndindex(sizes):
        starts = [gap * at for gap, at in zip(dilation, k, strict=True)]
        steps = zip(starts, out, stride, strict=True)
        yield k, tuple(slice(a, a + s * (n - 1) + 1 if n else a, s) for a, n, s in steps)


BY_OP: dict[str, Callable[..., list[Step]]] = {
    "layer_norm": layer_norm_steps,
    "rms_norm": rms_norm_steps,
    "batch_norm": batch_norm_steps,
    "cross_entropy": cross_entropy_steps,
    "conv1d": convolution_steps,
    "conv2d": convolution_steps,
    "rnn": rnn_steps,
    "gru": gru_steps,
    "lstm": lstm_steps,
}
"""What a run of each of these ops is held against: layers/__init__.py hands it to minigrad."""

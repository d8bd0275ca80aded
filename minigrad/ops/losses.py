"""Losses: of two arrays entry by entry, averaged or added up; and of scores and their classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from ..engine.op import Call, Declare, Shaped, as_array, call, cast_back, floating, op, widen_half
from ..engine.refusals import explained
from ..engine.tensor import SameArray, TensorOrArray
from .activations import sigmoid, softplus
from .arithmetic import divide
from .functions import sign
from .notation import letters
from .samples import away_from, each_of_x
from .softmax import log_softmax, softmax

__all__ = [
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
]


def reduced(terms, reduction):
    """The mean of the terms, their sum, or the terms themselves.

    Raises: ArgumentError for another name; ShapeError for a mean over nothing.
    """
    if reduction not in ("mean", "sum", "none", "batchmean"):
        raise ArgumentError(f'reduction must be "mean", "sum" or "none", got {reduction!r}')
    if reduction == "none":
        return terms
    if terms.size == 0 and reduction != "sum":
        raise ShapeError("a mean over nothing: there must be at least one entry")
    return cast_back(widen_half(terms).sum() * share(terms, reduction), terms)


def share(x, reduction):
    """The weight of each term in the loss."""
    counts = {"mean": x.size, "batchmean": x.shape[0] if x.ndim else 1}
    return 1 / counts[reduction] if reduction in counts else 1.0


def check_alike(x, target):
    """Both as arrays of floats. Raises: ShapeError unless they are of one shape."""
    x, target = floating(x), floating(target)
    if x.shape != target.shape:
        raise ShapeError(f"both must have one shape, got {x.shape} and {target.shape}")
    return x, target


def _tex(terms: str, where: str = "") -> Callable[..., str]:
    """The terms under the sign of their reduction, and the definitions of their symbols."""

    def tex(x, reduction):
        signs = {"mean": r"\operatorname{mean}", "sum": r"\textstyle\sum"}
        signs["batchmean"] = r"\tfrac1N \textstyle\sum"
        body = f"{signs[reduction]}({terms})" if reduction in signs else terms
        return body + where + _count(x, reduction)

    return tex


def _count(x: Shaped, reduction: str) -> str:
    """What N is."""
    return rf", \quad N = {x.shape[0] if x.ndim else 1}" if reduction == "batchmean" else ""


def _vjp_tex(slope: str, where: str = "") -> Callable[..., str]:
    """The slope of a term, times the gradient of the loss and the term's share."""

    def tex(x, reduction):
        parts = {"mean": rf"\tfrac{{1}}{{{x.size}}} ", "batchmean": r"\tfrac1N "}
        share = parts.get(reduction, "")
        return rf"{share}<g> \odot ({slope}){where}{_count(x, reduction)}"

    return tex


def _pairs(low: float, high: float) -> Callable[..., Iterator[Call]]:
    """Calls with x within ±3 and targets in [low, high], for each reduction."""

    def samples(rng: np.random.Generator) -> Iterator[Call]:
        for reduction in ("mean", "sum", "none"):
            x, target = rng.uniform(-3, 3, (3, 5)), rng.uniform(low, high, (3, 5))
            yield call(x, target, reduction=reduction)
        yield call(np.asarray(0.5), np.asarray(0.25))
        yield call(np.zeros((0, 3)), np.zeros((0, 3)), reduction="sum")

    return samples


def entry_loss(
    term: str, slopes: tuple[str, str], cost: int, *, where: str = "", **declaration: Any
) -> Declare:
    """Declare a loss of x and target.

    Args: term, slopes: formulas of a term and of its slopes in both; where: of their symbols.
    """
    names = ("x", "target")
    return op(
        tex=_tex(term, where),
        vjp_tex={n: _vjp_tex(slope, where) for n, slope in zip(names, slopes, strict=True)},
        flops=each_of_x(cost),
        **declaration,
    )


@entry_loss(
    r"(<x> - <target>)^{\circ 2}",
    (r"2 (<x> - <target>)", r"2 (<target> - <x>)"),
    3,
    samples=_pairs(-2.0, 2.0),
)
def mse_loss(x, target, reduction: str = "mean"):
    """Squares the difference from the target: (x - t)², as mean, as sum, or each ("none").

    Raises: ShapeError unless both have one shape.

    >>> mse_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    np.float64(2.0)
    """
    x, target = check_alike(x, target)
    return reduced((x - target) ** 2, reduction)


@mse_loss.vjp("x")
def _(g, x, target, reduction):
    """The gradient is multiplied by twice the difference from the target, averaged alike."""
    return 2 * share(x, reduction) * g * (x - target)


@mse_loss.vjp("target")
def _(g, x, target, reduction):
    """The gradient is that of the input with its sign turned, as only the difference counts."""
    return 2 * share(x, reduction) * g * (target - x)


def _apart(rng: np.random.Generator) -> Iterator[Call]:
    """Calls where no x is near its target."""
    for sample in _pairs(-2.0, 2.0)(rng):
        x, target = sample.args
        yield call(np.asarray(target + away_from(0.0, x - target)), target, **sample.kwargs)


@entry_loss(
    "|<x> - <target>|",
    (r"\operatorname{sign}(<x> - <target>)", r"\operatorname{sign}(<target> - <x>)"),
    2,
    samples=_apart,
    analytic=False,
)
def l1_loss(x, target, reduction: str = "mean"):
    """Measures how far apart entries are, great differences no more than small ones: |x - t|, as
    mean, as sum, or entry by entry ("none").

    Where both are equal the gradient is 0.  Raises: ShapeError unless both have one shape.

    >>> l1_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    np.float64(1.0)
    """
    x, target = check_alike(x, target)
    return reduced(np.abs(x - target), reduction)


@l1_loss.vjp("x")
def _(g, x, target, reduction):
    """The gradient is multiplied by the sign of the difference, averaged as the loss is."""
    return share(x, reduction) * g * sign(x - target)


@l1_loss.vjp("target")
def _(g, x, target, reduction):
    """The gradient is multiplied by the turned sign of the difference, averaged as the loss is."""
    return share(x, reduction) * g * sign(target - x)


@entry_loss(
    r"d \odot (<x> - <target> - \tfrac12 d)",
    ("d", "-d"),
    7,
    where=r", \quad d = \operatorname{clip}_{\pm <delta>}(<x> - <target>)",
    samples=_pairs(-2.0, 2.0),
    analytic=False,
)
def huber_loss(x, target, delta: float = 1.0, reduction: str = "mean"):
    """Squares small differences from the target and grows evenly with large ones.

        (x - t)² / 2 up to δ, then δ (|x - t| - δ/2).

    Raises: ShapeError unless both have one shape; ArgumentError unless δ > 0.
    Source: Huber 1964, https://doi.org/10.1214/aoms/1177703732.

    >>> huber_loss(np.array([0.5, 3.0]), np.zeros(2), reduction="none")
    array([0.125, 2.5  ])
    """
    x, target = check_alike(x, target)
    if not delta > 0:
        raise ArgumentError(f"delta must be above 0, got {delta}")
    away = x - target
    clipped = cast_back(np.clip(away, -delta, delta), away)
    return reduced(clipped * (away - clipped / 2), reduction)


@huber_loss.vjp("x")
def _(g, x, target, delta, reduction):
    """The gradient is multiplied by the difference, cut off at delta, averaged as the loss is."""
    return share(x, reduction) * g * np.clip(x - target, -delta, delta)


@huber_loss.vjp("target")
def _(g, x, target, delta, reduction):
    """The gradient is that of the input with its sign turned, as only the difference counts."""
    return share(x, reduction) * g * np.clip(target - x, -delta, delta)


@explained
def smooth_l1_loss(
    x: SameArray, target: TensorOrArray, beta: float = 1.0, reduction: str = "mean"
) -> SameArray:
    """Half the squared difference over β up to β, the absolute difference less β/2 beyond.

    It is huber_loss with δ = β, over β; with β = 0 it is l1_loss.
    Raises: as huber_loss; ArgumentError for a β below 0.
    Source: Girshick 2015, arXiv:1504.08083.

    >>> smooth_l1_loss(np.array([1.0, 3.0]), np.zeros(2), beta=2.0, reduction="none")
    array([0.25, 2.  ])
    """
    if isinstance(beta, str) or not beta >= 0:
        raise ArgumentError(f"smooth_l1_loss: beta must be at least 0, got {beta!r}")
    if beta == 0:
        return l1_loss(x, target, reduction)
    return divide(huber_loss(x, target, beta, reduction), float(beta))


# ---------------------------------------------------------------- yes or no


def _bce_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield from _pairs(0.0, 1.0)(rng)
    x, target = rng.uniform(-3, 3, (3, 5)), rng.uniform(0, 1, (3, 5))
    yield call(x, target, pos_weight=rng.uniform(0.5, 3, 5))
    yield call(x, target, "sum", 2.5)


_LIKELIER = r", \quad w = 1 + (<pos_weight> - 1) \odot <target>"


def _bce_tex(x, reduction, pos_weight):
    if pos_weight is None:
        return _tex(r"\log(1 + e^{<x>}) - <target> \odot <x>")(x, reduction)
    return _tex(r"(1 - <target>) \odot <x> + w \odot \log(1 + e^{-<x>})", _LIKELIER)(x, reduction)


def _bce_x_tex(x, reduction, pos_weight):
    if pos_weight is None:
        return _vjp_tex(r"\sigma(<x>) - <target>")(x, reduction)
    return _vjp_tex(r"1 - <target> - w \odot \sigma(-<x>)", _LIKELIER)(x, reduction)


def _bce_target_tex(x, reduction, pos_weight):
    more = r" + (<pos_weight> - 1) \odot \log(1 + e^{-<x>})" if pos_weight is not None else ""
    return _vjp_tex("-<x>" + more)(x, reduction)


def _bce_flops(x, pos_weight):
    return (7 if pos_weight is None else 11) * x.size


@op(
    tex=_bce_tex,
    vjp_tex={"x": _bce_x_tex, "target": _bce_target_tex},
    flops=_bce_flops,
    samples=_bce_samples,
)
def binary_cross_entropy_with_logits(x, target, reduction="mean", pos_weight=None):
    """Measures how wrong scores of yes or no are: -p t log σ(x) - (1 - t) log(1 - σ(x)).

    Args: target: t, the probability of yes. pos_weight: p, what a yes counts for beside a no: 1
        unless given, or an array that broadcasts against x, such as one for each class.
    Raises: ShapeError unless both have one shape, and where pos_weight does not broadcast to it.

    >>> binary_cross_entropy_with_logits(np.array([0.0, 800.0]), np.array([1.0, 1.0])).round(4)
    np.float64(0.3466)
    """
    x, target = check_alike(x, target)
    if pos_weight is None:
        return reduced(softplus(x) - x * target, reduction)
    p = _weights_of_yes(pos_weight, x)
    return reduced((1 - target) * x + (1 + (p - 1) * target) * softplus(-x), reduction)


def _weights_of_yes(pos_weight, x):
    """The weight of a yes, in the dtype of x.  Raises: ShapeError unless it broadcasts to x."""
    p = as_array(pos_weight)
    try:
        fits = np.broadcast_shapes(p.shape, x.shape) == x.shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"pos_weight must broadcast to x's shape {x.shape}, got {p.shape}")
    return p.astype(x.dtype)


@binary_cross_entropy_with_logits.vjp("x")
def _(g, x, target, reduction, pos_weight):
    """The gradient is multiplied by the probability less the target; a yes counts by its weight."""
    target = floating(target)
    if pos_weight is None:
        return share(x, reduction) * g * (sigmoid(x) - target)
    w = 1 + (_weights_of_yes(pos_weight, x) - 1) * target
    return share(x, reduction) * g * (1 - target - w * sigmoid(-x))


@binary_cross_entropy_with_logits.vjp("target")
def _(g, x, reduction, pos_weight):
    """The gradient is multiplied by the score with its sign turned, averaged as the loss is."""
    x = floating(x)
    if pos_weight is None:
        return share(x, reduction) * -g * x
    p = _weights_of_yes(pos_weight, x)
    return share(x, reduction) * g * ((p - 1) * softplus(-x) - x)


# ---------------------------------------------------------------- distributions


def _kl_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield from _pairs(0.1, 1.0)(rng)
    x, target = rng.uniform(-3, 0, (3, 5)), rng.uniform(-3, 0, (3, 5))
    yield call(x, target, reduction="batchmean", log_target=True)


def _kl_tex(x, reduction, log_target):
    term = r"<target> \odot (\log <target> - <x>)"
    return _tex(r"e^{<target>} \odot (<target> - <x>)" if log_target else term)(x, reduction)


def _kl_vjp_x(x, reduction, log_target):
    return _vjp_tex("-e^{<target>}" if log_target else "-<target>")(x, reduction)


def _kl_vjp_target(x, reduction, log_target):
    slope = r"e^{<target>} \odot (<target> - <x> + 1)" if log_target else r"\log <target> - <x> + 1"
    return _vjp_tex(slope)(x, reduction)


@op(
    tex=_kl_tex,
    vjp_tex={"x": _kl_vjp_x, "target": _kl_vjp_target},
    flops=each_of_x(4),
    samples=_kl_samples,
)
def kl_div(x, target, reduction="mean", log_target=False):
    """Measures how far log-probabilities are from a distribution: t (log t - x); 0 where t is 0.

    Args: x: logarithms of probabilities. log_target: t is given as its logarithm too.
        reduction: "batchmean" is the sum by the length of the first axis, the divergence itself
        where rows are distributions; "mean" is over all entries (as PyTorch has them both).
    Raises: ShapeError unless both have one shape.

    >>> p = np.array([[0.5, 0.5]])
    >>> kl_div(np.log([[0.25, 0.75]]), p, reduction="batchmean").round(4)
    np.float64(0.1438)
    """
    x, target = check_alike(x, target)
    p = np.exp(target) if log_target else target
    log_p = target if log_target else np.log(np.where(p == 0, 1, p))
    return reduced(p * (np.where(p == 0, 0, log_p) - np.where(p == 0, 0, x)), reduction)


@kl_div.vjp("x")
def _(g, target, reduction, log_target):
    """The gradient is multiplied by the target with its sign turned, averaged as the loss is."""
    target = floating(target)
    p = np.exp(target) if log_target else target
    return share(target, reduction) * -g * p


@kl_div.vjp("target")
def _(g, x, target, reduction, log_target):
    """The gradient grows with the difference of both logarithms, averaged as the loss is."""
    if log_target:
        p = np.exp(target)
        log_ratio = np.where(p == 0, 0, target) - np.where(p == 0, 0, x)
        return share(x, reduction) * g * (p * (log_ratio + 1))
    slope = np.log(np.where(target == 0, 1, target)) - x + 1
    return share(x, reduction) * g * np.where(target == 0, 0, slope)


# ---------------------------------------------------------------- classes


def _class_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-2, 2, (3, 5)), np.array([0, 4, 2]))
    yield call(rng.uniform(-2, 2, (2, 3, 5)), rng.integers(0, 5, (2, 3)))
    yield call(rng.uniform(-2, 2, 5), np.array(3))
    yield call(rng.uniform(-2, 2, (3, 5)) * 800, np.array([0, 4, 2]))


def check_targets(
    logits: NDArray[np.floating], targets: NDArray[np.integer], empty: bool = False
) -> None:
    """Raise unless each row of the logits has one target, a class; `empty` allows no rows."""
    if np.ndim(logits) < 1:
        raise ShapeError(
            f"logits need a last axis, one entry a class, got shape {np.shape(logits)}; "
            f"targets {targets.shape}"
        )
    if targets.shape != logits.shape[:-1]:
        remedy = ""
        if targets.shape == logits.shape:  # one-hot, or a distribution
            remedy = "; write targets.argmax(-1), or layers.cross_entropy_loss for distributions"
        elif targets.shape == (*logits.shape[:-1], 1):
            remedy = "; write targets[..., 0]"
        raise ShapeError(
            f"targets {targets.shape} must have logits' shape without its last axis, "
            f"{logits.shape[:-1]}{remedy}"
        )
    if targets.dtype.kind not in "iu":
        is_text = targets.dtype.kind in "US"
        ours = "np.unique(targets, return_inverse=True)[1]" if is_text else "targets.astype(int)"
        raise DTypeError(f"targets must be integers, got {targets.dtype}; write {ours}")
    if targets.size == 0:
        if empty:
            return
        raise ShapeError("a mean over no rows; logits need at least one")
    lowest = targets.min()
    highest = targets.max()
    classes = logits.shape[-1]
    if lowest < 0 or highest >= classes:
        worst = lowest if lowest < 0 else highest
        raise OutOfRangeError(f"targets must lie in [0, {classes}), got {worst}")


@op(
    tex=r"-\operatorname{mean}_i \log \operatorname{softmax}(<logits>)_{i, t_i},"
    r" \quad t = <targets>",
    vjp_tex={
        "logits": lambda logits: (
            r"\tfrac1N <g> \odot (\operatorname{softmax}(<logits>)"
            rf" - \operatorname{{onehot}}(<targets>)), \quad N = {logits.size // logits.shape[-1]}"
        )
    },
    flops=lambda logits: 5 * np.size(logits),
    samples=_class_samples,
    invariance="a shift of all logits",
)
def cross_entropy(logits, targets):
    """Measures how little probability the scores give to the targets, averaged over rows.

        -mean_i log softmax(logits)_{i, t_i}.

    Shapes: logits (..., C), targets (...) of integers in [0, C) → ().
    Raises: ShapeError, DTypeError or OutOfRangeError where the targets do not fit; ShapeError
        without rows.

    >>> cross_entropy(np.zeros((2, 4)), np.array([1, 3])).round(4)
    np.float64(1.3863)
    """
    logits, targets = floating(logits), as_array(targets)
    check_targets(logits, targets)
    picked = np.take_along_axis(log_softmax(widen_half(logits)), targets[..., None], axis=-1)
    return cast_back(-np.mean(picked), logits)


@cross_entropy.vjp("logits")
def _(g, logits, targets):
    """Each row gets its softmax less one at the target, times the gradient over the row count."""
    targets = as_array(targets)
    one_hot = np.arange(logits.shape[-1]) == targets[..., None]
    return (softmax(logits) - one_hot) * (widen_half(g) / targets.size)


# ---------------------------------------------------------------- nll_loss


def _nll_samples(rng: np.random.Generator) -> Iterator[Call]:
    yield call(rng.uniform(-3, 0, (3, 5)), np.array([0, 4, 2]))
    yield call(rng.uniform(-3, 0, (2, 5, 3)), rng.integers(0, 5, (2, 3)), axis=1)
    yield call(rng.uniform(-3, 0, (3, 5)), np.array([0, 4, 2]), reduction="sum")
    yield call(rng.uniform(-3, 0, (3, 5)), np.array([0, 4, 2]), reduction="none")
    yield call(np.zeros((0, 5)), np.zeros(0, int), reduction="sum")


def _nll_tex(targets, axis, reduction):
    if np.ndim(targets) == 0:
        names, row = "i", "i, t_i"
    else:
        known = letters(np.ndim(targets))
        names = ",".join(known)
        classes = axis % (len(known) + 1)
        row = ", ".join([*known[:classes], f"t_{{{names}}}", *known[classes:]])
    picked = rf"<log_probs>_{{{row}}}, \quad t = <targets>"
    signs = {"mean": rf"-\operatorname{{mean}}_{{{names}}} ", "sum": rf"-\sum_{{{names}}} "}
    return signs.get(reduction, "-") + picked


def _nll_vjp_tex(targets, axis, reduction):
    classes = axis % (np.ndim(targets) + 1)
    below = "" if classes == np.ndim(targets) else f"_{{{classes}}}"
    one_hot = rf"\operatorname{{onehot}}{below}(<targets>)"
    if reduction == "mean":
        return rf"-\tfrac1N <g> \odot {one_hot}, \quad N = {np.size(targets)}"
    if reduction == "sum":
        return rf"-<g> \odot {one_hot}"
    known = letters(np.ndim(targets))
    whole = ",".join([*known[:classes], "c", *known[classes:]])
    return rf"-<g>_{{{','.join(known)}}} \odot {one_hot}_{{{whole}}}"


@op(
    tex=_nll_tex,
    vjp_tex={"log_probs": _nll_vjp_tex},
    flops=lambda log_probs, targets: 2 * np.size(targets),
    samples=_nll_samples,
)
def nll_loss(log_probs, targets, axis=-1, reduction="mean"):
    """Takes the negative logarithm of each target's probability: -log p_{i, t_i}, mean over rows.

    Args: axis: where the classes are (PyTorch has them at 1, which is the last of two).
        reduction: "mean", "sum" or "none".
    Shapes: log_probs (..., C), targets (...) of integers in [0, C) → (), or as targets.
    Raises: as cross_entropy, which is nll_loss of log_softmax.

    >>> nll_loss(np.log([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 0])).round(4)
    np.float64(1.0397)
    """
    log_probs, targets = floating(log_probs), as_array(targets)
    check_targets(np.moveaxis(log_probs, axis, -1), targets, empty=reduction != "mean")
    picked = np.take_along_axis(log_probs, np.expand_dims(targets, axis), axis)
    return reduced(-np.squeeze(picked, axis), reduction)


@nll_loss.vjp("log_probs")
def _(g, log_probs_shape, targets, axis, reduction):
    """The gradient goes to the targets' entries alone, its sign turned, averaged as the loss is."""
    classes = np.arange(log_probs_shape[axis])
    one_hot = np.moveaxis(classes == as_array(targets)[..., None], -1, axis).astype(g.dtype)
    each = -share(as_array(targets), reduction) * g
    return one_hot * (np.expand_dims(each, axis) if reduction == "none" else each)

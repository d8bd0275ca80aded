"""Losses: of two arrays entry by entry, averaged or added up; and of scores and their classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from ..engine.op import Call, Declare, Shaped, as_array, call, cast_back, floating, op, widen_half
from ..engine.tensor import SameArray, TensorOrArray
from .activations import sigmoid, softplus
from .arithmetic import multiply, subtract
from .attention import scale
from .functions import abs, clip
from .reduce import mean
from .samples import each_of_x
from .softmax import log_softmax, softmax

__all__ = [
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "l1_loss",
    "mse_loss",
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


def _refuse_broadcast(call: str, x: Any, target: Any) -> None:
    if np.shape(x) != np.shape(target):
        raise ShapeError(f"{call}: both must have one shape, got {np.shape(x)}, {np.shape(target)}")


def l1_loss(x: SameArray, target: TensorOrArray) -> SameArray:
    """The mean of how far apart entries are: |x - t|. Where both are equal the gradient is 0.

    >>> l1_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    np.float64(1.0)
    """
    _refuse_broadcast("l1_loss", x, target)
    return mean(abs(subtract(x, target)))


def huber_loss(x: SameArray, target: TensorOrArray, delta: float = 1.0) -> SameArray:
    """The mean of (x - t)² / 2 up to a difference of δ, then of δ (|x - t| - δ/2).

    Raises: ArgumentError unless δ > 0.
    Source: Huber 1964, https://doi.org/10.1214/aoms/1177703732.

    >>> huber_loss(np.array([0.5, 3.0]), np.zeros(2))
    np.float64(1.3125)
    """
    if not delta > 0:
        raise ArgumentError(f"huber_loss: delta must be above 0, got {delta}")
    _refuse_broadcast("huber_loss", x, target)
    away = subtract(x, target)
    near = clip(away, -float(delta), float(delta))
    return mean(multiply(near, subtract(away, scale(near, 0.5))))


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

"""What every attention layer takes, checks, and does to Q, K and V before it scores them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypedDict

import numpy as np

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError

from .cache import ContextCache
from .feed_forward import Dropout
from .linear import check_sizes
from .mask import visible
from .module import Module
from .position import settled
from .scoring import named

__all__ = [
    "Options",
    "describes",
    "made_before",
    "prepared",
    "resolved",
    "scoring",
    "told_apart",
]


class Options(TypedDict, total=False):
    """What every attention layer takes by keyword.

    method: "exact" records every step; "tiled" is one node, in memory that grows with n; "auto" is
        whichever is faster.
    causal: query i sees keys j ≤ i only, on top of any mask.
    window: a query sees only keys fewer than `window` tokens away; with causal, the last `window`.
    scale: what Q Kᵀ is multiplied by; 1/√d_k unless given.
    softcap: c, to take c tanh(S / c) for S, before the mask.
    dropout: in training, the probability with which each weight of A is dropped.
    position: a Rotary, or a bias such as T5Bias (see relative.py).
    qk_norm: what makes the norm of each head's queries, and of its keys, from d_k: RMSNorm, say.
    d_context: width of the context that keys and values come from; d_model unless given.
    """

    method: str
    causal: bool
    window: int | None
    scale: float | None
    softcap: float | None
    dropout: float
    position: Any
    qk_norm: Callable[..., Module] | None
    d_context: int | None


def take_options(layer: Any, rng: np.random.Generator, options: Options) -> None:
    """Check a layer's options, and set its attributes. Its d_model, d_k and dtype are set."""
    call = type(layer).__name__
    if unknown := sorted(options.keys() - Options.__annotations__.keys()):
        raise TypeError(f"{call}() got an unexpected keyword argument {unknown[0]!r}")
    layer.method = options.get("method", "exact")
    if layer.method not in ("auto", "exact", "tiled"):
        raise ArgumentError(
            f'{call}: method must be "exact", "tiled" or "auto", got {layer.method!r}'
        )
    d_context = options.get("d_context")
    layer.d_context = layer.d_model if d_context is None else d_context
    layer.causal, layer.window = options.get("causal", False), options.get("window")
    layer.scale, layer.softcap = options.get("scale"), options.get("softcap")
    for name in ("d_context", "window"):
        if getattr(layer, name) is not None:
            check_sizes(call, **{name: getattr(layer, name)})
    if layer.softcap is not None and not layer.softcap > 0:
        raise ArgumentError(f"{call}: softcap must be more than 0, got {layer.softcap}")
    dropout = options.get("dropout", 0.0)
    layer.drop = Dropout(dropout, rng) if dropout else None
    layer.position, qk_norm = options.get("position"), options.get("qk_norm")
    layer.q_norm, layer.k_norm = (
        None if qk_norm is None else qk_norm(layer.d_k, dtype=layer.dtype) for _ in "qk"
    )
    needs_scores = layer.softcap or dropout or hasattr(layer.position, "bias")
    if layer.method == "tiled" and needs_scores:
        raise ArgumentError(
            f'{call}: softcap, dropout and biases need the scores, which method="tiled" never '
            'holds; use "exact"'
        )


def resolved(layer: Any, X: Any, context: Any, heads: int, mask: Any) -> str:
    """What the layer's method comes to for X in so many heads: "exact", "tiled" or "one tile"."""
    if layer.method == "exact" or layer.softcap or layer.drop or hasattr(layer.position, "bias"):
        return "exact"
    *lead, n, _ = X.shape
    m = n if context is None else context.shape[-2]
    return mg.attention_method(prod(lead) * heads, n, m, mask, layer.method)


def told_apart(
    layer: Any, X: Any, given: tuple[Any, ...], mask: Any, context: Any
) -> tuple[Any, Any]:
    """The mask and the context: by keyword, or by position and then told apart; X is checked too.

    So `layer(X, mask)` and `layer(X, context)` both work.
    Raises: ShapeError if X or the context does not fit; ArgumentError where one could be either;
            TypeError for more than one of them.
    """
    check_input(layer, "(X)", "X", X, layer.d_model)
    if given:
        mask, context = _by_position(layer, X, given, mask, context)
    if context is not None:
        if not isinstance(context, mg.Tensor):
            context = np.asarray(context, layer.dtype)
        check_input(layer, "(X, context=...)", "context", context, layer.d_context)
    return mask, context


def _by_position(
    layer: Any, X: Any, given: tuple[Any, ...], mask: Any, context: Any
) -> tuple[Any, Any]:
    call = type(layer).__name__
    if len(given) > 2:
        raise TypeError(f"{call}(X, mask, context): takes no more by position")
    if len(given) == 2 and not _could_be_context(layer, given[1], X):
        given = given[::-1] if _could_be_context(layer, given[0], X) else given
    elif len(given) == 1 and _is_context(layer, given[0], X):
        given = (None, *given)
    for name, one, keyword in zip(("mask", "context"), given, (mask, context), strict=False):
        if one is not None and keyword is not None:
            raise TypeError(f"{call}(X, ...): {name} was given twice")
    mask = given[0] if given[0] is not None else mask
    context = given[1] if len(given) > 1 and given[1] is not None else context
    return mask, context


def prepared(
    layer: Any, Q: Any, K: Any, V: Any, context: Any, positions: Any, cache: Any, method: str
) -> tuple[Any, Any, Any, Any, Any, Any, bool]:
    """Normalise and rotate Q and K, and put the cached tokens before K and V.

    Returns: Q, K and V as they are scored; where queries and keys stand, from 0 on if None; which
        keys each query may see, all if None; and whether only those before it, besides.
    """
    made = made_before(cache) is not None
    of_context = cache if isinstance(cache, ContextCache) else None
    cache = None if of_context else cache
    if cache is not None and (context is not None or positions is not None):
        raise ArgumentError(
            f"{type(layer).__name__}: a cache holds the tokens of X itself, and counts their "
            "positions; it goes with no context= and no positions="
        )
    i = None if positions is None else np.asarray(positions)
    if cache is not None:
        i = cache.next_positions(Q.shape[-2])
    j = i if context is None else None
    if layer.q_norm is not None:
        Q = layer.q_norm(Q).named("Q_norm")
        K = K if made else layer.k_norm(K).named("K_norm")
    if hasattr(layer.position, "rotate"):
        Q = named("Q_rot", layer.position.rotate(Q, i))
        K = K if made else named("K_rot", layer.position.rotate(K, j))
    if of_context is not None and not made:
        of_context.keep(K, V)
    if cache is None and layer.window is None:
        if not layer.causal or method != "exact":  # tiles know causality without an (n, m) array
            return Q, K, V, i, j, None, layer.causal
    if cache is not None:
        K, V = cache.append(K, V)
        j = np.arange(cache.start, len(cache))
    queries, keys = (np.arange(Q.shape[-2]), np.arange(K.shape[-2])) if cache is None else (i, j)
    lengths = cache.lengths if cache is not None and cache.ragged else None
    seen = visible(queries, keys, causal=layer.causal, window=layer.window, lengths=lengths)
    return Q, K, V, i, j, seen if seen is None else settled(seen, cache), False


def made_before(cache: Any) -> tuple[Any, Any] | None:
    """The keys and values of a context, if they are cached."""
    return cache.made if isinstance(cache, ContextCache) else None


def scoring(layer: Any) -> dict[str, Any]:
    """What `attend` takes of a layer."""
    return {
        "scale": layer.scale,
        "softcap": layer.softcap,
        "drop": layer.drop if layer.training else None,
        "position": layer.position,
    }


def describes(layer: Any, context: Any, cache: Any) -> bool:
    """Whether the hand-derived steps describe what the layer just did."""
    plain = context is None and cache is None and layer.scale is None and layer.softcap is None
    as_given = plain and layer.position is None and layer.q_norm is None
    return as_given and not (layer.drop is not None and layer.training)


def _could_be_context(layer: Any, x: Any, X: Any) -> bool:
    """Whether x could be the context of X: floats, as many rows, of that width."""
    if x is None or getattr(x, "dtype", np.dtype(float)).kind != "f":
        return False
    shape = np.shape(x)
    wanted = (*X.shape[:-2], layer.d_context)
    return len(shape) == len(X.shape) and (*shape[:-2], shape[-1]) == wanted


def _is_context(layer: Any, x: Any, X: Any) -> bool:
    """Whether x is the context of X, and not a mask of X with itself."""
    if not _could_be_context(layer, x, X):
        return False
    if any(size not in (1, X.shape[-2]) for size in np.shape(x)[-2:]):
        return True
    values = np.asarray(x)
    if ((values == 0) | (values <= -1e4)).all():  # nothing but 0 and −inf, or −10⁹: a mask
        return False
    raise ArgumentError(
        f"{type(layer).__name__}(X, ...): {np.shape(x)} fits both a mask to add and a context; say "
        "mask=... or context=..."
    )


def check_input(layer: Any, call: str, name: str, X: Any, width: int) -> None:
    """Raise ShapeError unless X is a sequence of vectors of that width, or a batch of them."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) not in (2, 3) or shape[-1] != width:
        raise ShapeError(
            f"{type(layer).__name__}{call}: {name} must be (B, n, {width}) or (n, {width}), "
            f"got {shape}\n  {name}: {shape}   {getattr(X, 'path', '')}".rstrip()
        )

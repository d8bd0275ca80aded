"""Options of attention, each a small object with the hooks that it needs; and how the sizes,
options and weights of an attention layer are checked and set.

    Q, K = project(Q, K)      then  S = Q Kᵀ / √d_k,    S = scores(S),    A = softmax(S + M),
    A = weights(A)            then  O = A V,            O = values(O)

An attention layer calls each hook of all its options in order. Attention in tiles never computes
the scores as a whole, so only options that have no hook but `project` go with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, checked_keywords

from .arrays import Array, SameArray
from .feed_forward import Dropout
from .linear import check_sizes, draw_affine
from .module import Module, named

__all__ = [
    "AttentionOption",
    "DropWeights",
    "Norms",
    "Options",
    "SoftCap",
    "TokenPositions",
    "add_bias",
    "draw_weights",
    "set_context",
    "set_heads",
    "set_options",
    "soft_cap",
]


HOOKS = ("project", "scores", "weights", "values")


class TokenPositions(Protocol):
    """Positions of queries i and keys j, (n,) or (B, n), counted from 0 if None; and the scale."""

    i: NDArray[np.integer] | None
    j: NDArray[np.integer] | None

    @property
    def scale(self) -> float: ...


class AttentionOption:
    """One option: a subclass overrides the hooks that it needs, and `hooks` lists them.

    at.i and at.j are the positions of queries and keys, (n,) or (B, n); None counts from 0.
    at.scale is what Q Kᵀ is multiplied by.

    >>> SoftCap(30.0).hooks, SoftCap(30.0).needs_scores
    (('scores',), True)
    """

    __slots__ = ()
    hooks: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.hooks = tuple(
            name for name in HOOKS if getattr(cls, name) is not getattr(AttentionOption, name)
        )

    def project(
        self, Q: SameArray, K: Array | None, at: TokenPositions
    ) -> tuple[SameArray, Array | None]:
        """Before the scores; K is None where a cache of a context has it already."""
        return Q, K

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Array:
        """After the scale, before the mask: (..., n, m)."""
        return S

    def weights(self, A: Array) -> Array:
        """After softmax: what the values are multiplied by, (..., n, m)."""
        return A

    def values(self, O: Array, A: Array, at: TokenPositions) -> Array:
        """After A V: (..., n, d_v)."""
        return O

    @property
    def needs_scores(self) -> bool:
        """Whether it works on the scores, which attention in tiles never holds as a whole."""
        return self.hooks not in ((), ("project",))

    @property
    def idle(self) -> bool:
        """Whether it changes nothing at present, as dropout in evaluation."""
        return False


@dataclass(eq=False)
class Norms(AttentionOption):
    """Each head's queries, and its keys, normed."""

    q_norm: Module
    k_norm: Module

    def project(
        self, Q: SameArray, K: Array | None, at: TokenPositions
    ) -> tuple[SameArray, Array | None]:
        Q = self.q_norm(Q).named("Q_norm")
        return Q, K if K is None else self.k_norm(K).named("K_norm")


@dataclass(eq=False)
class SoftCap(AttentionOption):
    """c tanh(S / c) for S. Source: Gemma 2, arXiv:2408.00118."""

    cap: float

    def scores(self, S: Array, Q: Array, K: Array, at: TokenPositions) -> Array:
        return named("S_capped", soft_cap(S, self.cap))


@dataclass(eq=False)
class DropWeights(AttentionOption):
    """In training, some weights dropped, the others enlarged."""

    drop: Dropout

    def weights(self, A: Array) -> Array:
        return A if self.idle else named("A_dropped", self.drop(A))

    @property
    def idle(self) -> bool:
        return not self.drop.training


def soft_cap(S: SameArray, cap: float) -> SameArray:
    """c tanh(S / c): like S near 0, never beyond ±c."""
    return mg.scale(mg.tanh(mg.scale(S, 1 / cap)), cap)


def add_bias(X: Array, bias: Array) -> Array:
    """X + bias, in the dtype of X; a bias of one head for an X that has no axis of heads."""
    bias = bias if bias.dtype == X.dtype else mg.astype(bias, X.dtype)
    return mg.add(X, mg.squeeze(bias, bias.ndim - 3) if bias.ndim > X.ndim else bias)


# ---------------------------------------------------------------- how a layer is made


class Options(TypedDict, total=False):
    """The keywords of every attention layer.

    method: "exact" records every step; "tiled" is one node, in memory that grows with n; "auto" is
        whichever is faster.
    is_causal: query i sees keys j ≤ i only, on top of any mask.
    window: a query sees only keys fewer than `window` tokens away; with is_causal, the last
        `window`.
    scale: what Q Kᵀ is multiplied by; 1/√d_k unless given.
    softcap: c, to take c tanh(S / c) for S, before the mask.
    dropout: in training, the probability with which each weight of A is dropped.
    position: a Rotary, or a bias such as T5Bias (see relative.py).
    qk_norm: what makes the norm of each head's queries, and of its keys, from d_k: RMSNorm, say.
    d_context: width of the context that keys and values come from; d_model unless given.
    """

    method: str
    is_causal: bool
    window: int | None
    scale: float | None
    softcap: float | None
    dropout: float
    position: AttentionOption | None
    qk_norm: Callable[..., Module] | None
    d_context: int | None


def set_options(layer: Module, rng: np.random.Generator, options: Options) -> None:
    """Check a layer's options, and set its attributes. Its d_model, d_k and dtype are set."""
    call = type(layer).__name__
    checked_keywords(call, options, Options.__annotations__)
    layer.attention_weights = None
    layer.method = options.get("method", "exact")
    if layer.method not in ("auto", "exact", "tiled"):
        raise ArgumentError(
            f'{call}: method must be "exact", "tiled" or "auto", got {layer.method!r}'
        )
    set_context(layer, options.get("d_context"))
    layer.causal, layer.window = options.get("is_causal", False), options.get("window")
    layer.scale, layer.softcap = options.get("scale"), options.get("softcap")
    if layer.window is not None:
        check_sizes(call, window=layer.window)
    if layer.softcap is not None and not layer.softcap > 0:
        raise ArgumentError(f"{call}: softcap must be more than 0, got {layer.softcap}")
    dropout = options.get("dropout", 0.0)
    layer.drop = Dropout(dropout, rng) if dropout else None
    layer.position, qk_norm = options.get("position"), options.get("qk_norm")
    layer.q_norm, layer.k_norm = (
        None if qk_norm is None else qk_norm(layer.d_k, dtype=layer.dtype) for _ in "qk"
    )
    if not isinstance(layer.position, AttentionOption | None):
        raise ArgumentError(
            f"{call}: position must be a Rotary, a bias, or an AttentionOption of your own, got "
            f"{type(layer.position).__name__}"
        )
    heads = getattr(layer.position, "n_heads", 1)
    if heads > 1 and not layer.many_heads:
        raise ArgumentError(
            f"{call}: it has one head, and its position is for {heads}; take MultiHeadAttention, "
            "or a position for one"
        )
    if layer.method == "tiled" and any(option.needs_scores for option in layer.options):
        raise ArgumentError(
            f'{call}: softcap, dropout and biases need the scores, which method="tiled" never '
            'holds; use "exact"'
        )


def set_context(layer: Module, d_context: int | None) -> None:
    """Check and set the width of a layer's context."""
    layer.d_context = layer.d_model if d_context is None else d_context
    check_sizes(type(layer).__name__, d_context=layer.d_context)


def set_heads(
    layer: Module,
    d_model: int,
    n_heads: int,
    n_kv_heads: int | None,
    d_k: int | None = None,
    d_v: int | None = None,
) -> None:
    """Check a layer's sizes, and set its attributes: d_model, n_heads, n_kv_heads, d_k and d_v."""
    call = type(layer).__name__
    n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
    sizes = {"d_model": d_model, "n_heads": n_heads, "n_kv_heads": n_kv_heads}
    check_sizes(call, **sizes)
    for part, whole in (("n_heads", "d_model"), ("n_kv_heads", "n_heads")):
        if sizes[whole] % sizes[part] and (whole != "d_model" or d_k is None):
            numbers = f"{sizes[part]} and {sizes[whole]}"
            raise ArgumentError(f"{call}: {part} must divide {whole}, got {numbers}")
    layer.d_model = d_model
    layer.n_heads, layer.n_kv_heads = n_heads, n_kv_heads
    layer.d_k = d_model // n_heads if d_k is None else d_k
    layer.d_v = layer.d_k if d_v is None else d_v
    check_sizes(call, d_k=layer.d_k, d_v=layer.d_v)


def draw_weights(
    layer: Module, rng: np.random.Generator, use_bias: bool | str, project_out: bool = True
) -> None:
    """W_Q, W_K, W_V and, unless left out, W_O of a layer whose sizes are set, and their biases."""
    biases = use_bias if isinstance(use_bias, str) else "QKVO" if use_bias else ""
    if set(biases) - set("QKVO"):
        raise ArgumentError(
            f'{type(layer).__name__}: use_bias must be a bool or some of "QKVO", got {use_bias!r}'
        )
    h, h_kv = layer.n_heads, layer.n_kv_heads
    dtype = np.dtype(layer.dtype)
    sizes = {
        "Q": (layer.d_model, h * layer.d_k),
        "K": (layer.d_context, h_kv * layer.d_k),
        "V": (layer.d_context, h_kv * layer.d_v),
        "O": (h * layer.d_v, layer.d_model),
    }
    if not project_out:
        layer.W_O = layer.b_O = None
        del sizes["O"]
    for name, (n_in, n_out) in sizes.items():
        W, b = draw_affine(rng, name in biases, dtype, n_in, n_out)
        setattr(layer, f"W_{name}", W)
        setattr(layer, f"b_{name}", b)

"""One call of an attention layer: its arguments, checked, and the mask and positions they give."""

from __future__ import annotations

from math import prod, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

import minigrad as mg
from minigrad import mask_rules, masks
from minigrad.errors import ArgumentError, DTypeError, ShapeError

from .arrays import Array, Mask
from .cache import ContextCache, KVCache
from .mask import entries_of, fit_mask, with_head_axis, with_visible
from .module import Module, with_shapes
from .position import mark_constant

__all__ = ["AttentionCall", "keys_from"]


class AttentionCall:
    """The arguments of one forward, checked; positions of its tokens, and who may see whom.

    Attributes:
        Y: what keys and values come from: the context, or X.
        options: the layer's, in the order in which they act.
        method: the one that runs: "exact", "tiled" or "one tile".
        earlier: the cache of the tokens before X, or None.
        keys_values: those of the context, made in an earlier call, or None.
        i, j: positions of queries and keys; None where they count from 0.
        rule: which keys the layer lets each query see, beside the mask; None if all.
        M: the mask that was added to the scores; None if there was none.
    Raises:  as SelfAttention.
    """

    # A call with X alone, of a layer without options, has these.
    earlier: KVCache | None = None
    keys_values: tuple[Array, Array] | None = None
    i: NDArray[np.integer] | None = None
    j: NDArray[np.integer] | None = None
    M: Array | None = None

    def __init__(
        self,
        layer: Module,
        X: mg.Tensor,
        mask: Mask | None,
        context: Array | None,
        positions: ArrayLike | None,
        cache: KVCache | ContextCache | None,
        return_weights: bool = False,
    ) -> None:
        self.layer = layer
        self.X = X
        self.context = context
        self.cache = cache
        self.options = layer.options
        self.Y = keys_from(layer, X, context)  # (B, m, d_context)
        self.rule = rule_of(layer.causal, layer.window)
        self.given_mask: Array | None = None
        if isinstance(mask, mask_rules.MaskRule):
            self.rule = mask if self.rule is None else self.rule & mask
        elif mask is not None:
            self.given_mask = entries_of(mask, X.shape[-2], self.Y.shape[-2])
            check_mask(layer, X, self.Y, self.given_mask)
        self.method = "exact" if layer.method == "exact" else self._method(return_weights)
        if positions is not None:
            self.i = np.asanyarray(positions)
        if isinstance(cache, ContextCache):
            self.keys_values = cache.made
        elif cache is not None:
            self.earlier = self._checked(cache, positions)
            self.i = cache.next_positions(X.shape[-2])
        self.j = self.i if context is None else None

    @property
    def scale(self) -> float:
        """What Q Kᵀ is multiplied by."""
        layer = self.layer
        return float(1 / sqrt(layer.d_k) if layer.scale is None else layer.scale)

    def _method(self, return_weights: bool) -> str:
        layer = self.layer
        n, m = self.X.shape[-2], self.Y.shape[-2]
        if return_weights and layer.method == "tiled":
            raise ArgumentError(
                f"{type(layer).__name__}: return_weights=True asks for weights that "
                'method="tiled" never holds; use "exact" or "auto"'
            )
        if return_weights or any(option.needs_scores for option in self.options):
            return "exact"
        heads = prod(self.X.shape[:-2]) * layer.n_heads
        return mg.attention_method(heads, n, m, self.given_mask, layer.method)

    def _checked(self, cache: KVCache, positions: ArrayLike | None) -> KVCache:
        """A cache of earlier tokens, which takes neither a context nor positions."""
        if self.context is not None or positions is not None:
            raise ArgumentError(
                f"{type(self.layer).__name__}: a cache holds the tokens of X itself, and counts "
                "their positions; it goes with no context= and no positions="
            )
        seen, kept = self.layer.window, cache.window
        if kept is not None and cache.max_len is None and (seen is None or seen > kept):
            raise ArgumentError(
                f"{type(self.layer).__name__}: its window is {seen}, and the cache lets go of all "
                f"but the last {kept} tokens; make it with KVCache(window={seen})"
            )
        return cache

    # ---------------------------------------------------------------- before the scores

    def prepare(self, Q: mg.Tensor, K: Array, V: Array) -> tuple[mg.Tensor, Array, Array]:
        """Q, K and V as the options' `project` changes them, behind the K and V of the cache."""
        new_keys = K if self.keys_values is None else None
        for option in self.options:
            Q, new_keys = option.project(Q, new_keys, self)
        if new_keys is not None:
            K = new_keys
        if self.cache is None:
            return Q, K, V
        if self.earlier is not None:
            K, V = self.earlier.append(K, V)
            self.j = self.earlier.columns()
        elif isinstance(self.cache, ContextCache) and self.keys_values is None:
            self.cache.keep(K, V)
        if K.dtype != Q.dtype:
            kind = type(self.cache).__name__
            raise DTypeError(f"{kind}: it holds {K.dtype}, got {Q.dtype}; reset() it first")
        return Q, K, V

    def mask(self, Q: Array, K: Array) -> Array | None:
        """The mask, which broadcasts to the scores of Q and K; None if all keys are seen.

        The layer's rule is part of it, unless tiles take the rule itself.
        """
        if self.given_mask is None and self.rule is None and self.earlier is None:
            return None
        n, m = Q.shape[-2], K.shape[-2]
        given, seen = self.given_mask, self._seen(n, m)
        if self.layer.many_heads:
            given, seen = with_head_axis(given), with_head_axis(seen)
        M = with_visible(given, seen, recorded=True)  # (n, m), (B, n, m) or (B, 1, n, m)
        if M is None:
            return None
        if M.ndim == 2 and self.X.shape[:-1] == (n, n):
            M = mg.expand_dims(M, 0)  # (1, n, m), which cannot be taken for (B, m)
        self.M = M
        return fit_mask(M, (*Q.shape[:-1], m), Q)

    def _seen(self, n: int, m: int) -> Array | None:
        """The rule as a boolean array; None if it allows all, or if tiles take the rule itself."""
        layer, cache = self.layer, self.earlier
        if cache is not None:
            if cache.at is not None:
                if self.rule not in (None, rule_of(layer.causal, layer.window)):
                    raise ArgumentError(
                        f"{type(layer).__name__}: a cache with `at` takes no mask rule; pass its "
                        "entries as an array"
                    )
                self.rule = None
                return cache.visible(layer.window)
            is_relative = self.rule is None or self.rule.relative
            if cache.ragged or (cache.start and not is_relative):
                rule, self.rule = self.rule, None
                return visible_by_row(cache, rule, n, m)
            self.rule = self.rule and self.rule.shifted(len(cache) - n - cache.start)
        queries, keys = slice(0, n), slice(0, m)
        if self.rule is None or self.rule.within(queries, keys) is True:
            self.rule = None
        if self.rule is None or self.method != "exact":
            return None
        if not isinstance(self.X, mg.Tensor):  # a shape in its place, to count what a pass costs
            return np.broadcast_to(np.True_, (n, m))
        return mark_constant(self.rule.entries(queries, keys), self.cache)

    # ---------------------------------------------------------------- after the output

    def keep(self, **found: Array | None) -> None:
        """Keep on the layer what it shows of its last call."""
        layer, A = self.layer, found["A"]
        state = vars(layer)  # past __setattr__, which is for what a layer is made of
        state["attention_weights"] = A.numpy() if isinstance(A, mg.Tensor) else A
        kept = None
        if layer._given_array or layer.keep_intermediates:
            found = {"X": self.X} | found | {"mask": self.M}
            kept = {s: x.numpy() if isinstance(x, mg.Tensor) else x for s, x in found.items()}
        if kept and layer.keep_intermediates:  # one by one, so that a compiled step does it too
            for symbol, x in kept.items():
                if x is not None or f"kept_{symbol}" in state:
                    state[f"kept_{symbol}"] = x
        object.__setattr__(layer, "_kept", kept)
        if mg.listening():
            self._expect_gradients("out" if layer.W_O is not None else "O")

    def _expect_gradients(self, out: str) -> None:
        """Name the steps derived by hand for this call, or what of it they do not describe."""
        layer = self.layer
        if reason := self._not_derived():
            mg.expect_gradients(f"{type(layer).__name__} with {reason}", out=out)
            return
        in_tiles = self.method != "exact"
        mg.expect_gradients(
            layer.steps,
            layer,
            X=self.X,
            mask=self.M,
            is_causal=layer.causal and in_tiles,
            window=layer.window if in_tiles else None,
            S_masked="S" if self.M is None else "S_masked",
            out=out,
            n_heads=layer.n_heads,
            n_kv_heads=layer.n_kv_heads,
        )

    def _not_derived(self) -> str:
        """What of this call the steps derived by hand do not describe; empty if nothing."""
        layer = self.layer
        if self.context is not None:
            return "a context"
        if self.cache is not None:
            return "a cache"
        if layer.scale is not None:
            return "a scale of its own"
        if active := [type(option).__name__ for option in self.options if not option.idle]:
            return " and ".join(active)
        if any(isinstance(vars(layer).get(f"W_{s}"), Module) for s in "QKVO"):
            return "weights that are layers"  # quantized, wrapped
        if self.method != "exact" and self.rule not in (None, rule_of(layer.causal, layer.window)):
            return "a mask rule in tiles"
        return ""


def rule_of(causal: bool, window: int | None) -> mask_rules.MaskRule | None:
    """Which keys a causal layer, or one with a window, lets each query see; None if all."""
    near = None if window is None else mask_rules.Window(window)
    if not causal:
        return near
    return mask_rules.Causal() if near is None else mask_rules.Causal() & near


def keys_from(layer: Module, X: Array, context: Array | None) -> Array:
    """What keys and values come from, of the layer's dtype: the context, or X itself.

    Raises: ShapeError if X or the context does not fit; DTypeError for a complex context.
    """
    check_input(layer, "(X)", "X", X, layer.d_model)
    if context is None:
        return X
    if not hasattr(context, "__apply__"):
        context = np.asanyarray(context)
        layer.check_real(context, "context")
        context = context.astype(layer.dtype, copy=False)
    check_input(layer, "(X, context=...)", "context", context, layer.d_context)
    return context


def visible_by_row(
    cache: KVCache, rule: mask_rules.MaskRule | None, n: int, m: int
) -> NDArray[np.bool_]:
    """Which of the m keys of a cache the last n tokens of each of its rows see: (B, n, m)."""
    assert cache.lengths is not None  # the tokens are appended
    keys = slice(cache.start, cache.start + m)
    real = np.arange(keys.start, keys.stop) < cache.lengths[:, None, None]  # (B, 1, m)
    if rule is None:
        return np.repeat(real, n, axis=1)
    ends = cache.lengths.tolist()
    return real & np.stack([rule.entries(slice(end - n, end), keys) for end in ends])


def check_mask(layer: Module, X: Array, Y: Array, mask: Array) -> None:
    """Raise ShapeError for a mask that could mean two things, or is a context out of its place."""
    call, shape = type(layer).__name__, np.shape(mask)
    n, m = X.shape[-2], Y.shape[-2]
    masks.check_meaning(f"{call}(X, mask)", mask, X.shape[:-2], n, m)
    if Y is X and len(shape) == X.ndim and shape[-1] == layer.d_context not in (1, m):
        raise ShapeError(
            f"{call}(X, mask): mask must broadcast to ({n}, {m}), got {shape}; a context goes by "
            f"keyword: {call}(X, context=...)"
        )


def check_input(layer: Module, call: str, name: str, X: Array, width: int) -> None:
    """Raise ShapeError unless X is a sequence of vectors of that width, or a batch of them."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) not in (2, 3) or shape[-1] != width:
        rule = f"{name} must be (B, n, {width}) or (n, {width}), got {shape}"
        raise ShapeError(with_shapes(f"{type(layer).__name__}{call}: {rule}", **{name: X}))

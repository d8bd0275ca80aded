"""One call of an attention layer: what it was given, and what that says beside the formula."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import mask_rules, masks
from minigrad.errors import ArgumentError, DTypeError, ShapeError

from .cache import ContextCache
from .mask import visible, with_head_axis, with_visible
from .module import Module
from .options import needs_scores
from .position import mark_constant
from .scoring import biased, capped, named

__all__ = ["AttentionCall", "check_input", "keys_from"]


class AttentionCall:
    """What one forward was given, checked; where its tokens stand, and who may see whom.

    Attributes:
        Y: what keys and values come from: the context, or X.
        method: "exact", "tiled" or "one tile", whichever the layer's method comes to.
        appends: whether the tokens of X go behind earlier ones.
        cached_keys_values: those of a context that was seen before, or None.
        i, j: positions of queries and keys; None where they count from 0.
        rule: which keys the layer lets each query see, beside the mask; None if all.
        M: the mask as the scores got it; None if there was none.
    Raises:  as SelfAttention.
    """

    # What a call is that was given X alone, to a layer without options.
    appends = False
    cached_keys_values: Any = None
    i: Any = None
    j: Any = None
    rule: Any = None
    M: Any = None

    def __init__(
        self,
        layer: Any,
        X: Any,
        mask: Any,
        context: Any,
        positions: Any,
        cache: Any,
        return_weights: bool = False,
    ) -> None:
        self.layer, self.X, self.context, self.cache = layer, X, context, cache
        self.Y = keys_from(layer, X, context)  # (B, m, d_context)
        self.m = self.Y.shape[-2]
        if layer.causal or layer.window is not None:
            self.rule = rule_of(layer.causal, layer.window)
        if isinstance(mask, mask_rules.MaskRule):
            self.rule, mask = mask if self.rule is None else self.rule & mask, None
        elif mask is not None:
            check_mask(layer, X, self.Y, mask)
        self.given_mask = mask
        self.method = "exact" if layer.method == "exact" else self._method(return_weights)
        if positions is not None:
            self.i = np.asanyarray(positions)
        if cache is not None:
            self._use_cache(positions)
        self.j = self.i if context is None else None

    def _method(self, return_weights: bool) -> str:
        layer, n = self.layer, self.X.shape[-2]
        if return_weights and layer.method == "tiled":
            raise ArgumentError(
                f"{type(layer).__name__}: return_weights=True asks for weights that "
                'method="tiled" never holds; use "exact" or "auto"'
            )
        if return_weights or needs_scores(layer):
            return "exact"
        heads = prod(self.X.shape[:-2]) * layer.n_heads
        return mg.attention_method(heads, n, self.m, self.given_mask, layer.method)

    def _use_cache(self, positions: Any) -> None:
        if isinstance(self.cache, ContextCache):
            self.cached_keys_values = self.cache.made
            return
        if self.context is not None or positions is not None:
            raise ArgumentError(
                f"{type(self.layer).__name__}: a cache holds the tokens of X itself, and counts "
                "their positions; it goes with no context= and no positions="
            )
        self.appends, self.i = True, self.cache.next_positions(self.X.shape[-2])

    # ---------------------------------------------------------------- before the scores

    def apply_positions(self, Q: Any, K: Any, V: Any) -> tuple[Any, Any, Any]:
        """Q and K normed and turned by their positions; before K and V, the cached tokens'."""
        layer, made = self.layer, self.cached_keys_values is not None
        if layer.q_norm is not None:
            Q = layer.q_norm(Q).named("Q_norm")
            K = K if made else layer.k_norm(K).named("K_norm")
        if layer.position is not None and hasattr(layer.position, "rotate"):
            Q = named("Q_rot", layer.position.rotate(Q, self.i))
            K = K if made else named("K_rot", layer.position.rotate(K, self.j))
        if self.appends:
            K, V = self.cache.append(K, V)
            self.j = self.cache.columns()
        elif self.cache is not None and not made:
            self.cache.keep(K, V)
        if self.cache is not None and K.dtype != Q.dtype:
            kind = type(self.cache).__name__
            raise DTypeError(f"{kind}: it holds {K.dtype}, got {Q.dtype}; reset() it first")
        self.m = K.shape[-2]
        return Q, K, V

    def mask(self) -> Any:
        """The mask; with what the rule closes too, unless tiles take the rule as it is."""
        if self.given_mask is None and self.rule is None and not self.appends:
            return None
        given, seen = self.given_mask, self._seen()
        if self.layer.many_heads:
            given, seen = with_head_axis(given), with_head_axis(seen)
        self.M = with_visible(given, seen, recorded=True)  # (B, n, m) or (B, 1, n, m)
        X, M = self.X, self.M
        if M is not None and M.ndim == 2 and X.ndim == 3 and X.shape[0] == X.shape[1]:
            self.M = mg.expand_dims(M, 0)  # (1, n, m), which cannot be taken for (B, m)
        return self.M

    def _seen(self) -> Any:
        """What the rule lets be seen, as an array; None if all, or if tiles ask the rule itself."""
        if self.appends:
            if self.cache.at is not None:
                self.rule = None
                return self.cache.visible(self.layer.window)
            if self.cache.ragged:
                layer, self.rule = self.layer, None
                return visible(self.i, self.j, layer.causal, layer.window, self.cache.lengths)
            self.rule = self.rule and self.rule.shifted(int(self.i[0] - self.j[0]))
        queries, keys = slice(0, self.X.shape[-2]), slice(0, self.m)
        if self.rule is None or self.rule.within(queries, keys) is True:
            self.rule = None
        if self.rule is None or self.method != "exact":
            return None
        if not isinstance(self.X, mg.Tensor):  # imagined, to count what a pass costs
            return np.broadcast_to(np.True_, (queries.stop, keys.stop))
        return mark_constant(self.rule.entries(queries, keys), self.cache)

    def options(self, Q: Any, K: Any) -> dict[str, Any]:
        """What `attend` or `attend_in_tiles` takes beside Q, K, V and the mask, as far as used."""
        layer, found = self.layer, {}
        if layer.n_heads > layer.n_kv_heads:
            found["group"] = layer.n_heads // layer.n_kv_heads
        if layer.scale is not None:
            found["scale"] = layer.scale
        if self.method != "exact":
            return found | ({} if self.rule is None else {"rule": self.rule})
        if layer.position is not None or layer.softcap is not None:
            found["adjust"] = lambda S: self._adjusted(S, Q, K)
        if layer.position is not None or layer.drop is not None:
            found["mix"] = self._mixed
        return found

    def _adjusted(self, S: Any, Q: Any, K: Any) -> Any:
        """The scores with the position's bias, and capped."""
        layer, position = self.layer, self.layer.position
        if hasattr(position, "bias"):
            scale = 1 / sqrt(Q.shape[-1]) if layer.scale is None else layer.scale
            S = named("S_biased", biased(S, position.bias(Q, K, self.i, self.j, scale)))
        return named("S_capped", capped(S, layer.softcap)) if layer.softcap else S

    def _mixed(self, A: Any, V: Any) -> Any:
        """A V, where A may drop weights and the position add values of its own."""
        layer, position = self.layer, self.layer.position
        if layer.drop is not None and layer.training:
            A = named("A_dropped", layer.drop(A))
        O = named("O", mg.matmul(A, V))
        own = position.values(A, self.i, self.j) if hasattr(position, "values") else None
        return O if own is None else named("O_relative", biased(O, own))

    # ---------------------------------------------------------------- after it

    def keep(self, **found: Any) -> None:
        """Keep what the layer shows of this call, and name the steps derived by hand for it."""
        layer, A = self.layer, found["A"]
        layer.attention_weights = None if A is None else A.numpy()
        if layer.keep_intermediates or layer.kept_X is not None:
            for symbol, x in ({"X": self.X} | found | {"mask": self.M}).items():
                x = x.numpy() if isinstance(x, mg.Tensor) else x
                x = x if layer.keep_intermediates else None  # not those of an earlier forward
                if x is not None or getattr(layer, f"kept_{symbol}", None) is not None:
                    setattr(layer, f"kept_{symbol}", x)
        if self.context is None and self.cache is None and self._is_derived_by_hand():
            in_tiles = self.method != "exact"
            mg.expect_gradients(
                layer.steps,
                layer,
                X=self.X,
                mask=self.M,
                is_causal=layer.causal and in_tiles,
                window=layer.window if in_tiles else None,
                S_masked="S" if self.M is None else "S_masked",
                n_heads=layer.n_heads,
                n_kv_heads=layer.n_kv_heads,
            )

    def _is_derived_by_hand(self) -> bool:
        """Whether the hand-derived steps describe the layer, with the options that it has."""
        layer = self.layer
        if layer.scale is not None or layer.softcap is not None or layer.position is not None:
            return False
        if layer.q_norm is not None or (layer.drop is not None and layer.training):
            return False
        if any(isinstance(vars(layer).get(f"W_{s}"), Module) for s in "QKVO"):  # quantized, wrapped
            return False
        return self.method == "exact" or self.rule in (None, rule_of(layer.causal, layer.window))


def rule_of(causal: bool, window: int | None) -> mask_rules.MaskRule | None:
    """The rule of a layer's two settings."""
    near = None if window is None else mask_rules.Window(window)
    if not causal:
        return near
    return mask_rules.Causal() if near is None else mask_rules.Causal() & near


def keys_from(layer: Any, X: Any, context: Any) -> Any:
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


def check_mask(layer: Any, X: Any, Y: Any, mask: Any) -> None:
    """Raise ShapeError for a mask that could mean two things, or is a context out of its place."""
    call, shape, n, m = type(layer).__name__, np.shape(mask), X.shape[-2], Y.shape[-2]
    masks.check_meaning(f"{call}(X, mask)", mask, X.shape[:-2], n, m)
    if Y is X and len(shape) == X.ndim and shape[-1] == layer.d_context not in (1, m):
        raise ShapeError(
            f"{call}(X, mask): mask must broadcast to ({n}, {m}), got {shape}; a context goes by "
            f"keyword: {call}(X, context=...)"
        )


def check_input(layer: Any, call: str, name: str, X: Any, width: int) -> None:
    """Raise ShapeError unless X is a sequence of vectors of that width, or a batch of them."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) not in (2, 3) or shape[-1] != width:
        raise ShapeError(
            f"{type(layer).__name__}{call}: {name} must be (B, n, {width}) or (n, {width}), "
            f"got {shape}\n  {name}: {shape}   {getattr(X, 'path', '')}".rstrip()
        )

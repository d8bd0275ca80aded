"""One call of an attention layer: what it was given, and what that says beside the formula."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

import minigrad as mg
from minigrad import mask_rules
from minigrad.errors import ArgumentError, ShapeError

from .cache import ContextCache
from .mask import check_unambiguous, visible, with_head_axis, with_visible
from .options import needs_scores
from .position import mark_constant
from .scoring import named

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
    Raises:  as SelfAttention.
    """

    def __init__(
        self, layer: Any, X: Any, mask: Any, context: Any, positions: Any, cache: Any
    ) -> None:
        self.layer, self.X, self.context, self.cache = layer, X, context, cache
        self.heads = getattr(layer, "n_heads", None)
        self.Y = keys_from(layer, X, context)
        self.rule = rule_of(layer.causal, layer.window)
        self.given_mask = mask
        if isinstance(mask, mask_rules.MaskRule):
            self.rule, self.given_mask = mask if self.rule is None else self.rule & mask, None
        elif mask is not None:
            check_mask(layer, X, self.Y, mask)
        self.method = self._method()
        self.cached_keys_values = cache.made if isinstance(cache, ContextCache) else None
        self.i: Any = None if positions is None else np.asanyarray(positions)
        self.appends = cache is not None and not isinstance(cache, ContextCache)
        if self.appends:
            if context is not None or positions is not None:
                raise ArgumentError(
                    f"{type(layer).__name__}: a cache holds the tokens of X itself, and counts "
                    "their positions; it goes with no context= and no positions="
                )
            self.i = cache.next_positions(X.shape[-2])
        self.j: Any = self.i if context is None else None
        self.M: Any = None

    def _method(self) -> str:
        layer = self.layer
        if layer.method == "exact" or needs_scores(layer):
            return "exact"
        *lead, n, _ = self.X.shape
        heads, m = prod(lead) * (self.heads or 1), self.Y.shape[-2]
        return mg.attention_method(heads, n, m, self.given_mask, layer.method)

    # ---------------------------------------------------------------- before the scores

    def apply_positions(self, Q: Any, K: Any, V: Any) -> tuple[Any, Any, Any]:
        """Q and K normed and turned by their positions; before K and V, the cached tokens'."""
        layer, made = self.layer, self.cached_keys_values is not None
        if layer.q_norm is not None:
            Q = layer.q_norm(Q).named("Q_norm")
            K = K if made else layer.k_norm(K).named("K_norm")
        if hasattr(layer.position, "rotate"):
            Q = named("Q_rot", layer.position.rotate(Q, self.i))
            K = K if made else named("K_rot", layer.position.rotate(K, self.j))
        if self.appends:
            K, V = self.cache.append(K, V)
            self.j = np.arange(self.cache.start, len(self.cache))
        elif self.cache is not None and not made:
            self.cache.keep(K, V)
        self.m = K.shape[-2]
        return Q, K, V

    def mask(self) -> Any:
        """The mask; with what the rule closes too, unless tiles take the rule as it is."""
        given = self.given_mask if self.heads is None else with_head_axis(self.given_mask)
        seen = self._seen()
        seen = seen if self.heads is None else with_head_axis(seen)
        self.M = with_visible(given, seen, recorded=True)  # (B, n, m) or (B, 1, n, m)
        return self.M

    def _seen(self) -> Any:
        """What the rule lets be seen, as an array; None if all, or if tiles ask the rule itself."""
        if self.appends:
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

    def options(self) -> dict[str, Any]:
        """What `attend` or `attend_in_tiles` takes beside Q, K, V and the mask, as far as used."""
        layer, found = self.layer, {}
        if self.heads is not None and self.heads > layer.n_kv_heads:
            found["group"] = self.heads // layer.n_kv_heads
        if layer.scale is not None:
            found["scale"] = layer.scale
        if self.method != "exact":
            return found | ({} if self.rule is None else {"rule": self.rule})
        if layer.softcap is not None:
            found["softcap"] = layer.softcap
        if layer.drop is not None and layer.training:
            found["drop"] = layer.drop
        if hasattr(layer.position, "bias"):
            found["relative"] = Relative(layer.position, self.i, self.j)
        return found

    # ---------------------------------------------------------------- after it

    def expect_gradients(self, steps: Callable[..., Any], **sizes: int) -> None:
        """Name the hand-derived steps that the gradients must equal, where they describe it."""
        layer = self.layer
        plain = layer.scale is layer.softcap is layer.position is layer.q_norm is None
        alone = self.context is self.cache is None
        dropped = layer.drop is not None and layer.training
        in_tiles = self.method != "exact"
        other_rule = in_tiles and self.rule not in (None, rule_of(layer.causal, layer.window))
        if dropped or other_rule or not (plain and alone):
            return
        mg.expect_gradients(
            steps,
            layer,
            X=self.X,
            mask=self.M,
            is_causal=layer.causal and in_tiles,
            window=layer.window if in_tiles else None,
            S_masked="S" if self.M is None else "S_masked",
            **sizes,
        )


class Relative(NamedTuple):
    """A relative position, with the positions of this call's queries and keys."""

    position: Any
    i: Any
    j: Any

    def bias(self, Q: Any, K: Any, scale: float) -> Any:
        return self.position.bias(Q, K, self.i, self.j, scale)

    def values(self, A: Any) -> Any:
        own = hasattr(self.position, "values")
        return self.position.values(A, self.i, self.j) if own else None


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
    if X.ndim == 3:
        check_unambiguous(f"{call}(X, mask)", mask, X.shape[0], n, m)
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

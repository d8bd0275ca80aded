"""Steps of attention that several layers share: masks and caps of scores, tiles, and names."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

import minigrad as mg

from .heads import group_heads
from .mask import fit_mask

__all__ = ["attend_in_tiles", "beside", "biased", "capped", "masked", "named"]


def named(symbol: str, x: Any) -> Any:
    """The Tensor with its symbol; an array has no name."""
    return x.named(symbol) if isinstance(x, mg.Tensor) else x


def beside(x: Any, symbol: str, array: NDArray[Any]) -> Any:
    """An array that meets x in an op: beside a Tensor it has a symbol."""
    return mg.tensor(array, name=symbol) if isinstance(x, mg.Tensor) else array


def capped(S: Any, softcap: float) -> Any:
    """c tanh(S / c): like S near 0, never beyond ±c. Source: Gemma 2, arXiv:2408.00118."""
    return mg.scale(mg.tanh(mg.scale(S, 1 / softcap)), softcap)


def masked(S: Any, mask: Any) -> Any:
    """S + M, where the mask broadcasts to the scores."""
    return mg.mask_add(S, fit_mask(mask, S.shape, S))


def biased(S: Any, bias: Any) -> Any:
    """S + bias, in the dtype of S; a bias of one head for scores that have no axis of heads."""
    bias = bias if bias.dtype == S.dtype else mg.astype(bias, S.dtype)
    return mg.add(S, mg.squeeze(bias, 1) if bias.ndim > S.ndim else bias)


def attend_in_tiles(
    Q: Any,
    K: Any,
    V: Any,
    mask: Any = None,
    *,
    group: int = 1,
    scale: float | None = None,
    rule: Any = None,
) -> tuple[Any, None]:
    """softmax(Q Kᵀ / √d_k + M) V as one node, and no weights.

    Each key-value head serves `group` query heads, as a view, not a copy; the rule closes keys
    beside the mask.
    """
    shape = (*Q.shape[:-1], K.shape[-2])
    if mask is not None:
        mask = fit_mask(mask, shape)
    if group > 1:
        Q, K, V = group_heads(Q, group), mg.expand_dims(K, -3), mg.expand_dims(V, -3)
        mask = mask if mask is None or mask.ndim < 3 else group_heads(mask, group)
    O = mg.scaled_dot_product_attention(Q, K, V, mask, scale=scale, rule=rule, method="tiled")
    O = mg.reshape(O, (*shape[:-1], O.shape[-1])) if group > 1 else O
    return named("O", O), None

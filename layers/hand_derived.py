r"""The backward pass of attention, derived by hand: six steps for one head, seven for many.

This is the oracle. It is plain NumPy and knows nothing of the engine, so a gradient on which both
agree was found twice; only what a mask means is checked by `minigrad.masks`, as everywhere. Each
step is one function whose lines pair a formula with the code that evaluates it. ∂Y is short for
∂L/∂Y in docstrings; a product with Xᵀ also sums over the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from minigrad import masks

__all__ = ["Step", "multi_head_steps", "self_attention_steps"]

Array: TypeAlias = NDArray[Any]
Line: TypeAlias = tuple[
    str, str, Array | None
]  # symbol, LaTeX, gradient; None where there is no such input


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the backward pass: an equation, and the gradients that come back through it.

    `forward` is LaTeX; `formulas` maps each symbol to the LaTeX of its gradient's right-hand side;
    `gradients` has the same keys and holds the arrays, each of its symbol's own shape. `scale` is
    the size of the terms that may cancel in them, where they are larger: compared with it, a
    gradient that is zero but for rounding is recognised as such.

    >>> step = Step(1, "double", "Y = 2 X", {"X": r"2 \\bar Y"}, {"X": np.full(3, 2.0)})
    >>> step.gradients.keys() == step.formulas.keys()
    True
    """

    number: int
    title: str
    forward: str
    formulas: dict[str, str]
    gradients: dict[str, Array]
    scale: float = 0.0


def self_attention_steps(
    *,
    X: Array,
    W_Q: Array,
    W_K: Array,
    W_V: Array,
    W_O: Array | None = None,
    b_Q: Array | None = None,
    b_K: Array | None = None,
    b_V: Array | None = None,
    b_O: Array | None = None,
    mask: Array | None = None,
    is_causal: bool = False,
    window: int | None = None,
    grad_output: Array,
) -> list[Step]:
    r"""The six backward steps of single-head self-attention, from grad_output = ∂L/∂out to ∂L/∂X.

        out = softmax(Q Kᵀ / √d_k + M) V W_O + b_O,    Q = X W_Q + b_Q,  K, V alike

    Symbols: S_raw = Q Kᵀ, S = S_raw / √d_k, S_masked = S + M, A = softmax(S_masked), O = A V.
    Shapes:  X (B, n, d_model) or (n, d_model);  W_Q, W_K (d_model, d_k);  W_V (d_model, d_v);
             W_O (d_v, d_model), or None where out is O itself, and the first step is left out;
             mask broadcastable to (B, n, n), True = may attend, or 0 / −inf to be added;
             grad_output as out. Each gradient has the shape of its symbol.
    Options: is_causal closes every key after the query, on top of the mask; window every key that
             is `window` tokens away or more.
    Edge:    a row that may attend nowhere has A = 0 and zero gradients.
    Raises:  ValueError if X, grad_output or mask does not fit, or mask holds NaN or +inf;
             TypeError if mask is neither boolean nor float.
    Source:  Vaswani et al. 2017, section 3.2.1, arXiv:1706.03762, by the chain rule.

    >>> one = np.ones((1, 1))
    >>> steps = self_attention_steps(X=3 * one, W_Q=one, W_K=one, W_V=one, W_O=one, grad_output=one)
    >>> [step.title for step in steps]
    ['output projection', 'value weighting', 'softmax', 'mask and scale', 'scores', 'projections']
    >>> float(steps[0].gradients["W_O"][0, 0])    # one token attends to itself: O = V = 3
    3.0
    >>> steps[2].formulas["S_masked"].startswith(r"A \odot")
    True
    """
    d_out = W_V.shape[-1] if W_O is None else W_O.shape[-1]
    _check("self_attention_steps", X, mask, d_out, grad_output)
    Q = _linear(X, W_Q, b_Q)
    K = _linear(X, W_K, b_K)
    V = _linear(X, W_V, b_V)  # (B, n, d_k or d_v)
    A = _attention_weights(Q, K, mask, is_causal, window)  # (B, n, n)

    steps = []
    grad_O = grad_output
    if W_O is not None:
        steps = [_through_output_projection("O", A @ V, W_O, b_O, grad_output)]
        grad_O = steps[0].gradients["O"]
    k = len(steps)
    values = _through_value_weighting(k + 1, A, V, grad_O)
    softmax = _through_softmax(k + 2, A, values.gradients["A"])
    scale = _through_mask_and_scale(k + 3, Q.shape[-1], softmax.gradients["S_masked"])
    scores = _through_scores(k + 4, Q, K, scale.gradients["S_raw"])
    grads = scores.gradients | {"V": values.gradients["V"]}  # of Q, K and V
    projections = _through_projections(k + 5, X, (W_Q, W_K, W_V), (b_Q, b_K, b_V), grads)
    return [*steps, values, softmax, scale, scores, projections]


def multi_head_steps(
    *,
    n_heads: int,
    n_kv_heads: int | None = None,
    X: Array,
    W_Q: Array,
    W_K: Array,
    W_V: Array,
    W_O: Array,
    b_Q: Array | None = None,
    b_K: Array | None = None,
    b_V: Array | None = None,
    b_O: Array | None = None,
    mask: Array | None = None,
    is_causal: bool = False,
    window: int | None = None,
    grad_output: Array,
) -> list[Step]:
    r"""The seven backward steps of multi-head attention, from grad_output = ∂L/∂out to ∂L/∂X.

        out = C W_O + b_O,    C = merge(O),    O = softmax(Q Kᵀ / √d_k + M) V  in each head,
        Q = split(Q_flat),    Q_flat = X W_Q + b_Q,    K, V alike

    Key-value head j serves the h / n_kv_heads query heads from j · h / n_kv_heads on, and its
    gradient is the sum over them. The first axis of a 3-D mask is the batch, so a head axis is
    inserted: (B, 1, L, L); a 4-D mask is taken as it is.

    Shapes:  X (B, L, d_model) or (L, d_model);  W_Q (d_model, h d_k);  W_O (h d_v, d_model);
             W_K (d_model, n_kv_heads d_k);  W_V (d_model, n_kv_heads d_v);  Q, K, V, O (B, heads,
             L, d);  A, S (B, h, L, L);  C (B, L, h d_v);  an unbatched X has no B anywhere.
    Raises:  as `self_attention_steps`; ValueError too if the heads do not divide what they split.
    Source:  Vaswani et al. 2017, section 3.2.2, arXiv:1706.03762; groups: Ainslie et al. 2023,
             arXiv:2305.13245.

    >>> eye, X = np.eye(4), np.zeros((1, 3, 4))
    >>> steps = multi_head_steps(n_heads=2, X=X, W_Q=eye, W_K=eye, W_V=eye, W_O=eye, grad_output=X)
    >>> for step in steps[:3]:
    ...     print(step.number, step.title, {k: g.shape for k, g in step.gradients.items()})
    1 output projection {'C': (1, 3, 4), 'W_O': (4, 4)}
    2 head merge {'O': (1, 2, 3, 2)}
    3 value weighting {'A': (1, 2, 3, 3), 'V': (1, 2, 3, 2)}
    """
    kv_heads = n_heads if n_kv_heads is None else n_kv_heads
    _check("multi_head_steps", X, mask, W_O.shape[-1], grad_output)
    _check_heads(n_heads, kv_heads, W_Q, W_K, W_V)
    Q = _split_heads(_linear(X, W_Q, b_Q), n_heads)  # (B, h, L, d_k)
    K = _split_heads(_linear(X, W_K, b_K), kv_heads)  # (B, n_kv_heads, L, d_k)
    V = _split_heads(_linear(X, W_V, b_V), kv_heads)  # (B, n_kv_heads, L, d_v)
    group = n_heads // kv_heads
    mask = _with_head_axis(mask)
    A = _attention_weights(Q, _repeat(K, group), mask, is_causal, window)  # (B, h, L, L)
    C = _merge_heads(A @ _repeat(V, group))  # (B, L, h d_v)

    one = _through_output_projection("C", C, W_O, b_O, grad_output)
    two = _through_head_merge(2, n_heads, one.gradients["C"])
    three = _through_value_weighting(3, A, V, two.gradients["O"], group)
    four = _through_softmax(4, A, three.gradients["A"])
    five = _through_scaling_and_scores(5, Q, K, four.gradients["S_masked"], group)
    six = _through_head_split(6, five.gradients["Q"], five.gradients["K"], three.gradients["V"])
    seven = _through_projections(7, X, (W_Q, W_K, W_V), (b_Q, b_K, b_V), six.gradients)
    return [one, two, three, four, five, six, seven]


# --- backward, one function a step -------------------------------------------------------------


def _through_output_projection(z: str, Z: Array, W_O: Array, b_O: Array | None, g: Array) -> Step:
    """out = Z W_O + b_O:    ∂Z = ∂out W_Oᵀ,    ∂W_O = Zᵀ ∂out,    ∂b_O = Σ ∂out.

    Z is O for one head, and C, the merged heads, for many; z is its symbol and g is ∂out.
    """
    return step_of(
        1,
        "output projection",
        rf"\mathrm{{out}} = {z} W_O" + ("" if b_O is None else " + b_O"),
        (z, rf"{_d('out')} W_O^\top", g @ W_O.T),
        ("W_O", rf"{z}^\top {_d('out')}", _rows(Z).T @ _rows(g)),
        ("b_O", rf"\sum_{{b,i}} {_d('out')}", None if b_O is None else _rows(g).sum(axis=0)),
    )


def _through_head_merge(number: int, n_heads: int, grad_C: Array) -> Step:
    """C = merge(O):    ∂O = split(∂C). A rearrangement goes back by the inverse rearrangement."""
    return step_of(
        number,
        "head merge",
        r"C = \operatorname{merge}\left(O\right)",
        ("O", rf"\operatorname{{split}}\left({_d('C')}\right)", _split_heads(grad_C, n_heads)),
    )


def _through_value_weighting(
    number: int, A: Array, V: Array, grad_O: Array, group: int = 1
) -> Step:
    """O = A V:    ∂A = ∂O Vᵀ,    ∂V = Aᵀ ∂O. A value head shared by a group sums over the group."""
    sum_, values = _group_tex("V", group)
    return step_of(
        number,
        "value weighting",
        f"O = A {values}",
        ("A", rf"{_d('O')} {values}^\top", grad_O @ _mT(_repeat(V, group))),
        ("V", rf"{sum_}A^\top {_d('O')}", _sum_group(_mT(A) @ grad_O, group)),
    )


def _through_softmax(number: int, A: Array, grad_A: Array) -> Step:
    """A = softmax(S_masked):    ∂S_masked = A ⊙ (∂A − rowsum(∂A ⊙ A)).

    From ∂A_ij / ∂S_ik = A_ij (δ_jk − A_ik). Where the mask forbids, A = 0, and so is the gradient.
    """
    rowsum = (grad_A * A).sum(axis=-1, keepdims=True)
    rowsum_tex = rf"\operatorname{{rowsum}}\left({_d('A')} \odot A\right)"
    return step_of(
        number,
        "softmax",
        rf"A = \operatorname{{softmax}}\left({_tex('S_masked')}\right)",
        ("S_masked", rf"A \odot \left({_d('A')} - {rowsum_tex}\right)", A * (grad_A - rowsum)),
    )


def _through_mask_and_scale(number: int, d_k: int, grad_S_masked: Array) -> Step:
    """S_masked = S + M,  S = S_raw / √d_k:    ∂S = ∂S_masked,    ∂S_raw = ∂S / √d_k."""
    return step_of(
        number,
        "mask and scale",
        rf"{_tex('S_masked')} = S + M, \quad S = \frac{{{_tex('S_raw')}}}{{\sqrt{{d_k}}}}",
        ("S", _d("S_masked"), grad_S_masked),
        ("S_raw", rf"\frac{{1}}{{\sqrt{{d_k}}}} {_d('S')}", grad_S_masked / math.sqrt(d_k)),
    )


def _through_scores(number: int, Q: Array, K: Array, grad_S_raw: Array, group: int = 1) -> Step:
    """S_raw = Q Kᵀ:    ∂Q = ∂S_raw K,    ∂K = (∂S_raw)ᵀ Q. A shared head sums over its group."""
    sum_, keys = _group_tex("K", group)
    return step_of(
        number,
        "scores",
        rf"{_tex('S_raw')} = Q {keys}^\top",
        ("Q", f"{_d('S_raw')} {keys}", grad_S_raw @ _repeat(K, group)),
        (
            "K",
            rf"{sum_}\left({_d('S_raw')}\right)^\top Q",
            _sum_group(_mT(grad_S_raw) @ Q, group),
        ),
    )


def _through_scaling_and_scores(
    number: int, Q: Array, K: Array, grad_S_masked: Array, group: int
) -> Step:
    """The two steps above in one, as the derivation for many heads has it."""
    scale = _through_mask_and_scale(number, Q.shape[-1], grad_S_masked)
    scores = _through_scores(number, Q, K, scale.gradients["S_raw"], group)
    return Step(
        number,
        "scaling and scores",
        rf"{scale.forward}, \quad {scores.forward}",
        scale.formulas | scores.formulas,
        scale.gradients | scores.gradients,
    )


def _through_head_split(number: int, grad_Q: Array, grad_K: Array, grad_V: Array) -> Step:
    """Q = split(Q_flat):    ∂Q_flat = merge(∂Q);  K and V alike."""
    return step_of(
        number,
        "head split",
        r", \quad ".join(
            rf"{y} = \operatorname{{split}}\left({_tex(y + '_flat')}\right)" for y in "QKV"
        ),
        ("Q_flat", rf"\operatorname{{merge}}\left({_d('Q')}\right)", _merge_heads(grad_Q)),
        ("K_flat", rf"\operatorname{{merge}}\left({_d('K')}\right)", _merge_heads(grad_K)),
        ("V_flat", rf"\operatorname{{merge}}\left({_d('V')}\right)", _merge_heads(grad_V)),
    )


def _through_projections(
    number: int,
    X: Array,
    weights: tuple[Array, Array, Array],
    biases: tuple[Array | None, Array | None, Array | None],
    grads: dict[str, Array],
) -> Step:
    """Q = X W_Q + b_Q:    ∂W_Q = Xᵀ ∂Q,    ∂b_Q = Σ ∂Q;  K and V alike.

    X is used three times, so  ∂X = ∂Q W_Qᵀ + ∂K W_Kᵀ + ∂V W_Vᵀ.
    """
    W_Q, W_K, W_V = weights
    grad_Q, grad_K, grad_V = grads.values()
    triples = list(zip("QKV", grads, biases, strict=True))  # ("Q", "Q" or "Q_flat", b_Q), ...
    return step_of(
        number,
        "projections",
        r", \quad ".join(
            f"{_tex(y)} = X W_{p}" + ("" if b is None else f" + b_{p}") for p, y, b in triples
        ),
        *((f"W_{p}", rf"X^\top {_d(y)}", _rows(X).T @ _rows(grads[y])) for p, y, _ in triples),
        *(
            (f"b_{p}", rf"\sum_{{b,i}} {_d(y)}", None if b is None else _rows(grads[y]).sum(axis=0))
            for p, y, b in triples
        ),
        (
            "X",
            " + ".join(rf"{_d(y)} W_{p}^\top" for p, y, _ in triples),
            grad_Q @ W_Q.T + grad_K @ W_K.T + grad_V @ W_V.T,
        ),
    )


# --- forward -----------------------------------------------------------------------------------


def _linear(X: Array, W: Array, b: Array | None) -> Array:
    return X @ W if b is None else X @ W + b


def _attention_weights(
    Q: Array, K: Array, mask: Array | None, is_causal: bool, window: int | None
) -> Array:
    """A = softmax(Q Kᵀ / √d_k + M)."""
    S = _masked(Q @ _mT(K) / math.sqrt(Q.shape[-1]), mask)
    back = np.subtract.outer(np.arange(S.shape[-2]), np.arange(S.shape[-1]))  # i − j
    S = _masked(S, back >= 0) if is_causal else S
    return _softmax(S if window is None else _masked(S, abs(back) < window))


def _softmax(S: Array) -> Array:
    """Each row's maximum is subtracted first, so exp cannot overflow; a row of −inf gives zeros."""
    row_max = S.max(axis=-1, keepdims=True, initial=-np.inf)
    E = np.exp(S - np.where(np.isneginf(row_max), 0.0, row_max))
    row_sum = E.sum(axis=-1, keepdims=True)
    return E / np.where(row_sum == 0, 1.0, row_sum)


def _masked(S: Array, mask: Array | None) -> Array:
    """S + M, where a boolean mask stands for M = 0 where True and −inf where False."""
    if mask is None:
        return S
    mask = _fitted(np.asarray(mask), S.shape)
    if mask.dtype == np.bool_:
        return np.where(mask, S, -np.inf)
    with np.errstate(over="ignore"):  # −1e9 is −inf to float16, and means it
        return S + mask.astype(S.dtype)


def _split_heads(x: Array, heads: int) -> Array:
    """(B, L, heads · d) → (B, heads, L, d)."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(-3, -2)


def _merge_heads(x: Array) -> Array:
    """(B, heads, L, d) → (B, L, heads · d)."""
    x = x.swapaxes(-3, -2)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def _repeat(x: Array, group: int) -> Array:
    """Each key-value head once for every query head of its group, in order."""
    return x if group == 1 else np.repeat(x, group, axis=-3)


def _sum_group(g: Array, group: int) -> Array:
    """The transpose of `_repeat`: (B, heads · group, L, d) → (B, heads, L, d)."""
    if group == 1:
        return g
    by_group = g.reshape(*g.shape[:-3], g.shape[-3] // group, group, *g.shape[-2:])
    return by_group.sum(axis=-3)


def _with_head_axis(mask: Array | None) -> Array | None:
    """(B, L, L) → (B, 1, L, L); other masks as they are."""
    return mask if mask is None or np.ndim(mask) != 3 else np.expand_dims(mask, axis=1)


def _mT(x: Array) -> Array:
    return x.swapaxes(-1, -2)


def _rows(x: Array) -> Array:
    """(B, n, d) → (B · n, d), so that a product of two also sums over the batch."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


# --- writing down ------------------------------------------------------------------------------


def step_of(number: int, title: str, forward: str, *lines: Line, scale: float = 0.0) -> Step:
    """A Step from its lines, each gradient an array of its own; absent biases are left out."""
    present = [(symbol, tex, np.array(g)) for symbol, tex, g in lines if g is not None]
    formulas = {symbol: tex for symbol, tex, _ in present}
    return Step(number, title, forward, formulas, {symbol: g for symbol, _, g in present}, scale)


def _tex(symbol: str) -> str:
    base, _, sub = symbol.partition("_")
    if symbol == "out":
        return r"\mathrm{out}"
    return rf"{base}_{{\mathrm{{{sub}}}}}" if sub.islower() else symbol


def _d(symbol: str) -> str:
    return rf"\frac{{\partial L}}{{\partial {_tex(symbol)}}}"


def _group_tex(symbol: str, group: int) -> tuple[str, str]:
    r"""What a grouped gradient begins with, and the repeated head; ("", "V") if none is shared."""
    if group == 1:
        return "", symbol
    return r"\sum_{\mathrm{group}} ", rf"\operatorname{{repeat}}\left({symbol}\right)"


# --- refusing ----------------------------------------------------------------------------------


def _check(call: str, X: Array, mask: Array | None, d_out: int, grad_output: Array) -> None:
    if X.ndim not in (2, 3):
        raise ValueError(f"{call}: X must be (B, n, d_model) or (n, d_model), got shape {X.shape}")
    expected = (*X.shape[:-1], d_out)
    if grad_output.shape != expected:
        raise ValueError(
            f"{call}: grad_output must have the output's shape {expected}, got {grad_output.shape}"
        )
    n = X.shape[-2]
    masks.check_meaning(call, mask, X.shape[:-2], n, n)


def _check_heads(n_heads: int, kv_heads: int, W_Q: Array, W_K: Array, W_V: Array) -> None:
    rules = [
        ("n_kv_heads must divide n_heads", n_heads, kv_heads),
        ("n_heads must divide W_Q's columns", W_Q.shape[-1], n_heads),
        ("n_kv_heads must divide W_K's columns", W_K.shape[-1], kv_heads),
        ("n_kv_heads must divide W_V's columns", W_V.shape[-1], kv_heads),
    ]
    for rule, whole, parts in rules:
        if parts < 1 or whole % parts:
            raise ValueError(f"multi_head_steps: {rule}, got {whole} and {parts}")


def _fitted(mask: Array, shape: tuple[int, ...]) -> Array:
    """The mask broadcast to the scores; leading axes of size 1 that the scores lack are dropped."""
    if mask.dtype != np.bool_ and not np.issubdtype(mask.dtype, np.floating):
        raise TypeError(
            f"mask must be boolean (True = may attend) or float (0 / -inf), got {mask.dtype}"
        )
    if mask.dtype != np.bool_ and not (mask < np.inf).all():
        raise ValueError("mask holds NaN or +inf, use 0 and -inf; 0 * -inf, for one, is NaN")
    while mask.ndim > len(shape) and mask.shape[0] == 1:
        mask = mask[0]
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(f"mask must broadcast to the scores {shape}, got {mask.shape}") from None

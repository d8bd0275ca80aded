"""Attention in NumPy alone, backward written out: as the texts teach it, and as fast as it goes.

`naive` is the plain algebra with fresh arrays; in float64 it is the reference every answer is held
against. `best` is the yardstick of every ratio: the same algebra in as few passes over as few
arrays as we know how, without leaving whole matrices for tiles or one thread for several.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from .cases import Attention, Inputs

__all__ = ["Step", "best", "core", "naive"]

Step = Callable[[], dict[str, Any]]


def naive(case: Attention, inputs: Inputs) -> Step:
    """softmax(Q Kᵀ / √d_k + mask) V W_O and its seven steps back, one line a formula."""
    p, G, mask = inputs.leaves, inputs.given["G"], inputs.given["mask"]
    B, n, h, d = case.B, case.n, case.heads, case.d_k
    c = p["X"].dtype.type(sqrt(d))

    def split(M: Any) -> Any:
        return M.reshape(B, n, h, d).swapaxes(1, 2)  # (B, h, n, d_k)

    def merge(M: Any) -> Any:
        return M.swapaxes(1, 2).reshape(B, n, h * d)  # (B, n, h·d_k)

    def affine(M: Any, symbol: str) -> Any:
        out = M @ p[f"W_{symbol}"]
        return out + p[f"b_{symbol}"] if case.bias else out

    def step() -> dict[str, Any]:
        X = p["X"]
        Q, K, V = (split(affine(X, symbol)) for symbol in "QKV")
        S = Q @ K.mT / c + mask  # (B, h, n, n)
        E = np.exp(S - S.max(axis=-1, keepdims=True))
        A = E / E.sum(axis=-1, keepdims=True)
        C = merge(A @ V)
        out = affine(C, "O")

        d_O = split(G @ p["W_O"].T)
        d_A = d_O @ V.mT
        d_S = A * (d_A - (d_A * A).sum(axis=-1, keepdims=True)) / c
        d = {"Q": merge(d_S @ K), "K": merge(d_S.mT @ Q), "V": merge(A.mT @ d_O)}
        answer = {"out": out, "d_W_O": np.einsum("bnk,bnm->km", C, G)}
        for symbol, g in d.items():
            answer[f"d_W_{symbol}"] = np.einsum("bnm,bnk->mk", X, g)
        answer["d_X"] = sum(g @ p[f"W_{symbol}"].T for symbol, g in d.items())
        if case.bias:
            for symbol, g in (d | {"O": G}).items():
                answer[f"d_b_{symbol}"] = g.sum(axis=(0, 1))
        return answer

    return step


def best(case: Attention, inputs: Inputs) -> Step:
    """The same, with W_Q, W_K and W_V side by side and every array allocated beforehand."""
    p, given = inputs.leaves, inputs.given
    N, w, m, dtype = case.B * case.n, case.width, case.d_model, p["X"].dtype
    X, G = p["X"].reshape(N, m), given["G"].reshape(N, m)
    W = np.concatenate([p["W_Q"], p["W_K"], p["W_V"]], axis=1)
    QKV, d_QKV, C, d_C, out, d_X = (np.empty((N, k), dtype) for k in (3 * w, 3 * w, w, w, m, m))
    d_W, d_W_O = np.empty((m, 3 * w), dtype), np.empty((w, m), dtype)
    answer = {"out": out.reshape(given["G"].shape), "d_X": d_X.reshape(given["G"].shape)}
    answer |= {"d_W_O": d_W_O} | {
        f"d_W_{symbol}": d_W[:, i * w : (i + 1) * w] for i, symbol in enumerate("QKV")
    }
    bias = case.bias
    if bias:
        b, b_O = np.concatenate([p["b_Q"], p["b_K"], p["b_V"]]), p["b_O"]
        d_b, d_b_O = np.empty(3 * w, dtype), np.empty(m, dtype)
        answer |= {"d_b_O": d_b_O} | {
            f"d_b_{symbol}": d_b[i * w : (i + 1) * w] for i, symbol in enumerate("QKV")
        }
    attend, attend_back = core(QKV, C, d_C, d_QKV, given["mask"], case.B, case.n, case.heads)
    W_O, W_T, W_O_T, X_T, C_T = p["W_O"], W.T, p["W_O"].T, X.T, C.T
    dot, add = np.dot, np.add
    total: Any = np.add.reduce  # its stubs know no positional `out`

    def step() -> dict[str, Any]:
        dot(X, W, QKV)
        if bias:
            add(QKV, b, QKV)
        attend()
        dot(C, W_O, out)
        if bias:
            add(out, b_O, out)
            total(G, 0, None, d_b_O)
        dot(C_T, G, d_W_O)
        dot(G, W_O_T, d_C)
        attend_back()
        if bias:
            total(d_QKV, 0, None, d_b)
        dot(X_T, d_QKV, d_W)
        dot(d_QKV, W_T, d_X)
        return answer

    return step


def core(
    QKV: Any, C: Any, d_C: Any, d_QKV: Any, mask: Any, B: int, n: int, h: int
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Attention between [Q K V] and C, the heads side by side, forward and back, in place.

    Two things spare passes over (n, n): E = exp(S - max) stays unnormalised, for dividing C by its
    row sums does the same; and rowsum(d_A ⊙ A) is rowsum(d_C ⊙ C).
    """
    d, dtype = C.shape[1] // h, C.dtype
    is_single = B * h == 1  # two axes are faster than four

    def heads(M: Any, i: int, of: int) -> Any:
        if is_single:
            return M[:, i * d : (i + 1) * d]
        return M.reshape(B, n, of, h, d)[:, :, i].swapaxes(1, 2)  # (B, h, n, d)

    (Q, K, V), (d_Q, d_K, d_V) = ([heads(M, i, 3) for i in range(3)] for M in (QKV, d_QKV))
    O, d_O = heads(C, 0, 1), heads(d_C, 0, 1)
    batch = () if is_single else (B, h)
    E, d_S = np.empty((*batch, n, n), dtype), np.empty((*batch, n, n), dtype)
    top, sums = np.empty((*batch, n, 1), dtype), np.empty((*batch, n, 1), dtype)
    T = np.empty((*batch, n, d), dtype)
    K_T, V_T, E_T, d_S_T = K.mT, V.mT, E.mT, d_S.mT
    c = dtype.type(1 / sqrt(d))
    multiply, add, subtract, divide = np.multiply, np.add, np.subtract, np.divide
    exp, matmul = np.exp, np.matmul
    largest: Any = np.maximum.reduce
    total: Any = np.add.reduce
    # np.dot is called faster than np.matmul; it wants its result in one piece
    square = np.dot if is_single and n <= 64 else matmul

    def forward() -> None:
        multiply(Q, c, Q)
        square(Q, K_T, out=E)
        add(E, mask, E)
        largest(E, -1, None, top, True)
        subtract(E, top, E)
        exp(E, E)
        total(E, -1, None, sums, True)
        matmul(E, V, out=O) if not whole else square(E, V, out=O)
        divide(O, sums, O)

    def backward() -> None:
        divide(d_O, sums, d_O)
        multiply(d_O, O, T)
        total(T, -1, None, top, True)
        matmul(E_T, d_O, out=d_V)
        square(d_O, V_T, out=d_S)
        subtract(d_S, top, d_S)
        multiply(d_S, E, d_S)
        matmul(d_S, K, out=d_Q)
        multiply(d_Q, c, d_Q)
        matmul(d_S_T, Q, out=d_K)  # Q is scaled already

    whole = O.flags.c_contiguous
    return forward, backward

"""Attention with every option, written out in NumPy: what each layer of it is held against."""

import numpy as np

import layers as L


def attention(layer, X, mask=None, context=None, at=None):
    """The output of an attention layer for arrays: X (B, n, d), a mask (B, n, m) or positions."""
    W = {name: p.numpy() for name, p in layer.named_parameters()}
    Y, h, position = X if context is None else context, layer.n_heads, layer.position
    scale = layer.d_k**-0.5 if layer.scale is None else layer.scale

    def project(s, x, heads):
        x = x @ W[f"W_{s}"] + W.get(f"b_{s}", 0)  # (B, n, heads · d)
        x = x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
        return np.repeat(x, h // heads, axis=1)  # (B, h, n, d)

    Q = project("Q", X, h)
    K, V = (project(s, Y, layer.n_kv_heads) for s in "KV")
    if layer.q_norm is not None:
        Q, K = normed(Q, layer.q_norm), normed(K, layer.k_norm)
    i = np.broadcast_to(np.arange(X.shape[1]) if at is None else at, X.shape[:2])
    j = i if context is None else np.broadcast_to(np.arange(Y.shape[1]), Y.shape[:2])
    if isinstance(position, L.Rotary):
        Q, K = turned(Q, i, position), turned(K, j, position)
    to = j[:, None, None, :] - i[:, None, :, None]  # (B, 1, n, m)
    S = scale * (Q @ K.mT) + bias(position, to, Q, K, scale)
    if layer.softcap is not None:
        S = layer.softcap * np.tanh(S / layer.softcap)
    back = np.subtract.outer(np.arange(S.shape[-2]), np.arange(S.shape[-1]))
    hidden = ((back < 0) & layer.causal) | (abs(back) >= (layer.window or np.inf))
    if mask is not None:
        hidden = hidden | ~mask[:, None]
    E = np.where(hidden, 0.0, np.exp(S - S.max(axis=-1, keepdims=True)))
    A = E / np.maximum(E.sum(axis=-1, keepdims=True), 1e-300)
    O = A @ V
    if isinstance(position, L.RelativePosition) and position.a_V is not None:
        O = O + np.einsum("bhij,bijd->bhid", A, clipped(position.a_V, position, to))
    C = O.swapaxes(1, 2).reshape(*X.shape[:2], -1)
    return C @ W["W_O"] + W.get("b_O", 0) if "W_O" in W else C


def normed(x, norm):
    if isinstance(norm, L.LayerNorm):
        x = x - x.mean(axis=-1, keepdims=True)
    weight = norm.weight.numpy() + getattr(norm, "plus_one", False)
    bias = 0 if isinstance(norm, L.RMSNorm) else norm.bias.numpy()
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + norm.eps) * weight + bias


def turned(x, at, rotary):
    """Each pair of entries as a complex number, multiplied by e^{iθp}."""
    r = rotary.d
    theta = rotary.base ** (-np.arange(0, r, 2) / r)
    half = rotary.pairing == "half"
    first = slice(0, r // 2) if half else slice(0, r, 2)
    second = slice(r // 2, r) if half else slice(1, r, 2)
    z = (x[..., first] + 1j * x[..., second]) * np.exp(1j * at[:, None, :, None] * theta)
    out = x.copy()
    out[..., first], out[..., second] = z.real, z.imag
    return out


def bias(position, to, Q, K, scale):
    """What a position adds to the scores."""
    if isinstance(position, L.T5Bias):
        buckets = L.t5_bucket(
            to[:, 0], position.n_buckets, position.max_distance, position.bidirectional
        )
        return np.moveaxis(position.table.numpy()[buckets], -1, 1)
    if isinstance(position, L.ALiBi):
        return -L.alibi_slopes(position.n_heads)[:, None, None] * abs(to)
    if isinstance(position, L.RelativePosition):
        return scale * np.einsum("bhid,bijd->bhij", Q, clipped(position.a_K, position, to))
    if isinstance(position, L.TransformerXLPosition):
        u, v, W_R = (getattr(position, name).numpy() for name in ("u", "v", "W_R"))
        PE = L.sinusoidal_encoding(-to[:, 0], len(W_R), interleaved=False)
        R = (PE @ W_R).reshape(*PE.shape[:-1], *u[:, 0].shape)  # (B, n, m, h, d)
        own = np.einsum("bhid,bijhd->bhij", Q + v, R)
        return scale * (own + np.einsum("hxd,bhjd->bhxj", u, K))
    return 0.0


def clipped(vectors, position, to):
    k = position.max_distance
    return vectors.numpy()[np.clip(to[:, 0], -k, k) + k]

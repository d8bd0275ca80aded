"""Caches of decoding: keys and values, or their sums, so that each token is computed once.

They are constant: decode within `mg.no_grad()`. Keys that require a gradient raise a GradientError,
a batch of another size a ShapeError.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, GradientError, ShapeError, explained

from .arrays import Array

__all__ = ["ContextCache", "KVCache", "KernelState"]


class ContextCache:
    """Keys and values of a context, made at the first call of a cross-attention and used again.

    Pass it as `cache=` beside `context=`. It belongs to one layer, and to one context: `of` empties
    it when another array is given. After writing into the same array, `reset()` it.

    Attributes: made: keys (..., m, d_k) and values (..., m, d_v); None before the first call.

    >>> from layers import MultiHeadAttention
    >>> layer, cache = MultiHeadAttention(6, n_heads=3, rng=0), ContextCache()
    >>> with mg.no_grad():
    ...     for _ in range(2):
    ...         out = layer(np.ones((1, 1, 6)), context=np.ones((1, 5, 6)), cache=cache)
    >>> cache.made[0].shape
    (1, 3, 5, 2)
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the context."""
        self.made: tuple[NDArray[Any], NDArray[Any]] | None = None
        self._context: Array | None = None

    def of(self, context: Array) -> ContextCache:
        """This cache, emptied first if it is of another array."""
        if context is not self._context:
            self.reset()
            self._context = context
        return self

    @explained
    def keep(self, K: Array, V: Array) -> None:
        """Keep a context's keys and values."""
        K, V = _constant("ContextCache", K, V)
        self.made = K, V


class KVCache:
    """Keys and values of one attention layer: pass it as `cache=` and only new tokens as X.

    The store doubles when it is full, so a token costs a constant number of copies. Token t of
    every row is kept at column t; a row may be shorter than another (after `crop`), and its next
    token then goes to its own end.

    Args:
        window: how many of the last tokens a query sees, itself included; earlier ones are let go.
            It must be the layer's own window; a layer that sees more refuses it. None keeps all.
        max_len: the store has so many columns from the first token on, and no more; a window then
            lets go of nothing.
    Attributes:
        at: None; or, with max_len, and after a prompt and `crop`, where each row's next token
            stands, (B, 1): then calls of one token each have the same shapes, so that `mg.compile`
            compiles one for all, and who calls counts `lengths`. `generate` does so.
        lengths: how many tokens each row has had, (B,); None before the first.
        keys, values: what is kept, (..., m, d_k) and (..., m, d_v).
        start: the position of their first token; 0 unless a window has let go of some.
        of_context: keys and values of what a DecoderBlock's cross-attention looks at.

    >>> from layers import MultiHeadAttention
    >>> layer, cache = MultiHeadAttention(6, n_heads=3, is_causal=True, rng=0), KVCache()
    >>> X = np.random.default_rng(0).normal(size=(1, 5, 6))
    >>> with mg.no_grad():
    ...     steps = [layer(X[:, t : t + 1], cache=cache).numpy() for t in range(5)]
    >>> bool(np.allclose(np.concatenate(steps, axis=1), layer(X).numpy())), len(cache)
    (True, 5)
    """

    at: Any = None

    @explained
    def __init__(self, window: int | None = None, max_len: int | None = None) -> None:
        for name, value in (("window", window), ("max_len", max_len)):
            if value is not None and index(value) < 1:
                raise ArgumentError(f"KVCache: {name} must be at least 1, got {value}")
        self.window, self.max_len = window, max_len
        self.of_context = ContextCache()
        self.reset()

    def reset(self) -> None:
        """Forget every token, and give the store back."""
        self.lengths: NDArray[np.intp] | None = None
        self.start = self._begin = 0  # position of the first kept token, and its column
        self._stores: list[NDArray[Any]] = []
        self._leaves: list[mg.Tensor] = []
        self.of_context.reset()

    def __len__(self) -> int:
        """How many tokens the longest row has had."""
        return 0 if self.lengths is None else int(self.lengths.max(initial=0))

    @property
    def keys(self) -> NDArray[Any]:
        return self._filled(0)

    @property
    def values(self) -> NDArray[Any]:
        return self._filled(1)

    @property
    def capacity(self) -> int:
        """How many columns the store has."""
        return self._stores[0].shape[-2] if self._stores else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values that are kept; the store may be up to twice that."""
        return self.keys.nbytes + self.values.nbytes if self._stores else 0

    @property
    def ragged(self) -> bool:
        """Whether rows differ in length."""
        return self.lengths is not None and bool((self.lengths != len(self)).any())

    def next_positions(self, n: int) -> NDArray[np.intp]:
        """Where the next n tokens stand: (n,), or (B, n) if rows differ in length."""
        if self.at is not None:
            return np.asanyarray(self.at)
        if self.lengths is None or not self.ragged:
            return np.arange(len(self), len(self) + n)
        return self.lengths[:, None] + np.arange(n)

    @explained
    def append(self, K: Array, V: Array) -> tuple[Array, Array]:
        """Keep the next tokens' keys and values; returns all that their queries may need.

        Shapes: K (..., n, d_k), V (..., n, d_v) → (..., m, d_k), (..., m, d_v)
        """
        if self.at is not None:
            return self._put(K, V)
        new = _constant("KVCache", K, V)
        rows = new[0].shape[0] if new[0].ndim > 2 else 1
        if self.lengths is not None and len(self.lengths) != rows:
            raise ShapeError(f"KVCache: it holds {len(self.lengths)} rows, got {rows}")
        n = new[0].shape[-2]
        if self.max_len is not None and len(self) + n > self.max_len:
            raise ArgumentError(f"KVCache: max_len is {self.max_len}, got {len(self) + n} tokens")
        self._check_kind(new)
        if self.lengths is None:
            self.lengths = np.zeros(rows, dtype=np.intp)
        self._make_room(new, n)
        ends = self.lengths - self.start + self._begin
        for store, x in zip(self._stores, new, strict=True):
            if self.ragged:
                for row, end in enumerate(ends):
                    store[row, ..., end : end + n, :] = x[row]
            else:
                store[..., ends[0] : ends[0] + n, :] = x
        self.lengths = self.lengths + n
        return self.keys, self.values

    def _check_kind(self, new: list[NDArray[Any]]) -> None:
        """Raise an error for keys and values of another layer, or of another dtype."""
        for store, x in zip(self._stores, new, strict=False):
            if x.dtype != store.dtype:
                raise DTypeError(
                    f"KVCache: it holds {store.dtype}, got {x.dtype}; reset() it first"
                )
            if (*x.shape[:-2], x.shape[-1]) != (*store.shape[:-2], store.shape[-1]):
                shape = f"({', '.join(map(str, store.shape[:-2]))}, n, {store.shape[-1]})"
                raise ShapeError(
                    f"KVCache: it holds {shape}, got {x.shape}; each layer has a cache of its own"
                )

    def _put(self, *new: Array) -> tuple[mg.Tensor, mg.Tensor]:
        """Write one token of each row at its own column; returns the whole stores."""
        rows = mg.mark_constant(np.arange(len(self.at)))
        for x, store in zip(new, self._leaves, strict=True):
            every = [slice(None)] * (x.ndim - 3)
            store[(rows, *every, self.at[:, 0])] = x[..., 0, :]  # (B, ..., d)
        return self._leaves[0], self._leaves[1]

    def columns(self) -> NDArray[np.intp]:
        """The positions of the keys that `append` returned."""
        if self.at is None:
            return np.arange(self.start, len(self))
        every = np.arange(self.capacity)
        mg.mark_constant(every)
        return every

    def visible(self, window: int | None) -> mg.Tensor:
        """Which columns each row's one token sees: (B, 1, max_len), or (B, 1, 1, max_len)."""
        distance = self.at.reshape(-1, *[1] * (self._stores[0].ndim - 1)) - self.columns()
        return mg.tensor((distance >= 0) & (distance < window) if window else distance >= 0)

    @explained
    def crop(self, lengths: ArrayLike) -> None:
        """Keep only so many tokens: of every row, or of each its own number.

        After a prompt that was padded at its end, `crop` to the real lengths.
        Raises: ArgumentError for more tokens than there are, or for so few that the window has let
            go of some that the next one sees.
        """
        least = self.start and self.start + (self.window or 1) - 1
        now = np.zeros(0, dtype=np.intp) if self.lengths is None else self.lengths
        new = np.broadcast_to(np.asarray(lengths, dtype=np.intp), now.shape)
        if (new != lengths).any():
            raise DTypeError(f"KVCache.crop: lengths must be integers, got {lengths!r}")
        if (new > now).any() or (new < least).any():
            raise ArgumentError(
                f"KVCache.crop: lengths must lie in [{least}, {now.tolist()}], got {new.tolist()}"
            )
        self.lengths = new.copy()
        if self.max_len is not None:
            for store in self._stores:  # what is not filled is 0, for `_put` adds to it
                rows = store if store.ndim > 2 else store[None]  # (n, d) of one head, unbatched
                for row, end in zip(rows, new, strict=True):
                    row[..., end:, :] = 0

    def _filled(self, which: int) -> NDArray[Any]:
        if not self._stores:
            raise ArgumentError("KVCache: nothing has been cached yet")
        end = self._begin + len(self) - self.start
        return self._stores[which][..., self._begin : end, :]

    def _make_room(self, new: list[NDArray[Any]], n: int) -> None:
        """Make columns for n more tokens: drop what no query sees, move to the front, or double."""
        assert self.lengths is not None
        if self.window is not None and self.lengths.size and self.max_len is None:
            unseen = max(0, int(self.lengths.min()) - (self.window - 1) - self.start)
            self.start += unseen
            self._begin += unseen
        kept = len(self) - self.start
        if not self._stores:
            columns = self.max_len or n
            self._stores = [np.zeros((*x.shape[:-2], columns, x.shape[-1]), x.dtype) for x in new]
            self._leaves = [mg.Tensor(store) for store in self._stores]  # the same memory
        elif self._begin + kept + n > self.capacity:
            half_empty = 2 * (kept + n) <= self.capacity
            columns = self.capacity if half_empty else max(kept + n, 2 * self.capacity)
            for k, old in enumerate((self.keys, self.values)):
                store = np.zeros((*old.shape[:-2], columns, old.shape[-1]), old.dtype)
                store[..., :kept, :] = old
                self._stores[k] = store
            self._begin = 0


class KernelState:
    """The sums that causal linear attention keeps in place of keys and values; pass it as `cache=`.

        S = Σ_j φ(k_j) v_jᵀ,    Z = Σ_j φ(k_j)      over every token so far

    Its size does not grow with them: a token costs the same however many came before.

    Attributes: S (..., r, d_v) and Z (..., 1, r) for r features, None before the first token; seen:
             whether a row has had a token that its mask does not hide; of_context: as KVCache's.
    Source:  Katharopoulos et al. 2020, eqs. (16) to (20), arXiv:2006.16236.

    >>> from layers import LinearAttention
    >>> layer, cache = LinearAttention(6, n_heads=3, is_causal=True, rng=0), KernelState()
    >>> X = np.random.default_rng(0).normal(size=(1, 5, 6))
    >>> with mg.no_grad():
    ...     steps = [layer(X[:, t : t + 1], cache=cache).numpy() for t in range(5)]
    >>> bool(np.allclose(np.concatenate(steps, axis=1), layer(X).numpy())), len(cache), cache.nbytes
    (True, 5, 144)
    """

    def __init__(self) -> None:
        self.of_context = ContextCache()
        self.reset()

    def reset(self) -> None:
        """Forget every token."""
        self.of_context.reset()
        self.S: NDArray[Any] | None = None
        self.Z: NDArray[Any] | None = None
        self.seen: NDArray[np.bool_] | bool = False
        self._tokens = 0

    def __len__(self) -> int:
        """How many tokens there were."""
        return self._tokens

    @property
    def nbytes(self) -> int:
        """Bytes of both sums."""
        return sum(x.nbytes for x in (self.S, self.Z) if x is not None)

    def next_positions(self, n: int) -> NDArray[np.intp]:
        """Where the next n tokens stand."""
        return np.arange(len(self), len(self) + n)

    @explained
    def append(self, K_phi: Array, V: Array) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Add the next tokens to the sums; returns those of the tokens before, None if none were.

        Shapes: K_phi (..., n, r), V (..., n, d_v) → (..., r, d_v), (..., 1, r)
        """
        K_phi, V = _constant("KernelState", K_phi, V)
        S = K_phi.swapaxes(-1, -2) @ V
        Z = K_phi.sum(axis=-2, keepdims=True)
        before = None
        if self.S is not None and self.Z is not None:
            before = self.S, self.Z
            if (S.shape, S.dtype) != (self.S.shape, self.S.dtype):
                held = f"{self.S.shape} {self.S.dtype}"
                raise ShapeError(f"KernelState: it holds sums {held}, got {S.shape} {S.dtype}")
            S = self.S + S
            Z = self.Z + Z
        self.S, self.Z = S, Z
        self._tokens += K_phi.shape[-2]
        return before


def _constant(call: str, *arrays: Array) -> list[NDArray[Any]]:
    """Keys and values as arrays. Raises: GradientError if a gradient should flow through them."""
    if any(isinstance(x, mg.Tensor) and x.requires_grad for x in arrays):
        raise GradientError(
            f"{call}: what is cached is constant, so no gradient would flow back through it; "
            "run the layer within mg.no_grad()"
        )
    return [x.numpy() if isinstance(x, mg.Tensor) else np.asarray(x) for x in arrays]

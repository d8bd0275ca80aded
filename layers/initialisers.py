"""How weights are drawn before training, by name."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, explained

from .renamed import former

__all__ = ["INITIALISERS", "init_weights", "seed"]

Initialiser: TypeAlias = "str | Callable[[np.random.Generator, tuple[int, ...]], ArrayLike]"
Shape: TypeAlias = tuple[int, ...]
Seed: TypeAlias = "np.random.Generator | int | None"
"""What layers take as rng: a generator, a seed, or None (see `seed`)."""


_seeds: np.random.SeedSequence | None = None


@explained
def seed(value: int | None) -> None:
    """Layers made from here on without `rng` draw their weights, and Dropout its zeros, from this.

    Each gets a generator of its own, in the order in which they are made, so that the same program
    gives the same model; NumPy's own seed is left alone. None: fresh entropy again, as at first.

    Raises: ArgumentError for anything but an integer of at least 0.

    >>> from layers import Linear, seed
    >>> seed(0)
    >>> first = Linear(3, 2).W.numpy()
    >>> seed(0)
    >>> (Linear(3, 2).W.numpy() == first).all(), (Linear(3, 2).W.numpy() == first).any()
    (np.True_, np.False_)
    >>> seed(None)
    """
    global _seeds
    if value is not None and not (isinstance(value, int | np.integer) and value >= 0):
        raise ArgumentError(f"seed: an integer of at least 0, or None, got {value!r}")
    _seeds = None if value is None else np.random.SeedSequence(int(value))


def generator(rng: Seed) -> np.random.Generator:
    """The generator that a layer draws from: its own, that of a seed, or what `seed` says."""
    if rng is None and _seeds is not None:
        return np.random.default_rng(_seeds.spawn(1)[0])
    return np.random.default_rng(rng)


def _orthogonal(
    rng: np.random.Generator, shape: Shape, n_in: int, n_out: int
) -> NDArray[np.floating]:
    """Rows, or columns if there are fewer, of length 1 and at right angles."""
    rows, columns = shape[0], prod(shape[1:])
    Q, R = np.linalg.qr(rng.normal(size=(max(rows, columns), min(rows, columns))))
    Q = Q * np.sign(np.diag(R))  # so that every such matrix is equally likely
    return (Q if rows >= columns else Q.T).reshape(shape)


INITIALISERS: dict[str, Callable[[np.random.Generator, Shape, int, int], NDArray[np.floating]]] = {
    "zeros": lambda rng, shape, n_in, n_out: np.zeros(shape),
    "normal": lambda rng, shape, n_in, n_out: rng.normal(0.0, 0.02, shape),
    "uniform": lambda rng, shape, n_in, n_out: rng.uniform(-1, 1, shape) / sqrt(n_in),
    "xavier_normal": lambda rng, shape, n_in, n_out: rng.normal(
        0.0, sqrt(2 / (n_in + n_out)), shape
    ),
    "xavier_uniform": lambda rng, shape, n_in, n_out: (
        rng.uniform(-1, 1, shape) * sqrt(6 / (n_in + n_out))
    ),
    "he_normal": lambda rng, shape, n_in, n_out: rng.normal(0.0, sqrt(2 / n_in), shape),
    "he_uniform": lambda rng, shape, n_in, n_out: rng.uniform(-1, 1, shape) * sqrt(6 / n_in),
    "orthogonal": _orthogonal,
}
"""From a generator, a shape, and how many entries go into one and come out of one.

normal: σ = 0.02. uniform: ±1/√n_in. xavier (Glorot & Bengio 2010): the variance 2 / (n_in + n_out),
which keeps a signal's about equally well forward and backward. he (He et al. 2015,
arXiv:1502.01852): 2 / n_in, for relu. orthogonal: Saxe et al. 2013, arXiv:1312.6120.
"""


@explained
def init_weights(
    how: Initialiser,
    shape: Shape,
    n_in: int,
    n_out: int,
    rng: Seed = None,
    dtype: DTypeLike = np.float64,
) -> mg.Tensor:
    """A parameter drawn by the initialiser of this name, or by a function of generator and shape.

    Args:    n_in, n_out: how many entries an output depends on, and an input reaches.
             rng: a Generator, a seed, or None for fresh entropy.
    Raises:  ArgumentError for an unknown name, or a function that gives another shape.

    >>> W = init_weights("orthogonal", (2, 3), n_in=2, n_out=3, rng=0).numpy()
    >>> (W @ W.T).round(6)
    array([[ 1., -0.],
           [-0.,  1.]])
    """
    rng = generator(rng)
    if callable(how):
        drawn = np.asarray(how(rng, shape))
    elif how in INITIALISERS:
        drawn = INITIALISERS[how](rng, shape, n_in, n_out)
    else:
        names = ", ".join(sorted(INITIALISERS))
        raise ArgumentError(f"init_weights: the initialiser must be one of {names}, got {how!r}")
    if drawn.shape != shape:
        raise ArgumentError(f"init_weights: {how} must give the shape {shape}, gave {drawn.shape}")
    return parameter(drawn, dtype)


initial = former("initial", init_weights)


def parameter(drawn: NDArray[np.number], dtype: DTypeLike) -> mg.Tensor:
    """A leaf of these entries in this dtype, which needs a gradient."""
    leaf = mg.Tensor(drawn.astype(dtype))
    leaf.requires_grad = True
    return leaf

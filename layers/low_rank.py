"""Low-rank adapters: large matrices stay as they are, narrow ones beside them are trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, NoReturn, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

import minigrad as mg
from minigrad.errors import ArgumentError, GradientError, explained

from .arrays import Array
from .embedding import Embedding
from .feed_forward import Dropout
from .hand_derived import Step
from .initialisers import Seed, generator
from .linear import check_sizes, linear
from .module import Module
from .parameters import join_path, paths_matching, write_state
from .quantized import QuantizedWeight, TrainedQuantizedWeight

__all__ = ["Adapters", "LowRankWeight", "lora"]

Matrix: TypeAlias = mg.Tensor | QuantizedWeight | TrainedQuantizedWeight


class LowRankWeight(Module):
    """A matrix that is not trained, and beside it a product of rank r that is:

        x W + b + s (x A) B      with  s = α / r;  A is drawn N(0, 1 / d_in), B starts at zero

    `layers.linear` multiplies by it. In training, `dropout` drops entries of the x before A.

    Attributes: W (d_in, d_out), or a quantized one; A (d_in, r); B (r, d_out); s, a buffer.
    Source: Hu et al. 2021, section 4.1, arXiv:2106.09685; A and B there are our Aᵀ and Bᵀ.

    >>> W = LowRankWeight(mg.tensor(np.ones((3, 5))), rank=2, alpha=4.0, rng=0)
    >>> W.A.shape, W.B.shape, W.s.item(), W.product(np.ones((1, 3)), None).numpy()
    ((3, 2), (2, 5), 2.0, array([[3., 3., 3., 3., 3.]]))
    """

    buffers = ("s",)
    unrounded = ("A", "B")

    def __init__(
        self,
        W: Matrix,
        rank: int,
        alpha: float,
        dropout: float = 0.0,
        rng: Seed = None,
    ) -> None:
        check_sizes("LowRankWeight", rank=rank)
        (d_in, d_out), self.dtype = W.shape, W.dtype
        rng = generator(rng)
        self.W, self.shape = W, W.shape
        drawn = rng.normal(0, 1 / sqrt(d_in), (d_in, rank)).astype(W.dtype)
        self.A = mg.tensor(drawn, requires_grad=True)
        self.B = mg.tensor(np.zeros((rank, d_out), W.dtype), requires_grad=True)
        self.s = mg.tensor(np.asarray(alpha / rank, W.dtype))
        self.drop = Dropout(dropout, rng) if dropout else None

    def product(self, x: Array, b: Array | None) -> mg.Tensor:
        """x W + b + s (x A) B."""
        out = linear(x, self.W, b)  # (..., d_out)
        with mg.scope(self._name or self._scope):
            x = x if self.drop is None else self.drop(x)
            H = mg.multiply(mg.matmul(x, self.A), self.s).named("H")  # (..., r)
            D = mg.matmul(H, self.B).named("D")  # (..., d_out)
            mg.expect_gradients(low_rank_steps, self, x=x, H=H, out=D)
        return mg.add(out, D)

    def merged(self) -> NDArray[Any]:
        """W + s A B. Raises: ArgumentError if W is quantized, which would round the adapter."""
        if not isinstance(self.W, mg.Tensor):
            raise ArgumentError(
                f"merge: {self._name} is quantized, and so would the adapter be; give the model of "
                "full precision the same adapters, then merge"
            )
        W = self.W.numpy()
        A = self.A.numpy()
        B = self.B.numpy()
        return np.asarray(W + self.s.numpy() * (A @ B))

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> NoReturn:
        raise GradientError(
            f"{self._name} is wrapped by lora, so only layers.linear multiplies by it; "
            "its array is W.merged()"
        )


def low_rank_steps(
    *,
    x: NDArray[Any],
    A: NDArray[Any],
    B: NDArray[Any],
    H: NDArray[Any],
    s: NDArray[Any],
    grad_output: NDArray[Any],
) -> list[Step]:
    """The gradients of A and B by hand: ∂L/∂B = Hᵀ G, ∂L/∂A = s xᵀ G Bᵀ."""
    rows, G, h = (t.reshape(-1, t.shape[-1]) for t in (x, grad_output, H))
    formulas = {"B": r"H^\top \bar D", "A": r"s\, x^\top \bar D B^\top"}
    gradients = {"B": h.T @ G, "A": s * rows.T @ (G @ B.T)}
    return [Step(1, "low-rank product", r"D = H B,\quad H = s\, x A", formulas, gradients)]


@explained
def lora(
    model: Module,
    rank: int,
    alpha: float | None = None,
    targets: str | Sequence[str] = "W_[QV]",
    dropout: float = 0.0,
    rng: Seed = None,
) -> Adapters:
    """Give a model's matrices low-rank adapters, and train nothing else.

    A matrix W is replaced by a LowRankWeight, whose product starts as that of W, bit for bit.

    Args:
        rank, alpha: of the adapters, which count s = α / rank; α is the rank unless given.
        targets: patterns of paths, as `freeze` takes them: "attention.W_[QKVO]", "blocks.1", or "*"
            for every W… that layers multiply by. Embeddings and recurrent cells have none.
        dropout: of the adapters' inputs, in training.
        rng: draws them; a Generator, a seed, or None for fresh entropy.
    Returns: the adapters: to train, save, merge and take apart again.
    Raises: ArgumentError, before anything is changed, for a model that has adapters, a rank above a
        matrix's, a pattern that no matrix has, or a matrix tied to one that is not chosen.
    Source: Hu et al. 2021, arXiv:2106.09685.

    >>> from layers import MultiHeadAttention
    >>> model = MultiHeadAttention(d_model=8, n_heads=2, rng=0)
    >>> adapters = lora(model, rank=2, alpha=4, rng=0)
    >>> [path for path, p in model.named_parameters() if p.requires_grad]
    ['W_Q.A', 'W_Q.B', 'W_V.A', 'W_V.B']
    >>> adapters.merge().model.W_Q.shape
    (8, 8)
    """
    check_sizes("lora", rank=rank)
    alpha, rng = rank if alpha is None else alpha, generator(rng)
    if not 0 < alpha < np.inf:
        raise ArgumentError(f"lora: alpha must be more than 0, got {alpha}")
    if any(isinstance(module, LowRankWeight) for module in model.modules()):
        raise ArgumentError("lora: the model has adapters; merge them, or name all targets at once")
    places = _matrices(model)
    patterns = (targets,) if isinstance(targets, str) else tuple(targets)
    chosen = paths_matching("lora", patterns or ("",), places)
    adapters: dict[int, LowRankWeight] = {}
    for path in chosen:
        module, name = places[path]
        W = vars(module)[name]
        if rank > min(W.shape):
            raise ArgumentError(f"lora: rank must be at most that of {path} {W.shape}, got {rank}")
        if id(W) not in adapters:
            adapters[id(W)] = LowRankWeight(W, rank, alpha, dropout, rng).train(module.training)
    for path in places.keys() - chosen:
        module, name = places[path]
        if id(vars(module)[name]) in adapters:
            raise ArgumentError(f"lora: {path} is the same matrix as a chosen one; choose it too")
    model.freeze()
    for path in chosen:
        module, name = places[path]
        setattr(module, name, adapters[id(vars(module)[name])])
    return Adapters(model)


def _matrices(model: Module) -> dict[str, tuple[Module, str]]:
    """By path, the layer and the attribute of each matrix that `layers.linear` multiplies by."""
    return {
        join_path(path, name): (module, name)
        for path, module in model.named_modules()
        if not isinstance(module, Embedding | LowRankWeight | TrainedQuantizedWeight)
        for name, W in vars(module).items()
        if name[0] in "WV" and isinstance(W, Matrix) and len(W.shape) == 2
    }


class Adapters:
    """The low-rank adapters of a model that `lora` made: what is trained, and saved, of it.

    `mg.save(path, adapters=adapters)` writes them alone, a small file, and `mg.load` puts them into
    another copy of the model that was wrapped in the same way.

    Attributes: model; weights, the LowRankWeights by path.
    Raises: ArgumentError for a model without any.
    """

    @explained
    def __init__(self, model: Module) -> None:
        self.model = model
        self.weights = {p: m for p, m in model.named_modules() if isinstance(m, LowRankWeight)}
        self._places: list[tuple[Module, str, LowRankWeight]] = []  # while they are merged
        self._merged: list[mg.Tensor] = []  # what stands there meanwhile
        if not self.weights:
            raise ArgumentError("Adapters(model): it has none; call lora(model, rank) first")

    def parameters(self) -> list[mg.Tensor]:
        """What an optimizer takes."""
        return [p for weight in self.weights.values() for p in (weight.A, weight.B)]

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """A copy of every A, B and s, by path."""
        return {path: np.array(leaf.numpy()) for path, leaf in self._leaves().items()}

    @explained
    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Write what `state_dict` gave; all fits, or nothing is written."""
        write_state("Adapters", self._leaves(), state)

    def _leaves(self) -> dict[str, mg.Tensor]:
        parts = ((path, weight, name) for path, weight in self.weights.items() for name in "ABs")
        return {f"{path}.{name}": vars(weight)[name] for path, weight, name in parts}

    def merge(self) -> Self:
        """Put W + s A B in each place: an ordinary model again, to run, to save, to export.

        Its matrices are frozen (`model.unfreeze()` trains on). Returns this.
        """
        if self._places:
            raise ArgumentError("merge: the adapters are merged already")
        arrays = {id(weight): weight.merged() for weight in self.weights.values()}
        merged = {key: mg.tensor(array) for key, array in arrays.items()}
        self._merged = [*merged.values()]
        self._places = [
            (module, name, value)
            for module in self.model.modules()
            for name, value in vars(module).items()
            if isinstance(value, LowRankWeight)
        ]
        for module, name, weight in self._places:
            setattr(module, name, merged[id(weight)])
        return self

    def unmerge(self) -> Self:
        """Put back what was there before `merge`, bit for bit. Returns this.

        Raises: ArgumentError before `merge`, or where a matrix has been replaced since.
        """
        if not self._places:
            raise ArgumentError("unmerge: the adapters are not merged")
        for module, name, _ in self._places:
            if not any(vars(module)[name] is matrix for matrix in self._merged):
                raise ArgumentError(
                    f"unmerge: {module._name or type(module).__name__}.{name} has been replaced "
                    "since merge, by other adapters or a quantized matrix; undo that first"
                )
        for module, name, weight in self._places:
            setattr(module, name, weight)
        self._places = []
        return self

"""Recurrent layers: RNN, GRU and LSTM, as single steps and over sequences.

A cell has the weights and computes one step. A layer takes sequences through cells, on top of each
other and in both directions; GRU and LSTM run all steps as one op, unless method="steps" calls the
cell at each step, so that a trace shows what was written, kept and forgotten when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError, ShapeError

from .basic import Dropout, Seed, check_sizes, generator, parameter
from .call import ArrayOrTensor, array_or_tensor, named
from .module import Module

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

States: TypeAlias = tuple[Any, ...]  # h; of an LSTM h and c
State: TypeAlias = ArrayOrTensor | States | None
Run: TypeAlias = tuple[Any, Callable[[], States]]


class _Cell(Module):
    """What the cells share: weights as PyTorch names and lays them out, drawn ±1/√d_hidden."""

    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        use_bias: bool = True,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        check_sizes(type(self).__name__, d_in=d_in, d_hidden=d_hidden)
        rng, rows = generator(rng), self.gates * d_hidden
        self.d_in, self.d_hidden = d_in, d_hidden
        self.dtype = np.dtype(dtype)

        def drawn(*shape: int) -> mg.Tensor:
            return parameter(rng.uniform(-1, 1, shape) / sqrt(d_hidden), dtype)

        self.weight_ih, self.weight_hh = drawn(rows, d_in), drawn(rows, d_hidden)
        self.bias_ih = drawn(rows) if use_bias else None
        self.bias_hh = drawn(rows) if use_bias else None

    def forward(self, x: mg.Tensor, state: State = None) -> Any:
        """The state after one step, from x (B, d_in) and the state before, zeros if None."""
        if x.ndim != 2 or x.shape[1] != self.d_in:
            kind = type(self).__name__
            raise ShapeError(f"{kind}: x must be (B, {self.d_in}), got {x.shape}")
        after = self.step(self.from_input(x), *self.first(x.shape[0], state))
        return after[0] if self.states == 1 else after

    def first(self, batch: int, state: State = None) -> States:
        """The states to start from. Raises: ShapeError unless each is (B, d_hidden)."""
        if state is None:
            state = (np.zeros((batch, self.d_hidden), self.dtype),) * self.states
            mg.mark_constant(state[0])  # the same at every call
        states = state if isinstance(state, tuple) else (state,)
        parts = tuple(array_or_tensor(x, self.dtype) for x in states)
        shapes = [x.shape for x in parts]
        if shapes != [(batch, self.d_hidden)] * self.states:
            call, names = type(self).__name__, "(h, c), each" if self.states == 2 else "h,"
            raise ShapeError(
                f"{call}: state must be {names} {(batch, self.d_hidden)}, got {shapes}"
            )
        return parts

    def from_input(self, x: Any) -> Any:
        """What the input brings to the gates: x W_ihᵀ + b_ih."""
        return mg.linear(x, mg.transpose(self.weight_ih), self.bias_ih)

    def from_state(self, h: Any) -> Any:
        """What the state brings to the gates: h W_hhᵀ + b_hh."""
        return mg.linear(h, mg.transpose(self.weight_hh), self.bias_hh)

    def step(self, a: Any, *state: Any) -> States:
        """The states after one step, from what the input brings; each cell writes its own."""
        raise NotImplementedError

    def run(self, X: Any, mask: Any, state: States, by_steps: bool, backward: bool) -> Run:
        """h of every step, (T, B, d_hidden), from X (T, B, d_in); and what gives the last state.

        Args: by_steps: every op of every step is a node.  backward: in time; padding comes first.
        """
        run = self.run_steps if by_steps else self.run_fused
        with self._scope:
            if not backward:
                return run(X, mask, *state)
            H, last = run(X[::-1], None if mask is None else mask[::-1], *state)
            return H[::-1], last

    def run_fused(self, X: Any, mask: Any, *state: Any) -> Run:
        return self.run_steps(X, mask, *state)

    def run_steps(self, X: Any, mask: Any, *state: Any) -> Run:
        outputs, a = [], self.from_input(X)  # one product for all steps
        for t in range(X.shape[0]):
            with mg.scope(f"step {t}"):
                after = self.step(a[t], *state)
                if mask is not None:  # where it is False, the state is carried over
                    pairs = zip(after, state, strict=True)
                    after = tuple([mg.where(mask[t][:, None], x, old) for x, old in pairs])
            state = after
            outputs.append(state[0])
        return mg.stack(outputs), lambda: state


class RNNCell(_Cell):
    """One step of a simple recurrent network:  h' = tanh(x W_ihᵀ + b_ih + h W_hhᵀ + b_hh).

    Attributes: weight_ih (d_hidden, d_in), weight_hh, bias_ih, bias_hh, as in PyTorch.
    Shapes:  x (B, d_in), h (B, d_hidden) → (B, d_hidden)
    Source:  Elman 1990, https://doi.org/10.1207/s15516709cog1402_1.

    >>> RNNCell(3, 5, rng=0)(np.zeros((2, 3))).shape
    (2, 5)
    """

    def step(self, a: Any, *state: Any) -> States:
        (h,) = state
        return (mg.tanh(mg.add(a, self.from_state(h)).named("z")).named("h"),)


class GRUCell(_Cell):
    """One step of a gated recurrent unit.

        r, z = σ(x W_ihᵀ + b_ih + h W_hhᵀ + b_hh)         thirds of the rows: r, z, n
        n = tanh(x W_ihᵀ + b_ih + r ⊙ (h W_hhᵀ + b_hh))
        h' = (1 − z) ⊙ n + z ⊙ h

    Shapes:  as RNNCell.  Source:  Cho et al. 2014, arXiv:1406.1078.

    >>> GRUCell(3, 5, rng=0)(np.zeros((2, 3))).shape
    (2, 5)
    """

    gates = 3

    def step(self, a: Any, *state: Any) -> States:
        (h,) = state
        a_r, a_z, a_n = mg.split(a, 3, axis=-1)
        h_r, h_z, h_n = mg.split(self.from_state(h), 3, axis=-1)
        r = mg.sigmoid(a_r + h_r).named("r")  # (B, H)   what the candidate sees of the state
        z = mg.sigmoid(a_z + h_z).named("z")  # (B, H)   what stays
        n = mg.tanh(a_n + r * h_n).named("n")  # (B, H)   the candidate
        return (mg.add(n, z * mg.subtract(h, n)).named("h"),)

    def run_fused(self, X: Any, mask: Any, *state: Any) -> Run:
        weights = self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        H = mg.gru(X, *weights, state[0], mask=mask)  # (T, B, H)
        return H, lambda: (H[-1],)


class LSTMCell(_Cell):
    """One step of a long short-term memory; its state is the pair (h, c).

        i, f, n, o = σ, σ, tanh, σ (x W_ihᵀ + b_ih + h W_hhᵀ + b_hh)     quarters, in this order
        c' = f ⊙ c + i ⊙ n             h' = o ⊙ tanh(c')

    Shapes:  x (B, d_in), h and c (B, d_hidden) → h' and c' (B, d_hidden)
    Source:  Hochreiter & Schmidhuber 1997; Gers et al. 2000, for f.

    >>> h, c = LSTMCell(3, 5, rng=0)(np.zeros((2, 3)))
    >>> h.shape, c.shape
    ((2, 5), (2, 5))
    """

    gates = 4
    states = 2

    def step(self, a: Any, *state: Any) -> States:
        h, c = state
        z = mg.add(a, self.from_state(h)).named("z")  # (B, 4 H)
        z_i, z_f, z_n, z_o = mg.split(z, 4, axis=-1)
        i = mg.sigmoid(z_i).named("i")  # (B, H)   what is written
        f = mg.sigmoid(z_f).named("f")  # (B, H)   what stays
        n = mg.tanh(z_n).named("n")  # (B, H)   the candidate
        o = mg.sigmoid(z_o).named("o")  # (B, H)   what is shown
        c = mg.add(f * c, i * n).named("c")
        return mg.multiply(o, mg.tanh(c)).named("h"), c

    def run_fused(self, X: Any, mask: Any, *state: Any) -> Run:
        bias = None if self.bias_ih is None else mg.add(self.bias_ih, self.bias_hh)
        h, c = state
        states = mg.lstm(X, self.weight_ih, self.weight_hh, bias, h, c, mask=mask)
        H = states[:-1]  # states are (T + 1, B, H): the last memory behind
        return H, lambda: (H[-1], states[-1])


class _Recurrent(Module):
    """What the layers share: cells on top of each other, and in both directions."""

    cell: ClassVar[type[_Cell]]

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        n_layers: int = 1,
        bidirectional: bool = False,
        use_bias: bool = True,
        dropout: float = 0.0,
        method: str = "fused",
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
    ) -> None:
        call = type(self).__name__
        check_sizes(call, d_in=d_in, d_hidden=d_hidden, n_layers=n_layers)
        if method not in ("fused", "steps"):
            raise ArgumentError(f'{call}: method must be "fused" or "steps", got {method!r}')
        rng, self.method = generator(rng), method
        self.dtype = np.dtype(dtype)
        self.d_in, self.directions = d_in, 2 if bidirectional else 1
        widths = [d_in] + [self.directions * d_hidden] * (n_layers - 1)
        self.cells = [
            self.cell(width, d_hidden, use_bias, rng, dtype)
            for width in widths
            for _ in range(self.directions)
        ]
        self.drop = Dropout(dropout, rng) if dropout else None

    def forward(
        self,
        X: Any,
        state: State = None,
        mask: ArrayOrTensor | None = None,
        return_state: bool = False,
    ) -> Any:
        mask = None if mask is None else array_or_tensor(mask)
        check_sequences(self, X, mask)
        unbatched = X.ndim == 2
        X = mg.expand_dims(X, 1) if unbatched else mg.swapaxes(X, 0, 1)  # (T, B, d_in)
        if mask is not None:
            mask = mask[:, None] if unbatched else np.swapaxes(mask, 0, 1)  # (T, B)
        firsts = self.firsts(X.shape[1], state)
        last: list[States] = []
        outputs: list[Any] = []
        for k, cell in enumerate(self.cells):
            backward = k % self.directions == 1
            if k and not backward and self.drop is not None:
                X = self.drop(X)
            H, last_states = cell.run(X, mask, firsts[k], self.method == "steps", backward)
            outputs.append(H)
            if return_state:
                last.append(last_states())
            if len(outputs) == self.directions:  # each direction of a layer reads the same X
                X = H if self.directions == 1 else mg.concatenate(outputs, axis=-1)
                outputs = []
        if mask is not None:
            X = mg.where(mask[:, :, None], X, 0.0)
        H = named("H", mg.squeeze(X, 1) if unbatched else mg.swapaxes(X, 0, 1))
        if not return_state:
            return H
        stacked = tuple(mg.stack(parts) for parts in zip(*last, strict=True))
        return H, stacked[0] if len(stacked) == 1 else stacked

    def firsts(self, batch: int, state: State) -> Sequence[States]:
        """The states that each cell starts from."""
        if state is None:
            return [cell.first(batch) for cell in self.cells]
        states = state if isinstance(state, tuple) else (state,)
        parts = [array_or_tensor(x, self.dtype) for x in states]
        if any(part.shape[:1] != (len(self.cells),) for part in parts):
            raise ShapeError(
                f"{type(self).__name__}: state must be ({len(self.cells)}, B, d_hidden), got "
                f"{[part.shape for part in parts]}"
            )
        return [
            cell.first(batch, tuple(part[k] for part in parts)) for k, cell in enumerate(self.cells)
        ]


def check_sequences(layer: _Recurrent, X: ArrayOrTensor, mask: ArrayOrTensor | None) -> None:
    """Raise ShapeError unless X is a sequence, or a batch of them, and the mask fits."""
    call, d_in = type(layer).__name__, layer.d_in
    if X.ndim not in (2, 3) or X.shape[-1] != d_in:
        raise ShapeError(f"{call}(X): X must be (B, T, {d_in}) or (T, {d_in}), got {X.shape}")
    if mask is not None and (mask.shape != X.shape[:-1] or mask.dtype != np.bool_):
        raise ShapeError(
            f"{call}: mask must be booleans {X.shape[:-1]}, got {mask.dtype} {mask.shape}"
        )


class RNN(_Recurrent):
    """Sequences through simple recurrent cells; see RNNCell for the equation.

    Args:
        d_in, d_hidden: widths of X and of the states.
        n_layers: cells on top of each other.  bidirectional: each also backward in time.
        dropout: probability, between the layers, in training.
        method: "fused", one op a cell where there is one; "steps", every op of every step a node.
    Call:    layer(X, state=None, mask=None, return_state=False). state: what the cells start from,
             (n_layers · directions, B, d_hidden), zeros if None; of an LSTM the pair (h, c). mask:
             (B, T), False on padding: the state is carried over it, and H is 0 there. return_state:
             (H, state) is returned.
    Shapes:  X (B, T, d_in) → H (B, T, d_hidden · directions); an unbatched (T, d_in) too
    Raises:  ShapeError where these do not fit; ArgumentError for a size below 1 or another method.

    >>> RNN(3, 5, bidirectional=True, rng=0)(np.zeros((2, 7, 3))).shape
    (2, 7, 10)
    """

    cell = RNNCell


class GRU(_Recurrent):
    """Sequences through gated recurrent units; see GRUCell for the equations, RNN for the rest.

    >>> H, h = GRU(3, 5, n_layers=2, rng=0)(np.zeros((2, 7, 3)), return_state=True)
    >>> H.shape, h.shape
    ((2, 7, 5), (2, 2, 5))
    """

    cell = GRUCell


class LSTM(_Recurrent):
    """Sequences through long short-term memories; see LSTMCell for the equations, RNN for the rest.

    >>> H, (h, c) = LSTM(3, 5, rng=0)(np.zeros((2, 7, 3)), return_state=True)
    >>> H.shape, h.shape, c.shape
    ((2, 7, 5), (1, 2, 5), (1, 2, 5))
    """

    cell = LSTMCell

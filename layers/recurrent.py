"""Recurrent layers: RNN, GRU and LSTM, as single steps and over sequences.

A cell has the weights and computes one step. A layer takes sequences through one cell, or several:
on top of each other, and in both directions. `method="fused"` makes one product of all inputs and
one op of all steps; `method="steps"` calls the cell at each step, every op a node, for looking.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

import minigrad as mg
from minigrad.errors import ArgumentError, DTypeError, ShapeError

from .arrays import Array
from .feed_forward import Dropout
from .initialisers import Initialiser, Seed, generator, init_weights
from .linear import check_sizes
from .module import Module, as_array
from .renamed import renamed

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

Arrays: TypeAlias = tuple[Array, ...]
State: TypeAlias = Array | Arrays | None
Steps: TypeAlias = tuple[mg.Tensor, Callable[[], Arrays]]


class _Cell(Module):
    """What the cells share: weights as PyTorch names and lays them out, and how one is called."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1
    op: ClassVar[Callable[..., mg.Tensor]]  # all steps as one

    @renamed(init=3)
    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        use_bias: bool = True,
        rng: Seed = None,
        dtype: DTypeLike = np.float64,
        *,
        init: Initialiser = "uniform",
    ) -> None:
        check_sizes(type(self).__name__, d_in=d_in, d_hidden=d_hidden)
        rng, rows = generator(rng), self.gates * d_hidden
        self.dtype = np.dtype(dtype)
        self.d_in, self.d_hidden = d_in, d_hidden
        draw = partial(init_weights, n_in=d_hidden, n_out=d_hidden, rng=rng, dtype=dtype)
        self.weight_ih = draw(init, (rows, d_in))
        self.weight_hh = draw(init, (rows, d_hidden))
        bias = "uniform" if init == "uniform" else "zeros"
        self.bias_ih = draw(bias, (rows,)) if use_bias else None
        self.bias_hh = draw(bias, (rows,)) if use_bias else None

    def forward(self, x: mg.Tensor, state: State = None) -> Array | Arrays:
        """The state after one step, from x (B, d_in) and the state before, zeros if None."""
        shape = np.shape(x)
        if len(shape) != 2:
            raise ShapeError(f"{type(self).__name__}(x): x must be (B, {self.d_in}), got {shape}")
        first = self.first_state(x.shape[0])
        if state is not None:
            first = self.states_of(state, type(self).__name__, (x.shape[0], self.d_hidden))
        after = self.step(x, *first)
        return after[0] if self.states == 1 else after

    def first_state(self, batch: int) -> Arrays:
        """Zeros, (B, d_hidden) each."""
        zeros = mg.mark_constant(np.zeros((batch, self.d_hidden), self.dtype))
        return (zeros,) * self.states

    def states_of(self, state: Array | Arrays, call: str, shape: tuple[int, ...]) -> Arrays:
        """The states given, as a tuple; arrays are cast to the cell's dtype."""
        given = state if isinstance(state, tuple) else (state,)
        parts = tuple(as_array(x, self.dtype) for x in given)
        if len(parts) != self.states or any(np.shape(part) != shape for part in parts):
            got = ", ".join(str(np.shape(part)) for part in parts)
            names = "(h, c), each" if self.states == 2 else "h,"
            raise ShapeError(f"{call}: state must be {names} {shape}, got {got}")
        return parts

    def from_input(self, x: Array, bias: Array | None) -> Array:
        """What the input brings to the gates: x W_ihᵀ + b."""
        return mg.linear(x, mg.transpose(self.weight_ih), bias)

    def from_state(self, h: Array) -> Array:
        """What the state brings to the gates: h W_hhᵀ + b_hh."""
        return mg.linear(h, mg.transpose(self.weight_hh), self.bias_hh)

    def biases(self) -> tuple[Array | None, ...]:
        """What the op takes beside the weights: b_ih + b_hh, or None."""
        return (None if self.bias_ih is None else mg.add(self.bias_ih, self.bias_hh),)

    def step(self, x: Array, *state: Array) -> Arrays:
        """The states after one step; each cell writes its own."""
        raise NotImplementedError

    def sequence(self, X: mg.Tensor, mask: Array | None, *state: Array) -> Steps:
        """H of all steps (T, B, d_hidden) from X (T, B, d_in), as one op; and a function that
        gives the last state.
        """
        weights = self.weight_ih, self.weight_hh, *self.biases()
        H = type(self).op(X, *weights, *state, mask=mask)  # (T, B, H)
        return H, lambda: (H[-1],)

    def step_by_step(self, X: mg.Tensor, mask: Array | None, *state: Array) -> Steps:
        """As `sequence`, with every op of every step a node."""
        outputs = []
        for t in range(X.shape[0]):
            with mg.scope(f"step {t}"):
                after = self.step(X[t], *state)
                if mask is not None:  # where it is False, the state is carried over
                    pairs = zip(after, state, strict=True)
                    after = tuple([mg.where(mask[t][:, None], new, old) for new, old in pairs])
            state = after
            outputs.append(state[0])
        return mg.stack(outputs), lambda: state


class RNNCell(_Cell):
    """One step of a simple recurrent network:  h' = tanh(x W_ihᵀ + b_ih + h W_hhᵀ + b_hh).

    Args:    d_in, d_hidden: widths of x and h.  init: how weights are drawn, by name; "uniform" is
             ±1/√d_hidden for biases too, as in PyTorch; any other leaves them 0.
    Shapes:  x (B, d_in), h (B, d_hidden) → (B, d_hidden)
    Source:  Elman 1990, https://doi.org/10.1207/s15516709cog1402_1.

    >>> RNNCell(3, 5, rng=0)(np.zeros((2, 3))).shape
    (2, 5)
    """

    gates, op = 1, mg.rnn

    def step(self, x: Array, *state: Array) -> Arrays:
        (h,) = state
        z = mg.add(self.from_input(x, self.bias_ih), self.from_state(h)).named("z")  # (B, H)
        return (mg.tanh(z).named("h"),)


class GRUCell(_Cell):
    """One step of a gated recurrent unit.

        r, z = σ(x W_ihᵀ + b_ih + h W_hhᵀ + b_hh)         thirds of the rows: r, z, n
        n = tanh(x W_ihᵀ + b_ih + r ⊙ (h W_hhᵀ + b_hh))
        h' = (1 − z) ⊙ n + z ⊙ h

    Args, shapes:  as RNNCell.  Source:  Cho et al. 2014, arXiv:1406.1078.

    >>> GRUCell(3, 5, rng=0)(np.zeros((2, 3))).shape
    (2, 5)
    """

    gates, op = 3, mg.gru

    def step(self, x: Array, *state: Array) -> Arrays:
        (h,) = state
        x_r, x_z, x_n = mg.split(self.from_input(x, self.bias_ih), 3, axis=-1)
        h_r, h_z, h_n = mg.split(self.from_state(h), 3, axis=-1)
        r = mg.sigmoid(x_r + h_r).named("r")  # (B, H)   what the candidate sees of the state
        z = mg.sigmoid(x_z + h_z).named("z")  # (B, H)   what stays
        n = mg.tanh(x_n + r * h_n).named("n")  # (B, H)   the candidate
        return (mg.add(n, z * mg.subtract(h, n)).named("h"),)

    def biases(self) -> tuple[Array | None, ...]:
        return self.bias_ih, self.bias_hh


class LSTMCell(_Cell):
    """One step of a long short-term memory; its state is the pair (h, c).

        i, f, n, o = σ, σ, tanh, σ (x W_ihᵀ + b_ih + h W_hhᵀ + b_hh)     quarters, in this order
        c' = f ⊙ c + i ⊙ n             h' = o ⊙ tanh(c')

    Args:    as RNNCell.
    Shapes:  x (B, d_in), h and c (B, d_hidden) → h' and c' (B, d_hidden)
    Source:  Hochreiter & Schmidhuber 1997; Gers et al. 2000, for f.

    >>> h, c = LSTMCell(3, 5, rng=0)(np.zeros((2, 3)))
    >>> h.shape, c.shape
    ((2, 5), (2, 5))
    """

    gates, states = 4, 2
    op = mg.lstm

    def step(self, x: Array, *state: Array) -> Arrays:
        h, c = state
        z = mg.add(self.from_input(x, self.bias_ih), self.from_state(h)).named("z")  # (B, 4 H)
        z_i, z_f, z_n, z_o = mg.split(z, 4, axis=-1)
        i = mg.sigmoid(z_i).named("i")  # (B, H)   what is written
        f = mg.sigmoid(z_f).named("f")  # (B, H)   what stays
        n = mg.tanh(z_n).named("n")  # (B, H)   the candidate
        o = mg.sigmoid(z_o).named("o")  # (B, H)   what is shown
        c = mg.add(f * c, i * n).named("c")
        return mg.multiply(o, mg.tanh(c)).named("h"), c

    def sequence(self, X: mg.Tensor, mask: Array | None, *state: Array) -> Steps:
        states, _ = super().sequence(X, mask, *state)  # (T + 1, B, H): the last memory behind
        H = states[:-1]
        return H, lambda: (H[-1], states[-1])


class _Recurrent(Module):
    """What the layers share: cells on top of each other, and in both directions."""

    cell: ClassVar[type[_Cell]]

    @renamed(init=7)
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
        *,
        init: Initialiser = "uniform",
    ) -> None:
        check_sizes(type(self).__name__, d_in=d_in, d_hidden=d_hidden, n_layers=n_layers)
        if method not in ("fused", "steps"):
            call = type(self).__name__
            raise ArgumentError(f'{call}: method must be "fused" or "steps", got {method!r}')
        rng = generator(rng)
        self.dtype, self.method = np.dtype(dtype), method
        self.d_in, self.d_hidden = d_in, d_hidden
        self.n_directions = 1 + bool(bidirectional)
        widths = [d_in] + [self.n_directions * d_hidden] * (n_layers - 1)
        self.cells = [
            self.cell(width, d_hidden, use_bias, rng, dtype, init=init)
            for width in widths
            for _ in range(self.n_directions)
        ]
        self.drop = Dropout(dropout, rng) if dropout else None

    def forward(
        self,
        X: mg.Tensor,
        state: State = None,
        mask: Array | None = None,
        return_state: bool = False,
    ) -> mg.Tensor | tuple[mg.Tensor, Array | Arrays]:
        """H (B, T, d_hidden), and with return_state the last states; see the class."""
        self._check(X, mask)
        if mask is not None:  # as a Tensor, so that mg.compile follows what is done with it
            mask = mask if isinstance(mask, mg.Tensor) else mg.tensor(np.asanyarray(mask))
        is_batch = X.ndim == 3
        X = _time_first(X, is_batch)  # (T, B, d)
        mask = None if mask is None else _time_first(mask, is_batch)  # (T, B)
        states = self._first_states(X.shape[1], state)
        last: list[Arrays] = []
        for k in range(0, len(self.cells), self.n_directions):
            if k and self.drop is not None:
                X = self.drop(X)
            outputs = []
            for j in range(k, k + self.n_directions):
                H, after = self._run(self.cells[j], X, mask, states[j], backward=j > k)
                outputs.append(H)
                if return_state:
                    last.append(after())
            X = outputs[0] if len(outputs) == 1 else mg.concatenate(outputs, axis=-1)
        if mask is not None:  # as after PyTorch's pad_packed_sequence
            X = mg.where(mask[:, :, None], X, 0.0)
        H = mg.swapaxes(X, 0, 1) if is_batch else mg.squeeze(X, 1)
        H = H.named("H")  # (B, T, d_hidden) or (T, d_hidden)
        if not return_state:
            return H
        stacked = tuple(mg.stack(parts) for parts in zip(*last, strict=True))
        return H, stacked[0] if len(stacked) == 1 else stacked

    def _run(
        self, cell: _Cell, X: mg.Tensor, mask: Array | None, state: Arrays, backward: bool
    ) -> Steps:
        """One cell through all steps; backward in time, padding comes first."""
        with mg.scope(cell._name or "cell"):
            run = cell.sequence if self.method == "fused" else cell.step_by_step
            if not backward:
                return run(X, mask, *state)
            H, after = run(X[::-1], None if mask is None else mask[::-1], *state)
            return H[::-1], after

    def _first_states(self, batch: int, state: State) -> list[Arrays]:
        """The state that each cell starts from."""
        if state is None:
            return [cell.first_state(batch) for cell in self.cells]
        shape = (len(self.cells), batch, self.d_hidden)
        parts = self.cells[0].states_of(state, type(self).__name__, shape)
        return [tuple([part[k] for part in parts]) for k in range(len(self.cells))]

    def _check(self, X: mg.Tensor, mask: Array | None) -> None:
        call = f"{type(self).__name__}(X)"
        shape = np.shape(X)
        if len(shape) not in (2, 3) or shape[-1] != self.d_in:
            raise ShapeError(
                f"{call}: X must be (B, T, {self.d_in}) or (T, {self.d_in}), got {shape}"
            )
        if mask is not None and np.shape(mask) != X.shape[:-1]:
            raise ShapeError(f"{call}: mask must be {X.shape[:-1]}, got {np.shape(mask)}")
        if mask is not None and as_array(mask).dtype != np.bool_:
            raise DTypeError(f"{call}: mask must be boolean, got {as_array(mask).dtype}")


class RNN(_Recurrent):
    """Sequences through simple recurrent cells; see RNNCell for the equation.

    Args:
        d_in, d_hidden: widths of X and of the states.
        n_layers: cells on top of each other.  bidirectional: each also backward in time.
        dropout: probability, between the layers, in training.
        method: "fused", one op a cell; "steps", every op of every step a node, for looking.
        init: how weights are drawn, by name; "uniform" is ±1/√d_hidden, as in PyTorch.
    Calls:   layer(X, state=None, mask=None, return_state=False). state: what the cells start from,
             (n_layers · directions, B, d_hidden), zeros if None. mask: (B, T), False on padding,
             as np.arange(T) < lengths[:, None]: the state is carried over it, and H is 0 there.
             return_state: (H, state) is returned.
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

    A state is a pair (h, c).

    >>> H, (h, c) = LSTM(3, 5, rng=0)(np.zeros((2, 7, 3)), return_state=True)
    >>> H.shape, h.shape, c.shape
    ((2, 7, 5), (1, 2, 5), (1, 2, 5))
    """

    cell = LSTMCell


def _time_first(x: mg.Tensor, is_batch: bool) -> mg.Tensor:
    """(B, T, …) → (T, B, …); one sequence (T, …) → (T, 1, …)."""
    return mg.swapaxes(x, 0, 1) if is_batch else mg.expand_dims(x, 1)

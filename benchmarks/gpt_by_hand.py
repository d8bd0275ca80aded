"""A GPT's training step in NumPy alone, its backward written out.

Two arrays run through it: x, the residual stream, and d_x, its gradient. Every part adds to them in
place, and keeps in arrays of its own what its backward needs; scratch arrays are shared.
"""

from __future__ import annotations

from math import pi, prod, sqrt
from typing import Any

import numpy as np

from .by_hand import Step, core
from .cases import Gpt, Inputs

__all__ = ["gpt"]


def gpt(case: Gpt, inputs: Inputs) -> Step:
    """One step: the loss, its gradients, and the parameters moved by Adam."""
    model = _Model(case, inputs)
    p, g, B, n, M = model.p, model.g, case.B, case.n, model.rows
    text, targets = (inputs.given[key].reshape(M) for key in ("text", "targets"))
    x, d_x = model.new(case.d_model), model.new(case.d_model)
    halves = [
        half(model, f"{i}.") for i in range(case.layers) for half in (_Attention, _FeedForward)
    ]
    last = _Norm(model, "ln.")
    loss = _Loss(model)
    adam = _Adam(model.parameters, model.gradients)

    def step() -> dict[str, Any]:
        np.take(p["tokens"], text, axis=0, out=x, mode="clip")
        np.add(x.reshape(B, n, -1), p["positions"], x.reshape(B, n, -1))
        for half in halves:
            half.forward(x)
        value = loss.forward(last.forward(x), targets)
        d_x.fill(0)
        last.backward(loss.backward(last.y), d_x)
        for half in reversed(halves):
            half.backward(d_x)
        np.add.reduce(d_x.reshape(B, n, -1), axis=0, out=g["positions"])
        chosen = np.zeros((case.vocabulary, M), model.dtype)
        chosen[text, np.arange(M)] = 1
        np.dot(chosen, d_x, g["tokens"])  # a product is faster than np.add.at
        adam.step()
        return {"loss": value} | {f"d_{name}": gradient for name, gradient in g.items()}

    return step


class _Flat:
    """Arrays that lie one after another in a single one, so that Adam is a few calls."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], dtype: Any) -> None:
        self.all = np.zeros(sum(map(prod, shapes.values())), dtype)
        self.named, start = {}, 0
        for name, shape in shapes.items():
            self.named[name] = self.all[start : start + prod(shape)].reshape(shape)
            start += prod(shape)


class _Model:
    """What the parts share: parameters, their gradients, and scratch arrays."""

    def __init__(self, case: Gpt, inputs: Inputs) -> None:
        self.case, self.mask, self.dtype = case, inputs.given["mask"], inputs.given["mask"].dtype
        self.rows = case.B * case.n
        self.parameters, self.gradients = (_Flat(case.shapes, self.dtype) for _ in range(2))
        self.p, self.g = self.parameters.named, self.gradients.named
        for name, array in inputs.leaves.items():
            self.p[name][:] = array
        self.ones = np.ones(self.rows, self.dtype)
        self.narrow = [self.new(case.d_model) for _ in range(3)]
        self.wide = [self.new(4 * case.d_model) for _ in range(2)]
        self.d_QKV = self.new(3 * case.d_model)

    def new(self, columns: int) -> Any:
        return np.empty((self.rows, columns), self.dtype)

    def affine(self, X: Any, prefix: str, symbol: str, out: Any) -> Any:
        """X W + b."""
        np.dot(X, self.p[f"{prefix}W_{symbol}"], out)
        out += self.p[f"{prefix}b_{symbol}"]
        return out

    def affine_back(self, X: Any, d_out: Any, prefix: str, symbol: str, d_X: Any) -> Any:
        """Its three gradients, that of X written to d_X."""
        np.dot(X.T, d_out, self.g[f"{prefix}W_{symbol}"])
        np.dot(self.ones, d_out, self.g[f"{prefix}b_{symbol}"])
        return np.dot(d_out, self.p[f"{prefix}W_{symbol}"].T, d_X)


class _Norm:
    """y = x̂ ⊙ weight + bias, with x̂ = (x - mean) / √(var + ε)."""

    def __init__(self, model: _Model, prefix: str) -> None:
        self.weight, self.bias = model.p[f"{prefix}weight"], model.p[f"{prefix}bias"]
        self.d_weight, self.d_bias = model.g[f"{prefix}weight"], model.g[f"{prefix}bias"]
        self.normal, self.y = model.new(model.case.d_model), model.new(model.case.d_model)
        self.ones, self.scratch = model.ones, model.narrow[:2]

    def forward(self, x: Any) -> Any:
        np.subtract(x, x.mean(axis=1, keepdims=True), self.normal)
        variance = np.einsum("nd,nd->n", self.normal, self.normal) / x.dtype.type(x.shape[1])
        self.inverse = (1 / np.sqrt(variance + x.dtype.type(1e-5)))[:, None]
        self.normal *= self.inverse
        np.multiply(self.normal, self.weight, self.y)
        self.y += self.bias
        return self.y

    def backward(self, d_y: Any, d_x: Any) -> None:
        """Adds its part to d_x."""
        np.einsum("nd,nd->d", d_y, self.normal, out=self.d_weight)
        np.dot(self.ones, d_y, self.d_bias)
        d, t = self.scratch
        np.multiply(d_y, self.weight, d)
        slope = np.einsum("nd,nd->n", d, self.normal)[:, None] / d.dtype.type(d.shape[1])
        d -= d.mean(axis=1, keepdims=True)
        np.multiply(self.normal, slope, t)
        d -= t
        d *= self.inverse
        d_x += d


class _Attention:
    """x + attention(norm(x)), in heads."""

    def __init__(self, model: _Model, prefix: str) -> None:
        case, self.model, self.prefix = model.case, model, prefix
        self.norm = _Norm(model, f"{prefix}ln1.")
        self.QKV, self.C, self.d_C = (model.new(k * case.d_model) for k in (3, 1, 1))
        self.attend, self.attend_back = core(
            self.QKV, self.C, self.d_C, model.d_QKV, model.mask, case.B, case.n, case.heads
        )

    def forward(self, x: Any) -> None:
        model = self.model
        model.affine(self.norm.forward(x), self.prefix, "QKV", self.QKV)
        self.attend()
        x += model.affine(self.C, self.prefix, "O", model.narrow[0])

    def backward(self, d_x: Any) -> None:
        model = self.model
        model.affine_back(self.C, d_x, self.prefix, "O", self.d_C)
        self.attend_back()
        d_y = model.affine_back(self.norm.y, model.d_QKV, self.prefix, "QKV", model.narrow[2])
        self.norm.backward(d_y, d_x)


class _FeedForward:
    """x + W_2 gelu(W_1 norm(x) + b_1) + b_2, with gelu(u) = u (1 + tanh(c (u + a u³))) / 2."""

    c, a = sqrt(2 / pi), 0.044715

    def __init__(self, model: _Model, prefix: str) -> None:
        self.model, self.prefix, self.norm = model, prefix, _Norm(model, f"{prefix}ln2.")
        self.u, self.tanh, self.active = (model.new(4 * model.case.d_model) for _ in range(3))

    def forward(self, x: Any) -> None:
        model, u, tanh, number = self.model, self.u, self.tanh, x.dtype.type
        model.affine(self.norm.forward(x), self.prefix, "1", u)
        np.multiply(u, u, tanh)
        tanh *= number(self.c * self.a)
        tanh += number(self.c)
        tanh *= u
        np.tanh(tanh, tanh)
        np.add(tanh, number(1), self.active)
        self.active *= u
        self.active *= number(0.5)
        x += model.affine(self.active, self.prefix, "2", model.narrow[0])

    def backward(self, d_x: Any) -> None:
        """gelu'(u) = (1 + tanh + u (1 - tanh²) c (1 + 3 a u²)) / 2."""
        model, u, tanh, number = self.model, self.u, self.tanh, d_x.dtype.type
        slope, d_u = model.wide
        np.multiply(u, u, slope)
        slope *= number(3 * self.c * self.a)
        slope += number(self.c)
        slope *= u
        np.multiply(tanh, tanh, d_u)
        np.subtract(number(1), d_u, d_u)
        slope *= d_u
        slope += tanh
        slope += number(1)
        slope *= number(0.5)
        model.affine_back(self.active, d_x, self.prefix, "2", d_u)
        d_u *= slope
        d_y = model.affine_back(self.norm.y, d_u, self.prefix, "1", model.narrow[2])
        self.norm.backward(d_y, d_x)


class _Loss:
    """Cross-entropy of softmax(y · head), the mean over all positions."""

    def __init__(self, model: _Model) -> None:
        self.head, self.d_head = model.p["head"], model.g["head"]
        self.z, self.rows = model.new(model.case.vocabulary), np.arange(model.rows)
        self.d_y = model.narrow[2]

    def forward(self, y: Any, targets: Any) -> float:
        z, self.targets = np.dot(y, self.head, self.z), targets
        z -= z.max(axis=1, keepdims=True)
        right = z[self.rows, targets]
        np.exp(z, z)
        self.sums = z.sum(axis=1, keepdims=True)
        return float((np.log(self.sums[:, 0]) - right).mean())

    def backward(self, y: Any) -> Any:
        z, number = self.z, self.z.dtype.type
        z /= self.sums
        z[self.rows, self.targets] -= number(1)
        z *= number(1 / len(z))
        np.dot(y.T, z, self.d_head)
        return np.dot(z, self.head.T, self.d_y)


class _Adam:
    """Adam over all parameters at once, with its usual settings."""

    lr, b1, b2, eps = 1e-3, 0.9, 0.999, 1e-8

    def __init__(self, parameters: _Flat, gradients: _Flat) -> None:
        self.w, self.g, self.steps = parameters.all, gradients.all, 0
        self.m, self.v = np.zeros_like(self.w), np.zeros_like(self.w)
        self.scratch = np.empty_like(self.w)

    def step(self) -> None:
        m, v, t, number = self.m, self.v, self.scratch, self.w.dtype.type
        self.steps += 1
        m *= number(self.b1)
        m += np.multiply(self.g, number(1 - self.b1), t)
        v *= number(self.b2)
        np.multiply(self.g, self.g, t)
        t *= number(1 - self.b2)
        v += t
        np.multiply(v, number(1 / (1 - self.b2**self.steps)), t)
        np.sqrt(t, t)
        t += number(self.eps)
        np.divide(m, t, t)
        t *= number(self.lr / (1 - self.b1**self.steps))
        self.w -= t

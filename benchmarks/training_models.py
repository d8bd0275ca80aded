"""The models of `training.py`, at sizes people train, and the same in PyTorch from our weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import minigrad as mg
from layers import LSTM, Conv2d, LanguageModel, Linear, MaxPool2d, Module, Sequential
from minigrad.optim import Adam

from .torch_gpt import torch_forward, torch_logits, torch_parameters

__all__ = ["CASES", "Case", "step_of"]

Step = Callable[[Any, Any], Any]
N_TOKENS = 256
HEADS = 4


class Case(NamedTuple):
    """A model, and the shape of a batch of what it reads."""

    title: str
    make: Callable[..., Module]
    shape: tuple[int, ...]
    classes: int = 10

    def batch(self, rng: np.random.Generator) -> tuple[Any, Any]:
        """Inputs and classes, or tokens and the next ones."""
        if self.classes == N_TOKENS:
            rows, length = self.shape
            tokens = rng.integers(0, N_TOKENS, (rows, length + 1))
            return tokens[:, :-1].copy(), tokens[:, 1:].reshape(-1).copy()
        y = rng.integers(0, self.classes, self.shape[0])
        return rng.normal(size=self.shape).astype(np.float32), y


class Tagger(Module):
    """An LSTM, and what comes next after the last step."""

    def __init__(self, d_in: int, d_hidden: int, **settings: Any) -> None:
        self.lstm, self.out = LSTM(d_in, d_hidden, **settings), Linear(d_hidden, 10, **settings)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(x)[:, -1])


def mlp(width: int, **settings: Any) -> Sequential:
    sizes = ((784, width), (width, width), (width, 10))
    first, second, last = (Linear(a, b, **settings) for a, b in sizes)
    return Sequential(first, mg.relu, second, mg.relu, last)


def cnn(channels: tuple[int, int, int, int], size: int, **settings: Any) -> Sequential:
    a, b, c, d = channels
    left = d * (size // 4) ** 2
    return Sequential(
        Conv2d(a, b, 3, padding=1, **settings), mg.relu,
        Conv2d(b, c, 3, padding=1, **settings), mg.relu, MaxPool2d(2),
        Conv2d(c, d, 3, padding=1, **settings), mg.relu, MaxPool2d(2),
        lambda x: x.reshape(-1, left), Linear(left, 10, **settings),
    )  # fmt: skip


def gpt(d_model: int, length: int, **settings: Any) -> LanguageModel:
    return LanguageModel(N_TOKENS, d_model, n_heads=HEADS, n_layers=4, max_len=length, **settings)


CASES = {
    "mlp": Case("MLP 784-256-256-10, batch 64", lambda **s: mlp(256, **s), (64, 784)),
    "large mlp": Case("MLP 784-1024-1024-10, batch 256", lambda **s: mlp(1024, **s), (256, 784)),
    "cnn": Case(
        "CNN 1-16-16-32, 16 × 16, batch 32",
        lambda **s: cnn((1, 16, 16, 32), 16, **s),
        (32, 1, 16, 16),
    ),
    "large cnn": Case(
        "CNN 3-32-32-64, 32 × 32, batch 64",
        lambda **s: cnn((3, 32, 32, 64), 32, **s),
        (64, 3, 32, 32),
    ),
    "lstm": Case("LSTM 64 → 128, T = 50, batch 32", lambda **s: Tagger(64, 128, **s), (32, 50, 64)),
    "large lstm": Case(
        "LSTM 64 → 256, T = 100, batch 64", lambda **s: Tagger(64, 256, **s), (64, 100, 64)
    ),
    "gpt": Case("GPT 4 × 128, batch 4 × 128", lambda **s: gpt(128, 128, **s), (4, 128), N_TOKENS),
    "large gpt": Case(
        "GPT 4 × 256, batch 8 × 256", lambda **s: gpt(256, 256, **s), (8, 256), N_TOKENS
    ),
}


def step_of(who: str, case: Case) -> Step:
    """One step of training of "eager", "compiled" or "PyTorch", each from the same weights."""
    model = case.make(rng=0, dtype=np.float32)
    if who == "PyTorch":
        return _theirs(model)
    return mg.compile(_ours(model)) if who == "compiled" else _ours(model)


def _ours(model: Module) -> Step:
    optimizer = Adam(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = model(x)
        loss = mg.cross_entropy(logits.reshape(-1, logits.shape[-1]), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _theirs(model: Any) -> Step:
    """The same in PyTorch, from copies of the model's weights."""
    import torch
    from torch import nn

    def copy(target: Any, source: Any) -> None:
        with torch.no_grad():
            target.copy_(torch.from_numpy(np.array(source)))

    def affine(source: Any) -> Any:
        copied = nn.Linear(*source.W.shape)
        copy(copied.weight, source.W.numpy().T)
        copy(copied.bias, source.b.numpy())
        return copied

    def convolution(source: Any) -> Any:
        d_out, d_in, *size = source.weight.shape
        copied = nn.Conv2d(d_in, d_out, tuple(size), padding=1)
        copy(copied.weight, source.weight.numpy())
        copy(copied.bias, source.bias.numpy())
        return copied

    def lstm(source: Any) -> Any:
        cell = next(module for module in source.modules() if hasattr(module, "weight_ih"))
        copied = nn.LSTM(cell.weight_ih.shape[1], cell.weight_hh.shape[1], batch_first=True)
        for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            copy(getattr(copied, f"{key}_l0"), getattr(cell, key).numpy())
        return copied

    made_of: dict[type, Callable[[Any], Any]] = {
        Linear: affine,
        Conv2d: convolution,
        MaxPool2d: lambda x: nn.MaxPool2d(2),
    }
    forward: Callable[[Any], Any]
    if isinstance(model, Tagger):
        recurrent, out = lstm(model.lstm), affine(model.out)
        forward = lambda x: out(recurrent(x)[0][:, -1])  # noqa: E731
        trained = [*recurrent.parameters(), *out.parameters()]
    elif isinstance(model, LanguageModel):
        whole, blocks = torch_parameters(model)
        body = torch_forward(whole, blocks, HEADS, "none")
        forward = lambda tokens: torch_logits(body(tokens), whole)  # noqa: E731
        trained = [x.requires_grad_() for part in (whole, *blocks) for x in part.values()]
    else:
        kinds = [made_of.get(type(layer)) for layer in model.layers]
        forward = nn.Sequential(
            *[
                kind(layer) if kind else nn.ReLU() if layer is mg.relu else nn.Flatten()
                for kind, layer in zip(kinds, model.layers, strict=True)
            ]
        )
        trained = [*forward.parameters()]
    optimizer = torch.optim.Adam(trained, lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = forward(torch.from_numpy(x))
        logits = logits.reshape(-1, logits.shape[-1])
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        return loss

    return step

"""Problems planted in an MLP, a CNN, an LSTM and a GPT, and what `flow.diagnose()` says of them.

    python -m benchmarks.findings --seeds 3

prints a table: of how many runs each problem is named as the first cause, what else was said, and
what was said of healthy runs. Each problem lists the findings that name it. Vanishing, exploding,
dead units, oscillating and slow are those of AutoTrainer (Zhang et al. 2021).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from functools import partial
from multiprocessing import Pool
from typing import Any

import numpy as np

import minigrad as mg
from layers import GRU, RNN
from minigrad.optim import SGD, Adam, AdamW, clip_grad_norm, schedule
from minigrad.watching import Flow

from .findings_models import LETTERS, MODELS, Settings

__all__ = ["HEALTHY", "MODELS", "PROBLEMS", "train"]

ALL = ("MLP", "CNN", "LSTM", "GPT")
NUMBERS = ("MLP", "CNN", "LSTM")
FAST = {"oscillating", "update ratio", "diverging"}
STUCK = {"no better than guessing", "plateau"}


# ------------------------------------------------------------------ what the problems change


def _filled(value: float, net: Any) -> None:
    """Every matrix the same number all over."""
    for name, p in net.named_parameters():
        if p.ndim > 1 and "position" not in name and (value or "embedding" not in name):
            p.assign_(np.full(p.shape, value))


def _turned(net: Any) -> None:
    """The gradient with the wrong sign: a step up."""
    for p in net.parameters():
        p.grad = -p.grad


def _clip(max_norm: float, net: Any) -> None:
    clip_grad_norm(net.parameters(), max_norm)


def _scaled(factor: float, x: Any, y: Any, step: int, rng: Any) -> tuple[Any, Any]:
    return factor * (x - x.min()), y


def _broken(value: float, x: Any, y: Any, step: int, rng: Any) -> tuple[Any, Any]:
    if step == 22 and x.dtype.kind == "f":
        x = x.copy()
        x.flat[5] = value
    return x, y


def _shuffled(x: Any, y: Any, step: int, rng: Any) -> tuple[Any, Any]:
    return x, rng.permutation(y)


def _constant(x: Any, y: Any, step: int, rng: Any) -> tuple[Any, Any]:
    return x, np.ones_like(y)


def _same_inputs(x: Any, y: Any, step: int, rng: Any) -> tuple[Any, Any]:
    """Batch after batch of targets, and always the first row of inputs."""
    return np.repeat(x[:1], len(x), axis=0), y


def _log_of_zero(out: Any, y: Any) -> Any:
    """−log p of relus, which are 0 now and then."""
    p = mg.relu(out)
    return -mg.mean(mg.log(p / p.sum(axis=-1, keepdims=True))[np.arange(len(y)), y])


def _outer(out: Any, y: Any) -> Any:
    """(n, 1) beside (n,): n × n differences."""
    return mg.mean((out - y) ** 2)


def _all_but_last(net: Any) -> list[Any]:
    last = {id(p) for p in net.out.parameters()}
    return [p for p in net.parameters() if id(p) not in last]


def _letters(count: int, x: Any, y: Any, step: int, rng: Any) -> tuple[Any, Any]:
    """Ids that lie far apart in the table."""
    wide = count // LETTERS
    return x * wide, y * wide


# ------------------------------------------------------------------ problems and healthy runs

Problem = tuple[set[str], tuple[str, ...], dict[str, Any]]

PROBLEMS: dict[str, Problem] = {
    # AutoTrainer's
    "vanishing": ({"vanishing"}, ALL, {
        "activation": mg.sigmoid, "depth": 8, "residual": False, "forget": -9.0,
    }),
    "exploding": ({"exploding"}, ALL, {
        "gain": 20.0, "depth": 6, "residual": False, "optimizer": SGD, "lr": 1e-3,
    }),
    "dead units": ({"dead units"}, ALL, {"shift": -30.0}),
    "oscillating": (FAST, ALL, {"activation": mg.tanh, "lr": 1.0}),
    "slow": ({"slow"}, ALL, {"lr": 1e-6}),
    # the step
    "no zero_grad": ({"stale gradient"}, ALL, {"zero_grad": False}),
    "wrong sign": ({"wrong sign"}, ALL, {"gradients": _turned}),
    "momentum too large": (FAST, ALL, {"optimizer": partial(SGD, momentum=0.999), "lr": 1.0}),
    "weight decay too large": (
        {"weight decay"}, ALL, {"optimizer": partial(AdamW, weight_decay=30.0)}
    ),
    "Adam's eps too large": ({"slow"}, ALL, {"optimizer": partial(Adam, eps=1e3)}),
    "clipped to nothing": ({"clipped"}, ALL, {
        "gradients": partial(_clip, 1e-7), "optimizer": SGD, "lr": 0.1,
    }),
    "schedule at 0": ({"slow"}, ALL, {"schedule": partial(schedule.linear, steps=2, end=0.0)}),
    # weights
    "weights all 0": ({"symmetric"}, ALL, {"model": partial(_filled, 0.0)}),
    "weights all equal": ({"symmetric"}, ALL, {"model": partial(_filled, 0.1)}),
    "detached branch": ({"no gradient"}, ALL, {"branch": "detached"}),
    "branch under no_grad": ({"no gradient"}, ALL, {"branch": "no_grad"}),
    "unused branch": ({"no gradient"}, ALL, {"branch": "unused"}),
    "not in the optimizer": ({"no gradient"}, ALL, {"trained": _all_but_last}),
    "embedding rows unused": (
        {"unused rows"}, ("GPT",), {"rows": 64, "data": partial(_letters, 64)}
    ),
    # activations and depth
    "dead gelu": ({"dead units"}, ALL, {"shift": -30.0, "activation": mg.gelu}),
    "saturated tanh": ({"saturated"}, NUMBERS, {"activation": mg.tanh, "gain": 60.0}),
    "saturated sigmoid": ({"saturated"}, NUMBERS, {"activation": mg.sigmoid, "gain": 150.0}),
    "no activation": ({"no activation"}, NUMBERS, {"activation": lambda x: x}),
    "deep without norms": ({"exploding"}, ALL, {
        "depth": 24, "gain": 1.6, "residual": False, "optimizer": SGD, "lr": 1e-2,
    }),
    "vanishing through time": ({"vanishing"}, ("LSTM",), {"length": 60, "forget": -3.0}),
    "vanishing through time, RNN": (
        {"vanishing"}, ("LSTM",), {"cell": RNN, "length": 60, "recurrent_gain": 0.5}
    ),
    "vanishing through time, GRU": (
        {"vanishing"}, ("LSTM",), {"cell": GRU, "length": 60, "recurrent_gain": 0.0}
    ),
    "exploding through time": ({"exploding"}, ("LSTM",), {
        "cell": RNN, "length": 40, "recurrent_gain": 6.0, "optimizer": SGD, "lr": 0.1,
    }),
    # the loss
    "softmax twice": ({"double softmax"}, ALL, {"scores": mg.softmax}),
    "relu on the output": ({"last activation"}, ALL, {"scores": mg.relu}),
    "(n, 1) beside (n,)": ({"broadcast"}, NUMBERS, {"numbers": True, "loss": _outer}),
    "log of 0": ({"not finite"}, ALL, {"loss": _log_of_zero}),
    # data
    "labels shuffled": (STUCK, ALL, {"data": _shuffled}),
    "labels constant": ({"constant targets"}, ALL, {"data": _constant}),
    "inputs always the same": ({"constant inputs"}, ALL, {"data": _same_inputs}),
    "sorted batches": ({"sorted batches"}, NUMBERS, {"data": "sorted"}),
    "inputs of 0 to 16,000": ({"input scale"}, NUMBERS, {"data": partial(_scaled, 2500.0)}),
    "NaN in the data": ({"not finite"}, NUMBERS, {"data": partial(_broken, np.nan)}),
    "inf in the data": ({"not finite"}, NUMBERS, {"data": partial(_broken, np.inf)}),
    "no causal mask": ({"sees the future"}, ("GPT",), {"causal": np.asarray}),
    "mask the wrong way": ({"sees the future"}, ("GPT",), {"causal": np.triu}),
    # training and evaluation
    "dropout in evaluation": (
        {"random in evaluation"}, ALL, {"dropout": True, "held_out": True, "evaluated": False}
    ),
    "evaluation mode in training": (
        {"evaluation mode"}, ("MLP", "CNN"), {"norm": True, "model": lambda net: net.eval()}
    ),
    "overfitting": (
        {"overfitting"}, NUMBERS, {"data": "few", "held_out": True, "steps": 300, "lr": 1e-2}
    ),
}  # fmt: skip
"""By name: the findings that name it, the models it is planted in, and their settings."""

HEALTHY: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "as it is": (ALL, {}),
    "tanh": (ALL, {"activation": mg.tanh}),
    "gelu, float32": (ALL, {"activation": mg.gelu, "dtype": np.float32}),
    "silu": (ALL, {"activation": mg.silu}),
    "leaky_relu, SGD": (ALL, {"activation": mg.leaky_relu, "optimizer": SGD, "lr": 0.05}),
    "AdamW, clipped, cosine": (ALL, {
        "optimizer": AdamW, "gradients": partial(_clip, 1.0),
        "schedule": partial(schedule.cosine, steps=90, warmup=8),
    }),
    "dropout, held-out loss": (ALL, {"dropout": True, "held_out": True}),
    "batch norm": (("MLP", "CNN"), {"norm": True, "held_out": True}),
    "numbers": (NUMBERS, {"numbers": True}),
    "RNN": (("LSTM",), {"cell": RNN}),
    "GRU": (("LSTM",), {"cell": GRU}),
    "LSTM, 60 times": (("LSTM",), {"length": 60}),
    "deeper": (("MLP", "CNN", "GPT"), {"depth": 5}),
    "faster": (ALL, {"lr": 1e-2}),
    "sigmoid": (NUMBERS, {"activation": mg.sigmoid, "depth": 2, "steps": 160, "lr": 1e-2}),
}  # fmt: skip


# ------------------------------------------------------------------ a run


class _Batches:
    """What a run is given: fresh batches, or those of a set, sorted or small."""

    def __init__(self, net: Any, s: Settings, rng: np.random.Generator) -> None:
        self.net, self.s, self.rng, self.set = net, s, rng, None
        if isinstance(s.data, str):
            made = [self.fresh() for _ in range(20 if s.data == "sorted" else 1)]
            x, y = (np.concatenate(part) for part in zip(*made, strict=True))
            if s.data == "few":
                y = rng.permutation(y)
            order = np.argsort(y, kind="stable")
            self.set = (x[order], y[order]) if s.data == "sorted" else (x, y)

    def fresh(self) -> tuple[Any, Any]:
        x, classes, numbers = self.net.batch(self.rng)
        return x, numbers if self.s.numbers else classes

    def __call__(self, step: int) -> tuple[Any, Any]:
        if self.set is not None:
            x, y = self.set
            at = step * 32 % len(x)
            x, y = x[at : at + 32], y[at : at + 32]
        else:
            x, y = self.fresh()
        if callable(self.s.data):
            x, y = self.s.data(x, y, step, self.rng)
        if x.dtype.kind == "f":
            x = x.astype(self.s.dtype)
        return x, y


def _loss(s: Settings, net: Any, x: Any, y: Any) -> Any:
    out = net(x if x.dtype.kind == "i" else mg.tensor(x))
    if s.scores is not None:
        out = s.scores(out)
    if s.loss is not None:
        return s.loss(out, y)
    return mg.mse_loss(out, y[:, None].astype(s.dtype)) if s.numbers else mg.cross_entropy(out, y)


def train(model: str, settings: dict[str, Any], seed: int, every: int = 4) -> Flow:
    """One run, watched."""
    rng, s = np.random.default_rng(seed), Settings(**settings)
    net = MODELS[model](s, rng)
    if s.dtype != np.float64:
        net.to(s.dtype)
    if s.model is not None:
        s.model(net)
    trained = net.parameters() if s.trained is None else s.trained(net)
    optimizer = s.optimizer(trained, lr=s.lr)
    planned = None if s.schedule is None else s.schedule(optimizer)
    batches = _Batches(net, s, rng)
    with mg.watch(net, every=every, traces=0) as flow, np.errstate(all="ignore"):
        for step in range(s.steps):
            x, y = batches(step)
            if s.zero_grad:
                optimizer.zero_grad()
            loss = _loss(s, net, x, y)
            loss.backward()
            if s.gradients is not None:
                s.gradients(net)
            optimizer.step()
            if planned is not None:
                planned.step()
            flow.log(loss=loss)
            if s.held_out and step % 10 == 7:
                flow.log(val_loss=_held_out(s, net, batches))
    return flow


def _held_out(s: Settings, net: Any, batches: _Batches) -> float:
    """The loss of a fresh batch, with dropout only where that is the problem."""
    if s.evaluated:
        net.eval()
    with mg.no_grad():
        x, y = batches.fresh()
        found = _loss(s, net, x.astype(s.dtype) if x.dtype.kind == "f" else x, y).item()
    net.train()
    return found


# ------------------------------------------------------------------ the table


def _tasks(kinds: Any, seeds: range, models: Any) -> Iterator[tuple[str, str, int]]:
    for name, known in kinds.items():
        for model in known[-2]:
            if model in models:
                for seed in seeds:
                    yield name, model, seed


def _kinds(run: tuple[str, str, int, bool]) -> list[str]:
    name, model, seed, healthy = run
    settings = HEALTHY[name][-1] if healthy else PROBLEMS[name][-1]
    return train(model, settings, seed).diagnose().kinds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--models", nargs="*", default=[*MODELS])
    parser.add_argument("--problems", nargs="*", default=[*PROBLEMS])
    parser.add_argument("--healthy", type=int, help="seeds of healthy runs, as many unless given")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    chosen = {name: PROBLEMS[name] for name in options.problems}
    healthy = options.seeds if options.healthy is None else options.healthy
    first = options.first
    planted_seeds = range(first, first + options.seeds)
    healthy_seeds = range(first, first + healthy)
    runs = [(*run, False) for run in _tasks(chosen, planted_seeds, options.models)]
    runs += [(*run, True) for run in _tasks(HEALTHY, healthy_seeds, options.models)]
    with Pool(options.processes) as pool:
        found = dict(zip(runs, pool.map(_kinds, runs, chunksize=1), strict=True))
    print(*_table(found), sep="\n")


def _table(found: dict[tuple[str, str, int, bool], list[str]]) -> Iterator[str]:
    """A line for each problem: how often it is the first cause, by model, and what was instead."""
    named, planted, whole = 0, 0, 0
    problems = dict.fromkeys(name for name, _, _, healthy in found if not healthy)
    yield f"{'planted':30} {'MLP':>6} {'CNN':>6} {'LSTM':>6} {'GPT':>6}   instead or besides"
    for name in problems:
        others, cells = Counter[str](), []
        hits = runs = 0
        for model in MODELS:
            own = [k for run, k in found.items() if run[:2] == (name, model) and not run[3]]
            right = [k for k in own if k and k[0] in PROBLEMS[name][0]]
            cells.append(f"{len(right)}/{len(own)}" if own else "")
            hits, runs = hits + len(right), runs + len(own)
            for kinds in own:
                extra = [k for i, k in enumerate(kinds) if i or k not in PROBLEMS[name][0]]
                others.update(extra or ([] if kinds else ["nothing"]))
        named, planted, whole = named + hits, planted + runs, whole + (hits >= 0.9 * runs)
        said = ", ".join(f"{kind} {count}" for kind, count in others.items())
        yield f"{name:30} " + " ".join(f"{cell:>6}" for cell in cells) + f"   {said}"
    if planted:
        yield f"named first: {named} of {planted} runs, {named / planted:.1%}; kinds of which 9 in "
        yield f"10 runs are named: {whole} of {len(problems)}"
    alarms = {run: kinds for run, kinds in found.items() if run[3]}
    loud = {run: kinds for run, kinds in alarms.items() if kinds}
    if alarms:
        yield f"healthy runs with a finding: {len(loud)} of {len(alarms)}"
        for (name, model, seed, _), kinds in loud.items():
            yield f"  {name}, {model}, seed {seed}: {', '.join(kinds)}"


if __name__ == "__main__":
    main()

"""A compiled step gives what the step gives, whatever changes between the calls.

Random steps are made of terms, each of which depends on something else: a number in a closure, an
attribute, a mask, a flag of a module, what an array holds. Between calls these things change. Every
outcome must be the eager one; where a step breaks the contract, one outcome may differ before the
warning.
"""

from __future__ import annotations

import warnings
from collections import deque
from contextvars import ContextVar
from functools import partial
from operator import attrgetter, itemgetter
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, Module
from minigrad.optim import SGD, Adam, clip_grad_norm
from tests.compare import assert_same

SIZE = 5


def leaf(seed, *shape, name="w"):
    data = np.random.default_rng(seed).uniform(0.5, 1.5, shape or (SIZE,))
    return mg.tensor(data, requires_grad=True, name=name)


# ---------------------------------------------------------------- terms and what changes them
#
# A maker gives a term of a step, and what changes the number that it depends on, if that changes.


def held_in(make_state, read, write):
    """A number that a term reads out of something that its closure holds."""

    def make():
        state = make_state()
        return lambda w, x: w * read(state), lambda rng: write(state, rng.uniform(1, 2))

    return make


def in_globals(source, setup, write):
    """A number that a term finds by its globals, which are its own."""

    def make():
        space = {"mg": mg, "np": np, "ModuleType": ModuleType, "__name__": "somebody"}
        code = f"{setup}\ndef term(w, x, rate=1.5): return {source}"
        exec(compile(code, "my-packages/terms.py", "exec"), space)  # of no installed package
        return space["term"], lambda rng: write(space, rng.uniform(1, 2))

    return make


def unchanged(term):
    return lambda: (term, None)


class Slotted:
    __slots__ = ("__own", "rate")

    def __init__(self):
        self.rate = self.__own = 1.5

    def own(self):
        return self.__own

    def set_own(self, number):
        self.__own = number


class Strange(dict):
    def __getattr__(self, name):
        return self[name]


def set_rate(state, number):
    state.rate = number


def number_in_closure():
    factor = 2.0

    def change(rng):
        nonlocal factor
        factor = rng.uniform(1, 2)

    return lambda w, x: w * factor, change


def in_partial():
    rates = [1.5]
    term = partial(lambda rates, w, x: w * rates[0], rates)
    return term, lambda rng: rates.__setitem__(0, rng.uniform(1, 2))


class Layer(Module):
    def __init__(self):
        self.rate, self.first = 1.5, Linear(SIZE, SIZE, rng=0)
        self.more = [Linear(SIZE, SIZE, rng=1)]

    def forward(self, X):
        for layer in (self.first, *self.more):
            X = mg.tanh(layer(X))
        return X * self.rate if self.training else X


def in_layer():
    layer = Layer()

    def change(rng):
        kind, seed = rng.integers(6), int(rng.integers(9))
        if kind == 0:
            layer.rate = rng.uniform(1, 2)
        elif kind == 1:
            layer.train(not layer.training)
        elif kind == 2:
            layer.more.append(Linear(SIZE, SIZE, rng=seed))
        elif kind == 3:
            layer.first = Linear(SIZE, SIZE, rng=seed)
        elif kind == 4:
            layer.first.W = leaf(seed, SIZE, SIZE, name="W")
        else:
            layer.first.W.assign_(rng.normal(size=(SIZE, SIZE)))

    return lambda w, x: layer(mg.reshape(w, (1, SIZE)))[0], change


def in_captured_tensor():
    other = leaf(3, name="other")

    def change(rng):
        if rng.integers(2):
            other.requires_grad = not other.requires_grad
            other.grad = None
        other.assign_(rng.uniform(1, 2, SIZE))

    return lambda w, x: w * other, change


def dropped_out():
    drawn = np.random.default_rng(7)
    return lambda w, x: mg.dropout(w, 0.4, drawn), lambda rng: drawn.random(int(rng.integers(3)))


def copied_after_a_write(w, x):
    y, row = x * 2, x[None] * 2
    y += 1
    row += 1
    return w * mg.tensor(np.asarray(y)) * mg.tensor(np.asarray(row))[0]


def running_total(w, x):
    """x += y of a number of NumPy's makes another one."""
    total = x.sum()
    first = total
    total += x.max()
    return w * first + total


RATE = attrgetter("rate")
SETTINGS = "w * Settings.rate", "class Settings: rate = 2.0"
NESTED = lambda: {"more": {"rate": 1.5}}, lambda state: state["more"]["rate"]
MASK = lambda: {"mask": np.ones(SIZE)}, itemgetter("mask")
KEPT = {
    "list": held_in(lambda: [1.0, 2.0], sum, lambda s, v: s.__setitem__(1, v)),
    "longer list": held_in(lambda: [1.0], sum, list.append),
    "dict in a dict": held_in(*NESTED, lambda s, v: s["more"].update(rate=v)),
    "another dict": held_in(*NESTED, lambda s, v: s.update(more={"rate": v})),
    "set": held_in(lambda: {1.5}, max, lambda s, v: (s.clear(), s.add(v))),
    "deque": held_in(lambda: deque([1.5], maxlen=3), sum, deque.append),
    "namespace": held_in(lambda: SimpleNamespace(rate=1.5), RATE, set_rate),
    "slots": held_in(Slotted, RATE, set_rate),
    "private slots": held_in(Slotted, Slotted.own, Slotted.set_own),
    "dict with attributes": held_in(
        lambda: Strange(rate=1.5), RATE, lambda s, v: s.update(rate=v)
    ),
    "context variable": held_in(
        lambda: ContextVar("state", default=1.5), ContextVar.get, ContextVar.set
    ),
    "array": held_in(*MASK, lambda s, v: s["mask"].__setitem__(2, v)),
    "another array": held_in(*MASK, lambda s, v: s.update(mask=np.full(SIZE, v))),
    "globals": in_globals("w * rate2", "rate2 = 2.0", lambda s, v: s.update(rate2=v)),
    "function in globals": in_globals(
        "activation(w)", "activation = mg.tanh",
        lambda s, v: s.update(activation=mg.exp if v > 1.5 else mg.sigmoid),
    ),
    "globals of a function": in_globals(
        "helper(w)", "rate2 = 1.5\ndef helper(w): return w * rate2",
        lambda s, v: s.update(rate2=v),
    ),
    "class": in_globals(*SETTINGS, lambda s, v: set_rate(s["Settings"], v)),
    "another class": in_globals(
        *SETTINGS, lambda s, v: s.update(Settings=type("Settings", (), {"rate": v}))
    ),
    "module": in_globals(
        "w * config.rate", "config = ModuleType('config')\nconfig.rate = 1.5",
        lambda s, v: set_rate(s["config"], v),
    ),
    "module in a module": in_globals(
        "w * package.config.rate",
        "package, config = ModuleType('package'), ModuleType('package.config')\n"
        "package.config, config.rate = config, 1.5",
        lambda s, v: set_rate(s["config"], v),
    ),
    "globals of an operator": in_globals(
        "scaled * w",
        "rate2 = 1.5\nclass Scaled:\n    def __mul__(self, w): return w * rate2\n"
        "scaled = Scaled()",
        lambda s, v: s.update(rate2=v),
    ),
    "globals of a compiled function": in_globals(
        "helper(w)", "rate2 = 1.5\n@mg.compile\ndef helper(w): return w * rate2",
        lambda s, v: s.update(rate2=v),
    ),
    "default argument": in_globals(
        "w * rate", "", lambda s, v: setattr(s["term"], "__defaults__", (v,))
    ),
    "closure": number_in_closure,
    "partial": in_partial,
    "layer": in_layer,
    "tensor": in_captured_tensor,
    "generator": dropped_out,
    "computed by NumPy": unchanged(
        lambda w, x: w * (x / np.maximum(x.max(), 1.0)) + np.where(x > 0.5, x, 0)
    ),
    "a stack of one by NumPy": unchanged(lambda w, x: (w * (x[None, None] * 2.0))[0, 0]),
    "reduced by NumPy": unchanged(
        lambda w, x: w * x.max(0) * np.add.reduce(x, 0, np.float32) + (x.argmax(0) == 2)
        + (x > 0.5).mean() + (x[:, None] * x[:2]).sum(1)
    ),
    "a stack of one reduced in another dtype": unchanged(
        lambda w, x: w * x[None, None].sum(-1, dtype=np.float32, keepdims=True)[0, 0]
    ),
    "cut from a copy": unchanged(lambda w, x: w * (x[:, None] + x[:2]).T.reshape(-1)[:SIZE]),
    "condition": unchanged(lambda w, x: w * 2.0 if x.sum() > SIZE * 0.6 else w * 3.0),
    "made by NumPy": unchanged(
        lambda w, x: w * np.arange(SIZE).astype(float) + np.zeros(SIZE) + np.tri(SIZE)[2]
    ),
    "copied after a write": unchanged(copied_after_a_write),
    "running total": unchanged(running_total),
    "data of a tensor": unchanged(lambda w, x: w * (w.data * 2.0) + w * w.numpy().max()),
}  # fmt: skip


# ---------------------------------------------------------------- what breaks the contract


def drawn_outside():
    drawn = np.random.default_rng(3)
    return lambda w, x: w * 2.0 if drawn.random() < 0.5 else w * 3.0, None


def counted():
    calls = []

    def term(w, x):
        calls.append(1)
        return w * float(len(calls))

    return term, None


def carried():
    """A state that the step reads and sets, none at first."""
    state = SimpleNamespace(last=None)

    def term(w, x):
        y = w * x if state.last is None else w * x + state.last
        state.last = y.numpy()
        return y

    return term, None


def carried_by_name():
    state = SimpleNamespace(last=None)

    def term(w, x):
        last = getattr(state, "last", None)
        y = w * x if last is None else w * x + last
        vars(state)["last"] = y.numpy()
        return y

    return term, None


def carried_array():
    state = SimpleNamespace(last=np.zeros(SIZE))

    def term(w, x):
        y = w * x + state.last
        state.last = y.numpy()
        return y

    return term, None


def doubled_in_place(w, x):
    y = mg.tensor(x)
    array = y.data
    array *= 2
    return w * y


def written_by_the_step():
    state = np.zeros(SIZE)

    def term(w, x):
        state[:] = state + x
        return w * state

    return term, None


BROKEN = {
    "asarray": unchanged(lambda w, x: w / float(np.asarray(x).max())),
    "view": unchanged(lambda w, x: w / float(x.view(np.ndarray).max())),
    "memoryview": unchanged(lambda w, x: w / memoryview(x)[0]),
    "DLPack": unchanged(lambda w, x: w / float(np.from_dlpack(x).max())),
    "taken out": unchanged(lambda w, x: w * float(x[0]) * int(x.sum()) * x.max().item()),
    "taken out of what is held": held_in(
        lambda: np.ones(SIZE), lambda s: float(s[0]), lambda s, v: s.__setitem__(0, v)
    ),
    "drawn": drawn_outside,
    "counted": counted,
    "carried": carried,
    "carried by name": carried_by_name,
    "carried in an array": carried_array,
    "written through .data": unchanged(doubled_in_place),
    "as many as are true": unchanged(lambda w, x: w * mg.mean(w[np.where(x > 0.5)[0]])),
    "written": written_by_the_step,
}
ENDS = ["plain", "SGD", "Adam", "clipped", "by hand", "summed", "cleared"]


class World:
    """A step and all that it reaches, made the same each time."""

    def __init__(self, makers, end):
        self.w = leaf(0)
        made = [make() for make in makers]
        terms, self.changes = [term for term, _ in made], [c for _, c in made if c is not None]
        self.optimizer = {"SGD": SGD, "clipped": partial(SGD, momentum=0.9)}.get(end, Adam)(
            [self.w], lr=0.05
        )
        optimizer, w = self.optimizer, self.w

        def step(x):
            loss = mg.sum(terms[0](w, x))
            for term in terms[1:]:
                loss = loss + mg.sum(term(w, x))
            if end != "summed":
                w.grad = None
            loss.backward()
            if end == "clipped":
                clip_grad_norm([w], 0.5)
            if end == "by hand":
                norm = np.sqrt((w.grad**2).sum())
                w.grad *= np.minimum(1.0, 0.5 / (norm + 1e-6))
                w.assign_(w.data - 0.1 * w.grad)
            elif end != "plain":
                optimizer.step()
            if end == "cleared":
                w.grad = None
            return loss

        self.step = step

    def outcome(self, run, x):
        loss = run(x)
        grad = 0.0 if self.w.grad is None else self.w.grad
        return {"loss": loss.numpy().copy(), "w": self.w.numpy().copy(), "grad": grad}


def wrong_calls(makers, end, seed, calls=10):
    """Calls whose outcome is not the eager one; how many warnings there were; the compiled step."""
    eager, other = World(makers, end), World(makers, end)
    run = mg.compile(other.step)
    rng, wrong = np.random.default_rng(seed), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in range(calls):
            x = np.random.default_rng([seed, call // 2]).uniform(size=SIZE)
            wanted, found = eager.outcome(eager.step, x), other.outcome(run, x)
            try:
                assert_same(found, wanted, 1e-9)
            except AssertionError:
                wrong.append(call)
                other.w.assign_(eager.w.numpy())
            if eager.changes and rng.integers(2):
                k, again = rng.integers(len(eager.changes)), int(rng.integers(1 << 30))
                for world in (eager, other):
                    world.changes[k](np.random.default_rng(again))
            if rng.integers(4) == 0:
                for world in (eager, other):
                    world.optimizer.lr = 0.05 + 0.01 * call
    return wrong, len(caught), run


def random_makers(pool, seed, most):
    """One of a pool, each in its turn, and up to so many of those within the contract."""
    rng = np.random.default_rng(seed)
    more = rng.choice(list(KEPT.values()), size=rng.integers(most + 1))
    return [list(pool.values())[seed % len(pool)], *more], ENDS[rng.integers(len(ENDS))]


@pytest.mark.parametrize("seed", range(4 * len(KEPT)))
def test_a_step_within_the_contract_gives_what_it_gives_eagerly(seed):
    wrong, _, run = wrong_calls(*random_makers(KEPT, seed, 2), seed)
    assert wrong == [], run


@pytest.mark.parametrize("seed", range(8 * len(BROKEN)))
def test_a_step_outside_the_contract_is_noticed_by_its_second_wrong_outcome(seed):
    wrong, warned, run = wrong_calls(*random_makers(BROKEN, seed, 1), seed)
    assert len(wrong) <= 1, run
    assert warned or not wrong


@pytest.mark.parametrize("maker", KEPT.values(), ids=KEPT)
def test_each_term_within_the_contract_compiles(maker):
    eager = World([maker], "plain")
    run = mg.compile(eager.step)
    for call in range(6):
        eager.outcome(run, np.random.default_rng(call).uniform(size=SIZE))
    assert run.reasons == []
    assert run.recordings <= 3


# ---------------------------------------------------------------- tokens

REARRANGED = {
    "slice": lambda t: t[:, :-1],
    "reshape of a slice": lambda t: t[:, :-1].reshape(-1),
    "reshape to a shape": lambda t: t[:, 1:].reshape(9, 2),
    "reshape in another order": lambda t: t.reshape(-1, order="F"),
    "reshape of a transpose": lambda t: t.T.reshape((-1,)),
    "np.reshape": lambda t: np.reshape(t[:, 1:], -1),
    "ravel": lambda t: t[:, 1:].ravel(),
    "flatten": lambda t: t[:, 1:].flatten(),
    "copy": lambda t: t[:, 1:].copy(),
    "astype": lambda t: t[:, 1:].astype(np.int32),
    "concatenate": lambda t: np.concatenate([t[:, :1], t], axis=1),
    "repeat": lambda t: t[:, 1:].repeat(2, axis=0),
    "roll": lambda t: np.roll(t, 1, axis=1),
    "flip": lambda t: np.flip(t, axis=1)[:, 1:].reshape(-1),
    "take": lambda t: t.take([0, 2], axis=1),
    "flat": lambda t: t[:, 1:].flat[3:7],
    "diagonal": lambda t: t.diagonal(),
    "sort": lambda t: np.sort(t[:, 1:], axis=None),
    "tobytes": lambda t: np.frombuffer(t[:, 1:].tobytes(), t.dtype),
}


@pytest.mark.parametrize("form", REARRANGED)
def test_tokens_rearranged_within_a_step_are_each_call_s_own(form):
    ones, others, rearranged = leaf(0, 7, 3), leaf(0, 7, 3), REARRANGED[form]

    def made(W):
        def step(t):
            W.grad = None
            loss = mg.sum(mg.take(W, rearranged(t), axis=0) ** 2)
            loss.backward()
            return loss

        return step

    eager, run = made(ones), mg.compile(made(others))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mg.CompileWarning)
        run(np.zeros((3, 7), int))
    for call in range(3):  # of which none is audited: not even the first is wrong
        t = np.random.default_rng(call).integers(0, 7, (3, 7))
        for variant in run.variants:
            variant.calls = 4
        assert_same(run(t), eager(t), 1e-9)
        assert_same(others.grad, ones.grad, 1e-9)
    if "reshape" in form or form in ("slice", "ravel", "copy", "astype"):
        assert run.reasons == []


def test_tokens_out_of_range_are_refused_at_a_later_call_too():
    W = leaf(0, 7, SIZE)
    take = partial(mg.take, axis=0, negative=False)
    run = mg.compile(lambda tokens: mg.sum(take(W, tokens)).detach())
    for call in range(3):
        run(np.full((2, 3), call))
    with pytest.raises(mg.errors.OutOfRangeError):
        run(np.full((2, 3), -1))


# ---------------------------------------------------------------- how it says so


def test_the_warning_names_what_differs_and_where_and_the_step_goes_on_eagerly():
    w = leaf(0)

    @mg.compile
    def step(x):
        return (w * float(np.asarray(x).max())).detach()

    step(np.ones(SIZE))
    with pytest.warns(
        mg.CompileWarning, match="call 2 differs .* what it returns, by up to"
    ) as seen:
        found = step(np.full(SIZE, 2.0))
    assert_same(found.numpy(), 2 * w.numpy())
    assert seen[0].filename == __file__
    assert_same(step(np.full(SIZE, 3.0)).numpy(), 3 * w.numpy())
    assert "runs eagerly: call 2 differs" in repr(step)


def test_a_returned_number_that_was_frozen_is_noticed():
    w = leaf(0)
    run = mg.compile(lambda x: ((w * x).detach(), float(np.asarray(x).max())))
    run(np.ones(SIZE))
    with pytest.warns(mg.CompileWarning, match=r"in what it returns\[1\], 1.0 in place of 2.0"):
        assert run(np.full(SIZE, 2.0))[1] == 2.0


@pytest.mark.parametrize("shape", [(SIZE,), (4000 * SIZE,), (3, 7, 1000)])
def test_what_changed_in_an_array_is_noticed_at_the_next_call(shape):
    """Which no audit is due at; of large arrays some entries are looked at."""
    w, state = leaf(0), np.ones(shape)
    run = mg.compile(lambda: (w * float(state.max())).detach())
    for _ in range(4):
        run()
    state *= 2.0
    with pytest.warns(mg.CompileWarning, match="call 5 differs .* in what it returns"):
        assert_same(run().numpy(), 2 * w.numpy())


def test_an_audit_on_demand_finds_what_changed():
    w, state = leaf(0), np.ones(SIZE * 4000)

    @mg.compile
    def step(x):
        return (w * float(state[0]) * x).detach()

    for _ in range(3):
        step(np.ones(SIZE))
    step.audit(np.ones(SIZE))
    state[0] = 2.0
    with pytest.warns(mg.CompileWarning, match="in what it returns"):
        step.audit(np.ones(SIZE))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_rounding_may_do_follows_from_the_terms_that_were_summed(dtype):
    """A loss of 1e-5 from logits of 12 carries their rounding; twice that is a fault."""
    logits = mg.tensor(np.full((8, 3), -12.0, dtype), requires_grad=True)
    logits.assign_(np.where(np.eye(3)[np.arange(8) % 3], 0.3, logits.numpy()).astype(dtype))

    def step(y):
        loss = mg.cross_entropy(logits, y)
        loss.backward()
        return loss

    def compiled_to_be_off_by(shift):
        run = mg.compile(step)
        for _ in range(3):
            run(y)
        (entry,) = (variant for variant in run.variants if variant.fits([y]))
        exact = entry.run
        entry.run = lambda *args: mg.tensor(exact(*args).numpy() + dtype(shift))
        return run

    y = np.arange(8) % 3
    loss, ulp = step(y).item(), np.finfo(dtype).eps
    assert 1e-6 < loss < 1e-4
    close = compiled_to_be_off_by(2 * ulp)
    close.audit(y)
    assert not close.reasons
    assert ("differs by rounding in what it returns" in repr(close)) == (dtype is np.float32)
    wrong = compiled_to_be_off_by(loss)
    with pytest.warns(mg.CompileWarning, match="in what it returns, by up to"):
        wrong.audit(y)


def test_an_error_that_only_the_program_raises_is_found_by_an_audit():
    w = leaf(0)
    run = mg.compile(lambda x: (w * x).detach())
    run(np.ones(SIZE))

    def failing(*args):
        raise ValueError("planted")

    run.variants[0].run = failing
    with pytest.warns(mg.CompileWarning, match="only the program raises: ValueError"):
        assert_same(run.audit(np.ones(SIZE)).numpy(), w.numpy())


def test_a_step_that_was_not_called_says_so():
    assert repr(mg.compile(leaf)) == "<compiled leaf: not called yet>"


@pytest.mark.parametrize("seed", range(2))
def test_a_run_that_converges_to_gradients_of_rounding_size_stays_compiled(seed):
    rng = np.random.default_rng(seed)
    first = Linear(16, 32, rng=seed, dtype=np.float32)
    last = Linear(32, 4, rng=seed + 1, dtype=np.float32)
    optimizer = Adam([*first.parameters(), *last.parameters()], lr=5e-2)
    x, y = rng.normal(size=(8, 16)).astype(np.float32), rng.integers(0, 4, 8)

    @mg.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = mg.cross_entropy(last(mg.relu(first(x))), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x, y).item() for _ in range(300)]
    assert losses[-1] < 1e-4 * losses[0]
    assert step.reasons == []

"""save and load: a run goes on bit for bit, and a file that is not whole is never taken for one."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, Module
from minigrad.data import batches
from minigrad.errors import ArgumentError, FileError
from minigrad.optim import SGD, Adam, MovingAverage, RMSprop, schedule
from tests.compare import assert_same
from tests.process import python


class Noisy(Module):
    """Two layers with dropout between, which draws from a generator of the layer's own."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.first, self.last = Linear(3, 7, rng=rng), Linear(7, 2, rng=rng)
        self.rng = np.random.default_rng(seed)

    def forward(self, x):
        return self.last(mg.dropout(mg.tanh(self.first(x)), 0.3, self.rng))


class Run:
    """All that a training run has, made anew with seeds that loading must make good."""

    def __init__(self, seed=0, kind="adam"):
        X = np.random.default_rng(7).normal(size=(22, 3))
        self.model, lr = Noisy(seed), 0.01 * (1 + seed)
        if kind == "adam":
            self.optimizer = Adam(self.model.parameters(), lr)
            self.schedule = schedule.cosine(self.optimizer, steps=40, warmup=5)
        else:
            self.optimizer = RMSprop(
                self.model.parameters(), lr, momentum=0.5, weight_decay=0.1, no_decay=True
            )
            self.schedule = schedule.plateau(self.optimizer, factor=0.5, patience=1)
        self.average = MovingAverage(self.model.parameters(), decay=0.9)
        self.data = batches(X, X[:, :2], batch_size=4, rng=np.random.default_rng(seed))
        self.steps = 0

    def parts(self):
        names = ("model", "optimizer", "schedule", "average", "data")
        return {name: getattr(self, name) for name in names}

    def train(self, until, each=lambda run: None):
        while self.steps < until:
            for x, y in self.data:
                self.optimizer.zero_grad()
                loss = mg.mean((self.model(x) - y) ** 2)
                loss.backward()
                self.optimizer.step()
                self.schedule.step(*[loss] * isinstance(self.schedule, schedule.Plateau))
                self.average.step()
                self.steps += 1
                each(self)
                if self.steps == until:
                    return self
        return self

    def weights(self):
        return np.concatenate([p.numpy().reshape(-1) for p in self.model.parameters()])


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_a_run_saved_anywhere_goes_on_bit_for_bit(kind, tmp_path):
    whole = Run(kind=kind).train(17)
    path = tmp_path / "run.npz"
    for stop in (1, 6, 13):
        first = Run(kind=kind).train(stop)
        mg.save(path, **first.parts(), step=first.steps, note={"seed": 3})
        second = Run(seed=5, kind=kind)
        found = mg.load(path, **second.parts())
        assert (found["step"], found["note"], found["path"]) == (stop, {"seed": 3}, path)
        second.steps = found["step"]
        np.testing.assert_array_equal(second.train(17).weights(), whole.weights())
        assert second.optimizer.lr == whole.optimizer.lr
        with second.average.weights(), whole.average.weights():
            np.testing.assert_array_equal(second.weights(), whole.weights())


KILLED = """
import os, signal, sys
import minigrad as mg
import minigrad.saving as saving
from tests.test_saving import Run

run, path, at, where = Run(), sys.argv[1], int(sys.argv[2]), sys.argv[3]
if os.path.exists(path) or os.path.exists(path + ".1"):
    run.steps = mg.load(path, **run.parts())["step"]
saves = 0
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def each(run):
    global saves
    if run.steps % 2 == 0:
        saves += 1
        if saves == at and where != "step":
            owner, name = (saving, where) if hasattr(saving, where) else (os, where)
            setattr(owner, name, die)
        mg.save(path, **run.parts(), step=run.steps)
    if saves == at and where == "step":
        die()
run.train(17, each)
print(*(repr(float(w)) for w in run.weights()))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_run_killed_again_and_again_ends_as_one_never_killed(tmp_path):
    """In a step, and at each moment of a save: while written, before and after the renaming."""
    path = tmp_path / "run.npz"
    for where in ("step", "fsync", "_shift", "replace", "_sync_folder"):
        python("-c", KILLED, path, 2, where, status=-signal.SIGKILL)
    ended = python("-c", KILLED, path, 99, "step")
    assert_same([float(w) for w in ended.stdout.split()], Run().train(17).weights(), 0)


# ---------------------------------------------------------------- files that are not whole


@pytest.fixture
def two(tmp_path):
    """A path at which two runs were saved, the model's weights 1 and then 2."""
    model = Linear(3, 2)
    for value in (1.0, 2.0):
        for p in model.parameters():
            p.assign_(np.full(p.shape, value))
        mg.save(tmp_path / "run.npz", model=model, step=int(value))
    return tmp_path / "run.npz"


def half(path, content):
    path.write_bytes(content[: len(content) // 2])


def flip(path, content):
    path.write_bytes(content[:300] + bytes([content[300] ^ 1]) + content[301:])


def lose(path, content):
    with np.load(path) as archive:
        rest = {name: archive[name] for name in archive.files if name != "model/state/W"}
    np.savez(path, **rest)


def pickled(path, content):
    np.savez(path, **{"minigrad.json": np.array([object()])})


def without_parts(path, content):
    text = json.dumps({"minigrad": 1, "step": 1, "note": None}).encode()
    np.savez(path, **{"minigrad.json": np.frombuffer(text, np.uint8)})


DAMAGED = r"run\.npz is damaged, or no file of minigrad"
HARMS = {
    "torn": (half, DAMAGED),
    "empty": (lambda path, content: path.write_bytes(b""), DAMAGED),
    "foreign": (lambda path, content: path.write_bytes(b"PK\x03\x04 no file of ours"), DAMAGED),
    "text": (lambda path, content: path.write_bytes(b"hello world, hello world"), DAMAGED),
    "flipped": (flip, DAMAGED),
    "arrays": (lambda path, content: np.savez(path, W=np.ones(3)), DAMAGED),
    "pickled": (pickled, "it holds Python objects, which are never unpickled"),
    "lost": (lose, r"run\.npz has lost the array 'model/state/W'"),
    "without parts": (without_parts, "it has no 'parts'"),
    "gone": (lambda path, content: path.unlink(), "no such file: "),
}


@pytest.mark.parametrize("how", HARMS)
def test_of_a_damaged_file_the_one_before_it_is_used_or_nothing_is_written(two, how):
    harm, said = HARMS[how]
    harm(two, two.read_bytes())
    model = Linear(3, 2)
    with pytest.warns(UserWarning, match=rf"{said}.*run\.npz\.1 is used instead"):
        assert mg.load(two, model=model)["step"] == 1
    np.testing.assert_array_equal(model.W.numpy(), np.ones((3, 2)))
    Path(f"{two}.1").unlink()
    model = Linear(3, 2, rng=0)
    before = model.W.numpy().copy()
    with pytest.raises(FileError, match=said) as error:
        mg.load(two, model=model)
    assert "allow_pickle" not in str(error.value)
    np.testing.assert_array_equal(model.W.numpy(), before)


def test_step_and_note_keep_their_arrays_whatever_their_order(tmp_path):
    rng = np.random.default_rng(0)
    note = {
        "losses": [1.0, np.float32([2, 3])], "a/b": np.ones(2), "a": {"b": np.array([5.0])},
        "fortran": np.asfortranarray(rng.normal(size=(3, 5))), "empty": np.zeros((0, 3)),
        "half": rng.normal(size=4).astype(np.float16), "bool": np.array([True, False]),
        "scalar": np.array(2.5), "step": np.arange(12).reshape(3, 4)[:, ::2],
        "text": "é", "count": np.int64(3), "none": None,
    }  # fmt: skip
    given = note | {"a": {"b": mg.tensor([5.0])}}
    found = mg.load(mg.save(tmp_path / "run.npz", step=np.arange(3), note=given))
    np.testing.assert_array_equal(found["step"], [0, 1, 2])
    assert found["note"].keys() == note.keys()
    assert_same(found["note"], note, 0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"note": {"x": {1, 2}}}, "note/x is a set"),
        ({"note": np.array([object()])}, "note is an array of Python objects"),
        ({"note": {1: 2, "1": 3}}, "keys of note are kept as text"),
        ({"note": 2j}, "note is a complex"),
        ({"model": [1, 2]}, "a list has no state_dict"),
        ({"keep": 0}, "keep must be at least 1, got 0"),
    ],
)
def test_what_a_file_cannot_keep_is_refused_before_anything_is_written(tmp_path, given, said):
    with pytest.raises(ArgumentError, match=said):
        mg.save(tmp_path / "run.npz", **given)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("keep", [1, 2, 4])
def test_so_many_files_are_kept_newest_first(tmp_path, keep):
    for step in range(6):
        mg.save(tmp_path / "run.npz", step=step, keep=keep)
    names = ["run.npz", *(f"run.npz.{i}" for i in range(1, keep))]
    assert sorted(os.listdir(tmp_path)) == names
    assert [mg.load(tmp_path / name)["step"] for name in names] == [5, 4, 3, 2][:keep]


def test_a_save_that_fails_leaves_what_was_there(two, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        mg.save(two, model=Linear(3, 2), step=3)
    assert mg.load(two)["step"] == 2
    assert sorted(os.listdir(two.parent)) == ["run.npz", "run.npz.1"]


# ---------------------------------------------------------------- files of something else


def test_all_that_does_not_fit_is_listed_and_nothing_is_loaded(tmp_path):
    """What does fit is put back, as the second layer is."""
    first, second, other = Run(), Linear(3, 2, rng=0), Linear(3, 2, rng=1)
    rng = np.random.default_rng(1)
    parts = {"model": first.model, "layer": second, "optimizer": first.optimizer, "rng": rng}
    path = mg.save(tmp_path / "run.npz", **parts)
    momentum = SGD(other.parameters(), lr=0.5)
    mersenne = np.random.Generator(np.random.MT19937(0))
    before = other.W.numpy().copy(), mersenne.bit_generator.state["state"]["pos"]
    wrong = {"model": other, "optimizer": momentum, "rng": mersenne, "data": first.data}
    with pytest.raises(ArgumentError) as error:
        mg.load(path, layer=other, **wrong)
    text = str(error.value)
    assert text.startswith(f"load: nothing was loaded from {path}\n")
    assert "data: not in the file" in text
    assert "model: generators: [] here, ['rng'] in the file" in text
    assert "kind: Adam in the state" in text
    assert "rng: state must be for a MT19937 PRNG" in text
    np.testing.assert_array_equal(other.W.numpy(), before[0])
    assert mersenne.bit_generator.state["state"]["pos"] == before[1]
    assert momentum.lr == 0.5


def test_whatever_a_users_own_part_raises_the_others_are_put_back(tmp_path):
    class Counter:
        def state_dict(self):
            return {"count": 3}

        def load_state_dict(self, state):
            raise RuntimeError("no such count")

    path = mg.save(tmp_path / "run.npz", counter=Counter(), model=Linear(3, 2, rng=0))
    model = Linear(3, 2, rng=1)
    before = model.W.numpy().copy()
    with pytest.raises(ArgumentError, match="counter: no such count"):
        mg.load(path, counter=Counter(), model=model)
    with pytest.raises(ArgumentError, match=r"^load: a int has no state_dict"):
        mg.load(path, model=5)
    np.testing.assert_array_equal(model.W.numpy(), before)


def test_what_is_not_asked_for_is_returned_as_it_was_saved(tmp_path):
    model = Linear(3, 2, rng=np.random.default_rng(0))
    generators = {
        "pcg": np.random.default_rng(3), "mersenne": np.random.Generator(np.random.MT19937(3))
    }  # fmt: skip
    for name, rng in generators.items():
        path = mg.save(tmp_path / name, model=model, rng=rng, step=np.int64(3))
        found = mg.load(path)
        assert found["step"] == 3
        np.testing.assert_array_equal(found["model"]["state"]["W"], model.W.numpy())
        expected = rng.normal(size=5)
        fresh = np.random.Generator(type(rng.bit_generator)(99))
        mg.load(path, rng=fresh)
        np.testing.assert_array_equal(fresh.normal(size=5), expected)

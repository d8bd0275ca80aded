"""save and load: a run goes on bit for bit; whatever is written is there whole or not at all."""

import os
import signal
import stat
from functools import partial

import numpy as np
import pytest

import minigrad as mg
from layers import Linear, Module
from minigrad.data import batches
from minigrad.errors import ArgumentError, FileError
from minigrad.optim import SGD, Adam, schedule
from minigrad.saving import write, writing
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

    def __init__(self, seed=0, kind=Adam):
        X = np.random.default_rng(7).normal(size=(22, 3))
        self.model = Noisy(seed)
        self.optimizer = kind(self.model.parameters(), 0.01 * (1 + seed), weight_decay=0.1)
        self.schedule = schedule.cosine(self.optimizer, steps=40, warmup=5)
        self.data = batches(X, X[:, :2], batch_size=4, rng=np.random.default_rng(seed))
        self.steps = 0

    def parts(self):
        return {name: getattr(self, name) for name in ("model", "optimizer", "schedule", "data")}

    def train(self, until, each=lambda run: None):
        while self.steps < until:
            for x, y in self.data:
                self.optimizer.zero_grad()
                mg.mean((self.model(x) - y) ** 2).backward()
                self.optimizer.step()
                self.schedule.step()
                self.steps += 1
                each(self)
                if self.steps == until:
                    return self
        return self

    def weights(self):
        return np.concatenate([p.numpy().reshape(-1) for p in self.model.parameters()])


@pytest.mark.parametrize("kind", [partial(SGD, momentum=0.9), Adam])
def test_a_run_saved_anywhere_goes_on_bit_for_bit(kind, tmp_path):
    whole = Run(kind=kind).train(17)
    for stop in (1, 6, 13):
        first = Run(kind=kind).train(stop)
        path = mg.save(tmp_path / "run.npz", **first.parts(), step=first.steps, note={"seed": 3})
        second = Run(seed=5, kind=kind)
        found = mg.load(path, **second.parts())
        assert (found["step"], found["note"]) == (stop, {"seed": 3})
        second.steps = found["step"]
        np.testing.assert_array_equal(second.train(17).weights(), whole.weights())
        assert second.optimizer.lr == whole.optimizer.lr


KILLED = """
import os, signal, sys
import minigrad as mg
from tests.test_saving import Run

run, path, at, where = Run(), sys.argv[1], int(sys.argv[2]), sys.argv[3]
if os.path.exists(path):
    run.steps = mg.load(path, **run.parts())["step"]
saves = 0
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def each(run):
    global saves
    if run.steps % 2 == 0:
        saves += 1
        if saves == at and where != "step":
            setattr(os, where, die)
        mg.save(path, **run.parts(), step=run.steps)
    if saves == at and where == "step":
        die()
run.train(17, each)
print(*(repr(float(w)) for w in run.weights()))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_run_killed_again_and_again_ends_as_one_never_killed(tmp_path):
    """In a step, and at two moments of a save: when it is written, and before the renaming."""
    for where in ("step", "fsync", "replace"):
        python("-c", KILLED, tmp_path / "run.npz", 2, where, status=-signal.SIGKILL)
    ended = python("-c", KILLED, tmp_path / "run.npz", 99, "step")
    assert_same([float(w) for w in ended.stdout.split()], Run().train(17).weights(), 0)


# ---------------------------------------------------------------- optimizers go by names


def pair(order):
    """A model of two layers of one shape, which stand in this order, and its Adam."""

    class Pair(Module):
        def __init__(self):
            rngs = {name: np.random.default_rng(seed) for seed, name in enumerate("ab")}
            for name in order:
                setattr(self, name, Linear(3, 3, rng=rngs[name]))

        def forward(self, x):
            return self.b(mg.tanh(self.a(x)))

    model = Pair()
    return model, Adam(model.parameters(), lr=0.05)


def steps(model, optimizer, count):
    for _ in range(count):
        optimizer.zero_grad()
        mg.mean((model(np.eye(3)) - 2.0) ** 2).backward()
        optimizer.step()
    return model.state_dict()


def test_what_an_optimizer_keeps_goes_by_the_names_of_its_parameters(tmp_path):
    """A class whose layers stand in another order goes on as the one that was saved."""
    model, optimizer = pair("ab")
    steps(model, optimizer, 5)
    path = mg.save(tmp_path / "run.npz", model=model, optimizer=optimizer)
    expected = steps(model, optimizer, 5)
    other, its = pair("ba")
    mg.load(path, model=other, optimizer=its)
    found = steps(other, its, 5)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_an_optimizer_of_other_parameters_or_alone_in_another_order_is_refused(tmp_path):
    model, optimizer = pair("ab")
    steps(model, optimizer, 1)
    path = mg.save(tmp_path / "run.npz", model=model, optimizer=optimizer)
    part = Adam(model.a.parameters())
    with pytest.raises(ArgumentError, match=r"only in the file: \['model.b.W', 'model.b.b'\]"):
        mg.load(path, model=model, optimizer=part)
    other = Adam([model.a.b, model.a.W, model.b.W, model.b.b])
    with pytest.raises(ArgumentError, match="parameter 0: b here, W in the state; save and load"):
        mg.load(path, optimizer=other)


# ---------------------------------------------------------------- files that are not whole


@pytest.fixture
def saved(tmp_path):
    return mg.save(tmp_path / "run.npz", model=Linear(3, 2, rng=0), step=2)


def flip(path, content):
    path.write_bytes(content[:300] + bytes([content[300] ^ 1]) + content[301:])


def lose(path, content):
    with np.load(path) as archive:
        rest = {name: archive[name] for name in archive.files if name != "model/state/W"}
    np.savez(path, **rest)


def pickled(path, content):
    np.savez(path, **{"minigrad.json": np.array([object()])})


def later(path, content):
    text = b'{"minigrad": 3, "step": 1, "note": null, "parts": {}}'
    np.savez(path, **{"minigrad.json": np.frombuffer(text, np.uint8)})


def pipe(path, content):
    path.unlink()
    os.mkfifo(path)


DAMAGED = r"run\.npz is damaged, or no file of minigrad"
HARMS = {
    "flipped": (flip, DAMAGED),
    "arrays": (lambda path, content: np.savez(path, W=np.ones(3)), r"KeyError\('minigrad.json'\)"),
    "pickled": (pickled, "Python objects are never unpickled"),
    "lost": (lose, r"KeyError\('model/state/W'\)"),
    "later": (later, "of version 3; this minigrad"),
    "pipe": (pipe, "no such file"),
}


@pytest.mark.parametrize("how", HARMS)
def test_of_a_damaged_file_nothing_is_loaded(saved, how):
    harm, said = HARMS[how]
    harm(saved, saved.read_bytes())
    model = Linear(3, 2, rng=1)
    before = model.W.numpy().copy()
    with pytest.raises(FileError, match=said) as error:
        mg.load(saved, model=model)
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
        ({"note": {"x": {1, 2}}}, "note/x: .* not {1, 2}"),
        ({"note": np.array([object()])}, r"note: .* not array\(\[<object"),
        ({"note": {1: 2, "1": 3}}, "keys of note are kept as text"),
        ({"note": 2j}, "note: .* not 2j"),
        ({"model": [1, 2]}, "a list has no state_dict"),
    ],
)
def test_what_a_file_cannot_keep_is_refused_before_anything_is_written(tmp_path, given, said):
    with pytest.raises(ArgumentError, match=said):
        mg.save(tmp_path / "run.npz", **given)
    assert os.listdir(tmp_path) == []


def test_a_save_that_fails_leaves_what_was_there(saved, monkeypatch):
    def full(file, **_):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        mg.save(saved, model=Linear(3, 2), step=3)
    assert mg.load(saved)["step"] == 2
    assert os.listdir(saved.parent) == ["run.npz"]


# ---------------------------------------------------------------- files of something else


def test_all_that_does_not_fit_is_listed_and_nothing_is_loaded(tmp_path):
    """What does fit is put back, as the second layer is."""

    class Counter:
        def state_dict(self):
            return {"count": 3}

        def load_state_dict(self, state):
            raise RuntimeError("no such count")

    first, layer, other = Run(), Linear(3, 2, rng=0), Linear(3, 2, rng=1)
    parts = {"model": first.model, "layer": layer, "rng": np.random.default_rng(1)}
    optimizer = Adam(layer.parameters())
    path = mg.save(tmp_path / "run.npz", **parts, optimizer=optimizer, counter=Counter())
    momentum = SGD(Linear(3, 2).parameters(), lr=0.5)
    mersenne = np.random.Generator(np.random.MT19937(0))
    before = other.W.numpy().copy()
    wrong = {"model": other, "optimizer": momentum, "rng": mersenne, "data": first.data}
    with pytest.raises(ArgumentError) as error:
        mg.load(path, layer=other, **wrong, counter=Counter())
    for line in (
        f"load: nothing was loaded from {path}\n",
        "counter: no such count",
        "data: not in the file",
        "Adam in the state",
        "model: generators: [] here, ['rng']",
        "rng: state must be for a MT19937",
    ):
        assert line in str(error.value)
    np.testing.assert_array_equal(other.W.numpy(), before)
    assert momentum.lr == 0.5


def test_what_is_not_asked_for_is_returned_as_it_was_saved(tmp_path):
    model = Linear(3, 2, rng=0)
    rng = np.random.Generator(np.random.MT19937(3))
    path = mg.save(tmp_path / "new" / "run.npz", model=model, rng=rng, step=np.int64(3))
    run = mg.load(path)
    assert run["step"] == 3
    np.testing.assert_array_equal(run["model"]["state"]["W"], model.W.numpy())
    fresh = np.random.Generator(np.random.MT19937(99))
    mg.load(path, rng=fresh)
    np.testing.assert_array_equal(fresh.normal(size=5), rng.normal(size=5))


# ---------------------------------------------------------------- the one writer

posix = pytest.mark.skipif(os.name != "posix", reason="needs links, modes and pipes")


@posix
def test_a_symbolic_link_is_followed_and_a_file_keeps_its_mode(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "notes.md", tmp_path / "notes.md"
    link.symlink_to(target)  # to a file that is yet to be made
    for mode in (0o600, 0o666):
        write(link, str(mode))
        assert link.is_symlink()
        assert target.read_text() == str(mode)
        target.chmod(mode)
    write(link, b"last")
    assert stat.S_IMODE(target.stat().st_mode) == 0o666
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["notes.md", "notes.md", "real"]


@posix
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("folder", "draw: '.*folder' is a folder, device or pipe; name a file"),
        ("pipe", "draw: '.*pipe' is a folder, device or pipe"),
        ("none/x.md", "draw: there is no folder '.*none'"),
        ("folder/file/x.md", "draw: there is no folder '.*file'"),
        ("a\0b", "draw: no file can be '.*: ValueError"),
        ("x" * 300, "draw: no file can be '.*: OSError"),
    ],
)
def test_where_no_file_can_be_an_error_says_why_and_nothing_changes(tmp_path, name, said):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArgumentError, match=said):
        write(f"{tmp_path}/{name}", "new")
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "folder" / "file").read_text() == "mine"


def test_two_writers_of_one_path_each_write_a_whole_file(tmp_path):
    path = tmp_path / "notes.md"
    with writing(path, "draw") as first:
        first.write(b"first")
        write(path, "second")
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["notes.md"]

"""Large arrays lie where earlier ones lay, and never where anything still lies."""

import gc
import pickle
import threading

import numpy as np
import pytest

from minigrad.fast import memory
from minigrad.fast.limits import LIMITS
from minigrad.fast.memory import by_size, empty, release
from tests.process import python

LARGE = (1 << 9, 1 << 10)  # in float32 sixteen times what lies in memory used again
MIB = 1 << 20


@pytest.fixture(scope="module")
def nothing_of_other_tests():
    """Their garbage would give its blocks to the pool whenever Python collects it."""
    gc.collect()


@pytest.fixture(autouse=True)
def fresh_pool(monkeypatch, nothing_of_other_tests):
    monkeypatch.setattr(memory, "_pool", memory._BlockPool())


def _address(array):
    return array.__array_interface__["data"][0]


def _is_used_again(address, shape=LARGE):
    """Whether the next array of this size lies there."""
    return _address(empty(shape, np.float32)) == address


# ---------------------------------------------------------------- what comes back


@pytest.mark.parametrize(
    ("first", "second"),
    [(LARGE, (LARGE[0] * 2, LARGE[1] // 2)), ((1021, 1024), (1024, 1024))],
    ids=["of another shape", "of nearly the size"],
)
def test_an_array_lies_where_one_lay_that_is_gone(first, second):
    array = empty(first, np.float32)
    address = _address(array)
    del array
    assert _is_used_again(address, second)


# ---------------------------------------------------------------- what anybody holds


class _Exporter:
    """Anything that tells NumPy where an array lies, and keeps it."""

    def __init__(self, array):
        self.array, self.__array_interface__ = array, array.__array_interface__


HOLDERS = {
    "a view": lambda x: x[1:, ::2].T,
    "another shape": lambda x: x.reshape(-1)[7:],
    "another dtype": lambda x: x.view(np.int32),
    "its base": lambda x: x.base,
    "a view of its base": lambda x: x.base[5:],
    "the plain array on its base": lambda x: x.base.view(np.ndarray),
    "a memoryview": memoryview,
    "a memoryview of its base": lambda x: memoryview(x.base),
    "a buffer": lambda x: np.frombuffer(x, np.uint8),
    "a pickle buffer": lambda x: pickle.PickleBuffer(x.base),
    "DLPack": lambda x: np.from_dlpack(x),
    "DLPack of its base": lambda x: np.from_dlpack(x.base),
    "a capsule": lambda x: x.__dlpack__(),
    "ctypes": lambda x: x.ctypes.data_as(np.ctypeslib.ctypes.c_void_p),
    "the array interface": lambda x: np.asarray(_Exporter(x)),
    "a flat iterator": lambda x: x.flat,
    "nditer": lambda x: np.nditer(x),
    "a matrix": lambda x: x.view(np.matrix),
    "a record": lambda x: x.view(np.recarray),
    "a masked array": lambda x: np.ma.array(x, copy=False),
    "a broadcast": lambda x: np.broadcast_to(x, (3, *x.shape)),
    "strided": lambda x: np.lib.stride_tricks.sliding_window_view(x, 1, axis=0),
    "diagonal": lambda x: x.diagonal(),
    "real part": lambda x: x.real,
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_whatever_holds_the_memory_keeps_it_from_being_used_again(kind):
    array = empty(LARGE, np.float32)
    address, holder = _address(array), HOLDERS[kind](array)
    del array
    assert not _is_used_again(address)
    del holder
    assert _is_used_again(address)


def test_the_block_beneath_a_loan_cannot_be_held_without_it():
    array = empty(LARGE, np.float32)
    assert array.base.base is None


def _suits_all(x):
    """Whether x is an array that everything among HOLDERS can hold."""
    suits = isinstance(x, np.ndarray) and isinstance(x.base, np.ndarray)
    return suits and x.ndim == 2 and x.flags.c_contiguous


@pytest.mark.parametrize("seed", range(8))
def test_nothing_that_a_random_program_holds_ever_changes(seed):
    """Arrays are made, held in some way, let go in any order, and written to once, when made."""
    rng, held, reused, seen = np.random.default_rng(seed), [], 0, set()
    kinds = [kind for kind in HOLDERS if kind not in ("ctypes", "nditer", "a capsule")]
    for number in range(400):
        shape = (int(rng.integers(1, 9)), 1 << int(rng.integers(3, 6)))
        with LIMITS.changed(reuse_bytes=64):
            array = empty(shape, np.float32)
        reused += _address(array) in seen
        seen.add(_address(array))
        array.fill(number)
        holder = array
        for _ in range(int(rng.integers(0, 3))):
            if _suits_all(holder):
                holder = HOLDERS[kinds[rng.integers(len(kinds))]](holder)
        held.append((holder, np.asarray(holder).tobytes()))
        del array, holder
        while len(held) > 20 or (held and rng.uniform() < 0.4):
            holder, before = held.pop(int(rng.integers(len(held))))
            assert np.asarray(holder).tobytes() == before
            del holder
    assert reused > 50


def test_threads_never_share_an_array():
    wrong = []

    def work(number):
        rng, mine = np.random.default_rng(number), []
        for turn in range(300):
            array = empty((1 << int(rng.integers(14, 17)), 2), np.float32)
            array.fill(number * 1000 + turn)
            mine.append((array[::2], number * 1000 + turn))
            if len(mine) > 5:
                view, value = mine.pop(int(rng.integers(len(mine))))
                if (view != value).any():
                    wrong.append(value)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_array_that_dies_while_another_is_made_gives_its_memory_back(monkeypatch):
    """Its finalizer runs in the middle of the pool's own lines."""
    dying = [empty(LARGE, np.float32) for _ in range(3)]

    class Idle(dict):
        def __setitem__(self, *args):
            super().__setitem__(*args)
            dying.clear()

    monkeypatch.setattr(memory._pool, "idle", Idle())
    array = empty(LARGE, np.float32)
    assert sum(by_size().values()) == 2  # the third of the three is this one
    array.fill(1)


# ---------------------------------------------------------------- how much lies idle


def test_idle_memory_is_at_most_what_was_lent_at_once():
    with LIMITS.changed(idle_bytes=0):
        memory._pool = memory._BlockPool()
        arrays = [empty((3 * MIB,), np.uint8) for _ in range(4)]
        arrays.clear()
        assert by_size() == {3 * MIB: 4}
        for size in (5, 7, 9, 11):  # one after the other
            empty((size * MIB,), np.uint8)
            assert memory._pool.idle_bytes <= 12 * MIB
        assert 3 * MIB not in by_size()  # what was not asked for for longest went first


def test_release_gives_everything_back():
    empty(LARGE, np.float32)
    assert by_size()
    release()
    assert by_size() == {}


def test_when_the_system_has_no_more_what_lies_idle_is_released_first(monkeypatch):
    empty((5 * MIB,), np.uint8)
    real, idle = np.empty, []

    def scarce(*args):
        idle.append(by_size())
        if by_size():
            raise MemoryError
        return real(*args)

    monkeypatch.setattr(memory.np, "empty", scarce)
    assert empty((3 * MIB,), np.uint8).shape == (3 * MIB,)
    assert idle == [{5 * MIB: 1}, {}]


# ---------------------------------------------------------------- the end of a program


@pytest.mark.parametrize(
    "program",
    [
        "y = x + x; z = [y]; z.append(z)",
        "import threading, time\n"
        "threading.Thread(target=lambda: [x + x for _ in range(10**9)], daemon=True).start()\n"
        "time.sleep(.05)",
        "class Late:\n    def __del__(self): x + x\n"
        "late = Late(); late.self = late; import sys; sys.late = Late()",
    ],
    ids=["arrays alive", "a thread at work", "finalizers that allocate"],
)
def test_nothing_is_said_when_the_program_ends(program):
    setup = (
        "import numpy as np, minigrad as mg\n"
        "x = mg.tensor(np.ones((1024, 1024)), requires_grad=True)\n"
    )
    assert python("-c", setup + program).stderr == ""

"""Large arrays lie where earlier ones lay, and never where anything still lies."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import minigrad as mg
from minigrad.errors import ShapeError
from minigrad.fast import memory
from minigrad.fast.memory import by_size, empty, in_place_buffer, out_buffer, release, row_blocks

LARGE = (1 << 9, 1 << 10)  # in float32 four times what counts as large


@pytest.fixture(autouse=True)
def nothing_idle():
    release()
    yield
    release()


def _address(array):
    return array.__array_interface__["data"][0]


def test_an_array_lies_where_one_lay_that_is_gone():
    first = empty(LARGE, np.float32)
    address = _address(first)
    del first
    second = empty((LARGE[0] * 2, LARGE[1] // 2), np.float32)
    assert _address(second) == address


def test_sequences_of_nearly_one_length_share_memory():
    first = empty((1021, 1024), np.float32)
    address = _address(first)
    del first
    second = empty((1024, 1024), np.float32)
    assert _address(second) == address


def test_nothing_is_said_when_the_program_ends_with_arrays_alive():
    program = (
        "import numpy as np, minigrad as mg\n"
        "x = mg.tensor(np.ones((1024, 1024)), requires_grad=True)\n"
        "y = x + x\n"
        "z = [y]; z.append(z)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_view_keeps_its_memory_from_being_used_again():
    first = empty(LARGE, np.float32)
    views = [first[1:, ::2].T, first.reshape(-1)[7:], first.view(np.int32)]
    del first
    while views:
        assert not any(np.may_share_memory(empty(LARGE, np.float32), view) for view in views)
        views.pop()


def test_a_buffer_that_someone_holds_is_not_used_again():
    first = empty(LARGE, np.float32)
    buffer = first.base
    del first
    held = np.frombuffer(buffer, np.float32)
    assert not np.may_share_memory(empty(LARGE, np.float32), held)


def test_small_arrays_are_numpys_own():
    assert empty((3, 5), np.float32).base is None
    assert out_buffer(np.zeros((3, 5))) is None


def test_idle_memory_has_a_limit_and_what_was_idle_longest_goes_first(monkeypatch):
    monkeypatch.setattr(memory, "KEPT", 7 << 20)
    arrays = [empty((size << 20,), np.uint8) for size in (2, 3, 4)]
    while arrays:
        del arrays[0]
    assert by_size() == {3 << 20: 1, 4 << 20: 1}
    del arrays
    arrays = [empty((9 << 20,), np.uint8)]
    arrays.clear()
    assert sum(size * count for size, count in by_size().items()) <= 7 << 20


def test_release_gives_everything_back():
    empty(LARGE, np.float32)
    assert by_size()
    release()
    assert by_size() == {}


def test_whoever_finds_the_pool_busy_does_without():
    first = empty(LARGE, np.float32)
    with memory._idle.lock:
        second = empty(LARGE, np.float32)
        del first
    assert by_size() == {}
    del second
    assert sum(by_size().values()) == 1


def test_threads_never_share_an_array():
    wrong = []

    def work(number):
        for _ in range(50):
            array = empty(LARGE, np.float32)
            array.fill(number)
            other = empty(LARGE, np.float32)
            other.fill(-number)
            if array.min() != number or array.max() != number:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_there_is_room_for_what_numpy_would_make():
    x = np.zeros(LARGE, np.float32)
    for like, other in [(x, 2.0), (x, x), (x, x[0]), (x, x[:, :1]), (x.T, 2.0), (x[::-1], 1)]:
        made = out_buffer(like, other)
        expected = like * other
        assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
        assert made.strides == expected.strides


def test_there_is_no_room_where_the_result_is_another():
    x = np.zeros(LARGE, np.float32)
    assert out_buffer(x, x.astype(np.float64)) is None
    assert out_buffer(x, np.float64(2)) is None
    assert out_buffer(x, np.zeros((3, *LARGE), np.float32)) is None
    assert out_buffer(x.astype(np.int32), 2) is None
    assert out_buffer(mg.tensor(x)) is None
    assert out_buffer(2.0, x) is None


def test_only_an_array_of_the_results_dtype_is_written_over():
    x = np.zeros(3, np.float32)
    assert in_place_buffer(x) is x
    assert in_place_buffer(x, 2.0) is x
    assert in_place_buffer(x, x) is x
    assert in_place_buffer(x, np.zeros(3)) is None
    assert in_place_buffer(np.zeros(())) is None
    assert in_place_buffer(mg.tensor(x)) is None


def test_a_second_step_in_used_memory_leaves_the_firsts_results_alone():
    rng = np.random.default_rng(0)
    W = mg.tensor(rng.normal(size=(256, 512)), requires_grad=True)
    x, b = rng.normal(size=(2, 512, 256)), rng.normal(size=512)
    results, before = [], []
    for k in range(4):
        y = mg.gelu(x @ W + b * k, approximate="tanh")
        W.grad = None
        mg.softmax(y).sum().backward()
        results.append((y, W.grad))
        before.append((y.numpy().copy(), W.grad.copy()))
    assert by_size()
    for (y, grad), (y_before, grad_before) in zip(results, before, strict=True):
        np.testing.assert_array_equal(y.numpy(), y_before)
        np.testing.assert_array_equal(grad, grad_before)


def test_the_gradient_of_an_entry_of_the_first_axis_lies_as_what_came_back(rng):
    g = np.ascontiguousarray(rng.normal(size=(40, 30, 50)).astype(np.float32)).transpose(1, 2, 0)
    found = mg.ops.select.scatter_add(g, 2, (4, *g.shape))
    np.testing.assert_array_equal(found[2], g)
    assert not found[[0, 1, 3]].any()
    assert found.strides[1:] == g.strides
    assert memory.owns(found)


@pytest.mark.parametrize("rows", [11, 70, 300, 40_000])
def test_embedding_gradients_of_many_rows_add_up_each_row_as_often_as_it_was_taken(rows, rng):
    x = mg.tensor(rng.normal(size=(rows, 17)), requires_grad=True)
    index = rng.integers(-rows, rows, (13, 31))
    index[:4] = index[0, 0]  # one of them very often
    g = rng.normal(size=(13, 31, 17))
    mg.take(x, index, axis=0).backward(g)
    expected = np.zeros((rows, 17))
    np.add.at(expected, index, g)
    np.testing.assert_allclose(x.grad, expected, rtol=1e-12, atol=1e-12)


def test_a_reshape_is_a_view_where_there_is_one_and_else_a_copy_in_memory_used_again():
    x = np.arange(1 << 20, dtype=np.float32).reshape(1 << 9, 1 << 11)
    for view in (x, x[::2], x.T):  # the last two only gain an axis
        assert np.shares_memory(memory.reshaped(view, (*view.shape, 1)), x)
    memory.release()
    for _ in range(2):
        copy = memory.reshaped(x.T, (-1, 4))
        np.testing.assert_array_equal(copy, np.reshape(x.T, (-1, 4)))
        del copy
        assert sum(memory.by_size().values()) == 1
    with pytest.raises(ShapeError, match="reshape"):
        mg.reshape(mg.tensor(x.T), (3, -1))


@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 300_000), (2000, 701), (11,), (0, 5)])
def test_bands_go_through_every_row_once_and_are_views(shape):
    x, y = np.zeros(shape), np.arange(np.prod(shape)).reshape(shape)
    for rows, others in row_blocks(x, y):
        assert rows.size <= max(memory.BAND, shape[-1])
        rows += others + 1
    np.testing.assert_array_equal(x, y + 1)


def test_what_one_variable_holds_counts_as_alone():
    array = np.zeros(3)
    assert sys.getrefcount(array) == memory.ALONE
    other = array
    assert sys.getrefcount(other) == memory.ALONE + 1


def test_the_one_view_of_all_of_an_array_counts_as_its_owner():
    large = (1 << 9, 1 << 10)

    def found(change, keep=False):
        for make in (np.zeros, lambda shape: memory.zeros(shape, np.float64(0))):
            made = make(large)
            array = change(made)
            made = made if keep else None
            yield memory.owns(array)

    def locked(x):
        x.flags.writeable = False
        return x.reshape(-1)

    for whole in (np.ravel, lambda x: x.reshape(-1, 2).T, lambda x: x[None]):
        assert [*found(whole)] == [True, True]
        assert [*found(whole, keep=True)] == [False, False]
    for other in (lambda x: x[:1], lambda x: x[:, ::2], lambda x: x[0], locked):
        assert [*found(other)] == [False, False]
    for strange in (np.broadcast_to(0.0, (1, 3)), np.frombuffer(bytearray(8)), mg.tensor([1.0])):
        assert not memory.owns(strange)


def test_gradients_that_came_through_a_reshape_are_added_in_place():
    places = []

    def reshaped():
        array = np.ones(6)
        places.append(array.__array_interface__["data"][0])
        return array.reshape(2, 3)

    total = mg.engine.graph._sum(reshaped(), np.ones((2, 3)))
    np.testing.assert_array_equal(total, np.full((2, 3), 2.0))
    assert total.__array_interface__["data"][0] == places[0]
    kept = [reshaped()]
    mg.engine.graph._sum(kept[0], np.ones((2, 3)))
    np.testing.assert_array_equal(kept[0], np.ones((2, 3)))
    x = mg.tensor(np.ones((2, 3)), requires_grad=True)
    mg.reshape(x, 6).backward(np.arange(6.0))
    assert x.grad.flags.writeable

"""Arrays of other libraries: in by `mg.tensor`, out by `__array__` and `__dlpack__`."""

import numpy as np
import pytest

import minigrad as mg
from layers import Embedding, MultiHeadAttention
from minigrad.errors import DTypeError, GradientError


class Foreign:
    """An array as another library has it: it gives its memory by DLPack, and entries one by one."""

    def __init__(self, array, broken=None):
        self.array, self.broken, self.shape, self.dtype = array, broken, array.shape, "theirs"

    def __dlpack__(self, **options):
        if self.broken:
            raise BufferError(self.broken)
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __len__(self):
        return len(self.array)

    def __getitem__(self, index):
        raise AssertionError("entries are never taken one by one")

    def __array__(self, dtype=None, copy=None):
        return self.array


def foreign(array):
    return Foreign(np.asarray(array))


def torch_tensor(array):
    return pytest.importorskip("torch").from_numpy(np.asarray(array))


@pytest.fixture(params=[foreign, torch_tensor], ids=["any", "torch"])
def theirs(request):
    return request.param


X = mg.tensor([[1.0, 2.0, 3.0]], requires_grad=True, name="x")

CALLS = {
    "add": lambda a: X + a,
    "subtract": lambda a: a - X if hasattr(a, "numpy") else mg.subtract(a, X),
    "divide": lambda a: mg.divide(X, [a, a]),
    "getitem": lambda a: mg.split(a, 1),
    "MultiHeadAttention": lambda a: MultiHeadAttention(3, 1)(a),
    "Embedding": lambda a: Embedding(4, 3)(a),
}


@pytest.mark.parametrize("call", CALLS)
def test_ops_and_layers_refuse_them_by_name_with_the_remedy(theirs, call):
    kind = "Foreign" if theirs is foreign else "torch.Tensor"
    with pytest.raises(DTypeError, match=rf"^{call}\b.*{kind}.*mg\.tensor\(x\)"):
        CALLS[call](theirs([[1, 0, 2]]))


@pytest.mark.parametrize("op", mg.registry.values(), ids=lambda op: op.name)
def test_every_op_refuses_one_in_any_place_beside_arrays_and_beside_tensors(op, rng):
    tried = 0
    for sample in op.samples(rng):
        given = dict(enumerate(sample.args)) | sample.kwargs
        for place in [place for place, x in given.items() if isinstance(x, np.ndarray)]:
            for beside in (np.asarray, mg.tensor):
                each = {
                    k: Foreign(x) if k == place else beside(x) if isinstance(x, np.ndarray) else x
                    for k, x in given.items()
                }
                args = [each.pop(k) for k in range(len(sample.args))]
                with pytest.raises(DTypeError, match=r"Foreign.*mg\.tensor\(x\)"):
                    op(*args, **each)
                tried += 1
    assert tried or op.variadic


def test_a_layers_mask_and_context_are_refused_too(theirs):
    layer, x = MultiHeadAttention(4, 2), np.ones((1, 3, 4))
    for given in ({"mask": theirs(np.ones((3, 3), bool))}, {"context": theirs(x)}):
        with pytest.raises(DTypeError, match=r"MultiHeadAttention: got a .*mg\.tensor\(x\)"):
            layer(x, **given)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_a_tensor_copies_them_with_their_dtype(theirs, dtype):
    given = np.array([[1, 0, 2]]).astype(dtype)
    made = mg.tensor(theirs(given))
    assert (made.shape, made.dtype) == ((1, 3), np.dtype(dtype))
    np.testing.assert_array_equal(made.numpy(), given)
    given[0, 0] = 0
    assert made.numpy()[0, 0] == 1


def test_what_cannot_be_read_or_is_a_list_is_refused(theirs):
    with pytest.raises(DTypeError, match=r"tensor\(data\): a list of .*mg.stack"):
        mg.tensor([[theirs([1.0, 2.0])]])
    with pytest.raises(DTypeError, match="on another device"):
        mg.tensor(Foreign(np.ones(3), broken="on another device"))


def test_one_of_torch_that_needs_a_gradient_is_refused_naming_detach():
    torch = pytest.importorskip("torch")
    with pytest.raises(DTypeError, match=r"tensor\.detach\(\)"):
        mg.tensor(torch.ones(3, requires_grad=True))


# ---------------------------------------------------------------- out


def test_numpy_shares_the_memory_and_may_not_write_to_it():
    x = mg.tensor([1.0, 2.0, 3.0])
    for seen in (np.asarray(x), np.from_dlpack(x)):
        with pytest.raises(ValueError, match="read-only"):
            seen[0] = 7
        x.assign_(x.numpy() + 1)
        np.testing.assert_array_equal(seen, x.numpy())
    own = np.array(x)
    own[0] = 7
    assert x.numpy()[0] == 3


def test_who_knows_no_mark_gets_a_copy():
    class Old:
        """Asks without `max_version`, as before DLPack 1.0."""

        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__()

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    x = mg.tensor([1.0, 2.0, 3.0])
    assert not np.shares_memory(np.from_dlpack(Old(x)), x.numpy())


def test_torch_shares_the_memory():
    torch = pytest.importorskip("torch")
    x = mg.tensor(np.float32([[1, 2, 3]]))
    seen = torch.from_dlpack(x)
    assert (seen.dtype, seen.data_ptr()) == (torch.float32, x.numpy().ctypes.data)
    np.testing.assert_array_equal(np.asarray(torch.from_dlpack(x[:, 1:])), [[2, 3]])


@pytest.mark.parametrize("convert", [np.asarray, np.from_dlpack])
def test_what_needs_a_gradient_is_refused_with_the_remedy(convert):
    with pytest.raises(GradientError, match=r"\(x\): .*\.detach\(\)"):
        convert(X)
    with mg.no_grad():
        np.testing.assert_array_equal(convert(X), X.numpy())
    np.testing.assert_array_equal(convert(X.detach()), X.numpy())

"""Calls that cannot be made: each gets an error of ours, which says the call, the rule, the shapes.

A row is a call, its error, and what the message must say.
"""

import numpy as np
import pytest

import layers
import minigrad as mg
from minigrad import optim
from minigrad.data import batches


def ones(*shape, dtype=float):
    return np.ones(shape, dtype)


def leaf(*shape):
    return mg.tensor(np.ones(shape), requires_grad=True)


SHAPES = [
    ("mg.add(ones(2, 3), ones(5, 3))", "add(a, b)", "broadcast", "(2, 3)", "(5, 3)"),
    ("mg.matmul(ones(2, 3, 5), ones(7, 5, 3))", "matmul(a, b)", "batch axes", "2 and 7"),
    ("mg.linear(ones(2, 5), ones(3, 7), ones(7))", "linear(x, W, b",
     "x's last axis must equal W's first, got 5 != 3", "x: (2, 5)", "W: (3, 7)"),
    ("mg.einsum('ij,jk->ik', ones(2, 3), ones(5, 7))", "einsum(", "(2, 3)", "(5, 7)"),
    ("X.reshape(7, 2)", "reshape(x, shape)", "size 30", "x: (2, 3, 5)"),
    ("X.transpose(0, 1)", "transpose(x, axes)", "all 3", "got 2", "write x.swapaxes(0, 1)"),
    ("mg.broadcast_to(X, (3, 5))", "broadcast_to(x, shape)", "(2, 3, 5)", "(3, 5)"),
    ("mg.concatenate([X, ones(2, 3)])", "concatenate(", "(2, 3, 5)", "(2, 3)"),
    ("mg.stack([X, ones(2, 3)])", "stack(", "same shape"),
    ("mg.sum(X, axis=3)", "sum(x, axis", "axis 3 is out of bounds", "(2, 3, 5)"),
    ("mg.max(ones(0, 3), axis=0)", "max(x, axis", "zero-size", "(0, 3)"),
    ("mg.mask_add(ones(2, 5, 5), ones(5, 3, dtype=bool))", "mask_add(scores, mask)", "5 and 3"),
    ("mg.layer_norm(X, ones(3), None)", "layer_norm(x, weight, bias", "(5,), got (3,)"),
    ("mg.mse_loss(ones(3), ones(3, 1))", "mse_loss(x, target", "one shape", "(3,)", "(3, 1)"),
    ("mg.cross_entropy(ones(3, 5), [0, 1])", "cross_entropy(logits, targets", "(2,)", "(3,)"),
    ("mg.conv2d(ones(1, 3, 5, 5), ones(4, 2, 3, 3))", "conv2d(x, weight", "C = 3", "(4, 2, 3, 3)"),
    ("mg.max_pool(ones(2, 3), 2)", "max_pool(x, size", "(N, C, length", "got (2, 3)"),
    ("X.assign_(ones(2))", "assign_(array)", "(2, 3, 5), got (2,)"),
    ("leaf(3).backward()", "backward", "(3,)", ".sum().backward()"),
    ("(leaf(3) * 1.0).backward(ones(2))", "backward", "(2,)", "(3,)"),
    ("layers.Linear(3, 2, rng=0)(ones(5, 7))", "3", "(5, 7)"),
    ("layers.LSTM(2, 3, rng=0)(ones(1, 4, 5))", "LSTM", "(B, T, 2)", "got (1, 4, 5)"),
    ("batches(ones(3, 2), ones(5), batch_size=2)", "batches(", "one length", "[3, 5]"),
]  # fmt: skip
MASKS = [
    ("ArgumentError", "layers.padding_mask([1, 5], 3)", "padding_mask", "0 to 3"),
    ("ShapeError", "layers.combined_mask(ones(3, 3, dtype=bool), ones(2, 5, dtype=bool))",
     "combined_mask(causal, padding)", "(3, 3)", "(2, 5)"),
    ("MinigradError", "layers.create_causal_mask(2.5)", "create_causal_mask: seq_len", "got 2.5"),
]  # fmt: skip
VALUES = [
    ("DTypeError", "mg.cross_entropy(ones(1, 5), [0.0])", "targets must be integers, got float64"),
    ("OutOfRangeError", "mg.cross_entropy(ones(3, 5), [0, 1, 5])", "[0, 5), got 5"),
    ("OutOfRangeError", "mg.take(X, [5], axis=2)", "take(x, indices", "5", "axis 2 with size 5"),
    ("OutOfRangeError", "X[0, 3]", "getitem(x, index)", "index 3", "axis 1 with size 3"),
    ("ArgumentError", "mg.split(X, 2, axis=2)", "split(", "axis 2", "5", "multiple of 2"),
    ("DTypeError", "mg.dropout(X, 0.5, 0)", "np.random.Generator, got int", "default_rng(seed)"),
    ("DTypeError", "mg.grad(mg.sum)", "grad(output, inputs)", "a function", "mg.vjp(f, x)"),
    ("GradientError", "mg.tensor(1.0).backward()", "requires no gradient", "compiled step"),
    ("DTypeError", "layers.Linear(3, 2).to('cpu')", "to(dtype)", "float32", "got 'cpu'"),
    ("DTypeError", "mg.trace(abs)", "within `with mg.trace() as t:`"),
    ("ArgumentError", "layers.Linear(0, 2)", "Linear", "d_in", "at least 1, got 0"),
    ("ArgumentError", "optim.SGD([], lr=0.1)", "SGD(parameters)", "no parameters"),
]
NAMES = [
    ("mg.cat", "module 'minigrad' has no attribute 'cat'", "mg.concatenate"),
    ("X.permute", "'Tensor' object has no attribute 'permute'", "transpose"),
]
FILES = [
    ("ArgumentError", "mg.load(folder / 'linear.npz', model=layers.Linear(3, 3, rng=0))",
     "nothing was loaded", "W", "(3, 3)", "(3, 2)"),
    ("ArgumentError", "layers.Linear(3, 2, rng=0).load_state_dict({'W': ones(3, 2)})",
     "nothing was written", "b", "missing"),
]  # fmt: skip
ROWS = [
    *(("ShapeError", *row) for row in SHAPES),
    *MASKS,
    *VALUES,
    *(("MissingNameError", *row) for row in NAMES),
    *FILES,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of a Linear(3, 2)."""
    folder = tmp_path_factory.mktemp("files")
    mg.save(folder / "linear.npz", model=layers.Linear(3, 2, rng=0))
    return folder


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_the_error_says_the_call_the_rule_and_the_shapes(row, folder):
    name, call, *words = row
    there = {"X": mg.tensor(ones(2, 3, 5)), "folder": folder}
    there |= {"optim": optim, "batches": batches}
    with pytest.raises(getattr(mg.errors, name)) as caught:
        eval(call, globals() | there)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, str(caught.value)
